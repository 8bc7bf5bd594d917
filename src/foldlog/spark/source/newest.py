"""latestPerKey: only the newest record of each key of a range, selected before the costly transfer of rows to Spark.

Two passes over the range: the first reads keys and offsets, and keeps the largest offset of each key; the second reads
the wanted columns, and passes on the rows at those offsets. A tombstone can be the newest record, too. Records without
key are all passed on.

Memory is bounded: if the keys of a range exceed SPARK_KEYS_BYTES, they are divided by their hash, and each part has its
own two passes. Rows are in offset order, unless that happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from foldlog.limits import SPARK_KEYS_BYTES

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

Read = Callable[[Sequence[str]], "Iterator[pa.RecordBatch]"]
"""Reads the range from its start, with these columns of the log."""

BUCKETS: Final = 10_007
"""Hashes modulo this prime are divided into parts. The keys of a partition have hashes that are equal modulo the number
of partitions, so the two must have no common factor."""


def newest_per_key(
    read: Read, columns: Sequence[str], keys_bytes_max: int = SPARK_KEYS_BYTES
) -> Iterator[pa.RecordBatch]:
    """The newest rows, with `columns` and always `key` and `offset`."""
    wanted = [*columns, *(name for name in ("key", "offset") if name not in columns)]
    parts = [(0, BUCKETS)]
    while parts:
        low, high = parts.pop()
        newest = _newest_offsets(read, low, high, keys_bytes_max if high - low > 1 else None)
        if newest is None:
            middle = (low + high) // 2
            parts += [(middle, high), (low, middle)]
            continue
        for batch in read(wanted):
            # Rows without key belong to no part, and are passed on once.
            kept = _kept(batch, newest, keeps_keyless=low == 0)
            if kept is not None:
                yield kept


def _newest_offsets(read: Read, low: int, high: int, bytes_max: int | None) -> np.ndarray[Any, Any] | None:
    """The largest offset of each key of these buckets, ascending; None if the keys exceed `bytes_max`."""
    import numpy as np
    import pyarrow as pa

    known = _by_key([])
    fresh: list[pa.Table] = []
    fresh_rows = 0
    for batch in read(["key", "offset"]):
        keyed = _in_buckets(batch, low, high)
        if not keyed.num_rows:
            continue
        fresh.append(_by_key([pa.Table.from_batches([keyed])]))
        fresh_rows += fresh[-1].num_rows
        # Merging costs time in proportion to `known`: merging only once as much is new makes that constant per row.
        if fresh_rows > max(known.num_rows, 2 * batch.num_rows):
            known = _by_key([known, *fresh])
            fresh, fresh_rows = [], 0
            if bytes_max is not None and known.nbytes > bytes_max:
                return None
    known = _by_key([known, *fresh])
    if bytes_max is not None and known.nbytes > bytes_max:
        return None
    return np.sort(known.column("offset").to_numpy())


def _by_key(tables: list[pa.Table]) -> pa.Table:
    """One row for each key, with its largest offset."""
    import pyarrow as pa

    if not tables:
        return pa.table({"key": pa.array([], pa.binary()), "offset": pa.array([], pa.int64())})
    # Arrow's own threads would compete with the other tasks of the executor.
    grouped = pa.concat_tables(tables).group_by("key", use_threads=False).aggregate([("offset", "max")])
    return pa.table({"key": grouped.column("key"), "offset": grouped.column("offset_max")})


def _in_buckets(batch: pa.RecordBatch, low: int, high: int) -> pa.RecordBatch:
    """The rows whose key is in these buckets; rows without key are in none."""
    import pyarrow as pa

    from foldlog.records.arrow import binary_input
    from foldlog.records.loops import route_rows

    if (low, high) == (0, BUCKETS):
        return batch.filter(batch.column("key").is_valid()) if batch.column("key").null_count else batch
    routed = route_rows(binary_input("key", batch.column("key")), None, batch.num_rows, BUCKETS)
    rows = [pa.py_buffer(rows) for bucket, rows in routed if low <= bucket < high]
    chosen = [pa.Array.from_buffers(pa.int64(), piece.size // 8, [None, piece]) for piece in rows]
    return batch.take(pa.concat_arrays(chosen)) if chosen else batch.slice(0, 0)


def _kept(batch: pa.RecordBatch, newest: np.ndarray[Any, Any], *, keeps_keyless: bool) -> pa.RecordBatch | None:
    """The rows at these offsets, and those without key; None if there are none."""
    import numpy as np
    import pyarrow as pa

    offsets = batch.column("offset").to_numpy()
    here = newest[np.searchsorted(newest, offsets[0]) : np.searchsorted(newest, offsets[-1], side="right")]
    rows = np.searchsorted(offsets, here)
    is_kept = np.zeros(len(offsets), dtype=bool)
    # Compaction may have removed a tombstone since the first pass: then the row there has another offset.
    is_kept[rows[offsets[rows] == here]] = True
    key = batch.column("key")
    if keeps_keyless and key.null_count:
        is_kept |= key.is_null().to_numpy(zero_copy_only=False)
    if is_kept.all():
        return batch
    return batch.filter(pa.array(is_kept)) if is_kept.any() else None
