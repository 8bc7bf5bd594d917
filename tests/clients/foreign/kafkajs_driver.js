// KafkaJS, told what to do from another process: one JSON object a line comes in, one a line goes out.
//
//   {"id": 1, "make": "producer", "as": "p1", "options": {...}}         -> {"id": 1, "result": null}
//   {"id": 2, "on": "p1", "call": "send", "with": [{...}]}              -> {"id": 2, "result": ...} or {"id": 2, "error": {...}}
//   {"id": 3, "on": "p1", "call": "transaction", "with": ["t1"]}        -> and from then on "on": "t1" is that transaction
//   {"id": 4, "on": "c1", "call": "run", "with": [{...}]}               -> and {"from": "c1", "record": {...}} for each record
//
// Bytes are in both directions what Node's own JSON makes of a Buffer: {"type": "Buffer", "data": [...]}.
"use strict";

const readline = require("node:readline");

const [bootstrap, modules, config] = process.argv.slice(2);
const load = (name) => require(require.resolve(name, { paths: [modules] }));

const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = load("kafkajs");
CompressionCodecs[CompressionTypes.Snappy] = load("kafkajs-snappy");
const lz4 = load("lz4js");
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
});

// A function has no form in JSON: a login by token comes as {"mechanism": "oauthbearer", "tokens": ["...", ...]}. Each
// login takes the next one, and the last one serves for all that follow.
const given = JSON.parse(config);
if (given.sasl?.tokens) {
  const { mechanism, tokens } = given.sasl;
  const next = () => (tokens.length > 1 ? tokens.shift() : tokens[0]);
  given.sasl = { mechanism, oauthBearerProvider: async () => ({ value: next() }) };
}

const kafka = new Kafka({
  clientId: "kafkajs",
  brokers: [bootstrap],
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 20, maxRetryTime: 200, retries: 5 },
  ...given,
});

const made = new Map();

const say = (value) => process.stdout.write(JSON.stringify(value) + "\n");
const reviveBuffer = (_, value) => (value && value.type === "Buffer" ? Buffer.from(value.data) : value);

async function make({ make: kind, as, options }) {
  const one = kafka[kind](options);
  if (kind === "consumer") {
    one.on(one.events.GROUP_JOIN, ({ payload }) => say({ from: as, joined: payload.memberAssignment }));
    one.on(one.events.CRASH, ({ payload }) => say({ from: as, crashed: String(payload.error) }));
  }
  await one.connect();
  made.set(as, one);
  return null;
}

async function call({ on, call: method, with: parameters }) {
  const one = made.get(on);
  if (method === "run") {
    const eachMessage = async ({ topic, partition, message }) => {
      say({ from: on, record: { ...message, topic, partition } });
    };
    return await one.run({ ...parameters[0], eachMessage });
  }
  if (method === "transaction") {
    made.set(parameters[0], await one.transaction());
    return null;
  }
  return await one[method](...parameters);
}

async function forget({ forget: name }) {
  const one = made.get(name);
  made.delete(name);
  await one.disconnect();
  return null;
}

async function answer(request) {
  try {
    const step = request.make ? make : request.forget ? forget : call;
    say({ id: request.id, result: (await step(request)) ?? null });
  } catch (error) {
    const { name, message, type, code } = error;
    const kinds = (error.errors ?? []).map((each) => each.type);
    say({ id: request.id, error: { name, message, type, code, kinds } });
  }
}

readline
  .createInterface({ input: process.stdin })
  .on("line", (line) => answer(JSON.parse(line, reviveBuffer)))
  .on("close", () => process.exit(0));
