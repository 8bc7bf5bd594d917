"""A topic of the demo's own that is compacted and then expires: what a log forgets, and what it never does.

Prices of yesterday and of today, many for each product. The broker compacts the topic when it is due: of each product
the newest price is left, at the offset that it always had. Then retention is switched on, and what is older than an
hour goes: the log starts later, and ends where it did. The broker looks every fifteen seconds, and half a minute after
a change, so all of this happens beside the story, in a thread of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Thread
from typing import Final

import foldlog
from foldlog.clock import SystemClock
from foldlog.demo.broker import Broker
from foldlog.demo.claims import DemoFailed
from foldlog.demo.pipeline import wait_for
from foldlog.errors import FoldlogError

TOPIC: Final = "prices"
PRODUCTS: Final = 20
OF_YESTERDAY: Final = 2000
OF_TODAY: Final = 600
WITHIN_S: Final = 150.0
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
    """Writes the prices, and watches what the broker makes of them. `written`, `compacted` and `expired` in turn."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._failure: FoldlogError | None = None
        self.written: Extent | None = None
        self.compacted: Extent | None = None
        self.expired: Extent | None = None
        self._thread = Thread(target=self._run, name="demo-prices", daemon=True)
        self._thread.start()

    def wait(self) -> tuple[Extent, Extent, Extent]:
        """How it was written, how it was compacted, how it has expired."""
        self._thread.join()
        if self._failure is not None:
            raise DemoFailed(f"the topic {TOPIC}: {self._failure}")
        if self.written is None or self.compacted is None or self.expired is None:
            raise DemoFailed(f"the topic {TOPIC} was left alone")
        return self.written, self.compacted, self.expired

    def _run(self) -> None:
        try:
            with self._broker.up, foldlog.open(self._broker.directory) as log:
                self._write(log)
            with foldlog.open(self._broker.directory, mode="r") as log:
                self._watch(log)
        except FoldlogError as error:
            self._failure = error

    def _write(self, log: foldlog.Log) -> None:
        log.create_topic(TOPIC, config=_SETTINGS)
        now_ms = SystemClock().now_ms()
        with log.producer(linger_ms=5, batch_records=100) as producer:
            for number in range(OF_YESTERDAY):
                producer.send(TOPIC, 100 + number, key=f"old-{number % PRODUCTS}", timestamp_ms=now_ms - _DAY_MS)
            for number in range(OF_TODAY):
                producer.send(TOPIC, 100 + number, key=f"new-{number % PRODUCTS}", timestamp_ms=now_ms)

    def _watch(self, log: foldlog.Log) -> None:
        self.written = written = extent(log)
        wait_for(
            lambda: extent(log).records < written.records // 2, "the topic was not compacted", WITHIN_S, lambda: None
        )
        self.compacted = extent(log)
        with self._broker.up, foldlog.open(self._broker.directory) as writing:
            writing.alter_topic(TOPIC, _EXPIRING)
        wait_for(lambda: log.offsets(TOPIC)[0][0] > 0, "the old prices did not expire", WITHIN_S, lambda: None)
        self.expired = extent(log)


def extent(log: foldlog.Log) -> Extent:
    """As of now."""
    ((start, end),) = log.offsets(TOPIC).values()
    records = list(log.read(TOPIC, 0))
    return Extent(start, end, {one.key: one.offset for one in records}, len(records))
