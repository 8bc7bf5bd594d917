"""Types of the compiled loops; `kernels_py` has the same names in Python. Buffers are anything bytes-like."""

from collections.abc import Iterable, Sequence
from typing import Any

from typing_extensions import Buffer

from foldlog.records.columns import BinaryInput, Gathered, HeadersInput, Int64Input, PackedBatch

Headers = tuple[tuple[str, bytes | None], ...]
HeaderItems = Iterable[tuple[str, Buffer | str | None]]

class BatchHeader:
    position: int
    size: int
    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    crc: int
    keyless_count: int
    def __init__(
        self,
        position: int,
        size: int,
        base_offset: int,
        leader_epoch: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        record_count: int,
        crc: int,
        keyless_count: int = -1,
    ) -> None: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def compression(self) -> int: ...
    @property
    def is_control(self) -> bool: ...
    @property
    def is_transactional(self) -> bool: ...
    @property
    def is_log_append_time(self) -> bool: ...
    @property
    def has_delete_horizon(self) -> bool: ...

class Walk:
    headers: list[BatchHeader]
    end: int
    problem: str | None
    needed_bytes: int
    def __init__(self, headers: list[BatchHeader], end: int, problem: str | None, needed_bytes: int) -> None: ...

class Record:
    __match_args__ = (
        "topic",
        "partition",
        "offset",
        "timestamp_ms",
        "timestamp_type",
        "key",
        "value",
        "headers",
        "leader_epoch",
    )
    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp_ms: int,
        timestamp_type: int,
        key: Any,
        value: Any,
        headers: Headers = (),
        leader_epoch: int = -1,
    ) -> None: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def timestamp_type(self) -> int: ...
    @property
    def key(self) -> Any: ...
    @property
    def value(self) -> Any: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def leader_epoch(self) -> int: ...
    def __hash__(self) -> int: ...
    def json(self) -> Any: ...
    def text(self) -> str | None: ...
    def replace(self, *, key: Any = ..., value: Any = ...) -> Record: ...

class BatchBuilder:
    max_bytes: int
    max_records: int
    def __init__(self, max_bytes: int, max_records: int = 2147483647) -> None: ...
    @property
    def count(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    def append(
        self, timestamp_ms: int, key: Buffer | None, value: Buffer | None, headers: HeaderItems | None = ()
    ) -> int: ...
    def build(
        self,
        compression: int = 0,
        *,
        level: int | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        base_offset: int = 0,
    ) -> bytearray: ...
    def clear(self) -> None: ...

class KeyMap:
    @property
    def capacity(self) -> int: ...
    def __init__(self, capacity: int) -> None: ...
    def __len__(self) -> int: ...
    def add(
        self, buffer: Buffer, *, start_offset: int = 0, end_offset: int = ..., decompressed_limit: int = ...
    ) -> int: ...
    def newest(self, key: Buffer) -> int: ...
    def newest_offsets(self) -> bytearray: ...

class DroppedSample:
    @property
    def capacity(self) -> int: ...
    @property
    def key_bytes_max(self) -> int: ...
    @property
    def seen(self) -> int: ...
    def __init__(self, capacity: int, key_bytes_max: int, seed: int) -> None: ...
    def records(self) -> list[tuple[int, bytes]]: ...

class CompactStats:
    records_in: int
    records_out: int
    batches_in: int
    batches_out: int
    bytes_in: int
    bytes_out: int
    def __init__(
        self,
        records_in: int = 0,
        records_out: int = 0,
        batches_in: int = 0,
        batches_out: int = 0,
        bytes_in: int = 0,
        bytes_out: int = 0,
    ) -> None: ...

def walk(
    buffer: Buffer,
    position: int = 0,
    *,
    expected_offset: int = -1,
    gaps_below: int = 0,
    before_offset: int = ...,
    max_bytes: int = ...,
    check_crc: bool = True,
) -> Walk: ...
def check_epochs(headers: list[BatchHeader], starts: Sequence[tuple[int, int]]) -> tuple[BatchHeader, int] | None: ...
def validate(buffer: Buffer, *, max_batch_bytes: int, decompressed_limit: int) -> list[BatchHeader]: ...
def beginnings(buffer: Buffer, length: int, *, decompressed_limit: int) -> tuple[set[bytes], set[bytes]]: ...
def assign_offsets(
    buffer: Buffer,
    headers: list[BatchHeader],
    first_offset: int,
    leader_epoch: int,
    append_time_ms: int = -1,
) -> int: ...
def decode(
    buffer: Buffer,
    topic: str,
    partition: int,
    *,
    start_offset: int = 0,
    end_offset: int = ...,
    max_records: int = ...,
    decompressed_limit: int = ...,
    enough_bytes: int = ...,
) -> tuple[list[Record], int]: ...
def pack(
    records: Iterable[tuple[int, Buffer | None, Buffer | None, HeaderItems | None]],
    compression: int = 0,
    *,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    base_offset: int = 0,
) -> bytearray: ...
def empty_batch(header: BatchHeader) -> bytes: ...
def control_batch(
    kind: int, coordinator_epoch: int, producer_id: int, producer_epoch: int, timestamp_ms: int
) -> bytearray: ...
def offset_at_time(
    buffer: Buffer, timestamp_ms: int, start_offset: int = 0, *, decompressed_limit: int = ...
) -> tuple[int, int] | None: ...
def murmur2(key: Buffer) -> int: ...
def compact(
    buffer: Buffer,
    keys: KeyMap,
    *,
    now_ms: int,
    delete_retention_ms: int,
    mapped_end: int,
    keep_batches: frozenset[int] = ...,
    keep_last: bool = False,
    decompressed_limit: int = ...,
) -> tuple[bytearray, CompactStats]: ...
def check_compacted(
    buffer: Buffer,
    rewritten: Buffer,
    keys: KeyMap,
    newest: Buffer,
    at: int,
    *,
    mapped_start: int,
    mapped_end: int,
    now_ms: int,
    keep_batches: frozenset[int] = ...,
    dropped: DroppedSample | None = None,
    decompressed_limit: int = ...,
) -> int: ...
def key_at(buffer: Buffer, offset: int, *, decompressed_limit: int = ...) -> bytes | None: ...
def recompress(
    buffer: Buffer, compression: int, level: int | None = None, *, decompressed_limit: int = ...
) -> bytearray: ...
def gather(
    buffer: Buffer,
    wanted: int,
    *,
    start_offset: int = 0,
    end_offset: int = ...,
    decompressed_limit: int = ...,
    enough_bytes: int = ...,
) -> Gathered: ...
def pack_columns(
    value: BinaryInput,
    key: BinaryInput | None,
    headers: HeadersInput | None,
    timestamp: Int64Input | None,
    rows: int,
    *,
    first_row: int = 0,
    now_ms: int,
    max_batch_bytes: int,
    max_batch_records: int,
    enough_bytes: int,
    compression: int = 0,
    level: int | None = None,
) -> list[PackedBatch]: ...
def route_rows(
    key: BinaryInput | None, partition: Int64Input | None, rows: int, partitions: int
) -> list[tuple[int, Buffer]]: ...

class ProducedBatches:
    """Only compiled: where the loops were not built, the handlers do all of it."""

    count: int
    target_count: int
    frames: int
    @property
    def size_bytes(self) -> int: ...
    @property
    def records(self) -> int: ...
    def end(self) -> None: ...
    def cut(self, frames: int) -> None: ...
    def place(self, topics: list[Any]) -> list[Any]: ...
    def allow(
        self, target: int, max_batch_bytes: int, decompressed_limit: int, is_compact: bool, latest_ms: int
    ) -> None: ...
    def check(
        self,
        weight_max: int,
        gzip_weight: int,
        quick_ratio: int,
        quick_min: int,
        quick_max: int,
        takes_zstd: bool,
        takes_transactions: bool,
    ) -> tuple[Exception | None, bool]: ...
    def span(self, index: int) -> tuple[int, int]: ...
    def size_of(self, target: int) -> tuple[int, int, int]: ...
    def frame_of(self, target: int, which: int) -> int: ...
    def sequence_of(self, target: int) -> tuple[int, int, int, bool] | bool | None: ...
    def newest_of(self, target: int, most: int) -> list[tuple[int, int, int, int, int]]: ...
    def producers_of(self, target: int) -> list[BatchHeader] | None: ...
    def number(
        self, target: int, first_offset: int, leader_epoch: int, append_time_ms: int, log_start_offset: int
    ) -> tuple[int, list[memoryview]]: ...
    def take_numbers(self, target: int, headers: list[BatchHeader]) -> None: ...
    def latest_ms(self, target: int) -> int: ...
    def index_entries(
        self,
        target: int,
        position: int,
        base_offset: int,
        interval_bytes: int,
        bytes_since: int,
        largest_ms: int,
        largest_at: int,
        recent_max: int,
    ) -> tuple[list[tuple[int, int]], list[tuple[int, int]], int, int, int, list[tuple[int, int, int]]]: ...
    def targets_of_batches(self) -> bytes: ...
