"""Counters of the serving broker. Values that are looked up instead are in `collectors`.

`docs/reference/metrics.md` lists every name; a test compares it with what is exposed.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Final

from foldlog.exposition import Family, Histogram, Kind, Sample
from foldlog.wire.messages import NAMES

SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""From an answer out of memory to a hanging disk."""

SYNC_BYTES: Final = (1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20)
SYNC_RECORDS: Final = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)


class ApiMetrics:
    """The requests of one API."""

    __slots__ = ("errors", "seconds")

    def __init__(self) -> None:
        self.seconds = Histogram(SECONDS)
        self.errors = 0


class Metrics:
    """Counters since the start, plain numbers that the event loop adds to. Owned by the event loop.

    Two exceptions: `synced` is called by syncing threads, and takes a lock, which costs nothing compared with an fsync;
    gauges are read on request. Not promised: that two numbers of one answer are of the same moment.
    """

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.connections_open = 0
        self.connections_accepted = 0
        self.produced_records = 0
        self.produced_bytes = 0
        self.fetched_records = 0
        self.fetched_bytes = 0
        self._refused: Counter[str] = Counter()
        self._throttled: Counter[str] = Counter()
        self._throttle_seconds: dict[str, float] = {}
        self._apis: dict[int, ApiMetrics] = {}
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self._sync_lock = threading.Lock()
        self._sync_seconds = Histogram(SECONDS)
        self._sync_bytes = Histogram(SYNC_BYTES)
        self._sync_records = Histogram(SYNC_RECORDS)

    # --- called by the event loop ---------------------------------------------------------------------------------

    def connection_opened(self) -> None:
        self.connections_open += 1
        self.connections_accepted += 1

    def connection_closed(self) -> None:
        """Called once for each opened connection."""
        self.connections_open -= 1

    def connection_refused(self, reason: str) -> None:
        """A connection was refused, or closed for what it sent. `reason` is a short word of ours, never a peer's: each
        one is a time series."""
        self._refused[reason] += 1

    def throttled(self, quota: str, seconds: float) -> None:
        """A connection is not read for that long, since a quota, by its name, is used up; or one was closed for it."""
        self._throttled[quota] += 1
        self._throttle_seconds[quota] = self._throttle_seconds.get(quota, 0.0) + seconds

    def request_done(self, api_key: int, seconds: float, errors: int = 0, requests: int = 1) -> None:
        """A request was answered, or needs no answer, or several together. `errors`: of how many the answer, or a part
        of it, has an error code."""
        api = self._apis.get(api_key)
        if api is None:
            api = self._apis[api_key] = ApiMetrics()
        api.seconds.observe(seconds, requests)
        api.errors += errors

    def produced(self, records: int, size_bytes: int) -> None:
        """Batches were appended; duplicates are not counted again."""
        self.produced_records += records
        self.produced_bytes += size_bytes

    def fetched(self, size_bytes: int, records: int = 0) -> None:
        """Batches were sent to clients. `records` by the headers of the batches, which are not opened for this."""
        self.fetched_bytes += size_bytes
        self.fetched_records += records

    def add_gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Add a number that is read on request, on the event loop, so `read` must not wait. `name` without the prefix
        `foldlog_`; a second one of that name replaces the first."""
        self._gauges[name] = (text, read)

    # --- called by other threads ----------------------------------------------------------------------------------

    def synced(self, seconds: float, size_bytes: int, records: int) -> None:
        """A partition was synced: how long it took, and how much became durable. Any thread."""
        with self._sync_lock:
            self._sync_seconds.observe(seconds)
            self._sync_bytes.observe(size_bytes)
            self._sync_records.observe(records)

    # --- exposition -----------------------------------------------------------------------------------------------

    def families(self) -> list[Family]:
        """All families, for the exposition. On the event loop."""
        return [*self._traffic(), *self._requests(), *self._syncs(), *self._looked_up()]

    def _traffic(self) -> list[Family]:
        refused = [Sample(count, (("reason", reason),)) for reason, count in sorted(self._refused.items())]
        return [
            _single("connections", "gauge", "Open connections.", self.connections_open),
            _single(
                "connections_accepted_total", "counter", "Connections that were accepted.", self.connections_accepted
            ),
            Family(
                "foldlog_connections_refused_total",
                "counter",
                "Connections that were turned away or cut off, by reason.",
                refused,
            ),
            Family(
                "foldlog_throttled_total",
                "counter",
                "How often a connection was throttled, by the quota that was used up.",
                [Sample(count, (("quota", quota),)) for quota, count in sorted(self._throttled.items())],
            ),
            Family(
                "foldlog_throttle_seconds_total",
                "counter",
                "Throttle times, by the quota that was used up.",
                [Sample(count, (("quota", quota),)) for quota, count in sorted(self._throttle_seconds.items())],
            ),
            _single("received_bytes_total", "counter", "Bytes of requests, frames and all.", self.bytes_in),
            _single("sent_bytes_total", "counter", "Bytes of answers, frames and all.", self.bytes_out),
            _single("produced_records_total", "counter", "Records that were appended.", self.produced_records),
            _single("produced_bytes_total", "counter", "Bytes of the batches appended.", self.produced_bytes),
            _single("fetched_records_total", "counter", "Records that were handed out.", self.fetched_records),
            _single("fetched_bytes_total", "counter", "Bytes of the batches handed out.", self.fetched_bytes),
        ]

    def _requests(self) -> list[Family]:
        apis = [((("api", NAMES.get(key, str(key))),), api) for key, api in sorted(self._apis.items())]
        return [
            Family(
                "foldlog_request_seconds",
                "histogram",
                "From the last byte of a request to the first of its answer; waiting for records or members included.",
                [sample for labels, api in apis for sample in api.seconds.samples(labels)],
            ),
            Family(
                "foldlog_request_errors_total",
                "counter",
                "Requests that were answered with an error code, at least in part.",
                [Sample(api.errors, labels) for labels, api in apis],
            ),
        ]

    def _syncs(self) -> list[Family]:
        with self._sync_lock:
            return [
                Family("foldlog_sync_seconds", "histogram", "How long an fsync took.", self._sync_seconds.samples()),
                Family("foldlog_sync_bytes", "histogram", "Bytes one fsync made durable.", self._sync_bytes.samples()),
                Family(
                    "foldlog_sync_records",
                    "histogram",
                    "Records one fsync made durable.",
                    self._sync_records.samples(),
                ),
            ]

    def _looked_up(self) -> list[Family]:
        return [_single(name, "gauge", text, read()) for name, (text, read) in self._gauges.items()]


def _single(name: str, kind: Kind, text: str, value: float) -> Family:
    return Family(f"foldlog_{name}", kind, text, [Sample(value)])
