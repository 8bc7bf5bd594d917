"""Whether two views hold the same rows: a digest that does not depend on their order, and a comparison with examples.

Every row is encoded to bytes and hashed to 128 bits, and the hashes are added up modulo 2**128: the sum is the same for
any order of the rows and any split into batches, and differs if a row is missing, changed or duplicated.

Engines store the same value in different types, so the encoding depends on the value and not on its type:

- columns are taken by name, in any order, and a null equals a missing column: a view that gained a
  column equals one that always had it and never filled it;
- all integers are one type, all floats another, and so are text, bytes, lists, structs and maps of any width;
- decimals and times are taken by value (times in microseconds, and without a zone as in UTC);
- all NaNs are equal, and -0.0 is 0.0, since not every engine keeps its sign;
- the entries of a map have no order.

This finds mistakes; it does not protect against deliberately constructed rows whose hashes add up to the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from foldlog.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow as pa

HASH_BYTES: Final = 16
ROWS_AT_ONCE: Final = 64 << 10
"""Rows that are encoded together: enough to keep Arrow busy, and few enough to stay in the caches."""

BUCKETS: Final = 4096
"""Hash buckets of a comparison: hashes are only remembered for rows of buckets that differ."""

Scan = Callable[[], "Iterator[pa.RecordBatch]"]
"""Returns the same rows, in any order, on every call."""


class Digest(NamedTuple):
    """The number of rows, and the sum of their hashes."""

    rows: int
    hexdigest: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """How many rows only one side has, counting duplicates, and a few examples."""

    only_left: int
    only_right: int
    examples_left: list[dict[str, object]]
    examples_right: list[dict[str, object]]

    @property
    def is_equal(self) -> bool:
        return not self.only_left and not self.only_right


def digest(batches: Iterator[pa.RecordBatch]) -> Digest:
    """The digest of all rows of all batches. Holds one batch at a time.

    >>> import pyarrow as pa
    >>> whole = pa.record_batch({"id": [1, 2], "name": ["ant", None]})
    >>> cut = [pa.record_batch({"name": [None], "id": [2]}), whole.slice(0, 1)]
    >>> digest(iter([whole])) == digest(iter(cut)), digest(iter([whole])) == digest(iter([whole, whole]))
    (True, False)
    """
    rows = total = 0
    for hashes, _ in _hashed(batches):
        rows += len(hashes)
        total += sum(hashes)
    return Digest(rows, (total % (1 << 8 * HASH_BYTES)).to_bytes(HASH_BYTES, "little").hex())


def compare(left: Scan, right: Scan, limit: int = 5) -> Comparison:
    """The rows that only one side has. Reads each side up to three times.

    Memory holds one hash for each row of the buckets that differ: few if few rows differ, and all hashes if all do;
    never the rows.
    """
    differs = [a != b for a, b in zip(_bucket_sums(left()), _bucket_sums(right()), strict=True)]
    if not any(differs):
        return Comparison(0, 0, [], [])
    surplus: Counter[int] = Counter()
    for scan, step in ((left, 1), (right, -1)):
        for hashes, _ in _hashed(scan()):
            for hashed in hashes:
                if differs[hashed % BUCKETS]:
                    surplus[hashed] += step
    only_left = Counter({hashed: count for hashed, count in surplus.items() if count > 0})
    only_right = Counter({hashed: -count for hashed, count in surplus.items() if count < 0})
    return Comparison(
        only_left.total(), only_right.total(), _examples(left, only_left, limit), _examples(right, only_right, limit)
    )


def _bucket_sums(batches: Iterator[pa.RecordBatch]) -> list[int]:
    sums = [0] * BUCKETS
    for hashes, _ in _hashed(batches):
        for hashed in hashes:
            sums[hashed % BUCKETS] += hashed
    return sums


def _examples(scan: Scan, wanted: Counter[int], limit: int) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    if not wanted or limit <= 0:
        return found
    missing = wanted.copy()
    for hashes, batch in _hashed(scan()):
        for number, hashed in enumerate(hashes):
            if missing[hashed] > 0:
                missing[hashed] -= 1
                found.extend(batch.slice(number, 1).to_pylist())
                if len(found) == limit:
                    return found
    return found


def _hashed(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[list[int], pa.RecordBatch]]:
    """The rows' hashes, with the rows."""
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS_AT_ONCE):
            part = batch.slice(start, ROWS_AT_ONCE)
            yield row_hashes(part), part


def row_hashes(batch: pa.RecordBatch) -> list[int]:
    """A hash for each row, in order: equal for rows with equal values."""
    fresh = blake2b(digest_size=HASH_BYTES).copy
    hashes = []
    for row in _encoded_fields(batch.schema, batch.columns, batch.num_rows).to_pylist():
        # Copying a hasher is half again as fast as making one with parameters.
        hasher = fresh()
        hasher.update(row)
        hashes.append(int.from_bytes(hasher.digest(), "little"))
    return hashes


# Each encoding is self-delimiting: a byte for the type, then a fixed number of bytes, or a length and that many. So no
# two different rows have the same bytes. A null is encoded as null, and left out where encodings are joined.


def _encoded_fields(schema: Any, columns: list[Any], rows: int) -> Any:
    """One binary value for each row: for every field that is not null the tag of its name and its encoding."""
    import pyarrow as pa

    names = [field.name for field in schema]
    if len(set(names)) != len(names):
        raise InvalidArgument(f"rows with two columns of the same name cannot be compared: {', '.join(names)}")
    parts = []
    for name, column in sorted(zip(names, columns, strict=True), key=lambda pair: pair[0]):
        tag = blake2b(name.encode(), digest_size=8).digest()
        # The tag is prefixed here and not in the final join, since it has to be left out with a null value.
        parts.extend(_encoded(column, tag))
    if not parts:
        return pa.array([b""] * rows, pa.large_binary())
    return _joined(parts, nulls_as_empty=True)


def _joined(parts: list[Any], *, nulls_as_empty: bool = False) -> Any:
    """The parts of each row, concatenated; null if one of them is, unless nulls count as empty."""
    import pyarrow as pa
    import pyarrow.compute as pc

    separator = pa.scalar(b"", pa.large_binary())
    if nulls_as_empty:
        return pc.binary_join_element_wise(*parts, separator, null_handling="replace", null_replacement="")
    return pc.binary_join_element_wise(*parts, separator, null_handling="emit_null")


def _encoded(column: Any, tag: bytes = b"") -> list[Any]:
    """Binary arrays which, joined row by row, are the tag and the value's encoding; null where the value is."""
    import pyarrow as pa
    from pyarrow import types

    kind = column.type
    while isinstance(column, pa.ExtensionArray):
        column, kind = column.storage, column.storage.type
    if types.is_dictionary(kind):
        return _encoded(column.cast(kind.value_type), tag)
    if types.is_run_end_encoded(kind):
        import pyarrow.compute as pc

        return _encoded(pc.run_end_decode(column), tag)
    if types.is_struct(kind):
        return _sized(_structs(column), tag + b"{")
    if types.is_map(kind):
        return _sized(_maps(column), tag + b"<")
    if _is_list(kind):
        return _sized(_lists(column), tag + b"[")
    return _encoded_plain(column, kind, tag)


def _encoded_plain(column: Any, kind: Any, tag: bytes) -> list[Any]:
    """The encoding of a column of scalars."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import types

    if types.is_null(kind):
        return [column.cast(pa.large_binary())]
    if types.is_uint64(kind):
        # A value that does not fit into a signed integer would wrap around to a negative one.
        large = pc.greater(column, pa.scalar((1 << 63) - 1, pa.uint64()))
        marks = pc.if_else(large, pa.scalar(tag + b"u", pa.large_binary()), pa.scalar(tag + b"i", pa.large_binary()))
        return [marks, _raw(column.view(pa.int64()))]
    for is_kind, mark, canonical in _fixed_forms():
        if is_kind(kind):
            return _fixed(canonical(column), tag + mark)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _sized(column.cast(pa.large_string()).cast(pa.large_binary()), tag + b"s")
    if types.is_fixed_size_binary(kind):
        column = column.cast(pa.binary())
    elif not (types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)):
        raise InvalidArgument(f"rows with a column of type {kind} cannot be compared")
    return _sized(column.cast(pa.large_binary()), tag + b"b")


def _fixed_forms() -> list[tuple[Callable[[Any], bool], bytes, Callable[[Any], Any]]]:
    """For values of a fixed width: the test of the type, its mark, and the conversion before encoding."""
    import pyarrow as pa
    from pyarrow import types

    return [
        (types.is_integer, b"i", lambda column: column.cast(pa.int64())),
        (types.is_floating, b"f", _canonical_floats),
        (types.is_boolean, b"?", lambda column: column.cast(pa.int8())),
        (types.is_decimal, b"n", _canonical_decimals),
        (types.is_timestamp, b"t", lambda column: column.cast(pa.timestamp("us", column.type.tz), safe=False)),
        (types.is_date, b"d", lambda column: column.cast(pa.date32())),
        (types.is_time, b"c", lambda column: column.cast(pa.time64("us"), safe=False)),
        (types.is_duration, b"e", lambda column: column.cast(pa.duration("us"), safe=False)),
    ]


def _raw(column: Any) -> Any:
    """The bytes of each value of a fixed width, as in Arrow's memory."""
    import pyarrow as pa

    return column.view(pa.binary(column.type.bit_width // 8)).cast(pa.large_binary())


def _fixed(column: Any, mark: bytes) -> list[Any]:
    return [_mark(mark, column), _raw(column)]


def _sized(content: Any, mark: bytes) -> list[Any]:
    """With a length prefix."""
    import pyarrow.compute as pc

    return [_mark(mark, content), _raw(pc.binary_length(content)), content]


def _mark(mark: bytes, column: Any) -> Any:
    """The mark for each value, and null for a null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    constant = pa.scalar(mark, pa.large_binary())
    if not column.null_count:
        return constant
    return pc.if_else(pc.is_valid(column), constant, pa.scalar(None, pa.large_binary()))


def _canonical_floats(column: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    # Adding zero turns -0.0 into 0.0 and leaves everything else as it is.
    wide = pc.add(column.cast(pa.float64()), pa.scalar(0.0))
    return pc.if_else(pc.is_nan(wide), pa.scalar(float("nan")), wide)


def _canonical_decimals(column: Any) -> Any:
    """With 38 digits before the point and 38 after it: enough for any DECIMAL of 38 digits."""
    import pyarrow as pa

    try:
        return column.cast(pa.decimal256(76, 38))
    except pa.ArrowInvalid:
        raise InvalidArgument(f"values of type {column.type} cannot be compared: more than 38 digits") from None


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


def _structs(column: Any) -> Any:
    """The encoded fields of each struct, like a row's; null for a null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # flatten, unlike field, puts nulls where the struct itself is null, and respects slices.
    content = _encoded_fields(list(column.type), column.flatten(), len(column))
    return pc.if_else(pc.is_valid(column), content, pa.scalar(None, pa.large_binary()))


def _items(values: Any) -> Any:
    """Each value with a prefix byte that tells whether it is null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(values):
        return pa.array([], pa.large_binary())
    return pc.fill_null(_joined([pa.scalar(b"+", pa.large_binary()), *_encoded(values)]), b"-")


def _lists(column: Any) -> Any:
    """The encoded items of each list, in order; null for a null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    items = _items(column.flatten())
    lengths = pc.if_else(pc.is_valid(column), pc.list_value_length(column).cast(pa.int64()), 0)
    ends = pc.cumulative_sum(lengths)
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    lists = pa.LargeListArray.from_arrays(offsets, items)
    content = pc.binary_join(lists, pa.scalar(b"", pa.large_binary()))
    return pc.if_else(pc.is_valid(column), content, pa.scalar(None, pa.large_binary()))


def _maps(column: Any) -> Any:
    """The encoded entries of each map, sorted by their bytes; null for a null."""
    import pyarrow as pa

    contents: list[bytes | None] = []
    valid = column.is_valid().to_pylist()
    first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
    # A slice has the children of the whole array: only the part covered by its offsets belongs to it.
    entries = _joined([_items(column.keys[first:last]), _items(column.items[first:last])]).to_pylist()
    starts = column.offsets.to_pylist()
    for number, is_valid in enumerate(valid):
        own = entries[starts[number] - first : starts[number + 1] - first]
        contents.append(b"".join(sorted(own)) if is_valid else None)
    return pa.array(contents, pa.large_binary())
