"""Durability and batching: an acknowledgement comes after the sync, and one sync serves a whole batch.

The sync of the real files is held, counted or made to fail in place; a killed process is really killed. What a power
cut does to unsynced bytes is shown by the fault tests, not here.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import foldlog
from behaviours.steps import WAIT_S, numbered, offsets, put_many, start_python, values
from foldlog.errors import FoldlogError, PartitionPoisoned
from foldlog.files.base import Buffer
from foldlog.files.posix import PosixFile


class HeldSync:
    """Every sync of a .log file waits at the gate while it is closed, and is counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Event()
        self.count = 0
        self.error: OSError | None = None
        real_sync = PosixFile.sync

        def sync(file: PosixFile) -> None:
            if not file.path.endswith(".log"):
                real_sync(file)
                return
            self.count += 1
            self.reached.set()
            if not self.gate.wait(WAIT_S):
                raise TimeoutError("the test never opened the gate")
            if self.error is not None:
                raise self.error
            real_sync(file)

        monkeypatch.setattr(PosixFile, "sync", sync)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldSync]:
    sync = HeldSync(monkeypatch)
    yield sync
    sync.gate.set()


def test_a_future_resolves_only_after_the_sync(log: foldlog.Log, held: HeldSync) -> None:
    log.create_topic("orders", partitions=1)
    held.reached.clear()
    held.gate.clear()
    with log.producer(linger_ms=0) as producer:
        sent = producer.send("orders", value=b"x")
        assert held.reached.wait(WAIT_S)
        assert not sent.done()
        held.gate.set()
        assert sent.result(WAIT_S).offset == 0


def test_append_returns_only_after_the_sync(log: foldlog.Log, held: HeldSync) -> None:
    log.create_topic("orders", partitions=1)
    held.reached.clear()
    held.gate.clear()
    returned: list[int] = []
    appender = threading.Thread(target=lambda: returned.append(log.append("orders", b"x").offset))
    appender.start()
    assert held.reached.wait(WAIT_S)
    assert not returned
    held.gate.set()
    appender.join(WAIT_S)
    assert returned == [0]


def test_a_record_is_readable_only_once_it_is_durable(log: foldlog.Log, held: HeldSync) -> None:
    log.create_topic("orders", partitions=1)
    log.append("orders", b"durable")
    held.reached.clear()
    held.gate.clear()
    with log.producer(linger_ms=0) as producer:
        sent = producer.send("orders", value=b"not yet")
        assert held.reached.wait(WAIT_S)
        assert values(log.read("orders", 0)) == [b"durable"]
        held.gate.set()
        sent.result(WAIT_S)
    assert values(log.read("orders", 0)) == [b"durable", b"not yet"]


def test_one_sync_serves_a_thousand_records(log: foldlog.Log, held: HeldSync) -> None:
    log.create_topic("orders", partitions=1)
    with log.producer(linger_ms=60_000, batch_records=1000, batch_bytes=1 << 20) as producer:
        before = held.count
        sent = [producer.send("orders", value=value) for value in numbered(1000)]
        assert [one.result(WAIT_S).offset for one in sent] == list(range(1000))
        assert held.count - before == 1


def test_producers_that_wait_at_the_same_time_share_a_sync(
    log: foldlog.Log, held: HeldSync, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = threading.Semaphore(0)
    real_write = PosixFile.write

    def counted_write(file: PosixFile, position: int, buffers: Sequence[Buffer]) -> int:
        count = real_write(file, position, buffers)
        if file.path.endswith(".log"):
            written.release()
        return count

    log.create_topic("orders", partitions=1)
    monkeypatch.setattr(PosixFile, "write", counted_write)
    held.gate.clear()
    before = held.count
    waiting = [threading.Thread(target=log.append, args=("orders", value)) for value in numbered(30)]
    for thread in waiting:
        thread.start()
    for _ in waiting:
        assert written.acquire(timeout=WAIT_S)
    # The first sync was held while the others wrote; the next one covers all of them.
    held.gate.set()
    for thread in waiting:
        thread.join(WAIT_S)
    assert log.offsets("orders") == {0: (0, 30)}
    assert held.count - before <= 3


def test_a_batch_closes_at_its_number_of_records(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=1)
    with log.producer(linger_ms=3_600_000, batch_records=10) as producer:
        sent = [producer.send("orders", value=value) for value in numbered(10)]
        assert [one.result(WAIT_S).offset for one in sent] == list(range(10))


def test_a_batch_closes_at_its_size(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=1)
    with log.producer(linger_ms=3_600_000, batch_bytes=4096, batch_records=1_000_000) as producer:
        first = producer.send("orders", value=b"x" * 3000)
        producer.send("orders", value=b"y" * 3000)
        assert first.result(WAIT_S).offset == 0


def test_a_batch_closes_when_it_has_waited_long_enough(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=1)
    with log.producer(linger_ms=5, batch_records=1_000_000, batch_bytes=1 << 20) as producer:
        assert producer.send("orders", value=b"alone").result(WAIT_S).offset == 0


def test_flush_makes_everything_sent_durable(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=3)
    with log.producer(linger_ms=3_600_000) as producer:
        sent = [producer.send("orders", value=value, partition=int(value) % 3) for value in numbered(90)]
        producer.flush()
        assert all(one.done() for one in sent)
    assert log.offsets("orders") == {0: (0, 30), 1: (0, 30), 2: (0, 30)}


def test_closing_a_producer_loses_nothing(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=1)
    with log.producer(linger_ms=3_600_000) as producer:
        sent = [producer.send("orders", value=value) for value in numbered(25)]
    assert [one.result(WAIT_S).offset for one in sent] == list(range(25))
    assert values(log.read("orders", 0)) == numbered(25)


def test_send_batch_answers_in_the_order_it_was_given(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=1)
    with log.producer() as producer:
        sent = producer.send_batch("orders", [{"value": value, "key": b"k"} for value in numbered(50)])
        producer.flush()
        assert [one.result(WAIT_S).offset for one in sent] == list(range(50))


def test_a_failed_sync_is_an_error_and_not_an_acknowledgement(log: foldlog.Log, held: HeldSync) -> None:
    log.create_topic("orders", partitions=1)
    log.append("orders", b"kept")
    held.error = OSError(errno.EIO, "Input/output error")
    with pytest.raises(FoldlogError):
        log.append("orders", b"perhaps")
    held.error = None
    with pytest.raises(PartitionPoisoned):
        log.append("orders", b"refused until it is reopened")
    assert values(log.read("orders", 0)) == [b"kept"]


def test_records_are_there_after_a_restart(directory: Path) -> None:
    with foldlog.open(str(directory)) as log:
        log.create_topic("orders", partitions=1)
        put_many(log, "orders", numbered(500))
    with foldlog.open(str(directory)) as log:
        records = list(log.read("orders", 0))
    assert offsets(records) == list(range(500))
    assert values(records) == numbered(500)


WRITE_UNTIL_KILLED = """
import sys, foldlog
with foldlog.open(sys.argv[1]) as log:
    log.create_topic("orders", partitions=1, config={"foldlog.segment.records": 50})
    number = 0
    while True:
        print(log.append("orders", b"%d" % number).offset, flush=True)
        number += 1
"""


def test_what_was_acknowledged_is_there_after_kill_nine(directory: Path) -> None:
    with start_python(WRITE_UNTIL_KILLED, str(directory)) as writer:
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(120)]
        writer.kill()
        acknowledged += [int(line) for line in writer.stdout.read().split("\n")[:-1]]
    assert acknowledged == list(range(len(acknowledged)))
    with foldlog.open(str(directory)) as log:
        survived = values(log.read("orders", 0))
        assert survived[: len(acknowledged)] == numbered(len(acknowledged))
        # One more may have been written, never a different one.
        assert survived == numbered(len(survived))
        assert log.append("orders", b"next").offset == len(survived)
