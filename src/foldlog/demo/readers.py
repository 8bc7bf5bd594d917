"""The readers of the payments besides the folds: groups at their own speed, a stock client, and a late reader."""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from threading import Event, Thread
from typing import Final, NamedTuple

import foldlog
from foldlog.demo.claims import DemoFailed
from foldlog.demo.payments import NUMBER, PARTITIONS, TOPIC
from foldlog.demo.stock_clients import Got, StockClient, open_client

_POLL_S: Final = 0.2
_STOP_S: Final = 10.0
"""How long a client may take to close if its broker is gone."""


class Digests:
    """A digest of each partition: of every offset, key and value, in reading order."""

    def __init__(self) -> None:
        self.records = 0
        self._ends: dict[int, int] = {}
        self._hashes: dict[int, hashlib._Hash] = defaultdict(hashlib.sha256)

    def add(self, partition: int, offset: int, key: bytes | None, value: bytes | None) -> None:
        self.records += 1
        self._ends[partition] = offset + 1
        # Lengths precede the data, so that different records have different bytes.
        head = (offset, -1 if key is None else len(key), -1 if value is None else len(value))
        self._hashes[partition].update(b"%d %d %d " % head + (key or b"") + (value or b""))

    @property
    def ends(self) -> dict[int, int]:
        """Per partition, one past the last offset that was read."""
        return dict(self._ends)

    def result(self) -> dict[int, str]:
        return {number: one.hexdigest() for number, one in sorted(self._hashes.items())}


class Reader:
    """Reads with a stock client in its own thread: as fast as it can, or `pace` records a second."""

    def __init__(self, bootstrap: str, name: str, group: str | None, pace: int | None = None) -> None:
        self.name = name
        self.group = group
        self.digests = Digests()
        self._bootstrap = bootstrap
        self._pace = pace
        self._failure = ""
        self._stopping = Event()
        self._thread = Thread(target=self._run, name=f"demo-{name}", daemon=True)
        self._thread.start()

    @property
    def records(self) -> int:
        return self.digests.records

    def check(self) -> None:
        """DemoFailed if its client has given up."""
        if self._failure:
            raise DemoFailed(f"the reader {self.name} cannot read any more: {self._failure}")

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        try:
            client = open_client(self._bootstrap, TOPIC, PARTITIONS, self.group)
            try:
                self._read(client)
            finally:
                client.close()
        except Exception as error:  # noqa: BLE001 each client has its own errors; `check` reports them
            self._failure = str(error)

    def _read(self, client: StockClient) -> None:
        at_once = 500 if self._pace is None else max(1, round(self._pace * _POLL_S))
        while not self._stopping.is_set():
            got = client.poll(at_once, _POLL_S)
            self._take(got)
            if self._pace is not None and got:
                self._stopping.wait(_POLL_S)

    def _take(self, got: Iterable[Got]) -> None:
        for one in got:
            self.digests.add(one.partition, one.offset, one.key, one.value)


def left_to_read(log: foldlog.Log, group: str) -> int:
    """How many payments the group has not committed yet."""
    committed = {
        partition.partition: at.offset for partition, at in log.committed(group).items() if partition.topic == TOPIC
    }
    return sum(max(0, end - committed.get(number, 0)) for number, (_, end) in log.offsets(TOPIC).items())


class WholeLog(NamedTuple):
    """Every record of the payments, read from the log's files, without a broker."""

    records: list[foldlog.Record]
    took_s: float

    @property
    def numbers(self) -> list[int]:
        """The number that each record was given when it was generated."""
        return [int(dict(one.headers)[NUMBER] or b"") for one in self.records]

    def digests(self) -> dict[int, str]:
        found = Digests()
        for one in self.records:
            found.add(one.partition, one.offset, one.key, one.value)
        return found.result()


def read_whole_log(directory: Path) -> WholeLog:
    """From the first offset to the current end: what a late reader gets."""
    started_s = time.monotonic()
    with foldlog.open(directory, mode="r") as log:
        records = [one for number in log.offsets(TOPIC) for one in log.read(TOPIC, number)]
    return WholeLog(records, time.monotonic() - started_s)
