"""What the tests of lake views share: the model of a history, and a process that applies ranges until it is killed."""

from __future__ import annotations

import os
import random
import selectors
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from foldlog.errors import SchemaChanged
from foldlog.views.contract import Shape, View
from foldlog.views.lake.lake import Format, Mode, lake
from views.view_contract import COLUMNS, START, Event, ViewCase, at, delta_of, held, in_order, opened, some_events

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TESTS = Path(__file__).resolve().parents[2]


class HistoryCase(ViewCase):
    """A lake that appends holds every event, tombstones too, and where it came from."""

    grows = False  # those tests know no META columns: see test_a_history_grows

    def content(self, events: Sequence[Event], stop: int) -> list[dict[str, object]]:
        return [came_from(event.offset, event) for event in events if event.offset < stop]


def came_from(offset: int, event: Event) -> dict[str, object]:
    """An event as a row of a history."""
    return {
        "tx_id": event.tx_id,
        "merchant": None if event.is_deleted else event.merchant,
        "amount": event.amount,
        "_partition": 0,
        "_offset": offset,
        "_timestamp": EPOCH,
        "_deleted": event.is_deleted,
    }


def check_growth(case: ViewCase) -> None:
    """A new column is null before, one that went away is null after, and another type is refused."""
    grown = pa.schema([COLUMNS.field("tx_id"), ("note", pa.string()), *list(COLUMNS)[1:]])
    with opened(case) as view:
        view.prepare(case.shape, START)
        view.apply(delta_of([{"tx_id": "a", "amount": 1, "_offset": 0}], COLUMNS, 0, 1), START, at(1))
        assert view.prepare(Shape(grown, "tx_id", ("tx_id",)), START) == at(1)
        view.apply(delta_of([{"tx_id": "b", "note": "n", "_offset": 1}], grown, 1, 2), at(1), at(2))
        assert view.prepare(case.shape, START) == at(2)
        view.apply(delta_of([{"tx_id": "c", "amount": 3, "_offset": 2}], COLUMNS, 2, 3), at(2), at(3))
        found = [(row["tx_id"], row["note"], row["amount"]) for row in held(view)]
        assert sorted(found, key=repr) == [("a", None, 1), ("b", "n", None), ("c", None, 3)]
        other = pa.schema([COLUMNS.field("tx_id"), ("amount", pa.string()), ("extra", pa.string())])
        with pytest.raises(SchemaChanged, match=r"'amount' is int64 there and string here.*rebuild"):
            view.prepare(Shape(other, "tx_id", ("tx_id",)), START)
        assert "extra" not in held(view)[0]
        with pytest.raises(SchemaChanged, match="no column 'extra'"):
            view.apply(
                delta_of([{"tx_id": "d"}], pa.schema([("tx_id", pa.string()), ("extra", pa.string())]), 3, 4),
                at(3),
                at(4),
            )
        assert view.bookmark() == at(3)


KILLED_EVENTS = 4000
KILLED_RANGE = 40


def apply_until_killed(path: str, kind: Format, mode: Mode) -> None:
    """The process that is killed: goes on from the bookmark, in small ranges, and says where it is after each."""
    view = lake(path, kind, mode)
    case = ViewCase(lambda: view)
    events = some_events(KILLED_EVENTS, keys=50)
    here = view.prepare(case.shape, START).positions[0].offset
    while here < KILLED_EVENTS:
        there = min(here + KILLED_RANGE, KILLED_EVENTS)
        view.apply(case.delta(events, here, there), at(here), at(there))
        here = there
        print(here, flush=True)


def check_kills(case: ViewCase, path: Path, kind: Format, mode: Mode, kills: int) -> None:
    """Kill -9 at random moments of a running process; every time the view is what its bookmark says, and goes on."""
    events = some_events(KILLED_EVENTS, keys=50)
    rng = random.Random(7)
    code = f"from views.lake.lake_cases import *; apply_until_killed({str(path)!r}, {kind!r}, {mode!r})"
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    last = 0
    for _ in range(kills):
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) as process:
            assert process.stdout is not None
            for _ in range(rng.randrange(1, 6)):
                assert process.stdout.readline(), "it ended by itself"
            # Somewhere inside the next range: wait for less time than one takes, or until it is done.
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                selector.select(rng.random() * 0.03)
            process.send_signal(signal.SIGKILL)
        with closing(case.open()) as view:
            snapshot = view.scan()
            stop = snapshot.bookmark.positions[0].offset
            assert stop > last
            assert in_order([row for batch in snapshot.batches for row in batch.to_pylist()]) == in_order(
                case.content(events, stop)
            )
            last = stop


def apply_in_turns(view: View, case: ViewCase, events: Sequence[Event], step: int) -> int:
    """Apply ranges from wherever the view is to the end, beside others that do the same; how many were this one's."""
    from foldlog.errors import StaleBookmark

    own = 0
    while True:
        bookmark = view.bookmark()
        assert bookmark is not None
        here = bookmark.positions[0].offset
        if here == len(events):
            return own
        there = min(here + step, len(events))
        try:
            view.apply(case.delta(events, here, there), at(here), at(there))
            own += 1
        except StaleBookmark:
            continue
