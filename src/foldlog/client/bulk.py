"""Whole ranges as Arrow tables, in and out, without a Python object per record.

Reading splits each partition into ranges and reads them on a few threads: their work (pread, CRC, gathering columns)
releases the interpreter's lock. Writing is a pipeline of three: one thread packs a chunk, the caller writes the one
before it, the log's own threads sync the one before that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from threading import Condition
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from foldlog.broker.topics.names import refuse_user_write
from foldlog.client.accumulator import writable_partition
from foldlog.client.backends.backend import DirectoryBroker, WritablePartition
from foldlog.client.isolation import ReadablePartition
from foldlog.client.outgoing import checked_partition, emptiest
from foldlog.client.positions import Place, resolve_place
from foldlog.client.reader import refuse_end, resolve_stop
from foldlog.environment import CORES
from foldlog.errors import FoldlogError, InvalidArgument, MissingDependency, SerializationError, brief_repr
from foldlog.limits import (
    ARROW_PACK_BYTES,
    ARROW_READ_BYTES,
    ARROW_READ_THREADS,
    ARROW_SYNC_BYTES,
    ARROW_WRITE_BYTES,
    READ_CHUNK_BYTES,
)

if TYPE_CHECKING:
    import pyarrow as pa

Item = TypeVar("Item")

_RANGE_BYTES_MIN = 16 << 20
"""Below this a second thread costs more than it saves."""

_USED = ("value", "key", "headers", "timestamp", "partition")
_IGNORED = ("topic", "offset", "timestamp_type")
"""Columns of `read_arrow` that the log sets by itself: a table that was read can be appended as it is."""


class Range(NamedTuple):
    """Offsets of one partition to read: start inclusive, stop exclusive."""

    log: ReadablePartition
    start: int
    stop: int


def plan_ranges(
    logs: Mapping[int, ReadablePartition], starts: Mapping[int, object], stops: Mapping[int, object]
) -> list[Range]:
    """The ranges to read of each partition, split into pieces for several threads, in order."""
    ranges: list[Range] = []
    for number, log in sorted(logs.items()):
        stop = resolve_stop(log, stops.get(number, "end"))
        if stop > log.high_watermark:
            stop = min(stop, log.acknowledged_end())
        start = resolve_place(log, starts.get(number, "start"), "start")
        held = max(1, log.high_watermark - log.log_start_offset)
        estimated_bytes = log.size_bytes * max(0, stop - start) // held
        pieces = max(1, min(read_threads(), estimated_bytes // _RANGE_BYTES_MIN))
        edges = [start + (stop - start) * piece // pieces for piece in range(pieces + 1)]
        ranges.extend(Range(log, low, high) for low, high in pairwise(edges) if low < high)
    return ranges


def read_threads() -> int:
    """How many threads one bulk read uses."""
    return min(ARROW_READ_THREADS, CORES)


def read_table(ranges: Sequence[Range], columns: Sequence[str]) -> pa.Table:
    """One table of all ranges, in their order."""
    pa = pyarrow_for("read_arrow()")
    from foldlog.records.arrow import schema

    wanted = schema(columns)
    if len(ranges) <= 1:
        batches = [batch for piece in ranges for batch in _read_range(piece, columns)]
    else:
        with ThreadPoolExecutor(read_threads(), thread_name_prefix="foldlog-arrow") as pool:
            found = pool.map(lambda piece: list(_read_range(piece, columns)), ranges)
            batches = [batch for batches_of_one in found for batch in batches_of_one]
    if not wanted.names:
        return pa.Table.from_batches(batches) if batches else pa.table({})
    return pa.Table.from_batches(batches, schema=wanted)


def pyarrow_for(call: str) -> Any:
    """The module. Raises MissingDependency if it is not installed, since the log works without it."""
    try:
        import pyarrow as pa
    except ModuleNotFoundError:
        raise MissingDependency(call, "pyarrow", "arrow") from None
    return pa


def _read_range(piece: Range, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    log, offset, stop = piece
    read = partial(_read, log)
    return read_batches(read, log.label, offset, stop, columns, decompressed_limit=log.decompressed_limit)


def _read(log: ReadablePartition, offset: int, memory: bytearray) -> tuple[Any, int]:
    found = log.read(offset, ARROW_READ_BYTES, memory)
    return (found.data, found.next_offset) if found.next_offset > offset else refuse_end(log, offset)


def read_batches(
    read: Callable[[int, bytearray], tuple[Any, int]],
    label: tuple[str, int],
    offset: int,
    stop: int,
    columns: Sequence[str],
    *,
    decompressed_limit: int,
) -> Iterator[pa.RecordBatch]:
    """The records of a partition from `offset` to `stop`. `read` returns the bytes from an offset on, possibly in the
    memory that it is given, and the offset after them.

    `read` raises if the log ends before `stop`: missing records must not count as read.
    """
    from foldlog.records.arrow import arrow_batches

    topic, number = label
    memory = bytearray(ARROW_READ_BYTES + READ_CHUNK_BYTES)  # data are copied into columns, so one buffer suffices
    while offset < stop:
        data, next_offset = read(offset, memory)
        yield from arrow_batches(
            data,
            topic=topic,
            partition=number,
            start_offset=offset,
            end_offset=min(stop, next_offset),
            columns=columns,
            decompressed_limit=decompressed_limit,
        )
        offset = next_offset


class _Acks:
    """How much is appended and not durable yet. Any thread."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._waiting_bytes = 0
        self._error: FoldlogError | None = None

    def expect(self, size_bytes: int) -> Callable[[FoldlogError | None], None]:
        with self._changed:
            self._waiting_bytes += size_bytes

        def acknowledged(error: FoldlogError | None) -> None:
            with self._changed:
                self._waiting_bytes -= size_bytes
                self._error = self._error or error
                self._changed.notify_all()

        return acknowledged

    def wait_below(self, limit_bytes: int) -> None:
        """Wait until at most `limit_bytes` are not durable; raises the first error."""
        with self._changed:
            while self._error is None and self._waiting_bytes > limit_bytes:
                self._changed.wait()
            if self._error is not None:
                raise self._error


class TableAppender:
    """Appends one table to one topic. Used once, by one thread."""

    def __init__(self, broker: DirectoryBroker, topic: str, compression: int, batch_bytes: int) -> None:
        refuse_user_write(topic)
        self._broker = broker
        self._topic = broker.topic(topic)
        self._compression = compression
        config = self._topic.config.log
        self._write_bytes = min(ARROW_WRITE_BYTES, config.segment_bytes)
        self._batch_bytes = min(batch_bytes, config.max_message_bytes, config.segment_bytes)
        self._now_ms = broker.clock.now_ms()
        self._acks = _Acks()
        self._unsynced: dict[int, tuple[WritablePartition, int, int]] = {}
        self._unsynced_bytes = 0
        self._appended: dict[int, tuple[int, int]] = {}
        self._keyless = -1

    def append(self, table: pa.Table | pa.RecordBatch) -> dict[int, tuple[int, int]]:
        """Durable on return: per partition the first offset, and one past the last."""
        check_table(table, self._topic.name, is_compacted=self._topic.config.log.compact)
        with ThreadPoolExecutor(1, thread_name_prefix="foldlog-pack") as packer:
            for number, groups in one_ahead(packer, self._packed(table)):
                log = self._partition(number)
                for group in groups:
                    self._append(number, log, group)
        self._sync_all()
        self._acks.wait_below(0)
        return dict(sorted(self._appended.items()))

    def _packed(self, table: pa.Table | pa.RecordBatch) -> Iterator[tuple[int, list[list[bytearray]]]]:
        """The rows as batches, chunk by chunk, in groups that are written together, with their partition."""
        from foldlog.records.arrow import pack_arrow, route

        count = self._topic.partition_count
        routes_itself = count == 1 and "partition" not in table.schema.names
        for chunk in chunks_of(table):
            for number, rows in [(0, chunk)] if routes_itself else route(chunk, count):
                chosen = self._next_keyless() if number < 0 else checked_partition(self._topic.name, number, count)
                packed = pack_arrow(
                    rows, now_ms=self._now_ms, compression=self._compression, max_batch_bytes=self._batch_bytes
                )
                yield chosen, list(_grouped((batch.buffer for batch in packed), self._write_bytes))

    def _append(self, number: int, log: WritablePartition, batches: list[bytearray]) -> None:
        size_bytes = sum(map(len, batches))
        appended = log.append(*batches, trusted=True)
        first, _ = self._appended.get(number, (appended.base_offset, 0))
        self._appended[number] = (first, appended.next_offset)
        _, _, waiting_bytes = self._unsynced.get(number, (log, 0, 0))
        self._unsynced[number] = (log, appended.next_offset, waiting_bytes + size_bytes)
        self._unsynced_bytes += size_bytes
        if self._unsynced_bytes >= ARROW_SYNC_BYTES:
            self._sync_all()

    def _sync_all(self) -> None:
        """Request syncs of what was appended since the last call; the caller packs on, and at most two chunks wait."""
        for log, next_offset, size_bytes in self._unsynced.values():
            log.on_acknowledged(next_offset, self._acks.expect(size_bytes))
        self._unsynced.clear()
        self._unsynced_bytes = 0
        self._acks.wait_below(2 * ARROW_SYNC_BYTES)

    def _partition(self, number: int) -> WritablePartition:
        return writable_partition(self._broker.writable_partition, self._topic.name, number)

    def _next_keyless(self) -> int:
        """The partition for rows without key or partition: one per chunk, beginning with the emptiest."""
        count = self._topic.partition_count
        if self._keyless < 0:
            self._keyless = emptiest([self._partition(number).log_end_offset for number in range(count)])
        else:
            self._keyless = (self._keyless + 1) % count
        return self._keyless


def check_table(table: pa.Table | pa.RecordBatch, topic: str, *, is_compacted: bool) -> None:
    """Raises unless every column of the table has a place in a record."""
    pa = pyarrow_for("append_arrow()")
    if not isinstance(table, pa.Table | pa.RecordBatch):
        raise InvalidArgument(
            f"append_arrow() takes a pyarrow Table or RecordBatch, not a {type(table).__name__};"
            " make one with pyarrow.table()"
        )
    names = table.schema.names
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise SerializationError(f"there are {names.count(twice[0])} columns {twice[0]!r}; drop all but one")
    unknown = [name for name in table.schema.names if name not in _USED and name not in _IGNORED]
    if unknown:
        raise SerializationError(
            f"column {unknown[0]!r} would be lost: a record has {', '.join(_USED)}; put it into the value, or drop it"
        )
    if is_compacted and ("key" not in table.schema.names or table.column("key").null_count):
        raise InvalidArgument(f"topic {topic!r} is compacted: every row needs a key")


def _grouped(batches: Iterable[bytearray], limit_bytes: int) -> Iterator[list[bytearray]]:
    """Groups of batches of about `limit_bytes`: an append costs the same for one as for many."""
    group: list[bytearray] = []
    size_bytes = 0
    for batch in batches:
        if group and size_bytes + len(batch) > limit_bytes:
            yield group
            group, size_bytes = [], 0
        group.append(batch)
        size_bytes += len(batch)
    if group:
        yield group


def one_ahead(pool: ThreadPoolExecutor, items: Iterator[Item]) -> Iterator[Item]:
    """The items, each made on the pool's thread while the one before it is used."""
    coming = pool.submit(next, items, None)
    while (item := coming.result()) is not None:
        coming = pool.submit(next, items, None)
        yield item


def chunks_of(table: pa.Table | pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The table's rows in pieces of about ARROW_PACK_BYTES."""
    per_chunk = max(1024, table.num_rows * ARROW_PACK_BYTES // max(1, table.nbytes))
    for start in range(0, table.num_rows, per_chunk):
        piece = table.slice(start, per_chunk)
        if hasattr(piece, "to_batches"):
            yield from piece.to_batches()
        else:
            yield piece


def checked_columns(columns: object) -> list[str]:
    """A list of column names; whether they exist is checked later."""
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise InvalidArgument(f"columns={brief_repr(columns)} is not a list of names; give one such as ['offset']")
    names: list[str] = []
    for name in columns:
        if not isinstance(name, str):
            raise InvalidArgument(f"column {brief_repr(name)} is not a name; give a list such as ['offset', 'value']")
        names.append(name)
    return names


def per_partition(given: Mapping[int, Place] | Place | None, numbers: Iterable[int], what: str) -> dict[int, object]:
    """One place for all partitions, or a mapping that names some of them; the others get the default."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        return dict.fromkeys(numbers, given)
    known = set(numbers)
    for number in given:
        if number not in known or type(number) is not int:
            raise InvalidArgument(f"{what} names partition {number!r}, which is not among those read: {sorted(known)}")
    return dict(given)
