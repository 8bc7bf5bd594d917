"""What a range means for a table: compared with a few lines of plain Python for any rows, and refused by offset where
no table could hold it.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.errors import FoldError, SchemaChanged
from foldlog.views.contract import Shape
from foldlog.views.table.rows import Change, decide_change
from foldlog.views.table.shape import decide_shape
from views.view_contract import delta_of

COLUMNS = pa.schema([("id", pa.string()), ("line", pa.int32()), ("value", pa.int64())])
ONE_ROW = decide_shape(Shape(COLUMNS, "id"), (), "table t", loading=False)
MANY_ROWS = decide_shape(Shape(COLUMNS, "id"), ("id", "line"), "table t", loading=False)
NO_RECORD_KEY = decide_shape(Shape(COLUMNS, None), ("id", "line"), "table t", loading=False)

Row = dict[str, object]


def rows_of(change: Change) -> list[Row]:
    rows: list[Row] = change.rows.to_pylist()
    return sorted(rows, key=repr)


@st.composite
def ranges(draw: st.DrawFn) -> list[Row]:
    """Records in the order of offsets within their partition, a key always in the same partition."""
    rows: list[Row] = []
    offsets = {0: 0, 1: 0}
    for key, lines, deleted in draw(
        st.lists(st.tuples(st.sampled_from("abcd"), st.sets(st.integers(0, 3), max_size=3), st.booleans()), max_size=25)
    ):
        partition = ord(key) % 2
        meta: Row = {"id": key, "_partition": partition, "_offset": offsets[partition]}
        offsets[partition] += 1
        if deleted:
            rows.append({**meta, "_deleted": True})
        rows += [{**meta, "line": line, "value": offsets[partition]} for line in draw(st.permutations(sorted(lines)))]
    return rows


@given(ranges())
def test_the_newest_record_of_each_key_is_kept_whole(rows: list[Row]) -> None:
    change = decide_change(delta_of(rows, COLUMNS, 0, 99), MANY_ROWS, "table t")
    newest = {row["id"]: (row["_partition"], row["_offset"]) for row in rows}
    kept = [row for row in rows if newest[row["id"]] == (row["_partition"], row["_offset"])]
    live = [row for row in kept if not row.get("_deleted")]
    assert rows_of(change) == sorted(({name: row.get(name) for name in COLUMNS.names} for row in live), key=repr)
    with_rows = {row["id"] for row in live}
    gone = set() if change.tombstones is None else set(change.tombstones.to_pylist())
    assert gone == set(newest) - with_rows
    replaced = set() if change.replaced is None else set(change.replaced.to_pylist())
    assert replaced == with_rows
    assert change.is_empty == (not rows)


def change_of(rows: list[Row]) -> Change:
    return decide_change(delta_of(rows, COLUMNS, 0, 9), ONE_ROW, "table t")


def test_a_row_that_the_fold_made_of_a_tombstone_wins_over_it_in_either_order() -> None:
    pair: list[Row] = [{"id": "a", "_offset": 3, "_deleted": True}, {"id": "a", "_offset": 3, "value": 1}]
    for rows in (pair, pair[::-1]):
        change = change_of([{"id": "a", "_offset": 2, "value": 0}, *rows])
        assert rows_of(change) == [{"id": "a", "line": None, "value": 1}]
        assert change.tombstones is None


def test_two_rows_of_one_record_with_the_same_key_are_refused_with_the_way_out() -> None:
    twins: list[Row] = [{"id": "a", "_offset": 4, "value": 1}, {"id": "a", "_offset": 4, "value": 2}]
    with pytest.raises(FoldError, match=r"id='a'.*offset 4 of payments-0.*name more columns"):
        change_of(twins)
    # A newer record of the same key settles it: nobody would ever see the two.
    assert rows_of(change_of([*twins, {"id": "a", "_offset": 5, "value": 3}]))[0]["value"] == 3
    with pytest.raises(FoldError, match=r"id='a', line=1.*offset 4"):
        decide_change(delta_of([{**row, "line": 1} for row in twins], COLUMNS, 0, 9), MANY_ROWS, "table t")


def test_a_row_without_a_key_is_refused_by_its_offset() -> None:
    with pytest.raises(FoldError, match=r"offset 7 of payments-0: its key column 'id' is null"):
        change_of([{"id": "a", "_offset": 6}, {"id": None, "_offset": 7}])
    with pytest.raises(FoldError, match=r"offset 6 of payments-0: its key column 'line' is null"):
        decide_change(delta_of([{"id": "a", "_offset": 6}], COLUMNS, 0, 9), MANY_ROWS, "table t")


def test_a_tombstone_that_names_no_key_is_refused_by_its_offset() -> None:
    rows: list[Row] = [{"id": "a", "line": 1, "_offset": 0}, {"_offset": 1, "_deleted": True}]
    with pytest.raises(FoldError, match=r"tombstone at offset 1 of payments-0.*names no key column"):
        decide_change(delta_of(rows, COLUMNS, 0, 9), NO_RECORD_KEY, "table t")


def test_without_a_record_key_the_last_row_of_a_key_counts() -> None:
    rows: list[Row] = [
        {"id": "a", "line": 1, "value": 1, "_offset": 0},
        {"id": "a", "line": 2, "value": 2, "_offset": 0},
        {"id": "a", "line": 1, "value": 3, "_offset": 1},
    ]
    change = decide_change(delta_of(rows, COLUMNS, 0, 9), NO_RECORD_KEY, "table t")
    assert [(row["line"], row["value"]) for row in rows_of(change)] == [(1, 3), (2, 2)]


def test_records_of_the_same_offset_in_two_partitions_are_two_records() -> None:
    rows: list[Row] = [
        {"id": "a", "line": 1, "value": 1, "_partition": 0, "_offset": 3},
        {"id": "a", "line": 2, "value": 2, "_partition": 1, "_offset": 3},
    ]
    change = decide_change(delta_of(rows, COLUMNS, 0, 9), MANY_ROWS, "table t")
    assert [row["value"] for row in rows_of(change)] == [2]


def test_rows_in_many_chunks_are_one_range() -> None:
    parts = [delta_of([{"id": "a", "_offset": n, "value": n}], COLUMNS, 0, 9).rows for n in range(4)]
    whole = delta_of([], COLUMNS, 0, 9)
    change = decide_change(type(whole)(pa.concat_tables(parts), whole.ranges), ONE_ROW, "table t")
    assert rows_of(change) == [{"id": "a", "line": None, "value": 3}]


def test_rows_that_do_not_fit_what_was_prepared_are_refused() -> None:
    more = pa.schema([*COLUMNS, ("note", pa.string())])
    with pytest.raises(SchemaChanged, match="no column 'note'"):
        decide_change(delta_of([{"id": "a", "_offset": 0}], more, 0, 9), ONE_ROW, "table t")
    other = pa.schema([("id", pa.string()), ("value", pa.string())])
    with pytest.raises(SchemaChanged, match="'value' is int64"):
        decide_change(delta_of([{"id": "a", "_offset": 0}], other, 0, 9), ONE_ROW, "table t")
