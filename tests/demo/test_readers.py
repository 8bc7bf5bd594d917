"""Writer and readers of the demo against a real log that listens: what is acknowledged is there, and bytes are bytes.

Each stock client that is installed reads the log over the network; its digest is compared with that of the files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

import foldlog
from foldlog.demo import stock_clients
from foldlog.demo.payments import PARTITIONS, TOPIC
from foldlog.demo.readers import Digests, Reader, left_to_read, read_whole_log
from foldlog.demo.writer import Writer

PATIENCE_S = 60


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    pause = Event()
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        pause.wait(0.02)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[foldlog.Log]:
    with foldlog.open(tmp_path / "data", listen=True) as opened:
        opened.create_topic(TOPIC, partitions=PARTITIONS)
        yield opened


@pytest.fixture
def writer(log: foldlog.Log) -> Iterator[Writer]:
    """It has written some and paused."""
    assert log.bootstrap is not None
    made = Writer(log.bootstrap, rate=1000)
    made.resume()
    wait_until(lambda: made.acknowledged >= 200, "200 payments")
    made.pause()
    yield made
    made.stop()


def test_every_acknowledged_payment_is_in_the_files_once(log: foldlog.Log, writer: Writer) -> None:
    whole = read_whole_log(Path(log.path))
    assert sorted(whole.numbers) == list(range(writer.acknowledged))
    assert sum(writer.made.values()) == writer.acknowledged


def test_a_writer_that_is_resumed_goes_on_where_it_was(log: foldlog.Log, writer: Writer) -> None:
    before = writer.acknowledged
    writer.resume()
    wait_until(lambda: writer.acknowledged > before, "more payments")
    writer.pause()
    assert sorted(read_whole_log(Path(log.path)).numbers) == list(range(writer.acknowledged))


def test_a_writer_stops_where_it_is_told_to_and_goes_on_when_it_may(log: foldlog.Log, writer: Writer) -> None:
    class CountedTicks(Event):
        count = 0

        def wait(self, timeout: float | None = None) -> bool:
            self.count += 1
            return super().wait(timeout)

    ticks = writer._stopping = CountedTicks()
    cap = writer.acknowledged
    writer.stop_at(cap)
    writer.resume()
    wait_until(lambda: ticks.count > 3, "three ticks in which it may have written")
    assert writer.acknowledged == cap
    writer.stop_at(None)
    wait_until(lambda: writer.acknowledged > cap, "more payments")
    writer.pause()


def test_a_writer_that_is_resumed_while_it_comes_to_rest_does_not_pass_for_resting(
    log: foldlog.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ResumedBefore(Event):
        def __init__(self, writer: Writer) -> None:
            super().__init__()
            self._writer = writer

        def set(self) -> None:
            self._writer.resume()
            super().set()

    def thread(target: Any, **settings: Any) -> Thread:
        target.__self__._is_idle = ResumedBefore(target.__self__)
        return Thread(target=target, **settings)

    monkeypatch.setattr("foldlog.demo.writer.Thread", thread)
    assert log.bootstrap is not None
    made = Writer(log.bootstrap, rate=1000)
    wait_until(lambda: made.acknowledged > 0, "the first payments")
    assert not made._is_idle.is_set()
    made.stop()


@pytest.mark.parametrize("package", ["confluent-kafka", "kafka-python"])
def test_a_stock_client_reads_the_bytes_of_the_files(
    log: foldlog.Log, writer: Writer, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stock_clients, "installed_client", lambda: package)
    ends = {number: end for number, (_, end) in log.offsets(TOPIC).items()}
    assert log.bootstrap is not None
    reader = Reader(log.bootstrap, "stock", None)
    try:
        wait_until(lambda: reader.digests.ends == ends, "all payments are read")
    finally:
        reader.stop()
    assert reader.records == writer.acknowledged
    assert reader.digests.result() == read_whole_log(Path(log.path)).digests()


def test_a_group_commits_what_it_has_read(log: foldlog.Log, writer: Writer) -> None:
    assert left_to_read(log, "fraud") == writer.acknowledged
    assert log.bootstrap is not None
    reader = Reader(log.bootstrap, "fraud", "fraud", pace=100_000)
    try:
        wait_until(lambda: left_to_read(log, "fraud") == 0, "the group has committed everything")
    finally:
        reader.stop()
    assert reader.records == writer.acknowledged


def test_digests_tell_records_apart_that_look_alike_when_joined() -> None:
    one, other = Digests(), Digests()
    one.add(0, 0, b"ab", b"c")
    other.add(0, 0, b"a", b"bc")
    assert one.result() != other.result()
    empty, none = Digests(), Digests()
    empty.add(0, 0, b"", b"")
    none.add(0, 0, None, None)
    assert empty.result() != none.result()
