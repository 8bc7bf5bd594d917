"""The process that the tests of kill -9 kill: it applies range after range of a topic that is the same for everybody.

Its arguments are the place of the table, a seed for the sizes of its ranges, and "load" if it loads a shadow. It says
the offset that it has come to after each range. No pytest in here: it has to start quickly.
"""

from __future__ import annotations

import random
import sys

import pyarrow as pa

from foldlog.views.bookmark import Bookmark, Position
from foldlog.views.contract import Delta, Shape, View
from foldlog.views.table.table import table

COLUMNS = pa.schema([("tx_id", pa.string()), ("amount", pa.int64()), ("note", pa.string())])
SHAPE = Shape(COLUMNS, "tx_id")
KEYS = 97


def at(offset: int) -> Bookmark:
    return Bookmark("payments", "id", {0: Position(offset)}, {0: 0})


def row(offset: int) -> dict[str, object]:
    """The record at an offset: one in eleven a tombstone."""
    key = f"tx-{offset * 7919 % KEYS}"
    is_deleted = offset % 11 == 0
    value: dict[str, object] = {} if is_deleted else {"amount": offset, "note": "x" * (offset % 50)}
    return {"tx_id": key, "_partition": 0, "_offset": offset, "_deleted": is_deleted, "_topic": "payments", **value}


def content(stop: int) -> list[dict[str, object]]:
    """What the table holds at bookmark `stop`. A key comes back every KEYS offsets, so the last two rounds decide."""
    newest = {row(offset)["tx_id"]: row(offset) for offset in range(max(0, stop - KEYS), stop)}
    live = [kept for kept in newest.values() if not kept["_deleted"]]
    return sorted(({name: kept[name] for name in COLUMNS.names} for kept in live), key=lambda kept: str(kept["tx_id"]))


def delta(start: int, stop: int) -> Delta:
    schema = pa.schema(
        [
            *COLUMNS,
            ("_topic", pa.string()),
            ("_partition", pa.int32()),
            ("_offset", pa.int64()),
            ("_timestamp", pa.timestamp("us", "UTC")),
            ("_deleted", pa.bool_()),
        ]
    )
    return Delta(
        pa.Table.from_pylist([row(offset) for offset in range(start, stop)], schema=schema), {0: (start, stop)}
    )


def one_range(view: View, rng: random.Random) -> int:
    """Go on from the stored bookmark, as a runner does; where it then is."""
    stored = view.bookmark()
    here = 0 if stored is None else stored.offset(0) or 0
    stop = here + rng.randrange(1, 300)
    view.apply(delta(here, stop), at(here), at(stop))
    return stop


def main() -> None:
    place, seed, *rest = sys.argv[1:]
    view = table(place, "payments")
    if rest == ["load"]:
        view = view.shadow("rebuild")
    rng = random.Random(int(seed))
    view.prepare(SHAPE, at(0), loading=rest == ["load"])
    while True:
        print(one_range(view, rng), flush=True)


if __name__ == "__main__":
    main()
