"""Transactions over the loopback: what they cost a producer at several sizes, and a reader of committed records.

librdkafka from Python, in a process of its own: `python -m bench.transactions BOOTSTRAP TURNS SIZE=COUNT…` prints a
line of JSON. Every figure is of one producer or consumer with 100-byte values, and one partition.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench import broker_process, isolation
from bench.broker import FETCH_BYTES
from bench.measuring import FULL, Place, Scale
from bench.table import Row, Table, duration, per_second, table_of

VALUE = b"v" * 100
SIZES = (1, 100, 10_000)
"""Records in a transaction."""
_COUNTS = (300, 200, 30)
"""Transactions that are measured of each size."""
_QUICK_COUNTS = (3, 2, 1)
_READ_TARGET = 0.95
_PATIENCE_S = 60.0


def run(place: Place, scale: Scale) -> Table:
    title = "Transactions"
    if find_spec("confluent_kafka") is None:
        return table_of(title, [Row("librdkafka from Python", "-", "confluent-kafka is not installed")])
    path = place.fresh()
    with broker_process.running(path / "log") as broker:
        host, port = broker.address
        counts = dict(zip(SIZES, _COUNTS if scale is FULL else _QUICK_COUNTS, strict=True))
        found = measured(f"{host}:{port}", scale.repeats, counts)
        effort = (3 * scale.repeats, 0.4, FETCH_BYTES) if scale is FULL else (1, 0.01, 16 << 10)
        raw = isolation.rows(broker, *effort)
    place.give_back(path)
    rows = [_produce_row(found, size) for size in SIZES]
    read = statistics.median(one / other for one, other in zip(found["committed"], found["uncommitted"], strict=True))
    rows.append(
        Row(
            f"read_committed, {SIZES[-1]:,} records a transaction", _speed(found, "committed"),
            f"read_uncommitted {_speed(found, 'uncommitted')}",
            read, f">= {_READ_TARGET}", read >= _READ_TARGET,
        )
    )  # fmt: skip
    return table_of(title, [*rows, *raw], _NOTES)


_NOTES = (
    "librdkafka from Python, transaction version 1, acks=all, 100-byte values, one partition; each end is waited for.",
    "Plain is the same records by an idempotent producer that waits as often: flush instead of commit.",
    "A transaction is at least three answers of the coordinator that wait for the disk: partition, decision, markers.",
    "Raw fetches ask for 1 MB of whole transactions; their ratio is that of the broker's processor time in 15 turns.",
    "Aborted transactions are named in answers to readers of committed records: each costs less than a microsecond.",
)


def _produce_row(found: Mapping[str, list[float]], size: int) -> Row:
    ours, plain = found[f"transactions of {size}"], found[f"plain, {size}"]
    speed = statistics.median(ours)
    return Row(
        f"produce, {'1 record' if size == 1 else f'{size:,} records'} a transaction",
        f"{per_second(speed)} records, {duration(size / speed)} a transaction",
        f"plain {per_second(statistics.median(plain))}, {duration(size / statistics.median(plain))} a flush",
        statistics.median(one / other for one, other in zip(ours, plain, strict=True)),
    )


def _speed(found: Mapping[str, list[float]], name: str) -> str:
    return f"{per_second(statistics.median(found[name]))} records"


def measured(bootstrap: str, turns: int, counts: Mapping[int, int]) -> dict[str, list[float]]:
    """Records per second of every turn: so many transactions of each size. Those of the largest are read again."""
    root = Path(__file__).resolve().parent.parent
    words = [f"{size}={count}" for size, count in counts.items()]
    command = [sys.executable, "-m", "bench.transactions", bootstrap, str(turns), *words]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=1200, check=True)
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


# --- in the process of the client -------------------------------------------------------------------------------------


def _produce(bootstrap: str, size: int, count: int, *, transactional: bool) -> float:
    from confluent_kafka import Producer

    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "linger.ms": 5 if size > 1 else 0, "acks": "all"}
    settings |= {"transactional.id": f"bench-{size}"} if transactional else {"enable.idempotence": True}
    producer = Producer(settings)
    if transactional:
        producer.init_transactions(_PATIENCE_S)
    topic = _topic(size) if transactional else f"plain-{size}"

    def send(number: int) -> None:
        if transactional:
            producer.begin_transaction()
        for _ in range(number):
            producer.produce(topic, VALUE)
        if transactional:
            producer.commit_transaction(_PATIENCE_S)
        elif producer.flush(_PATIENCE_S):
            raise RuntimeError("records were not acknowledged")

    send(1)  # connected, and the topic exists
    start = time.perf_counter()
    for _ in range(count):
        send(size)
    return size * count / (time.perf_counter() - start)


def _topic(size: int) -> str:
    return f"transactions-{size}"


def _consume(bootstrap: str, isolation: str, records: int) -> float:
    from confluent_kafka import Consumer, TopicPartition

    # With as many messages queued as its default it rests for a second, and that would be all there is to measure.
    ahead = {"queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 1}
    named = {"bootstrap.servers": bootstrap, "group.id": "bench", "isolation.level": isolation}
    consumer = Consumer({**named, "enable.auto.commit": False, **ahead})
    try:
        consumer.assign([TopicPartition(_topic(SIZES[-1]), 0, 0)])
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


def main(bootstrap: str, turns: int, counts: Mapping[int, int]) -> None:
    found: dict[str, list[float]] = {}
    for size, count in counts.items():
        for _ in range(turns):
            for name, transactional in ((f"transactions of {size}", True), (f"plain, {size}", False)):
                found.setdefault(name, []).append(_produce(bootstrap, size, count, transactional=transactional))
    records = turns * (SIZES[-1] * counts.get(SIZES[-1], 0) + 1)
    for _ in range(turns if SIZES[-1] in counts else 0):
        for name in ("committed", "uncommitted"):
            found.setdefault(name, []).append(_consume(bootstrap, f"read_{name}", records))
    print(json.dumps(found))


if __name__ == "__main__":
    main(
        sys.argv[1],
        int(sys.argv[2]),
        {int(size): int(count) for size, count in (word.split("=") for word in sys.argv[3:])},
    )
