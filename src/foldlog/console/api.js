// The console's HTTP API. An answer that is no success becomes a Refused with the server's own sentence.

export class Refused extends Error {
  constructor(status, answer) {
    super(answer.error ?? `The broker answered ${status}.`);
    this.status = status;
    this.answer = answer;
  }
}

async function answerOf(path, options) {
  let response;
  try {
    response = await fetch(`/api/${path}`, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, { error: "The broker does not answer." });
  }
  if (!response.ok) throw new Refused(response.status, await response.json().catch(() => ({})));
  return response;
}

const call = async (path, options) => (await answerOf(path, options)).json().catch(() => ({}));

const part = encodeURIComponent;

function withQuery(path, query) {
  const asked = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return asked.length ? `${path}?${new URLSearchParams(asked)}` : path;
}

export const get = (path, query = {}, signal) => call(withQuery(path, query), { signal });

export const post = (path, body) =>
  call(path, { method: "POST", headers: { "Content-Type": "application/json", "X-Foldlog": "1" }, body: JSON.stringify(body) });

export const overview = () => get("overview");
export const health = () => get("health");
export const history = (query) => get("history", query);
export const topic = (name) => get(`topics/${part(name)}`);
export const strip = (name, partition, query, signal) => get(`topics/${part(name)}/${partition}/strip`, query, signal);
/** Where a place is that somebody typed. The broker has the grammar; a time without a zone is one of this browser's. */
export const place = (name, text) => get(`topics/${part(name)}/place`, { place: text, zone: Intl.DateTimeFormat().resolvedOptions().timeZone });
export const record = (name, partition, offset, query, signal) => get(`topics/${part(name)}/${partition}/records/${offset}`, query, signal);
export const search = (name, query, signal) => get(`topics/${part(name)}/search`, query, signal);
/** A file, as a Blob. */
export const download = async (name, query) => (await answerOf(withQuery(`topics/${part(name)}/download`, query))).blob();
export const timeAt = (name, partition, offset, signal) => get(`topics/${part(name)}/${partition}/at`, { offset }, signal);
export const produce = (name, body) => post(`topics/${part(name)}/records`, body);
export const group = (name) => get(`groups/${part(name)}`);
export const rewindGroup = (name, body) => post(`groups/${part(name)}/rewind`, body);
export const transactions = () => get("transactions");
export const folds = () => get("folds");
export const foldRewind = (fold, topic, partition, to, signal) => get(`folds/${part(fold)}/rewind`, { topic, partition, to }, signal);
/** What a rewind to a place in every partition would do. */
export const foldPlan = (fold, place, zone) => get(`folds/${part(fold)}/rewind`, { place, zone });
export const foldCommand = (fold, body) => post(`folds/${part(fold)}/commands`, body);
export const peek = (fold, query, signal) => get(`folds/${part(fold)}/peek`, query, signal);
