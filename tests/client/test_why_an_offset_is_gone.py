"""Whoever asks for an offset that the log does not hold is told what became of it, in the same words everywhere.

By read, read_arrow, a consumer, a group that is moved and a deletion; of the writer, of a process that reads beside it,
and of one that is served by another.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import foldlog
from foldlog.errors import OffsetOutOfRange

SEGMENT = {"segment.bytes": 1024}
BEYOND = "it is not written yet, or the log was cut short or recreated since"


def delete(path: Path) -> None:
    with foldlog.open(path) as log:
        log.delete_records("events", {0: 20})


def expire_by_size(path: Path) -> None:
    with foldlog.open(path) as log:
        log.alter_topic("events", {"retention.bytes": 2048})
        assert log.enforce_retention("events")


def expire_by_time(path: Path) -> None:
    with foldlog.open(path) as log:
        log.alter_topic("events", {"retention.ms": 1000})
        assert log.enforce_retention("events")


def remove_by_hand(path: Path) -> None:
    for file in (path / "events-0").glob("00000000000000000000.*"):
        file.unlink()
    foldlog.open(path).close()


REASONS: list[tuple[Callable[[Path], None], str]] = [
    (delete, "deleted on request"),
    (expire_by_size, "expired by retention.bytes"),
    (expire_by_time, "expired by retention.ms"),
    (remove_by_hand, "its segment files were removed by hand"),
]


def consume(log: foldlog.Log, offset: int) -> None:
    with log.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([("events", 0)])
        consumer.seek("events", 0, offset)
        consumer.poll(timeout_ms=0)


QUESTIONS: list[Callable[[foldlog.Log, int], object]] = [
    lambda log, offset: list(log.read("events", 0, start=offset)),
    lambda log, offset: log.read_arrow("events", start=offset),
    lambda log, offset: log.read_arrow("events", start={0: offset}),
    consume,
]


@pytest.mark.parametrize(("lose", "why"), REASONS)
def test_an_offset_that_is_gone_is_explained_by_everybody(
    tmp_path: Path, lose: Callable[[Path], None], why: str
) -> None:
    path = tmp_path / "data"
    with foldlog.open(path) as log:
        log.create_topic("events", config=SEGMENT)
        for number in range(60):
            log.append("events", b"%d " % number + b"x" * 80, timestamp_ms=1_700_000_000_000 + number)
    lose(path)

    def ask(log: foldlog.Log) -> None:
        start, end = log.offsets("events")[0]
        assert start > 0
        for question in QUESTIONS:
            for wanted, because in ((0, why), (end + 5, BEYOND)):
                with pytest.raises(OffsetOutOfRange) as told:
                    question(log, wanted)
                error = told.value
                assert (error.why, error.wanted, error.start, error.end) == (because, wanted, start, end)
                assert str(error).endswith(because)

    with foldlog.open(path, listen=True) as writer, foldlog.open(path) as served:
        ask(writer)
        assert served.is_remote
        ask(served)
        with pytest.raises(OffsetOutOfRange, match=why):
            writer.reset_group("readers", {("events", 0): 0})
    with foldlog.open(path, mode="r") as reader:
        ask(reader)
