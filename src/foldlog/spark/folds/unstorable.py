"""Which of a fold's rows a view cannot hold, and why, in the words of a dead letter.

Rows that a view stores as they are, are checked in Arrow (`unheld_values`, `unheld_keys`). Counters store groups and
extremes of many rows, where a larger value hides a smaller one; so Spark checks every row before it aggregates
(`signs_of_unheld`), and its findings are checked with the aggregated rows (`check_aggregated`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812

from foldlog.spark.folds.reading import quoted
from foldlog.views.contract import View
from foldlog.views.counters.measures import Aggregation
from foldlog.views.storable import (
    FIRST_DAY,
    FIRST_US,
    LAST_DAY,
    LAST_US,
    beyond_ascii,
    columns_where,
    has_one_of,
    is_not_finite,
    is_not_utf8,
    is_nul,
    is_out_of_years,
    rows_where,
)

if TYPE_CHECKING:
    import pyarrow as pa

_SIGNS: Final = "__unheld"
"""Column of an aggregated range: a kind of values among its rows that the view cannot hold."""

ROW_SIGNS: Final = (_SIGNS,)
"""The columns of `row_signs_of_unheld`."""

_CHARACTERS: Final = "__characters"
"""Column of an aggregated range: the characters beyond ASCII in its texts, if the view cannot hold all of them."""

_NOT_UTF8: Final = "its text{where} is not UTF-8, and no view can hold it"
_OUT_OF_YEARS: Final = "its date or time{where} is outside the years 1 to 9999, and no view can hold it"
_NUL: Final = "its text{where} has a character NUL, which {location} cannot hold"
_NAN: Final = "its number{where} is NaN or infinite, which {location} cannot hold: JSON has no such number"
_CHARACTER: Final = "its text{where} has the character {which}, which {location} cannot hold in its encoding"
_LONG_KEY: Final = "its key ({names}) is too long for an index of {location}"

_KINDS: Final = {"utf8": _NOT_UTF8, "years": _OUT_OF_YEARS, "nul": _NUL}


class UnheldValue(Exception):
    """The view cannot hold the result of a range; `why` is meaningful if the range is a single record."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def unheld_values(view: View, rows: pa.Table) -> Iterator[tuple[str, pa.ChunkedArray]]:
    """The reasons why rows have a value that cannot be held, each with a flag per row."""
    tests = [(_NOT_UTF8, is_not_utf8), (_OUT_OF_YEARS, is_out_of_years)]
    if not view.holds_nul:
        tests.append((_NUL, is_nul))
    if not view.holds_nan:
        tests.append((_NAN, is_not_finite))
    for reason, test in tests:
        for name, flags in columns_where(rows, test):
            yield reason.format(where=f" in column {name!r}", location=view.place), flags
    if view.holds_unicode():
        return
    for name in rows.column_names:
        unheld = view.unheld_characters(beyond_ascii(rows[name]))
        if unheld:
            yield from _by_character(view, name, rows[name], unheld)


def _by_character(
    view: View, name: str, column: pa.ChunkedArray, unheld: frozenset[str]
) -> Iterator[tuple[str, pa.ChunkedArray]]:
    """Each row by the first unholdable character that it has: its reason must not depend on other rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    flags = rows_where(column, has_one_of(unheld))
    if flags is None:
        return
    by_character: dict[str, list[int]] = {}
    for at in pc.indices_nonzero(flags).to_pylist():
        by_character.setdefault(min(beyond_ascii(column.slice(at, 1)) & unheld), []).append(at)
    numbers = pa.array(range(len(column)), pa.int64())
    for one, rows in by_character.items():
        reason = _CHARACTER.format(where=f" in column {name!r}", location=view.place, which=_shown(one))
        yield reason, pa.chunked_array([pc.is_in(numbers, value_set=pa.array(rows, pa.int64()))])


def unheld_keys(view: View, keys: pa.Table) -> list[tuple[str, pa.ChunkedArray]]:
    """The keys that are too long; `keys` has the columns that make a row unique."""
    flags = view.unheld_keys(keys)
    return [] if flags is None else [(_LONG_KEY.format(names=", ".join(keys.column_names), location=view.place), flags)]


# --- what is aggregated -----------------------------------------------------------------------------------------------


def signs_of_unheld(view: View, aggregation: Aggregation, rows: DataFrame, moments: Sequence[str]) -> list[str]:
    """Aggregates, in SQL, that detect unholdable values in the columns that a view of this aggregation stores.
    `moments` are the times of windows, in SQL.
    """
    # `max` ignores nulls, and so does an OR of which another part is true.
    signs = _signs(view, aggregation, rows, moments)
    found = [f"WHEN max({' OR '.join(flags)}) THEN '{kind}'" for kind, flags in signs.items() if flags]
    columns = [f"CASE {' '.join(found)} END AS {_SIGNS}"] if found else []
    texts = _texts(aggregation, rows)
    if texts and not view.holds_unicode():
        letters = [f"split(regexp_replace(coalesce({one}, ''), r'[\\x00-\\x7f]', ''), '')" for one in texts]
        columns.append(f"array_distinct(flatten(collect_set(concat({', '.join(letters)})))) AS {_CHARACTERS}")
    return columns


def row_signs_of_unheld(
    view: View, aggregation: Aggregation, rows: DataFrame, moments: Sequence[str]
) -> dict[str, str]:
    """Whether a row has such a value, in SQL, by the name of a column. Only for a view that holds Unicode."""
    signs = _signs(view, aggregation, rows, moments)
    found = [f"WHEN {' OR '.join(flags)} THEN '{kind}'" for kind, flags in signs.items() if flags]
    return {_SIGNS: f"CASE {' '.join(found)} END"} if found else {}


def _texts(aggregation: Aggregation, rows: DataFrame) -> list[str]:
    kept = aggregation.kept()
    return [quoted(one.name) for one in rows.schema if one.name in kept and isinstance(one.dataType, T.StringType)]


def _signs(view: View, aggregation: Aggregation, rows: DataFrame, moments: Sequence[str]) -> dict[str, list[str]]:
    """For each kind of values that cannot be held, in SQL whether a row has one."""
    kept, texts = aggregation.kept(), _texts(aggregation, rows)
    fields = [one for one in rows.schema if one.name in kept]
    years = [sign for one in fields if (sign := _is_out_of_years(one)) is not None]
    return {
        "utf8": [f"NOT is_valid_utf8({one})" for one in texts],
        "years": [*years, *(f"unix_micros({one}) NOT BETWEEN {FIRST_US}L AND {LAST_US}L" for one in moments)],
        "nul": [] if view.holds_nul else [f"contains({one}, chr(0))" for one in texts],
    }


def check_aggregated(view: View, aggregation: Aggregation, found: pa.Table) -> None:
    """UnheldValue if the view cannot hold these rows, or values that they were aggregated from."""
    if _SIGNS in found.column_names:
        kinds = found[_SIGNS].drop_null()
        if len(kinds):
            raise UnheldValue(_KINDS[kinds[0].as_py()].format(where="", location=view.place))
    if _CHARACTERS in found.column_names:
        letters = {one for some in found[_CHARACTERS].to_pylist() for one in some if one and not one.isascii()}
        unheld = view.unheld_characters(frozenset(letters))
        if unheld:
            raise UnheldValue(_CHARACTER.format(where="", location=view.place, which=_shown(min(unheld))))
    if aggregation.by:
        for reason, _ in unheld_keys(view, found.select(list(aggregation.by))):
            raise UnheldValue(reason)


def _is_out_of_years(one: T.StructField) -> str | None:
    name = quoted(one.name)
    if isinstance(one.dataType, T.DateType):
        return f"unix_date({name}) NOT BETWEEN {FIRST_DAY} AND {LAST_DAY}"
    if isinstance(one.dataType, T.TimestampType):
        return f"unix_micros({name}) NOT BETWEEN {FIRST_US}L AND {LAST_US}L"
    if isinstance(one.dataType, T.TimestampNTZType):
        return f"year({name}) NOT BETWEEN 1 AND 9999"
    return None


def _shown(character: str) -> str:
    """A character and its code point.

    >>> _shown("\u2603")
    '\u2603 (U+2603)'
    """
    number = f"U+{ord(character):04X}"
    return f"{character} ({number})" if character.isprintable() else number
