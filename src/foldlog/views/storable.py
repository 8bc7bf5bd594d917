"""Finds values that views cannot hold, in whole Arrow columns: which rows have one, even inside arrays, structs and
maps.

No view holds text that is not UTF-8, or a date or time outside the years 1 to 9999: SQL, JSON and Python cannot express
them, and Spark itself promises no more. PostgreSQL does not hold the character NUL either. Also here: the mapping of
nested types, part by part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from foldlog.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow as pa

    from foldlog.views.contract import View

FIRST_DAY: Final = -719_162
"""0001-01-01, in days since 1970."""

LAST_DAY: Final = 2_932_896
"""9999-12-31."""

DAY_US: Final = 86_400 * 1_000_000

FIRST_US: Final = FIRST_DAY * DAY_US
LAST_US: Final = (LAST_DAY + 1) * DAY_US - 1
"""The last microsecond of the year 9999."""

_UNITS_PER_DAY: Final = {unit: 86_400 * 1000**power for power, unit in enumerate(("s", "ms", "us", "ns"))}

_CLASS_MAX: Final = 1000
"""The maximum number of characters in one regular expression."""

Leaf = Callable[[Any], Any]
"""Flags the values of a flat array, or returns None if there are none; a flag may be null for a null."""


def rows_where(column: pa.ChunkedArray, leaf: Leaf) -> pa.ChunkedArray | None:
    """Flags the rows of a column with a value, at any depth, that `leaf` flags; None if there are none."""
    import pyarrow as pa

    parts = [_flags(chunk, leaf) for chunk in column.chunks]
    if all(part is None for part in parts):
        return None
    return pa.chunked_array(
        [
            pa.repeat(pa.scalar(False), len(chunk)) if part is None else part
            for chunk, part in zip(column.chunks, parts, strict=True)
        ],
        pa.bool_(),
    )


def is_nul(array: Any) -> Any:
    """Flags texts with the character NUL."""
    import pyarrow.compute as pc

    return pc.match_substring(array, "\0") if is_text(array.type) else None


def is_not_utf8(array: Any) -> Any:
    """Flags texts that are not UTF-8: Spark casts any bytes to a string."""
    import pyarrow as pa

    if not is_text(array.type):
        return None
    data = array.cast(pa.large_binary())
    try:
        data.cast(pa.large_string())  # checks every byte, fast
    except pa.ArrowInvalid:
        return pa.array([one is not None and not _is_utf8(one) for one in data.to_pylist()], pa.bool_())
    return None


def is_not_finite(array: Any) -> Any:
    """Flags NaN and infinities."""
    import pyarrow.compute as pc
    from pyarrow import types

    return pc.invert(pc.is_finite(array)) if types.is_floating(array.type) else None


def is_out_of_years(array: Any) -> Any:
    """Flags dates and times outside the years 1 to 9999."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import types

    if types.is_date32(array.type):
        plain = pa.int32()
        first, last = FIRST_DAY, LAST_DAY
    elif types.is_timestamp(array.type):
        plain = pa.int64()
        units = _UNITS_PER_DAY[array.type.unit]
        # In nanoseconds, an int64 covers fewer years than these.
        first = max(-(2**63), FIRST_DAY * units)
        last = min(2**63 - 1, (LAST_DAY + 1) * units - 1)
    else:
        return None
    numbers = array.cast(plain)
    return pc.or_(pc.less(numbers, pa.scalar(first, plain)), pc.greater(numbers, pa.scalar(last, plain)))


def beyond_ascii(column: pa.ChunkedArray) -> frozenset[str]:
    """All characters of a column's texts beyond ASCII."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found: set[str] = set()

    def collect(array: Any) -> None:
        if is_text(array.type):
            beyond = array.filter(pc.invert(pc.string_is_ascii(array))).cast(pa.large_binary())
            # Text that is not UTF-8 is reported separately.
            found.update(*(one.decode(errors="ignore") for one in beyond.to_pylist() if one is not None))

    rows_where(column, collect)
    return frozenset(one for one in found if not one.isascii())


def has_one_of(characters: frozenset[str]) -> Leaf:
    """A test that flags texts with one of these characters; `characters` is not empty."""
    import pyarrow.compute as pc

    numbers = [f"\\x{{{ord(one):x}}}" for one in sorted(characters)]
    parts = [f"[{''.join(numbers[at : at + _CLASS_MAX])}]" for at in range(0, len(numbers), _CLASS_MAX)]

    def test(array: Any) -> Any:
        if not is_text(array.type):
            return None
        return reduce(pc.or_, (pc.match_substring_regex(array, part) for part in parts))

    return test


def columns_where(rows: pa.Table, leaf: Leaf) -> Iterator[tuple[str, pa.ChunkedArray]]:
    """The columns with such a value somewhere, each with a flag per row."""
    for name in rows.column_names:
        flags = rows_where(rows[name], leaf)
        if flags is not None:
            yield name, flags


def is_text(kind: Any) -> bool:
    """Whether it is a text type."""
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind))


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _flags(array: Any, leaf: Leaf) -> Any:
    """A flag for each value of an array; None if none is set. Values under a null do not count."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import types

    kind = array.type
    if types.is_struct(kind):
        return _any_of([_flags(part, leaf) for part in array.flatten()])
    if types.is_map(kind):
        # As two lists: Arrow's list functions do not accept maps.
        lists = [pa.ListArray.from_arrays(array.offsets, part) for part in (array.keys, array.items)]
        flags = _any_of([_flags(one, leaf) for one in lists])
        return None if flags is None else pc.and_(flags, pc.is_valid(array))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        lists = array.drop_null()
        inside = _flags(lists.flatten(), leaf)
        if inside is None:
            return None
        found = pc.list_parent_indices(lists).filter(inside).unique()
        numbers = pc.indices_nonzero(pc.is_valid(array))
        return pc.is_in(pa.array(range(len(array)), numbers.type), value_set=numbers.take(found))
    flags = leaf(array)
    if flags is None or not pc.any(flags, min_count=0).as_py():
        return None
    return pc.fill_null(flags, False)


def _any_of(flags: list[Any]) -> Any:
    import pyarrow.compute as pc

    some = [one for one in flags if one is not None]
    return reduce(pc.or_, some) if some else None


def nested_type(kind: Any, part: Callable[[Any], Any], list_of: Callable[[Any], Any]) -> Any | None:
    """The list, map or struct `kind`, with each of its parts mapped by `part`; None for other types.

    InvalidArgument for a struct with two fields of one name: its JSON could not be read back.
    """
    import pyarrow as pa
    from pyarrow import types

    if types.is_list(kind) or types.is_large_list(kind):
        return list_of(part(kind.value_type))
    if types.is_map(kind):
        return pa.map_(part(kind.key_type), part(kind.item_type))
    if types.is_struct(kind):
        names = [field.name for field in kind]
        if len(set(names)) != len(names):
            raise InvalidArgument(f"its struct has two fields of the same name ({', '.join(names)})")
        return pa.struct([pa.field(field.name, part(field.type)) for field in kind])
    return None


def unheld_text(view: View, text: str) -> str | None:
    """The character of a text that the view cannot hold; None if there is none."""
    if "\0" in text and not view.holds_nul:
        return "a character NUL"
    if text.isascii() or view.holds_unicode():
        return None
    unheld = view.unheld_characters(frozenset(one for one in text if not one.isascii()))
    return f"the character {min(unheld)!r}" if unheld else None
