"""Metrics of a runner for Prometheus: served over HTTP while it runs, or written to a file for a node exporter.

`docs/orchestration.md` lists every name; a test compares it with what is exposed. The runner's thread fills the
numbers, and the threads of scrapes read them, so a scrape never waits for Spark or for a view.
"""

from __future__ import annotations

import logging
import platform
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from typing import Final

from foldlog.clock import Clock, SystemClock
from foldlog.errors import FoldlogError, InvalidArgument, brief_repr
from foldlog.exposition import CONTENT_TYPE, Family, Histogram, Kind, Labels, Sample, render
from foldlog.files.paths import absolute, rename, written
from foldlog.spark.folds.feed import Feed, State, lag_of, topic_of
from foldlog.spark.origins.origin import Bounds, OffsetRange, Origin
from foldlog.spark.watch.watch import Watch
from foldlog.views.bookmark import Bookmark

SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
"""From a range that the driver reads by itself to a rebuild's."""

LOOK_EVERY_MS: Final = 5000
"""How often the lag is measured, however fast ranges follow each other."""

SIZE_EVERY_MS: Final = 60_000
"""How often a view is asked for its size: of a lake, all files are listed for it."""

SILENT_AFTER_MS: Final = 60_000
"""A runner that has not looked at its folds for so long is not healthy: it looks every second, also while Spark works.
"""

NEXT_RECORD_OFFSETS: Final = 100
"""How far the record after the bookmark is looked for; in a compacted topic it may be farther."""

FILE_SUFFIX: Final = ".prom"
_REQUEST_S: Final = 10

_log = logging.getLogger("foldlog")


@dataclass
class _FoldNumbers:
    """Of one fold, since the runner began."""

    topic: str
    view: str
    kind: str
    state: str = State.RUNNING.value
    records: int = 0
    rows: int = 0
    dead: int = 0
    failures: int = 0
    skipped: int = 0
    lag: int | None = None
    oldest_ms: int | None = None
    """The time of the oldest record that is not in the view; None if all are."""
    size_bytes: int | None = None
    sized_ms: float = -SIZE_EVERY_MS
    stored_ms: int | None = None
    applied_ms: float = 0.0
    range_seconds: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    store_seconds: Histogram = field(default_factory=lambda: Histogram(SECONDS))


class RunnerMetrics(Watch):
    """The numbers. Filled by the runner's thread; any thread may call `text`."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._folds: dict[str, _FoldNumbers] = {}
        self._looked_ms = self._clock.monotonic_ms()
        self._measured_ms = -float(LOOK_EVERY_MS)

    @property
    def is_healthy(self) -> bool:
        return self._clock.monotonic_ms() - self._looked_ms < SILENT_AFTER_MS

    def text(self) -> bytes:
        """The page of a scrape."""
        with self._lock:
            return render(self._families())

    # --- told by the pipeline -------------------------------------------------------------------------------------

    def began(self, feeds: Sequence[Feed], origin: Origin) -> None:
        with self._lock:
            for feed in feeds:
                view = feed.fold.view
                self._folds[feed.fold.title] = _FoldNumbers(feed.fold.topic.name, view.place, view.kind)
        self.looked(feeds, origin)

    def progressed(self, feed: Feed) -> None:
        numbers = None if feed.label else self._folds.get(feed.fold.title)
        if numbers is None:
            return  # a replay: its view is not the fold's
        with self._lock:
            self._copy(feed, numbers)
            if feed.error:
                numbers.failures += 1
            elif feed.applied_ms != numbers.applied_ms:
                numbers.applied_ms = feed.applied_ms
                numbers.stored_ms = self._clock.now_ms()
                numbers.range_seconds.observe(feed.range_s)
                numbers.store_seconds.observe(feed.store_s)

    def looked(self, feeds: Sequence[Feed], origin: Origin) -> None:
        now_ms = self._looked_ms = self._clock.monotonic_ms()
        if now_ms - self._measured_ms < LOOK_EVERY_MS:
            return
        self._measured_ms = now_ms
        for feed in feeds:
            numbers = None if feed.label else self._folds.get(feed.fold.title)
            if numbers is not None:
                self._measure(feed, numbers, origin, now_ms)

    def ended(self, feeds: Sequence[Feed], error: BaseException | None) -> None:
        with self._lock:
            for feed in feeds:
                numbers = None if feed.label else self._folds.get(feed.fold.title)
                if numbers is not None:
                    self._copy(feed, numbers)

    def _copy(self, feed: Feed, numbers: _FoldNumbers) -> None:
        numbers.state = feed.state.value
        numbers.records, numbers.rows, numbers.dead = feed.records, feed.rows, feed.dead
        numbers.skipped = 0 if feed.bookmark is None else feed.bookmark.skipped
        numbers.lag = feed.lag
        if not feed.lag:
            numbers.oldest_ms = None

    def _measure(self, feed: Feed, numbers: _FoldNumbers, origin: Origin, now_ms: float) -> None:
        """The lag of a fold that waits or has failed, too: nobody else looks at its topic."""
        lag, oldest_ms = numbers.lag, numbers.oldest_ms
        try:
            name = topic_of(feed, origin)
            bookmark, bounds = feed.bookmark, origin.bounds(name)
            if bookmark is None:
                lag = sum(bound.end - bound.start for bound in bounds.values())
            else:
                lag = lag_of(feed, bookmark, bounds)
            oldest_ms = oldest_unread_ms(name, bookmark, bounds, origin) if lag else None
        except FoldlogError:
            pass  # the fold's own read reports it
        size_bytes = numbers.size_bytes
        if now_ms - numbers.sized_ms >= SIZE_EVERY_MS:
            numbers.sized_ms = now_ms
            try:
                size_bytes = feed.view.size_bytes()
            except (FoldlogError, OSError):
                size_bytes = None
        with self._lock:
            numbers.state = feed.state.value
            numbers.lag, numbers.oldest_ms, numbers.size_bytes = lag, oldest_ms, size_bytes

    # --- exposition -----------------------------------------------------------------------------------------------

    def _families(self) -> list[Family]:
        now_ms = self._clock.now_ms()
        looked_ms = now_ms - (self._clock.monotonic_ms() - self._looked_ms)
        return [
            Family(
                "foldlog_runner_info",
                "gauge",
                "Always 1.",
                [Sample(1, (("version", version("foldlog")), ("python", platform.python_version())))],
            ),
            Family(
                "foldlog_runner_looked_timestamp_seconds",
                "gauge",
                "When the runner last looked at its folds.",
                [Sample(looked_ms / 1000)],
            ),
            Family(
                "foldlog_fold_info",
                "gauge",
                "Always 1.",
                [
                    Sample(1, (("fold", name), ("topic", one.topic), ("view", one.view), ("kind", one.kind)))
                    for name, one in self._folds.items()
                ],
            ),
            Family(
                "foldlog_fold_state",
                "gauge",
                "1 for the state that the fold is in, 0 for the others.",
                [
                    Sample(int(one.state == state.value), (("fold", name), ("state", state.value)))
                    for name, one in self._folds.items()
                    for state in State
                ],
            ),
            *self._counts(),
            *self._lags(now_ms),
            self._times(
                "range", "From the begin of a range's read to its end in the view.", lambda one: one.range_seconds
            ),
            self._times("store", "How long the view took to store a range.", lambda one: one.store_seconds),
        ]

    def _counts(self) -> list[Family]:
        return [
            self._each("records_total", "counter", "Records that were read.", lambda one: one.records),
            self._each("rows_total", "counter", "Rows that the view was given.", lambda one: one.rows),
            self._each("dead_letters_total", "counter", "Records that were set aside.", lambda one: one.dead),
            self._each("failures_total", "counter", "How often the fold has failed.", lambda one: one.failures),
            self._each("skipped_records", "gauge", "Records that the view misses.", lambda one: one.skipped),
            self._each("view_bytes", "gauge", "The size of the view where it is stored.", lambda one: one.size_bytes),
            self._each(
                "stored_timestamp_seconds",
                "gauge",
                "When the view last stored a range.",
                lambda one: None if one.stored_ms is None else one.stored_ms / 1000,
            ),
        ]

    def _lags(self, now_ms: int) -> list[Family]:
        def seconds(one: _FoldNumbers) -> float | None:
            if one.lag is None or (one.lag and one.oldest_ms is None):
                return None
            return 0.0 if one.oldest_ms is None else max(0.0, (now_ms - one.oldest_ms) / 1000)

        return [
            self._each("lag_records", "gauge", "Records in the log that are not in the view.", lambda one: one.lag),
            self._each("lag_seconds", "gauge", "The age of the oldest record that is not in the view.", seconds),
        ]

    def _each(self, name: str, kind: Kind, text: str, value: Callable[[_FoldNumbers], float | None]) -> Family:
        samples: list[Sample] = []
        for fold, one in self._folds.items():
            number = value(one)
            if number is not None:
                samples.append(Sample(number, _labels(fold)))
        return Family(f"foldlog_fold_{name}", kind, text, samples)

    def _times(self, name: str, text: str, histogram: Callable[[_FoldNumbers], Histogram]) -> Family:
        samples = [line for fold, one in self._folds.items() for line in histogram(one).samples(_labels(fold))]
        return Family(f"foldlog_fold_{name}_seconds", "histogram", text, samples)


def _labels(fold: str) -> Labels:
    return (("fold", fold),)


def oldest_unread_ms(topic: str, bookmark: Bookmark | None, bounds: Mapping[int, Bounds], origin: Origin) -> int | None:
    """The smallest timestamp of the records that are next in each partition; None if there is none."""
    found: list[int] = []
    for number, bound in bounds.items():
        at = max(bound.start, (bookmark.offset(number) or 0) if bookmark is not None else bound.start)
        if at >= bound.end:
            continue
        near = OffsetRange(topic, number, at, min(bound.end, at + NEXT_RECORD_OFFSETS))
        first = _first_ms(near, origin)
        if first is None and near.stop < bound.end:
            first = _first_ms(near._replace(start=near.stop, stop=bound.end), origin)
        if first is not None:
            found.append(first)
    return min(found, default=None)


def _first_ms(wanted: OffsetRange, origin: Origin) -> int | None:
    for batch in origin.read(wanted, ["timestamp"]):
        if batch.num_rows:
            first: datetime = batch.column(0)[0].as_py()
            return round(first.timestamp() * 1000)
    return None


# --- where they can be had --------------------------------------------------------------------------------------------


def metrics_watch(place: str) -> Watch:
    """Metrics at a place: "host:port" serves them there, a file that ends in .prom gets them. InvalidArgument if it is
    neither, or the address is taken."""
    if place.endswith(FILE_SUFFIX):
        return MetricsFile(absolute(place))
    host, colon, port = place.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 0xFFFF:
        raise InvalidArgument(
            f"metrics={brief_repr(place)} is neither an address, such as 127.0.0.1:9309, nor a file *{FILE_SUFFIX}"
        )
    return MetricsPage(host.strip("[]") or "127.0.0.1", int(port))


class MetricsFile(RunnerMetrics):
    """Metrics in a file, which is replaced whole: for runs that end before anybody scrapes them."""

    def __init__(self, path: str, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self._path = path
        self._is_told = False

    def looked(self, feeds: Sequence[Feed], origin: Origin) -> None:
        super().looked(feeds, origin)
        self._write()

    def ended(self, feeds: Sequence[Feed], error: BaseException | None) -> None:
        super().ended(feeds, error)
        self._write()

    def _write(self) -> None:
        draft = f"{self._path}.tmp"
        try:
            with written(draft) as file:
                file.write(self.text())
            rename(draft, self._path)
        except OSError as error:
            if not self._is_told:
                self._is_told = True
                _log.warning("the metrics cannot be written, the folds go on without: %s", error)


class MetricsPage(RunnerMetrics):
    """Metrics served over HTTP: /metrics, and /healthz for whoever restarts a runner that hangs."""

    def __init__(self, host: str, port: int, clock: Clock | None = None) -> None:
        super().__init__(clock)
        try:
            self._server = _Server((host, port), self)
        except OSError as error:
            raise InvalidArgument(
                f"metrics cannot be served at {host}:{port}: {error.strerror or error}; choose another port"
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="foldlog-metrics", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{shown}:{port}/metrics"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    """Answers with the metrics it has; one thread for each scrape."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], metrics: RunnerMetrics) -> None:
        if ":" in address[0]:
            import socket

            self.address_family = socket.AF_INET6
        self.metrics = metrics
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    timeout = _REQUEST_S  # for who connects and says nothing

    def do_GET(self) -> None:
        metrics = self.server.metrics if isinstance(self.server, _Server) else RunnerMetrics()
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(HTTPStatus.OK, metrics.text(), CONTENT_TYPE)
        elif path == "/healthz":
            healthy = metrics.is_healthy
            told = b"ok\n" if healthy else b"the runner has not looked at its folds for a minute\n"
            self._answer(HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE, told)
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"there are /metrics and /healthz\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 as the base class calls it
        """Scrapes are not worth a line."""

    def _answer(self, status: HTTPStatus, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
