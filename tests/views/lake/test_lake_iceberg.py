"""Iceberg tables as views: the contract, and what is Iceberg's own.

Its own are: the bookmark outlives expired snapshots, runners in several processes take turns, a killed process leaves
what its bookmark says, a swap is one transaction of the catalog, and a reader without foldlog finds a plain table.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from foldlog.errors import InvalidArgument, SchemaChanged, ViewUnavailable
from foldlog.views.contract import Shape
from foldlog.views.lake import iceberg as lake_iceberg
from foldlog.views.lake.lake import lake
from views.lake.lake_cases import HistoryCase, apply_in_turns, check_growth, check_kills
from views.staged_contract import Died, StagedCase, StagedContract, places_below
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


class TestIcebergHistory(ViewContract):
    """format="iceberg"."""

    @pytest.fixture
    def case(self, tmp_path: Path) -> ViewCase:
        return HistoryCase(lambda: lake(tmp_path / "payments", "iceberg"))


def loose_in(path: Path) -> list[str]:
    """Data files that no snapshot names."""
    with closing(SqlCatalog("foldlog", uri=f"sqlite:///{path}/catalog.db")) as catalog:
        found = catalog.load_table(("foldlog", "payments"))
        named = set(found.inspect.all_files()["file_path"].to_pylist())
        return sorted(str(file) for file in Path(found.location()).rglob("*.parquet") if str(file) not in named)


@pytest.mark.faults
class TestIcebergFromExecutors(StagedContract):
    """Rows that executors have written."""

    @pytest.fixture
    def case(self, tmp_path: Path) -> StagedCase:
        inner = HistoryCase(lambda: lake(tmp_path / "payments", "iceberg"))
        steps = [f"foldlog.views.lake.iceberg.{name}" for name in ("adopt", "finish", "sweep")]
        loose = tmp_path / "payments"
        return StagedCase(inner, lambda: places_below(tmp_path), steps=steps, loose=lambda: loose_in(loose))


@pytest.fixture
def case(tmp_path: Path) -> ViewCase:
    return HistoryCase(lambda: lake(tmp_path / "payments", "iceberg"))


def table_at(path: Path, name: str = "payments") -> Table:
    """As somebody without foldlog opens it."""
    catalog = SqlCatalog("foldlog", uri=f"sqlite:///{path}/catalog.db", warehouse=str(path))
    try:
        return catalog.load_table(f"foldlog.{name}")
    finally:
        catalog.close()


def test_a_history_grows(case: ViewCase) -> None:
    check_growth(case)


def test_somebody_without_foldlog_finds_a_plain_table(case: ViewCase, tmp_path: Path) -> None:
    events = some_events(30)
    with opened(case) as view:
        view.prepare(case.shape, START)
        play(view, case, events, [10, 30])
    table = table_at(tmp_path / "payments")
    assert table.scan().to_arrow().num_rows == 30
    assert table.scan(row_filter="_offset < 10").to_arrow().num_rows == 10
    said = [snapshot.summary[lake_iceberg.BOOKMARK] for snapshot in table.snapshots() if snapshot.summary]
    assert said == [at(10).to_json(), at(30).to_json()]


def test_the_bookmark_survives_when_all_older_snapshots_expire(case: ViewCase, tmp_path: Path) -> None:
    events = some_events(30)
    with opened(case) as view:
        view.prepare(case.shape, START)
        play(view, case, events, [10, 20, 30])
        table = table_at(tmp_path / "payments")
        old = [snapshot.snapshot_id for snapshot in table.snapshots()][:-1]
        table.maintenance.expire_snapshots().by_ids(old).commit()
        assert len(table_at(tmp_path / "payments").snapshots()) == 1
        assert view.bookmark() == at(30)
        view.apply(case.delta(events, 30, 30), at(30), at(31))
        assert held(view) == in_order(case.content(events, 30))


def test_old_metadata_does_not_pile_up(case: ViewCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {**lake_iceberg._PROPERTIES, "write.metadata.previous-versions-max": "3"}
    monkeypatch.setattr(lake_iceberg, "_PROPERTIES", few)
    with opened(case) as view:
        view.prepare(case.shape, START)
        play(view, case, some_events(20), range(2, 21, 2))
        assert len(list((tmp_path / "payments").rglob("*.metadata.json"))) <= 4
        assert view.bookmark() == at(20)


@pytest.mark.faults
def test_runners_in_several_processes_apply_every_range_once(case: ViewCase, tmp_path: Path) -> None:
    events = some_events(80)
    with opened(case) as view:
        view.prepare(case.shape, START)
        code = (
            "from views.lake.lake_cases import *;"
            f"view = lake({str(tmp_path / 'payments')!r}, 'iceberg');"
            "print(apply_in_turns(view, ViewCase(lambda: view), some_events(80), 10))"
        )
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment)
        own = apply_in_turns(view, case, events, 10)
        assert own + int(other.communicate(timeout=120)[0]) == 8
        assert held(view) == in_order(case.content(events, 80))


@pytest.mark.faults
def test_a_killed_process_leaves_what_the_bookmark_says(case: ViewCase, tmp_path: Path) -> None:
    check_kills(case, tmp_path / "payments", "iceberg", "append", kills=2)


def test_what_a_swap_replaced_is_reached_by_time_travel_until_it_is_dropped(case: ViewCase, tmp_path: Path) -> None:
    path = tmp_path / "payments"
    events = some_events(40)
    with opened(case) as view, closing(view.shadow("rebuild")) as shadow:
        view.prepare(case.shape, START)
        play(view, case, events, [20])
        shadow.prepare(case.shape, at(0, epoch=1))
        play(shadow, case, events, [40], epoch=1)
        held_open = table_at(path)
        view.swap(shadow)
        assert held_open.scan().to_arrow().num_rows == 20, "who has the old table goes on reading it"
        old = int(table_at(path).properties["foldlog.old"])
        assert table_at(path).scan(snapshot_id=old).to_arrow().num_rows == 20
        assert table_at(path).scan().to_arrow().num_rows == 40
        before = set(path.rglob("*.parquet"))
        assert view.drop_old()
        assert set(path.rglob("*.parquet")) < before
        assert held(view) == in_order(case.content(events, 40))
        assert not view.drop_old()
    assert loose_in(path) == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_dies_after_a_swap_loses_no_file_to_the_next_rebuild(
    case: ViewCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    events = some_events(40)
    with opened(case) as view, closing(view.shadow("rebuild")) as shadow:
        view.prepare(case.shape, START)
        play(view, case, events, [20])
        shadow.prepare(case.shape, at(0, epoch=1))
        play(shadow, case, events, [40], epoch=1)
        real = SqlCatalog.drop_table

        def dies(catalog: SqlCatalog, name: Any) -> None:
            if when == "after":
                real(catalog, name)
            raise Died

        with monkeypatch.context() as patched:
            patched.setattr(SqlCatalog, "drop_table", dies)
            with pytest.raises(Died):
                view.swap(shadow)
    with opened(case) as view:
        assert view.bookmark() == at(40, epoch=1)
        view.shadow("rebuild").drop()  # as a rebuild begins
        assert held(view) == in_order(case.content(events, 40))


def test_a_rebuild_may_change_columns_whatever_their_ids_were(case: ViewCase, tmp_path: Path) -> None:
    """A column that was added later has a higher id than one of a new table: the swap must not mix them up."""
    grown = pa.schema([COLUMNS.field("tx_id"), ("note", pa.string()), *list(COLUMNS)[1:]])
    other = pa.schema([COLUMNS.field("tx_id"), ("amount", pa.string()), ("note", pa.string())])
    with opened(case) as view:
        view.prepare(case.shape, START)
        view.apply(delta_of([{"tx_id": "a", "amount": 1, "_offset": 0}], COLUMNS, 0, 1), START, at(1))
        view.prepare(Shape(grown, "tx_id", ("tx_id",)), START)
        for epoch, columns, row in ((1, grown, {"note": "n", "amount": 7}), (2, other, {"note": "m", "amount": "8"})):
            with closing(view.shadow("rebuild")) as shadow:
                shadow.prepare(Shape(columns, "tx_id", ("tx_id",)), at(0, epoch=epoch))
                rows = [{"tx_id": "b", **row, "_offset": 0}]
                shadow.apply(delta_of(rows, columns, 0, 1), at(0, epoch=epoch), at(1, epoch=epoch))
                view.swap(shadow)
            (found,) = held(view)
            assert (found["note"], found["amount"]) == (row["note"], row["amount"])
            assert table_at(tmp_path / "payments").scan().to_arrow().num_rows == 1
        with pytest.raises(SchemaChanged):
            view.prepare(case.shape, START)


def test_everything_is_synced_before_the_catalog_is_told(case: ViewCase, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}") if os.path.isdir("/proc/self/fd") else "")
        real(descriptor)

    with opened(case) as view:
        view.prepare(case.shape, START)
        monkeypatch.setattr(os, "fsync", fsync)
        play(view, case, some_events(10), [10])
    if os.path.isdir("/proc/self/fd"):
        kinds = {os.path.basename(path).rpartition(".")[2] for path in synced if os.path.isfile(path)}
        assert kinds == {"parquet", "avro", "json"}


def test_the_types_of_spark_come_back_as_far_as_iceberg_has_them(case: ViewCase) -> None:
    columns = pa.schema(
        [
            ("small", pa.int8()),
            ("price", pa.decimal128(20, 4)),
            ("at", pa.timestamp("us", "Asia/Kolkata")),
            ("local", pa.timestamp("us")),
            ("list", pa.list_(pa.field("item", pa.struct([("x", pa.int16())])))),
            ("map", pa.map_(pa.string(), pa.int64())),
        ]
    )
    filled: dict[str, Any] = {
        "small": 1,
        "price": pa.scalar("1.5").cast(pa.decimal128(20, 4)).as_py(),
        "at": pa.scalar(10**15, pa.timestamp("us", "UTC")).as_py(),
        "local": pa.scalar(10**15, pa.timestamp("us")).as_py(),
        "list": [{"x": 1}, {"x": None}],
        "map": [("a", 1), ("b", None)],
    }
    with opened(case) as view:
        view.prepare(Shape(columns), START)
        assert view.prepare(Shape(columns), START) == START
        view.apply(delta_of([{**filled, "_offset": 0}], columns, 0, 1), START, at(1))
        (row,) = held(view)
        assert {name: row[name] for name in filled} == filled
        with pytest.raises(InvalidArgument, match=r"no type for column 'x'.*cast it"):
            view.prepare(Shape(pa.schema([("x", pa.duration("us"))])), START)


def test_what_somebody_else_put_there_is_left_alone(case: ViewCase, tmp_path: Path) -> None:
    path = tmp_path / "payments"
    path.mkdir()
    catalog = SqlCatalog("foldlog", uri=f"sqlite:///{path}/catalog.db", warehouse=str(path))
    catalog.create_namespace("foldlog")
    catalog.create_table("foldlog.payments", pa.schema([("a", pa.int64())]))
    catalog.close()
    with opened(case) as view:
        for call in (view.bookmark, view.drop, view.scan):
            with pytest.raises(ViewUnavailable, match="no fold has made"):
                call()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"")
    with pytest.raises(ViewUnavailable, match="holds other files"):
        lake(tmp_path / "photos", "iceberg").prepare(case.shape, START)


def test_a_broken_catalog_is_one_sentence_with_the_place(case: ViewCase, tmp_path: Path) -> None:
    with opened(case) as view:
        view.prepare(case.shape, START)
        (tmp_path / "payments" / "catalog.db").write_bytes(b"not a database" * 100)
        with pytest.raises(ViewUnavailable, match=r"^iceberg:/.*payments cannot be used: ") as refused:
            view.bookmark()
        assert "\n" not in str(refused.value)


def test_a_shadow_of_another_view_is_not_swapped_in(case: ViewCase, tmp_path: Path) -> None:
    with opened(case) as view:
        view.prepare(case.shape, START)
        with pytest.raises(InvalidArgument, match="is no shadow of"):
            view.swap(lake(tmp_path / "others", "iceberg"))
        with pytest.raises(ViewUnavailable, match="nothing to put in the place"):
            view.swap(view.shadow("rebuild"))
