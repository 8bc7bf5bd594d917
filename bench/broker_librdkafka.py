"""librdkafka from Python, against a broker and against the mock broker inside librdkafka: its own ceiling.

`python -m bench.broker_librdkafka BOOTSTRAP RECORDS TURNS` prints a line of JSON. A process of its own, so that its
threads and memory disturb nothing. 100-byte values.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

VALUE = b"v" * 100
_PATIENCE_S = 60.0


def measured(bootstrap: str, records: int, turns: int) -> dict[str, list[float]]:
    """Records per second of every turn: produced with acks=all, acks=1, to the mock; consumed from the broker."""
    root = Path(__file__).resolve().parent.parent
    command = [sys.executable, "-m", "bench.broker_librdkafka", bootstrap, str(records), str(turns)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=180, check=True)
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


def _produce(settings: dict[str, Any], topic: str, records: int) -> float:
    from confluent_kafka import Producer

    producer = Producer({"linger.ms": 5, "queue.buffering.max.messages": records + 1, **settings})
    failed: list[object] = []
    acked = 0

    def on_delivery(error: object, _: object) -> None:
        nonlocal acked
        acked += 1
        if error is not None:
            failed.append(error)

    producer.produce(topic, VALUE, on_delivery=on_delivery)
    producer.flush(_PATIENCE_S)  # connected, and the topic exists
    start = time.perf_counter()
    for _ in range(records):
        producer.produce(topic, VALUE)
    producer.produce(topic, VALUE, on_delivery=on_delivery)
    left = producer.flush(_PATIENCE_S)
    took = time.perf_counter() - start
    if failed or left or acked != 2:
        raise RuntimeError(f"{left} records were not acknowledged: {failed[:1]}")
    return records / took


def _consume(bootstrap: str, topic: str, records: int) -> float:
    from confluent_kafka import Consumer, TopicPartition

    # With as many messages queued as its default it rests for a second, and that would be all there is to measure.
    ahead = {"queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 1}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, **ahead})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        seen = len(consumer.consume(1, _PATIENCE_S))
        start = time.perf_counter()
        while seen < records:
            messages = consumer.consume(min(10_000, records - seen), _PATIENCE_S)
            if not messages:
                raise RuntimeError(f"only {seen} of {records} records came")
            seen += len(messages)
        return (records - 1) / (time.perf_counter() - start)
    finally:
        consumer.close()


def main(bootstrap: str, records: int, turns: int) -> None:
    found: dict[str, list[float]] = {"all": [], "1": [], "mock": [], "consume": []}
    here = {"bootstrap.servers": bootstrap}
    for turn in range(turns):
        found["all"].append(_produce({**here, "acks": "all"}, f"librdkafka-all-{turn}", records))
        found["1"].append(_produce({**here, "acks": "1"}, f"librdkafka-1-{turn}", records))
        found["mock"].append(_produce({"test.mock.num.brokers": 1, "acks": "all"}, "mock", records))
        found["consume"].append(_consume(bootstrap, f"librdkafka-all-{turn}", records))
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
