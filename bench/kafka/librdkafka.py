"""librdkafka from Python, in a process of its own: produces, consumes, or measures how long records are under way.

`python -m bench.kafka.librdkafka SPEC`, where SPEC is JSON: prints "ready" when it is connected, waits for a line,
works, and prints its answer as JSON. Times are of CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import json
import random
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from bench.kafka.clients import READY
from bench.kafka.results import percentile

Answer = dict[str, Any]

_PATIENCE_S = 60.0
_DISTINCT_VALUES = 1000
_CONSUME_RECORDS = 10_000
_DUE = struct.Struct(">q")
_SWITCH_S = 0.0005
_AHEAD = {"queued.min.messages": 1_000_000, "queued.max.messages.kbytes": 262_144, "fetch.queue.backoff.ms": 1}
"""With as many messages queued as its default it rests for a second, and that would be all there is to measure."""


def values_of(value_bytes: int, count: int = _DISTINCT_VALUES) -> list[bytes]:
    """Values that compress about 2:1, as text does: the first half is random, the rest is not."""
    source = random.Random(7)
    return [source.randbytes(value_bytes // 4).hex().encode().ljust(value_bytes, b".") for _ in range(count)]


def wait_for_go() -> float:
    """Say that everything is connected. Returns when it began."""
    print(READY, flush=True)
    sys.stdin.readline()
    return time.monotonic()


def produce(spec: Answer) -> Answer:
    """`records` values of `value_bytes` to `topic`, which is new, as fast as it goes, until all are acknowledged."""
    from confluent_kafka import Producer

    records, topic = int(spec["records"]), str(spec["topic"])
    settings = {"queue.buffering.max.messages": records + 10, "queue.buffering.max.kbytes": 2_000_000}
    producer = Producer({**settings, **spec["settings"]})
    values = values_of(int(spec["value_bytes"]))
    rounds, rest = divmod(records, len(values))
    producer.produce(topic, values[0])
    if producer.flush(_PATIENCE_S):
        raise RuntimeError("the first record was not acknowledged")
    began = wait_for_go()
    send = producer.produce
    for _ in range(rounds):
        for value in values:
            send(topic, value)
    for value in values[:rest]:
        send(topic, value)
    left = producer.flush(_PATIENCE_S)
    ended = time.monotonic()
    # A callback for each record would cost more than the record: what the log has says whether one failed.
    written = _written(spec["settings"], topic) if spec.get("check", True) else records + 1
    if left or written != records + 1:
        raise RuntimeError(f"{records + 1} records were sent, {left} are under way, and the log has {written}")
    return {"began_s": began, "ended_s": ended, "records": records}


def _written(settings: Answer, topic: str) -> int:
    from confluent_kafka import Consumer, TopicPartition

    way_in = {name: value for name, value in settings.items() if name.startswith(("bootstrap.", "security.", "ssl."))}
    consumer = Consumer({**way_in, "group.id": "bench"})
    try:
        partitions = consumer.list_topics(topic, timeout=_PATIENCE_S).topics[topic].partitions
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, one), _PATIENCE_S) for one in partitions]
        return sum(high for _, high in ends)
    finally:
        consumer.close()


def consume(spec: Answer) -> Answer:
    """`records` of `topic`: from the start of `partitions`, or all that comes as a member of `group`."""
    from confluent_kafka import Consumer, TopicPartition

    topic, group, records = str(spec["topic"]), spec.get("group"), int(spec["records"])
    consumer = Consumer({
        "bootstrap.servers": spec["bootstrap"], "group.id": group or "bench", "auto.offset.reset": "earliest",
        "enable.auto.commit": group is not None, **_AHEAD,
    })  # fmt: skip
    try:
        if group:
            joined = threading.Event()
            consumer.subscribe([topic], on_assign=lambda *_: joined.set())
            early = _until_joined(consumer, joined)
        else:
            # Known, but not asked for anything before it is told to go.
            consumer.list_topics(topic, timeout=_PATIENCE_S)
            early = 0
        began = wait_for_go()
        if not group:
            consumer.assign([TopicPartition(topic, number, 0) for number in spec["partitions"]])
        seen, size = early, 0
        while seen < records:
            messages = consumer.consume(min(_CONSUME_RECORDS, records - seen), 0.1 if group else 1.0)
            if not messages and time.monotonic() > began + _PATIENCE_S:
                raise RuntimeError(f"only {seen} of {records} records came")
            seen += len(messages)
            for message in messages:
                if message.error():
                    raise RuntimeError(str(message.error()))
                size += len(message)
        return {"began_s": began, "ended_s": time.monotonic(), "records": seen, "bytes": size}
    finally:
        consumer.close()


def _until_joined(consumer: Any, joined: threading.Event) -> int:
    """How many records came along, which is what a topic has that is not empty."""
    deadline = time.monotonic() + _PATIENCE_S
    seen = 0
    while not joined.is_set():
        seen += len(consumer.consume(1, 0.05))
        if time.monotonic() > deadline:
            raise RuntimeError("no partition was assigned")
    return seen


def end_to_end(spec: Answer) -> Answer:
    """Records at appointed times, whether or not the last were acknowledged, and when they were read.

    A latency counts from the moment the record was due, so that one that was late because the broker or this client
    was busy has waited, and says so (no coordinated omission). Producer and consumer share a process and a clock.
    """
    from confluent_kafka import Consumer, Producer, TopicPartition

    sys.setswitchinterval(_SWITCH_S)
    topic, rate, warm_up = str(spec["topic"]), float(spec["rate"]), int(spec["warm_up_records"])
    records = warm_up + int(spec["records"])
    padding = bytes(int(spec["value_bytes"]) - _DUE.size)
    producer = Producer({"bootstrap.servers": spec["bootstrap"], "acks": "all", "linger.ms": 0})
    consumer = Consumer({"bootstrap.servers": spec["bootstrap"], "group.id": "bench", "enable.auto.commit": False})
    latencies: list[float] = []
    consumer.assign([TopicPartition(topic, 0, 0)])
    producer.produce(topic, _DUE.pack(0) + padding)
    if producer.flush(_PATIENCE_S) or consumer.poll(_PATIENCE_S) is None:
        raise RuntimeError("the first record did not come through")
    reader = threading.Thread(target=_read_latencies, args=(consumer, records, latencies))
    reader.start()
    began = wait_for_go()
    _send_at(rate, records, lambda due_ns: producer.produce(topic, _DUE.pack(due_ns) + padding))
    producer.flush(_PATIENCE_S)
    reader.join()
    ended = time.monotonic()
    consumer.close()
    if len(latencies) != records:
        raise RuntimeError(f"only {len(latencies)} of {records} records came")
    ordered = sorted(latencies[warm_up:])
    found = {f"p{percent}_s": percentile(ordered, percent) for percent in (50, 99, 99.9)}
    return {"began_s": began, "ended_s": ended, "records": records, **found, "max_s": ordered[-1]}


def _send_at(rate: float, records: int, send: Callable[[int], None]) -> None:
    """`records` of them, each when it is due, or as soon as possible after that."""
    begin_ns, step_ns = time.monotonic_ns() + 10_000_000, 1e9 / rate
    sent = 0
    while sent < records:
        now_ns = time.monotonic_ns()
        due = min(records, int((now_ns - begin_ns) / step_ns) + 1) if now_ns >= begin_ns else 0
        while sent < due:
            send(begin_ns + int(sent * step_ns))
            sent += 1
        time.sleep(max(0.0, (begin_ns + sent * step_ns - time.monotonic_ns()) / 1e9))


def _read_latencies(consumer: Any, records: int, latencies: list[float]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while len(latencies) < records and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            latencies.append((time.monotonic_ns() - _DUE.unpack_from(message.value())[0]) / 1e9)


WORK: dict[str, Callable[[Answer], Answer]] = {"produce": produce, "consume": consume, "end_to_end": end_to_end}


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    print(json.dumps(WORK[asked["do"]](asked)))
