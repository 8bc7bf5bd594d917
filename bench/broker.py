"""The broker on the network: produce and fetch beside the machine's limits, latency at a fixed rate, start and memory.

Two tables: what the project has set itself, measured in turns with the limits; and every combination of batch size,
connections, partitions, acks and codec, each measured once.
"""

from __future__ import annotations

import gc
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec

from bench import broker_librdkafka, broker_limits, broker_process, broker_sink
from bench.broker_load import Figures, Load, LoadFailed, fetch_load, produce_load, run_at_rate, run_flat_out
from bench.broker_process import BrokerProcess
from bench.measuring import FULL, Place, Scale, Turns, percentile
from bench.table import Row, Table, bytes_per_second, duration, per_second, table_of

from foldlog.clock import SystemClock
from foldlog.records.loops import pack

KIB, MIB = 1 << 10, 1 << 20
SIZES = {"4 KB": 4 * KIB, "64 KB": 64 * KIB, "1 MB": MIB}
WINDOWS = {"4 KB": 64, "64 KB": 16, "1 MB": 5}
"""Requests under way on a connection: about what clients keep."""
FETCH_BYTES = MIB
"""What a fetch asks of a partition: max.partition.fetch.bytes, as Java's and librdkafka's consumers have it."""
CODECS = {"none": 0, "lz4": 3}
ACKS_ALL = -1
_VALUE_BYTES = 100
_BATCH_SLACK_BYTES = 128
"""Below the size in the name, so that a batch fits where a limit is that size."""
_SYNC_BYTES = 8 * MIB
_FETCH_REQUESTS_MAX = 2000
_WARM_UP_S = 20.0
_TARGET = 0.6
_COLD_START_TARGET_S = 0.4
_IDLE_TARGET_BYTES = 45_000_000


@dataclass(frozen=True, slots=True)
class Effort:
    """How long a run takes and how much it may write; what was written is deleted before it all reaches the disk."""

    seconds: float
    matrix_seconds: float
    bytes_max: int
    turns: int
    rate: float
    rate_seconds: float
    librdkafka_records: int
    partitions: tuple[int, ...]
    """Of the table with every combination."""


_FULL = Effort(0.4, 0.3, 256 * MIB, 5, 500.0, 6.0, 300_000, (1, 8, 100))
_QUICK = Effort(0.02, 0.005, 2 * MIB, 1, 500.0, 0.1, 500, (1, 3))


def _effort(scale: Scale) -> Effort:
    return _FULL if scale is FULL else _QUICK


@dataclass(frozen=True, slots=True)
class Layout:
    """Who sends what where."""

    size: str
    connections: int
    partitions: int
    codec: str = "none"

    def __str__(self) -> str:
        connections = "1 connection" if self.connections == 1 else f"{self.connections} connections"
        partitions = "1 partition" if self.partitions == 1 else f"{self.partitions} partitions"
        return f"{self.size}, {connections}, {partitions}"


def batch_of(size: str, codec: str) -> tuple[bytes, int]:
    """See `batch_of_bytes`."""
    return batch_of_bytes(SIZES[size], codec)


def batch_of_values(size: str, begin: bytes) -> tuple[bytes, int]:
    """An uncompressed batch of that size whose values begin so, and how many records it has."""
    records = (SIZES[size] - _BATCH_SLACK_BYTES) // (_VALUE_BYTES + 9)
    now_ms = SystemClock().now_ms()
    values = [begin + os.urandom(_VALUE_BYTES - len(begin)) for _ in range(records)]
    return bytes(pack([(now_ms, None, value, ()) for value in values], CODECS["none"])), records


@cache
def batch_of_bytes(size_bytes: int, codec: str) -> tuple[bytes, int]:
    """A batch of that size on the wire and on disk, compressed about 2:1 or not, and how many records it has."""
    now_ms = SystemClock().now_ms()
    wanted = size_bytes - _BATCH_SLACK_BYTES
    records = wanted // (_VALUE_BYTES + 9)
    while True:
        values = [os.urandom(_VALUE_BYTES // 4).hex().ljust(_VALUE_BYTES, ".").encode() for _ in range(records)]
        # Of this moment: records from 1970 are for retention.ms to delete.
        batch = bytes(pack([(now_ms, None, value, ()) for value in values], CODECS[codec]))
        if len(batch) <= wanted and (codec == "none" or len(batch) > wanted * 0.95):
            return batch, records
        records = int(records * wanted / len(batch) * 0.99)


class Topic:
    """A topic that lives for one measurement, and what is known to be in it."""

    def __init__(self, broker: BrokerProcess, layout: Layout, name: str) -> None:
        self._broker = broker
        self._layout = layout
        self._name = name
        self._batch, self._records = batch_of(layout.size, layout.codec)
        self._batches = [0] * layout.partitions
        self._acknowledged = 0
        broker.create_topic(name, layout.partitions)
        # One batch each, not counted: every partition is open and has its segment.
        self._note(run_flat_out(broker.address, self.produce_load(ACKS_ALL), 1, _WARM_UP_S, 0))

    def produce(self, acks: int, seconds: float, bytes_max: int) -> Figures:
        load = self.produce_load(acks)
        figures = run_flat_out(self._broker.address, load, self._layout.connections, seconds, bytes_max)
        return self._note(figures)

    def produce_load(self, acks: int) -> Load:
        layout = self._layout
        load = produce_load(self._name, layout.partitions, self._batch, self._records, acks, WINDOWS[layout.size])
        is_shared = layout.connections > 1
        return replace(load, offsets=[count * self._records for count in self._batches], is_shared=is_shared)

    def _note(self, figures: Figures) -> Figures:
        """What was acknowledged is in the log, once: the last offset of each partition says how many batches it has."""
        self._batches = [max(was, end // self._records) for was, end in zip(self._batches, figures.ends, strict=True)]
        self._acknowledged += figures.requests
        if sum(self._batches) != self._acknowledged:
            raise LoadFailed(f"{self._acknowledged} batches were acknowledged, and the log has {sum(self._batches)}")
        return figures

    def fetch(self, seconds: float) -> Figures:
        return run_flat_out(self._broker.address, self.fetch_load(), self._layout.connections, seconds, 1 << 40)

    def fetch_load(self, fetch_bytes: int = FETCH_BYTES) -> Load:
        together = max(1, fetch_bytes // len(self._batch))
        most = max(1, _FETCH_REQUESTS_MAX // self._layout.partitions) * together
        batches = [min(count, most) for count in self._batches]
        window = WINDOWS[self._layout.size] if together == 1 else WINDOWS["1 MB"]
        return fetch_load(self._name, batches, self._batch, self._records, window, together)

    def delete(self) -> None:
        self._broker.delete_topic(self._name)


class Bench:
    """The measurements that share one broker process."""

    def __init__(self, broker: BrokerProcess, place: Place, effort: Effort) -> None:
        self._broker = broker
        self._place = place
        self._effort = effort
        self._topics = 0

    def topic(self, layout: Layout) -> Topic:
        self._topics += 1
        return Topic(self._broker, layout, f"bench-{self._topics:05d}")

    def produce_once(self, layout: Layout, acks: int) -> float:
        topic = self.topic(layout)
        figures = topic.produce(acks, self._effort.seconds, self._effort.bytes_max)
        topic.delete()
        return figures.bytes_per_second

    def produce_rows(self, layout: Layout) -> list[Row]:
        effort, place = self._effort, self._place
        batch, _ = batch_of(layout.size, layout.codec)
        limit = (place, batch, effort.seconds, effort.bytes_max)
        example = produce_load("bench-00000", layout.partitions, batch, 1, 1, WINDOWS[layout.size])
        with broker_sink.running(example.request_bytes, example.answers.example) as sink:
            runs: dict[str, Callable[[], float]] = {
                "acks=1": lambda: self.produce_once(layout, 1),
                "append": lambda: broker_limits.append(*limit),
                "acks=all": lambda: self.produce_once(layout, ACKS_ALL),
                "sync": lambda: broker_limits.append_and_sync(*limit),
                "sync 8 MiB": lambda: broker_limits.append_and_sync(*limit, _SYNC_BYTES),
                "sink": lambda: (
                    run_flat_out(
                        sink, example.for_sink(), layout.connections, effort.seconds, effort.bytes_max
                    ).bytes_per_second
                ),
            }
            found = Turns(effort.turns, runs)
        return [
            _against(f"produce acks=1, {layout}", found, "acks=1", "append", "page-cache append", "append"),
            _against("the same", found, "acks=1", "sink", "loopback, same sizes"),
            _against(
                f"produce acks=all, {layout}", found, "acks=all", "sync", "write+fdatasync each", "write+fdatasync"
            ),
            _against("the same", found, "acks=all", "sync 8 MiB", "fdatasync every 8 MiB"),
        ]

    def fetch_rows(self, layout: Layout) -> list[Row]:
        effort = self._effort
        topic = self.topic(layout)
        topic.produce(ACKS_ALL, effort.seconds, effort.bytes_max // 4)
        load = topic.fetch_load()
        with broker_sink.running(load.request_bytes, load.answers.example) as sink:
            runs: dict[str, Callable[[], float]] = {
                "fetch": lambda: topic.fetch(effort.seconds).bytes_per_second,
                "sink": lambda: (
                    run_flat_out(sink, load.for_sink(), layout.connections, effort.seconds, 1 << 40).bytes_per_second
                ),
                "stream": lambda: broker_limits.loopback_stream(effort.seconds),
            }
            found = Turns(effort.turns, runs)
        topic.delete()
        return [
            _against(f"fetch, {layout}", found, "fetch", "sink", "loopback, same sizes", "loopback"),
            _against("the same", found, "fetch", "stream", "loopback, plain stream"),
        ]

    def latency_rows(self) -> list[Row]:
        layout = Layout("4 KB", 1, 1)
        effort = self._effort
        rows = []
        for what, acks in (("produce acks=1", 1), ("produce acks=all", ACKS_ALL), ("fetch", None)):
            topic = self.topic(layout)
            topic.produce(ACKS_ALL, effort.seconds, MIB)
            load = topic.fetch_load(fetch_bytes=0) if acks is None else topic.produce_load(acks)
            figures = run_at_rate(self._broker.address, load, effort.rate, effort.rate_seconds)
            with broker_sink.running(load.request_bytes, load.answers.example) as sink:
                bare = run_at_rate(sink, load.for_sink(), effort.rate, effort.rate_seconds / 2)
            topic.delete()
            name = f"{what}, {layout.size} at {effort.rate:.0f}/s: p50 / p99 / p99.9"
            rows.append(Row(name, _percentiles(figures), f"the sink {_percentiles(bare)}"))
        return rows

    def librdkafka_rows(self) -> list[Row]:
        if find_spec("confluent_kafka") is None:
            return [Row("librdkafka from Python", "-", "confluent-kafka is not installed")]
        host, port = self._broker.address
        turns = max(1, self._effort.turns - 2)
        found = broker_librdkafka.measured(f"{host}:{port}", self._effort.librdkafka_records, turns)
        speed = {name: statistics.median(speeds) for name, speeds in found.items()}
        mock = f"its mock broker {per_second(speed['mock'])}"
        rows = [
            Row(
                f"librdkafka from Python, 100-byte values, acks={acks}", _records(speed[acks]), mock,
                statistics.median(one / other for one, other in zip(found[acks], found["mock"], strict=True)),
            )
            for acks in ("1", "all")
        ]  # fmt: skip
        return [*rows, Row("librdkafka from Python, consume", _records(speed["consume"]), "-")]


def run(place: Place, scale: Scale) -> Table:
    effort = _effort(scale)
    rows = _start_rows(place, effort)
    path = place.fresh()
    with broker_process.running(path / "log") as broker:
        idle = broker.memory_bytes()
        bench = Bench(broker, place, effort)
        for layout in (Layout("64 KB", 1, 1), Layout("64 KB", 8, 8), Layout("1 MB", 1, 1), Layout("1 MB", 8, 8)):
            rows += bench.produce_rows(layout)
            rows += bench.fetch_rows(layout)
        rows += bench.latency_rows()
        rows += bench.librdkafka_rows()
        loaded, after = broker.memory_bytes(peak=True), broker.memory_bytes()
    place.give_back(path)
    rows += [
        Row("memory, idle", _megabytes(idle), "-", None, "<= 45 MB", idle <= _IDLE_TARGET_BYTES),
        Row("memory, the most during all this", _megabytes(loaded), f"{_megabytes(after)} afterwards"),
    ]
    return table_of("The broker, over the loopback", rows, _notes())


def _notes() -> list[str]:
    windows = ", ".join(f"{WINDOWS[size]} requests of {size}" for size in SIZES)
    return [
        f"""\
A load client that speaks the protocol raw, in a process beside the broker's: the same encoded batch again and again, \
{windows} under way on a connection, every answer checked for its error code and its offset.""",
        f"""\
'Loopback, same sizes' is the same client against a process that counts bytes and answers at once: no broker can be \
faster with this client on {os.cpu_count()} cores, which broker and client share.""",
        "A fetch asks for up to 1 MiB of a partition, as consumers do by default; a latency is that of one batch.",
        "A latency counts from the moment the request was due, one connection, whether or not the last was answered.",
        """\
Cold start: from exec of `foldlog serve` to the acknowledgement (acks=all) of a record in a topic that is made for it, \
with ApiVersions and Metadata on the way.""",
    ]


def run_matrix(place: Place, scale: Scale) -> Table:
    effort = _effort(scale)
    path = place.fresh()
    lines = []
    with broker_process.running(path / "log") as broker:
        bench = Bench(broker, place, effort)
        for size in SIZES:
            for connections in (1, 8):
                for partitions in effort.partitions:
                    plain = Layout(size, connections, partitions)
                    columns = [_cells(bench, replace(plain, codec=codec), effort) for codec in CODECS]
                    pairs = zip(*columns, strict=True)
                    lines.append([str(plain), *(cell for pair in pairs for cell in pair)])
    place.give_back(path)
    head = ["batches"]
    head += [f"{what}, {codec}" for what in ("acks=1", "acks=all", "fetch") for codec in CODECS]
    notes = [
        "Bytes of batches per second, sizes as on the wire and on disk: an lz4 batch of 64 KB has twice the records.",
        "Each request holds one batch for one partition, and goes through the partitions in turn; measured once each.",
    ]
    return Table("The broker, every combination", head, lines, notes)


def _cells(bench: Bench, layout: Layout, effort: Effort) -> list[str]:
    """acks=1, acks=all, and a fetch of what that wrote."""
    gc.collect()
    speeds = []
    for acks in (1, ACKS_ALL):
        topic = bench.topic(layout)
        figures = topic.produce(acks, effort.matrix_seconds, effort.bytes_max)
        speeds.append(figures.bytes_per_second)
        if acks == ACKS_ALL:
            speeds.append(topic.fetch(effort.matrix_seconds).bytes_per_second)
        topic.delete()
    return [bytes_per_second(speed) for speed in speeds]


def _start_rows(place: Place, effort: Effort) -> list[Row]:
    batch, _ = batch_of("4 KB", "none")
    fresh, again, bare = [], [], []
    path = place.fresh()
    broker_process.cold_start(path / "log", batch)  # the bytecode is written
    place.give_back(path)
    for _ in range(effort.turns):
        path = place.fresh()
        fresh.append(broker_process.cold_start(path / "log", batch))
        again.append(broker_process.cold_start(path / "log", batch))
        bare.append(broker_process.interpreter_start())
        place.give_back(path)
    beside = f"python -c pass {duration(statistics.median(bare))}"
    rows = []
    for name, found in (("an empty directory", fresh), ("the same after kill -9", again)):
        took = statistics.median(found)
        target, met = f"<= {_COLD_START_TARGET_S} s", took <= _COLD_START_TARGET_S
        rows.append(Row(f"cold start to first ack, {name}", duration(took), beside, None, target, met))
    return rows


def _against(name: str, found: Turns, ours: str, other: str, beside: str, target: str = "") -> Row:
    ratio = found.ratio(ours, other)
    shown, limit = bytes_per_second(found.speed(ours)), bytes_per_second(found.speed(other))
    if not target:
        return Row(name, shown, f"{beside} {limit}", ratio)
    return Row(name, shown, f"{beside} {limit}", ratio, f">= {_TARGET} of {target}", ratio >= _TARGET)


def _percentiles(figures: Figures) -> str:
    return " / ".join(duration(percentile(figures.latencies_s, percent)) for percent in (50, 99, 99.9))


def _records(speed: float) -> str:
    return f"{per_second(speed)}, {bytes_per_second(speed * _VALUE_BYTES)}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB"
