"""A separate topic that is compacted and then expires: which records a log removes, and which it keeps.

It holds yesterday's prices, many for each product. The broker compacts the topic when it is due: the newest price of
each product is left, at its original offset. Then today's prices are appended and retention is switched on, and records
older than an hour are removed: the log starts later, and its end stays. The broker checks every fifteen seconds, and
half a minute after a change, so all of this runs beside the story, in its own thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Thread
from typing import Final

import foldlog
from foldlog.clock import SystemClock
from foldlog.demo.claims import DemoFailed
from foldlog.demo.pipeline import wait_for
from foldlog.demo.servers import DemoBroker
from foldlog.errors import FoldlogError

TOPIC: Final = "prices"
PRODUCTS: Final = 20
OF_YESTERDAY: Final = 2000
OF_TODAY: Final = 600
WITHIN_S: Final = 600.0
"""For a busy machine; usually both happen within a minute."""
_DAY_MS: Final = 86_400_000
_HOUR_MS: Final = 3_600_000
_SETTINGS: Final = {
    "cleanup.policy": "compact",
    "foldlog.segment.records": 100,
    "min.cleanable.dirty.ratio": 0.01,
}
_EXPIRING: Final = {"cleanup.policy": "delete", "retention.ms": _HOUR_MS}


@dataclass(frozen=True, slots=True)
class Extent:
    """A log of one partition: where it starts and ends, and which records it holds."""

    start: int
    end: int
    newest: dict[bytes | None, int]
    """The offset of the newest record of each key."""
    records: int


class Prices:
    """Writes the prices, and watches what the broker does with them, in its own thread."""

    def __init__(self, broker: DemoBroker) -> None:
        self._broker = broker
        self._failure: FoldlogError | None = None
        self._seen: list[Extent] = []
        self._thread = Thread(target=self._run, name="demo-prices", daemon=True)
        self._thread.start()

    def wait(self) -> tuple[Extent, Extent, Extent, Extent]:
        """The extents as written, as compacted, with today's prices, and as expired."""
        self._thread.join()
        if self._failure is not None:
            raise DemoFailed(f"the topic {TOPIC}: {self._failure}")
        written, compacted, grown, expired = self._seen
        return written, compacted, grown, expired

    def _run(self) -> None:
        now_ms = SystemClock().now_ms()
        try:
            with self._broker.up, foldlog.open(self._broker.directory) as writing:
                writing.create_topic(TOPIC, config=_SETTINGS)
                _append(writing, OF_YESTERDAY, "old", now_ms - _DAY_MS)
            with foldlog.open(self._broker.directory, mode="r") as log:
                self._watch(log, now_ms)
        except FoldlogError as error:
            self._failure = error

    def _watch(self, log: foldlog.Log, now_ms: int) -> None:
        self._seen.append(written := extent(log))
        self._wait(lambda: extent(log).records < written.records // 2, "it was compacted")
        self._seen.append(extent(log))
        with self._broker.up, foldlog.open(self._broker.directory) as writing:
            _append(writing, OF_TODAY, "new", now_ms)
            writing.alter_topic(TOPIC, _EXPIRING)
        self._seen.append(extent(log))
        self._wait(lambda: log.offsets(TOPIC)[0][0] > 0, "the prices of yesterday expired")
        self._seen.append(extent(log))

    def _wait(self, is_so: Callable[[], bool], what: str) -> None:
        wait_for(is_so, what, WITHIN_S, lambda: None)


def _append(log: foldlog.Log, count: int, prefix: str, timestamp_ms: int) -> None:
    with log.producer(linger_ms=5, batch_records=100) as producer:
        for number in range(count):
            producer.send(TOPIC, 100 + number, key=f"{prefix}-{number % PRODUCTS}", timestamp_ms=timestamp_ms)


def extent(log: foldlog.Log) -> Extent:
    """The current extent."""
    ((start, end),) = log.offsets(TOPIC).values()
    records = list(log.read(TOPIC, 0))
    return Extent(start, end, {one.key: one.offset for one in records}, len(records))
