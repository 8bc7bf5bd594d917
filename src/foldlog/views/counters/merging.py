"""Merges partial results of the same group, in whole Arrow columns: on the executors, on the driver and in the view.

Whatever was merged first, the result is the same. Sessions are merged if they overlap; for all other rows a group is
the row's group columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from foldlog.views.counters.measures import Aggregation, Measure
from foldlog.views.counters.states import RANK_BITS, binaries, bucket_fields, buckets_of, items_of, registers_of
from foldlog.views.counters.windows import WINDOW_END, WINDOW_START
from foldlog.views.merged.groups import Groups, group_codes, whole

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Numbers = np.ndarray[Any, Any]


def merged(rows: pa.Table, aggregation: Aggregation, apart: Sequence[str] = ()) -> pa.Table:
    """One row for each group, or session, of partial results; rows that differ in the columns `apart` are not merged.
    ArithmeticError if a sum leaves its type.
    """
    import pyarrow as pa

    if rows.num_rows < 2:
        return rows
    rows = rows.combine_chunks()
    groups = [*apart, *aggregation.by] if aggregation.sessions is not None else [*apart, *aggregation.group_columns()]
    codes = group_codes([rows[name] for name in groups], rows.num_rows)
    if aggregation.sessions is not None:
        codes = _session_codes(codes, rows)
    if codes.max() == rows.num_rows - 1:
        return rows
    places = Groups(codes)
    columns = {name: places.first(rows[name]) for name in (*apart, *aggregation.group_columns())}
    if aggregation.sessions is not None:
        columns[WINDOW_START] = places.extreme(rows[WINDOW_START], largest=False)
        columns[WINDOW_END] = places.extreme(rows[WINDOW_END], largest=True)
    for name, measure in aggregation.measures.items():
        columns |= _merged_measure(name, measure, rows, places)
    return pa.table({name: columns[name] for name in rows.column_names}, schema=rows.schema)


def lifted(rows: pa.Table, aggregation: Aggregation, columns: pa.Schema) -> dict[str, pa.Array]:
    """The partial results of each row by itself. `rows` has the columns that the measures are of; of an
    approx_count_distinct their 64-bit hashes, of a quantile DOUBLE.
    """
    found: dict[str, pa.Array] = {}
    for name, measure in aggregation.measures.items():
        for partial, how, column in measure.partials(name):
            given = None if column is None else whole(rows[input_name(measure, column)])
            found[partial] = _lifted_one(rows, how, measure, given, columns.field(partial).type)
    return found


def input_name(measure: Measure, column: str) -> str:
    """The name under which `lifted` is given a column."""
    return {"registers": f"__hash {column}", "buckets": f"__number {column}"}.get(measure.state or "", column)


def _lifted_one(rows: pa.Table, how: str, measure: Measure, given: Any, kind: Any) -> Any:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if how == "count":
        return pa.array(np.ones(rows.num_rows, np.int64)) if given is None else pc.is_valid(given).cast(pa.int64())
    if how == "registers":
        return registers_of(given, measure.size).cast(kind)
    if how == "buckets":
        return buckets_of(given, measure.size).cast(kind)
    valid = pc.is_valid(given)
    if measure.order_by is not None and measure.column is not None:
        valid = pc.and_(pc.is_valid(rows[measure.column]), pc.is_valid(rows[measure.order_by]))
        valid = whole(valid)
        given = pc.if_else(valid, given, pa.scalar(None, given.type))
    if how == "values":
        return _relisted(given.filter(valid), valid.cast(pa.int64()).to_numpy(), kind)
    if how == "top" and measure.order_by is not None:
        pairs = pa.StructArray.from_arrays([whole(rows[measure.order_by]), given], ["order", "value"])
        return _relisted(pairs.filter(valid), valid.cast(pa.int64()).to_numpy(), kind)
    return given.cast(kind)


def _merged_measure(name: str, measure: Measure, rows: pa.Table, places: Groups) -> dict[str, Any]:
    if measure.order_by is not None and measure.state is None:
        order, value = f"{name}__order", name
        at = places.at_extreme([rows[order], rows[value]], largest=measure.kind == "last")
        return {value: rows[value].take(at), order: rows[order].take(at)}
    found = {}
    for partial, how, _ in measure.partials(name):
        column = rows[partial]
        if how in ("count", "sum"):
            found[partial] = places.total(column)
        elif how in ("min", "max"):
            found[partial] = places.extreme(column, largest=how == "max")
        elif how == "registers":
            found[partial] = _union_of_registers(whole(column), places)
        elif how == "buckets":
            found[partial] = _union_of_buckets(whole(column), places)
        else:
            found[partial] = _union_of_items(whole(column), places, measure.size if how == "top" else None)
    return found


def _session_codes(codes: Numbers, rows: pa.Table) -> Numbers:
    """The codes, divided by session: rows of a code are of one session if their intervals overlap, one by one. Rows
    without a time are one session.
    """
    import numpy as np
    import pyarrow as pa

    no_time = rows[WINDOW_START].is_null().to_numpy()
    starts, ends = (
        whole(rows[name]).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        for name in (WINDOW_START, WINDOW_END)
    )
    codes = codes * 2 + no_time
    order = np.lexsort((starts, codes))
    codes, starts, ends, no_time = codes[order], starts[order], ends[order], no_time[order]
    # The latest end so far of the same code: a number that puts the code first never falls from one code to the next.
    known, ranks = np.unique(ends, return_inverse=True)
    latest = known[np.maximum.accumulate(codes * len(known) + ranks) % len(known)]
    begins = np.ones(len(codes), np.bool_)
    begins[1:] = (codes[1:] != codes[:-1]) | ((starts[1:] >= latest[:-1]) & ~no_time[1:])
    found = np.empty(len(codes), np.int64)
    found[order] = np.cumsum(begins) - 1
    return found


def _union_of_registers(states: Any, places: Groups) -> Any:
    import numpy as np

    items, lengths = items_of(states, "<u4")
    owners = np.repeat(places.codes, lengths)
    keys = np.unique((owners.astype(np.uint64) << np.uint64(32)) | items.astype(np.uint64))
    registers = keys >> np.uint64(RANK_BITS)
    keys = keys[np.append(registers[1:] != registers[:-1], True)] if len(keys) else keys
    counts = np.bincount((keys >> np.uint64(32)).astype(np.int64), minlength=places.count)
    return binaries((keys & np.uint64(0xFFFFFFFF)).astype("<u4"), counts).cast(states.type)


def _union_of_buckets(states: Any, places: Groups) -> Any:
    import numpy as np

    items, lengths = items_of(states, bucket_fields())
    owners = np.repeat(places.codes, lengths)
    order = np.lexsort((items["bucket"], owners))
    items, owners = items[order], owners[order]
    if not len(items):
        return binaries(items, np.zeros(places.count, np.int64)).cast(states.type)
    begins = np.flatnonzero(
        np.append(True, (owners[1:] != owners[:-1]) | (items["bucket"][1:] != items["bucket"][:-1]))
    )
    found = items[begins]
    found["count"] = np.add.reduceat(items["count"], begins)
    return binaries(found, np.bincount(owners[begins], minlength=places.count)).cast(states.type)


def _union_of_items(lists: Any, places: Groups, most: int | None) -> Any:
    """The different items of all lists, sorted; or, with `most`, the largest pairs, largest first."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    items = lists.flatten()
    owners = pa.array(np.repeat(places.codes, lengths))
    if most is None:
        table = pa.table({"code": owners, "item": items}).group_by(["code", "item"], use_threads=False).aggregate([])
        table = table.take(pc.sort_indices(table, sort_keys=[("code", "ascending"), ("item", "ascending")]))
        kept, codes = whole(table["item"]), table["code"].to_numpy()
    else:
        parts = [pc.struct_field(items, name) for name in ("order", "value")]
        table = pa.table([owners, *parts], names=["code", "order", "value"])
        # Ascending and then turned round: Arrow puts NaN at the end of either order, and here it is the largest number.
        order = pc.sort_indices(table, sort_keys=[("order", "ascending"), ("value", "ascending")]).to_numpy()[::-1]
        order = order[np.argsort(owners.to_numpy()[order], kind="stable")]
        codes = owners.to_numpy()[order]
        # How many of the same code come before.
        places_in = np.arange(len(codes)) - np.searchsorted(codes, codes)
        kept, codes = items.take(pa.array(order[places_in < most])), codes[places_in < most]
    return _relisted(kept, np.bincount(codes, minlength=places.count), lists.type)


def _relisted(items: Any, lengths: Numbers, kind: Any) -> Any:
    import numpy as np
    import pyarrow as pa

    ends = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=ends[1:])
    return pa.ListArray.from_arrays(pa.array(ends), items.cast(kind.value_type), type=kind)
