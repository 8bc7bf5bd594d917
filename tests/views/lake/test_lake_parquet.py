"""Parquet directories as views: the contract, and what is their own.

Their own are: the names tile what was read, uncommitted files are never seen by readers of the directory, a crash at
every step of a commit leaves the old state or the new one, and everybody who reads Parquet finds all columns.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from foldlog.errors import InvalidArgument, SchemaChanged, ViewUnavailable
from foldlog.files import paths, posix
from foldlog.views.bookmark import Bookmark, Position
from foldlog.views.contract import Delta, Shape
from foldlog.views.lake.lake import lake
from foldlog.views.lake.parquet import ParquetHistory, file_name
from foldlog.views.staging import StageRefusal
from views.lake.lake_cases import HistoryCase, apply_in_turns, check_growth, check_kills
from views.staged_contract import StagedCase, StagedContract, places_below, reports
from views.view_contract import (
    COLUMNS,
    START,
    ViewCase,
    ViewContract,
    at,
    delta_of,
    held,
    in_order,
    opened,
    play,
    some_events,
)


class TestParquetHistory(ViewContract):
    """format="parquet"."""

    @pytest.fixture
    def case(self, tmp_path: Path) -> ViewCase:
        return HistoryCase(lambda: lake(tmp_path / "payments", "parquet"))


def pending_in(path: Path) -> list[str]:
    """Files that are not part of the table."""
    return sorted(str(file) for file in path.rglob("_p*.parquet"))


class TestParquetFromExecutors(StagedContract):
    """Rows that executors have written."""

    @pytest.fixture
    def case(self, tmp_path: Path) -> StagedCase:
        inner = HistoryCase(lambda: lake(tmp_path / "payments", "parquet"))
        steps = [f"foldlog.views.lake.parquet.{name}" for name in ("rename", "replace_file", "_settle", "sweep")]
        return StagedCase(inner, lambda: places_below(tmp_path), steps=steps, loose=lambda: pending_in(tmp_path))


@pytest.mark.faults
class TestParquetByMerchant(ViewContract):
    """Files in directories, by a column."""

    @pytest.fixture
    def case(self, tmp_path: Path) -> ViewCase:
        return HistoryCase(lambda: lake(tmp_path / "payments", "parquet", partition_by="merchant"))


@pytest.mark.faults
class TestParquetByMerchantFromExecutors(StagedContract):
    """Files in directories, by a column, that executors have written."""

    @pytest.fixture
    def case(self, tmp_path: Path) -> StagedCase:
        inner = HistoryCase(lambda: lake(tmp_path / "payments", "parquet", partition_by=["merchant"]))
        steps = [f"foldlog.views.lake.parquet.{name}" for name in ("rename", "replace_file", "_settle", "sweep")]
        loose = lambda: sorted(str(one) for one in tmp_path.rglob("_pending/**/*.parquet"))  # noqa: E731
        return StagedCase(inner, lambda: places_below(tmp_path), steps=steps, loose=loose)


@pytest.fixture
def case(tmp_path: Path) -> ViewCase:
    return HistoryCase(lambda: lake(tmp_path / "payments", "parquet"))


@pytest.fixture
def current(tmp_path: Path) -> Path:
    return tmp_path / "payments" / "current"


def names(directory: Path) -> list[str]:
    """What readers of Parquet directories take notice of."""
    return sorted(name for name in os.listdir(directory) if name[0] not in "_.")


def several(partitions: dict[int, tuple[int, int]]) -> Delta:
    """A row for every offset of several partitions."""
    rows: list[dict[str, object]] = [
        {"tx_id": f"{partition}-{offset}", "_partition": partition, "_offset": offset, "_deleted": False}
        for partition, (start, stop) in partitions.items()
        for offset in range(start, stop)
    ]
    meta = [("_partition", pa.int32()), ("_offset", pa.int64()), ("_deleted", pa.bool_())]
    return Delta(pa.Table.from_pylist(rows, schema=pa.schema([*COLUMNS, *meta])), partitions)


def spread(*offsets: int) -> Bookmark:
    """At these offsets of the partitions 0, 1 and so on."""
    positions = {partition: Position(offset) for partition, offset in enumerate(offsets)}
    return Bookmark("payments", "topic-id-1", positions, dict.fromkeys(positions, 0))


def test_a_history_grows(case: ViewCase) -> None:
    check_growth(case)


def test_the_names_say_which_partition_and_which_range(case: ViewCase, current: Path) -> None:
    with opened(case) as view:
        view.prepare(case.shape, spread(0, 0, 0))
        view.apply(several({0: (0, 5), 1: (0, 0), 2: (0, 9)}), spread(0, 0, 0), spread(5, 0, 9))
        view.apply(several({0: (5, 6)}), spread(5, 0, 9), spread(6, 0, 9))
        assert names(current) == [file_name(0, 0, 5), file_name(0, 5, 6), file_name(2, 0, 9)]
        assert json.loads((current / "_foldlog.json").read_text()) == json.loads(spread(6, 0, 9).to_json())
        for name, rows in ((file_name(0, 0, 5), 5), (file_name(2, 0, 9), 9)):
            assert pq.read_table(current / name).num_rows == rows


def test_everybody_who_reads_parquet_finds_the_rows_and_all_columns(case: ViewCase, current: Path) -> None:
    events = some_events(20)
    with opened(case) as view:
        view.prepare(case.shape, START)
        play(view, case, events, [10])
        grown = Shape(pa.schema([*COLUMNS, ("note", pa.string())]), "tx_id", ("tx_id",))
        view.prepare(grown, START)
        view.apply(case.delta(events, 10, 20), at(10), at(20))
    (current / f"_{file_name(0, 20, 30)}").write_bytes(b"half written")
    assert pq.read_table(current).num_rows == 20
    assert ds.dataset(current, format="parquet").count_rows() == 20
    schema = pq.read_schema(current / "_common_metadata")
    assert ds.dataset(current, format="parquet", schema=schema).to_table(columns=["note"]).num_rows == 20
    files = f"read_parquet('{current}/p*.parquet', union_by_name = true)"
    query = f"SELECT count(*), count(DISTINCT _offset), count(note) FROM {files}"
    with duckdb.connect() as connection:
        assert connection.execute(query).fetchall() == [(20, 20, 0)]


def test_files_are_split_by_columns_as_hive_names_them_and_everybody_finds_the_rows(
    tmp_path: Path, current: Path
) -> None:
    path = tmp_path / "payments"
    case = HistoryCase(lambda: lake(path, "parquet", partition_by="merchant"))
    with opened(case) as view:
        view.prepare(case.shape, START)
        rows: list[dict[str, object]] = [
            {"tx_id": f"tx-{offset}", "merchant": merchant, "amount": offset, "_offset": offset}
            for offset, merchant in enumerate(["a/b=c", "Café 7", None, "a/b=c"])
        ]
        view.apply(delta_of(rows, COLUMNS, 0, 4), START, at(4))
        assert sorted(name for name in os.listdir(current) if name[0] not in "_.") == [
            "merchant=Caf%C3%A9 7", "merchant=__HIVE_DEFAULT_PARTITION__", "merchant=a%2Fb%3Dc"
        ]  # fmt: skip
        found = [(row["tx_id"], row["merchant"]) for row in held(view)]
        assert sorted(found) == [("tx-0", "a/b=c"), ("tx-1", "Café 7"), ("tx-2", None), ("tx-3", "a/b=c")]
        files = f"read_parquet('{current}/**/*.parquet', hive_partitioning = true)"
        query = f"SELECT merchant, count(*) FROM {files} GROUP BY 1"
        with duckdb.connect() as connection:
            assert dict(connection.execute(query).fetchall()) == {"a/b=c": 2, "Café 7": 1, None: 1}
        for text, told in (("", "an empty text"), ("__HIVE_DEFAULT_PARTITION__", "the text '__HIVE")):
            with pytest.raises(InvalidArgument, match=f"{told}.*would be read as null"):
                view.apply(delta_of([{"tx_id": "x", "merchant": text, "_offset": 4}], COLUMNS, 4, 5), at(4), at(5))
            place = view.stage({0: (4, 5)}, at(4))
            assert place is not None
            (refusal,) = reports(place, delta_of([{"tx_id": "x", "merchant": text}], COLUMNS, 4, 5).rows, 0)
            assert isinstance(refusal, StageRefusal), "executors would have stored null"
        assert view.bookmark() == at(4)
        with pytest.raises(SchemaChanged, match="it is partitioned by merchant and not by nothing"):
            lake(path, "parquet").prepare(case.shape, START)
        with pytest.raises(InvalidArgument, match="the fold gives no such column"):
            lake(tmp_path / "others", "parquet", partition_by="country").prepare(case.shape, START)


class Crash(BaseException):
    """Ends a write in the middle, as the end of the process would."""


class CountedSteps:
    """The module `os`, of which calls that change or sync something end in a crash once `left` of them were made."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __getattr__(self, name: str) -> Any:
        if name not in ("rename", "unlink", "fsync"):
            return getattr(os, name)

        def step(*arguments: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise Crash
            return getattr(os, name)(*arguments)

        return step


def test_a_crash_at_any_step_leaves_the_old_state_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One commit of two files, again and again: each time it gets one step further, until it gets to its end."""
    outcomes = []
    for steps in count():
        path = tmp_path / str(steps)
        outcomes.append(crash_after(steps, HistoryCase(partial(lake, path, "parquet")), path / "current", monkeypatch))
        if outcomes[-1] == "ended":
            break
    assert outcomes == sorted(outcomes, key=["old", "new", "ended"].index)
    assert {"old", "new"} <= set(outcomes)


def crash_after(steps: int, case: ViewCase, current: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Commit, crash after so many steps, look at what is there, and go on."""
    old, new = spread(3, 3), spread(8, 8)
    with opened(case) as view:
        view.prepare(case.shape, spread(0, 0))
        view.apply(several({0: (0, 3), 1: (0, 3)}), spread(0, 0), old)
    counted = CountedSteps(steps)
    for module in (paths, posix):
        monkeypatch.setattr(module, "os", counted)
    try:
        with opened(case) as view:
            view.apply(several({0: (3, 8), 1: (3, 8)}), old, new)
        outcome = "ended"
    except Crash:
        outcome = "crashed"
    monkeypatch.undo()
    seen = ds.dataset(current, format="parquet").count_rows()
    with opened(case) as view:
        snapshot = view.scan()
        assert snapshot.bookmark == view.bookmark()
        if outcome == "crashed":
            outcome = "new" if snapshot.bookmark == new else "old"
        assert sum(batch.num_rows for batch in snapshot.batches) == (6 if outcome == "old" else 16)
        if outcome == "old":
            assert snapshot.bookmark == old
            assert seen == 6, "a reader saw what was not committed"
            # Another split this time: nothing of the first attempt may come back.
            view.apply(several({0: (3, 4), 1: (3, 8)}), old, spread(4, 8))
            view.apply(several({0: (4, 8)}), spread(4, 8), new)
        rows = sorted((row["_partition"], row["_offset"]) for row in held(view))
        assert rows == [(partition, offset) for partition in (0, 1) for offset in range(8)]
    assert [name for name in os.listdir(current) if name.startswith("_p")] == []
    return outcome


@pytest.mark.faults
def test_a_killed_process_leaves_what_the_bookmark_says(case: ViewCase, tmp_path: Path) -> None:
    check_kills(case, tmp_path / "payments", "parquet", "append", kills=5)


def test_runners_in_several_processes_apply_every_range_once(case: ViewCase, tmp_path: Path, current: Path) -> None:
    events = some_events(300)
    with opened(case) as view:
        view.prepare(case.shape, START)
        code = (
            "from views.lake.lake_cases import *;"
            f"view = lake({str(tmp_path / 'payments')!r}, 'parquet');"
            "print(apply_in_turns(view, ViewCase(lambda: view), some_events(300), 10))"
        )
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment)
        own = apply_in_turns(view, case, events, 10)
        assert own + int(other.communicate(timeout=120)[0]) == 30
        assert held(view) == in_order(case.content(events, 300))
        assert names(current) == [file_name(0, start, start + 10) for start in range(0, 300, 10)]


def test_what_a_swap_replaced_stays_until_it_is_dropped(case: ViewCase, tmp_path: Path, current: Path) -> None:
    events = some_events(40)
    with opened(case) as view, closing(view.shadow("rebuild")) as shadow:
        view.prepare(case.shape, START)
        play(view, case, events, [10, 20])
        old = current.resolve()
        shadow.prepare(case.shape, at(0, epoch=1))
        play(shadow, case, events, [40], epoch=1)
        view.swap(shadow)
        assert names(old) == [file_name(0, 0, 10), file_name(0, 10, 20)]
        assert names(current) == [file_name(0, 0, 40)]
        assert view.drop_old()
        assert not old.exists()


def test_rows_of_a_partition_that_was_not_read_are_refused_and_nothing_changes(case: ViewCase, current: Path) -> None:
    rows = several({0: (0, 2), 1: (0, 2)}).rows
    with opened(case) as view:
        view.prepare(case.shape, spread(0, 0))
        with pytest.raises(InvalidArgument, match=r"2 rows for parquet:/.* of partitions that were not read"):
            view.apply(Delta(rows, {0: (0, 2)}), spread(0, 0), spread(2, 0))
        assert view.bookmark() == spread(0, 0)
        assert held(view) == []
    assert names(current) == []


def test_a_damaged_file_is_one_sentence_with_the_place(case: ViewCase, current: Path, tmp_path: Path) -> None:
    with opened(case) as view:
        view.prepare(case.shape, START)
        play(view, case, some_events(10), [10])
        (current / file_name(0, 0, 10)).write_bytes(random.Random(1).randbytes(100))
        with pytest.raises(ViewUnavailable, match=r"^parquet:/.*payments cannot be used: ") as refused:
            held(view)
        assert "\n" not in str(refused.value)
        (current / "_foldlog.json").write_text("{")
        with pytest.raises(ViewUnavailable, match=r"_foldlog\.json cannot be read"):
            view.bookmark()


def test_a_shadow_of_another_view_is_not_swapped_in(case: ViewCase, tmp_path: Path) -> None:
    with opened(case) as view:
        view.prepare(case.shape, START)
        with pytest.raises(InvalidArgument, match="is no shadow of"):
            view.swap(ParquetHistory(str(tmp_path / "others")))
