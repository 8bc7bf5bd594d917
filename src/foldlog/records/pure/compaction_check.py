"""Checks that compaction lost nothing: compares its output with its input. Compaction keeps a record if its key has no
newer offset; the check, if its offset is one of the newest. Both take these offsets from the key map: whether that
tells keys apart is checked with `DroppedSample` and `key_at`, which compare whole keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from foldlog.errors import InvalidArgument, InvalidBatch
from foldlog.records import batch as fmt
from foldlog.records import varint
from foldlog.records.compression import READ_DECOMPRESSED_BYTES
from foldlog.records.pure.compaction import KeyMap
from foldlog.records.pure.headers import BatchHeader, bytes_of, read_header
from foldlog.records.pure.reading import open_body


class _LostError(Exception):
    """A record that has to be there is missing."""


class _ChangedError(Exception):
    """A record or batch differs from the original."""


class _CheckedRecord(NamedTuple):
    """The compared parts of a record: the fields up to the value's length, and all bytes from the offset delta on."""

    attributes: int
    timestamp: int
    offset_delta: int
    key: bytes | None
    value_bytes: int
    rest: bytes  # from the offset delta on


_MASK64: Final = (1 << 64) - 1


class DroppedSample:
    """A uniform random sample of at most `capacity` superseded records that compaction dropped: offset and key. Keys
    over `key_bytes_max` are left out, so that its memory is bounded. `seen`: how many there were."""

    __slots__ = ("_records", "_state", "capacity", "key_bytes_max", "seen")

    def __init__(self, capacity: int, key_bytes_max: int, seed: int) -> None:
        if capacity < 1:
            raise InvalidArgument(f"a sample has room for at least one record, not {capacity}")
        self.capacity = capacity
        self.key_bytes_max = key_bytes_max
        self.seen = 0
        self._state = seed
        self._records: list[tuple[int, bytes]] = []

    def note(self, offset: int, key: bytes) -> None:
        if len(key) > self.key_bytes_max:
            return
        self.seen += 1
        if self.seen <= self.capacity:
            self._records.append((offset, key))
            return
        index = self._next_random() % self.seen
        if index < self.capacity:
            self._records[index] = (offset, key)

    def records(self) -> list[tuple[int, bytes]]:
        """(offset, key) of each in the sample, in no order."""
        return list(self._records)

    def _next_random(self) -> int:
        """SplitMix64."""
        self._state = mixed = (self._state + 0x9E3779B97F4A7C15) & _MASK64
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK64
        return mixed ^ (mixed >> 31)


class _Expected:
    """The newest offsets, and how many of them were seen so far."""

    def __init__(self, newest: Any, at: int) -> None:
        self._newest = memoryview(newest).cast("B").cast("q")
        self.at = at

    def has_before(self, offset: int) -> bool:
        return self.at < len(self._newest) and self._newest[self.at] < offset

    def take(self, offset: int) -> bool:
        """Whether `offset` is the next of them; raises _LostError if one before it was skipped."""
        if self.has_before(offset):
            raise _LostError
        is_newest = self.has_before(offset + 1)
        self.at += is_newest
        return is_newest

    def pass_to(self, offset: int) -> None:
        while self.has_before(offset):
            self.at += 1


def check_compacted(
    buffer: Any,
    rewritten: Any,
    keys: KeyMap,
    newest: Any,
    at: int,
    *,
    mapped_start: int,
    mapped_end: int,
    now_ms: int,
    keep_batches: frozenset[int] = frozenset(),
    dropped: DroppedSample | None = None,
    decompressed_limit: int = READ_DECOMPRESSED_BYTES,
) -> int:
    """Check that `rewritten` is `buffer` without records that may go: raises InvalidBatch, with a position in `buffer`.

    `newest` is `KeyMap.newest_offsets` of a map of the offsets [mapped_start, mapped_end), `at` how many of them are
    before the buffer; returns how many are before its end. Each of these has to be there. A record may go if it has a
    key and is not the key's newest, or is a tombstone whose delete horizon has passed. The rest has to be unchanged.
    Superseded records that went are noted in `dropped`.
    """
    if at < 0:
        raise InvalidArgument(f"{at} of the newest offsets cannot lie before the buffer")
    expected = _Expected(newest, at)
    mapped = range(mapped_start, mapped_end)
    with bytes_of(buffer) as before, bytes_of(rewritten) as after:
        check = _Check(before, after, keys, expected, mapped, now_ms, keep_batches, decompressed_limit, dropped)
        position = made_position = 0
        while position < len(before):
            old = read_header(before, position, offsets_assigned=True)
            position += old.size
            try:
                made = read_header(after, made_position, offsets_assigned=True) if made_position < len(after) else None
            except InvalidBatch as error:
                raise InvalidBatch(error.reason, old.position) from None
            if made is not None and made.base_offset != old.base_offset:
                made = None
            made_position += made.size if made is not None else 0
            try:
                check.batch(old, made)
            except _LostError:
                raise InvalidBatch(fmt.FAULT_LOST, old.position) from None
            except _ChangedError:
                raise InvalidBatch(fmt.FAULT_CHANGED, old.position) from None
            except varint.VarintError as error:
                raise InvalidBatch(str(error), old.position) from None
        if made_position != len(after):
            raise InvalidBatch(fmt.FAULT_CHANGED, position)
    return expected.at


@dataclass(frozen=True, slots=True)
class _Check:
    """One comparison: the bytes before and after, and the rules for records that may go. `made` is the rewritten batch,
    None if it was dropped."""

    before: memoryview
    after: memoryview
    keys: KeyMap
    expected: _Expected
    mapped: range
    now_ms: int
    keep_batches: frozenset[int]
    decompressed_limit: int
    dropped: DroppedSample | None

    def batch(self, old: BatchHeader, made: BatchHeader | None) -> None:
        """Raises _LostError or _ChangedError if the batch may not become that."""
        if self.expected.has_before(old.base_offset):
            raise _LostError
        if made is None and (old.is_control or old.base_offset in self.keep_batches):
            raise _LostError
        is_same = made is not None and _bytes_of(self.after, made) == _bytes_of(self.before, old)
        if made is not None and not is_same and (old.is_control or not _keeps_its_header(old, made)):
            raise _ChangedError
        if old.is_control or (is_same and old.record_count == old.last_offset_delta + 1):
            # Every offset of a batch without gaps is there; those of a control batch are no key's newest.
            if old.is_control and self.expected.has_before(old.next_offset):
                raise _LostError
            self.expected.pass_to(old.next_offset)
            return
        self._records(old, made)
        if self.expected.has_before(old.next_offset):
            raise _LostError

    def _records(self, old: BatchHeader, made: BatchHeader | None) -> None:
        records = _records_of(self.before, old, old.position, self.decompressed_limit)
        made_records: Iterator[_CheckedRecord] = iter(())
        if made is not None:
            made_records = _records_of(self.after, made, old.position, self.decompressed_limit)
        kept = next(made_records, None)
        latest = -fmt.MAX_INT64
        for record in records:
            offset = old.base_offset + record.offset_delta
            is_newest = self.expected.take(offset)
            if kept is None or kept.offset_delta != record.offset_delta:
                self._check_may_go(record, offset, old, is_newest=is_newest)
                continue
            if kept != record:
                raise _ChangedError
            latest = max(latest, kept.timestamp)
            kept = next(made_records, None)
        if kept is not None:
            raise _ChangedError
        if made is not None and made.record_count and not made.is_log_append_time and made.max_timestamp != latest:
            raise _ChangedError

    def _check_may_go(self, record: _CheckedRecord, offset: int, old: BatchHeader, *, is_newest: bool) -> None:
        if record.key is None or offset >= self.mapped.stop:
            raise _LostError
        if record.value_bytes < 0 and old.has_delete_horizon and self.now_ms >= old.base_timestamp:
            return  # a tombstone past its delete horizon
        if is_newest or (offset < self.mapped.start and self.keys.newest(record.key) <= offset):
            raise _LostError
        if self.dropped is not None:
            self.dropped.note(offset, record.key)


def key_at(buffer: Any, offset: int, *, decompressed_limit: int = READ_DECOMPRESSED_BYTES) -> bytes | None:
    """The key of the record at `offset` in these batches; None if there is no such record, or it has no key."""
    with bytes_of(buffer) as view:
        position = 0
        while position < len(view):
            header = read_header(view, position, offsets_assigned=True)
            position += header.size
            if header.next_offset <= offset:
                continue
            if header.base_offset > offset or header.is_control:
                return None
            try:
                for record in _records_of(view, header, header.position, decompressed_limit):
                    if header.base_offset + record.offset_delta == offset:
                        return record.key
            except varint.VarintError as error:
                raise InvalidBatch(str(error), header.position) from None
            except _ChangedError:
                return None
            return None
    return None


def _bytes_of(view: memoryview, header: BatchHeader) -> memoryview:
    return view[header.position : header.position + header.size]


def _keeps_its_header(old: BatchHeader, made: BatchHeader) -> bool:
    """Whether everything that does not depend on the kept records is unchanged."""
    kept = fmt.LOG_APPEND_TIME | fmt.TRANSACTIONAL | fmt.CONTROL | (fmt.COMPRESSION_MASK if made.record_count else 0)
    if old.attributes & kept != made.attributes & kept:
        return False
    if (
        made.record_count
        and old.has_delete_horizon
        and (not made.has_delete_horizon or made.base_timestamp != old.base_timestamp)
    ):
        return False
    same = ("last_offset_delta", "leader_epoch", "producer_id", "producer_epoch", "base_sequence")
    return all(getattr(made, name) == getattr(old, name) for name in same) and (
        made.max_timestamp == old.max_timestamp or not old.is_log_append_time
    )


def _records_of(view: memoryview, header: BatchHeader, position: int, limit: int) -> Iterator[_CheckedRecord]:
    try:
        body = open_body(view, header, limit)
    except InvalidBatch as error:
        raise type(error)(error.reason, position) from None
    data, at = body.data, body.start
    for _ in range(header.record_count):
        length, at = varint.decode32(data, at, body.end)
        end = at + length
        if length < 1 or end > body.end:
            raise varint.VarintError(fmt.FAULT_FIELD_LENGTH if length < 1 else fmt.FAULT_RECORD_CUT_OFF)
        timestamp_delta, after_timestamp = varint.decode64(data, at + 1, end)
        timestamp = header.base_timestamp + timestamp_delta
        if not -fmt.MAX_INT64 - 1 <= timestamp <= fmt.MAX_INT64:
            raise varint.VarintError(fmt.FAULT_TIMESTAMP)
        offset_delta, key_at = varint.decode32(data, after_timestamp, end)
        key_bytes, key_at = _field_length(data, key_at, end)
        value_bytes, _ = _field_length(data, key_at + max(key_bytes, 0), end)
        key = None if key_bytes < 0 else bytes(data[key_at : key_at + key_bytes])
        yield _CheckedRecord(data[at], timestamp, offset_delta, key, value_bytes, bytes(data[after_timestamp:end]))
        at = end
    if at != body.end:
        raise _ChangedError


def _field_length(data: memoryview, position: int, end: int) -> tuple[int, int]:
    length, position = varint.decode32(data, position, end)
    if length < -1:
        raise varint.VarintError(fmt.FAULT_FIELD_LENGTH)
    if length > end - position:
        raise varint.VarintError(fmt.FAULT_RECORD_CUT_OFF)
    return length, position
