"""The steps that behaviour tests are told in: put records in, read them back, wait for a group, look at the disk."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import foldlog

SOURCE = Path(__file__).resolve().parents[2] / "src"
WAIT_S = 60.0
HOUR_MS = 60 * 60 * 1000
DAY_MS = 24 * HOUR_MS


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def put(log: foldlog.Log, topic: str, value: Any, **arguments: Any) -> foldlog.RecordMetadata:
    """One record in a batch of its own, durable on return; `arguments` are those of producer.send."""
    with log.producer() as producer:
        return producer.send(topic, value=value, **arguments).result(WAIT_S)


def put_many(log: foldlog.Log, topic: str, values: Iterable[Any], **arguments: Any) -> list[foldlog.RecordMetadata]:
    """Many records, batched, durable on return."""
    with log.producer() as producer:
        sent = [producer.send(topic, value=value, **arguments) for value in values]
        producer.flush()
        return [one.result(WAIT_S) for one in sent]


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def values(records: Iterable[foldlog.Record]) -> list[bytes | None]:
    return [record.value for record in records]


def offsets(records: Iterable[foldlog.Record]) -> list[int]:
    return [record.offset for record in records]


def poll_records(consumer: foldlog.Consumer, count: int) -> list[foldlog.Record]:
    """Poll until at least `count` records have come."""
    records: list[foldlog.Record] = []
    deadline = time.monotonic() + WAIT_S
    while len(records) < count and time.monotonic() < deadline:
        records += consumer.poll(max_records=500, timeout_ms=200)
    return records


def poll_until(consumers: Sequence[foldlog.Consumer], settled: Callable[[], bool]) -> list[foldlog.Record]:
    """Let every consumer poll in turn until `settled`; what they were handed meanwhile."""
    records: list[foldlog.Record] = []
    deadline = time.monotonic() + WAIT_S
    while not settled():
        if time.monotonic() > deadline:
            raise AssertionError(f"not settled: {[sorted(consumer.assignment()) for consumer in consumers]}")
        for consumer in consumers:
            records += consumer.poll(max_records=500, timeout_ms=20)
    return records


def shared_out(consumers: Sequence[foldlog.Consumer], topic: str, partitions: int) -> Callable[[], bool]:
    """True once every partition has exactly one owner, and no member owns more than its fair share."""
    everything = [(topic, partition) for partition in range(partitions)]
    fair_share = -(-partitions // len(consumers))

    def settled() -> bool:
        owned = [sorted(consumer.assignment()) for consumer in consumers]
        return sorted(one for share in owned for one in share) == everything and max(map(len, owned)) <= fair_share

    return settled


def partition_files(directory: Path, topic: str, suffix: str, partition: int = 0) -> list[Path]:
    """The files of a partition with that suffix, oldest first."""
    return sorted((directory / f"{topic}-{partition}").glob(f"*{suffix}"))


def start_python(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Another process that runs `code`, with its own interpreter and stdin and stdout as pipes."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def run_python(code: str, *arguments: str, stdin: str = "") -> str:
    """What another process printed; it must end well."""
    with start_python(code, *arguments) as process:
        out, _ = process.communicate(stdin, timeout=WAIT_S)
    if process.returncode != 0:
        raise AssertionError(f"the process ended with {process.returncode}: {out}")
    return out
