"""Delta tables as views: the contract in both modes, and what is Delta's own.

Its own are: the bookmark outlives checkpoints and the clean-up of the log, commits of others go on beside a fold,
a killed process leaves what its bookmark says, old versions are reachable until they are dropped, and other readers
of Delta find plain tables. Everything runs on real tables.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from foldlog.errors import InvalidArgument, MissingDependency, SchemaChanged, ViewUnavailable
from foldlog.views.bookmark import Bookmark, Position
from foldlog.views.contract import Shape, View
from foldlog.views.lake import delta_modes as lake_delta_modes
from foldlog.views.lake import storage as lake_storage
from foldlog.views.lake.lake import lake
from foldlog.views.staging import StageRefusal
from views.lake.lake_cases import HistoryCase, apply_in_turns, check_growth, check_kills
from views.staged_contract import Died, StagedCase, StagedContract, dying, places_below, reports
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
    outcomes,
    play,
    some_events,
)


class TestDeltaHistory(ViewContract):
    """mode="append"."""

    @pytest.fixture
    def case(self, tmp_path: Path) -> ViewCase:
        return HistoryCase(lambda: lake(tmp_path / "payments"))


class TestDeltaMirror(ViewContract):
    """mode="merge"."""

    @pytest.fixture
    def case(self, tmp_path: Path) -> ViewCase:
        return ViewCase(lambda: lake(tmp_path / "payments", mode="merge"))


STEPS = [f"foldlog.views.lake.delta.{name}" for name in ("adopt", "finish", "sweep")]


def loose_in(path: Path) -> list[str]:
    """Parquet files that no version of the table names."""
    table = DeltaTable(str(path))
    named: set[str] = set()
    for version in range(table.version() + 1):
        named |= {uri.rpartition("/")[2] for uri in DeltaTable(str(path), version=version).file_uris()}
    return sorted(file.name for file in path.glob("*.parquet") if file.name not in named)


@pytest.mark.faults
class TestDeltaHistoryFromExecutors(StagedContract):
    """Rows that executors have written, into a table with mode="append"."""

    @pytest.fixture
    def case(self, tmp_path: Path) -> StagedCase:
        inner = HistoryCase(lambda: lake(tmp_path / "payments"))
        return StagedCase(
            inner, lambda: places_below(tmp_path), steps=STEPS, loose=lambda: loose_in(tmp_path / "payments")
        )


class TestDeltaLoadFromExecutors(StagedContract):
    """Rows that executors have written, into the shadow of a table with mode="merge"."""

    @pytest.fixture
    def case(self, tmp_path: Path) -> StagedCase:
        inner = ViewCase(lambda: lake(tmp_path / "payments", mode="merge"))
        loose = tmp_path / "payments.rebuild"
        return StagedCase(
            inner, lambda: places_below(tmp_path), loading=True, steps=STEPS, loose=lambda: loose_in(loose)
        )


def loaded_shadow(view: View, case: ViewCase) -> View:
    """A shadow with all events, one epoch further."""
    shadow = view.shadow("rebuild")
    shadow.drop()
    shadow.prepare(case.shape, at(0, epoch=1), loading=True)
    shadow.apply(case.delta(some_events(30), 0, 30), at(0, epoch=1), at(30, epoch=1))
    shadow.finish_loading()
    return shadow


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_swap_names_the_files_of_the_shadow_and_rewrites_none(tmp_path: Path, mode: Any) -> None:
    make = HistoryCase if mode == "append" else ViewCase
    case = make(lambda: lake(tmp_path / "payments", mode=mode))
    with opened(case) as view:
        view.prepare(case.shape, START)
        play(view, case, some_events(30), [10, 20])
        shadow = loaded_shadow(view, case)
        written = {file.stat().st_ino for file in (tmp_path / "payments.rebuild").glob("*.parquet")}
        view.swap(shadow)
        named = {Path(uri).stat().st_ino for uri in DeltaTable(tmp_path / "payments").file_uris()}
        assert named
        assert named <= written
        assert view.bookmark() == at(30, epoch=1)
        assert held(view) == in_order(case.content(some_events(30), 30))
    assert places_below(tmp_path) == []


@pytest.mark.parametrize("step", ["link_or_copy", "discard_tree"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_swap_that_dies_leaves_one_table_or_the_other_and_nothing_after_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, when: str
) -> None:
    case = HistoryCase(lambda: lake(tmp_path / "payments"))
    with opened(case) as view:
        view.prepare(case.shape, START)
        play(view, case, some_events(30), [20])
        shadow = loaded_shadow(view, case)
        with monkeypatch.context() as patched:
            patched.setattr(lake_storage, step, dying(f"foldlog.views.lake.storage.{step}", when))
            with pytest.raises(Died):
                view.swap(shadow)
    with opened(case) as view:
        before, after = (at(20), 20), (at(30, epoch=1), 30)
        stored, stop = before if step == "link_or_copy" else after
        assert view.prepare(case.shape, START) == stored
        assert held(view) == in_order(case.content(some_events(30), stop))
        view.swap(loaded_shadow(view, case))
        view.prepare(case.shape, START)
        assert held(view) == in_order(case.content(some_events(30), 30))
    assert places_below(tmp_path) == []
    assert loose_in(tmp_path / "payments") == []


@pytest.fixture
def history(tmp_path: Path) -> ViewCase:
    return HistoryCase(lambda: lake(tmp_path / "payments"))


@pytest.fixture
def mirror(tmp_path: Path) -> ViewCase:
    return ViewCase(lambda: lake(tmp_path / "payments", mode="merge"))


def table_of(case: ViewCase) -> DeltaTable:
    view: Any = case.open()
    return DeltaTable(view.path)


def test_a_history_grows(history: ViewCase) -> None:
    check_growth(history)


def test_the_bookmark_survives_a_checkpoint_and_the_clean_up_of_the_log(history: ViewCase) -> None:
    events = some_events(60)
    wide = Bookmark("payments", "topic-id-1", {0: Position(60, 4), 7: Position(0)}, {0: 0, 7: 0}, epoch=3, skipped=2)
    with opened(history) as view:
        view.prepare(history.shape, START)
        play(view, history, events, [20, 40])
        view.apply(history.delta(events, 40, 60), at(40), wide)
    table = table_of(history)
    for _ in range(3):
        write_deltalake(table, table.to_pyarrow_table().slice(0, 0), mode="append")
    table.create_checkpoint()
    log = Path(table_of(history).table_uri.removeprefix("file://")) / "_delta_log"
    commits = sorted(log.glob("*.json"))
    for commit in commits[:-1]:
        os.utime(commit, (0, 0))
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})
    table.create_checkpoint()
    DeltaTable(table.table_uri).cleanup_metadata()
    assert not commits[3].exists(), "the commit that wrote the bookmark is gone"
    with opened(history) as view:
        assert view.bookmark() == wide
        assert held(view) == in_order(history.content(events, 60))


def test_a_commit_lists_only_the_numbers_that_changed_and_says_the_bookmark_in_words(history: ViewCase) -> None:
    with opened(history) as view:
        view.prepare(history.shape, START)
        play(view, history, some_events(10), [10])
    table = table_of(history)
    commit = Path(table.table_uri.removeprefix("file://")) / "_delta_log" / f"{table.version():020d}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    numbers = {action["txn"]["appId"]: action["txn"]["version"] for action in actions if "txn" in action}
    assert numbers == {"foldlog": 1, "foldlog/0": 10}
    assert table.history(1)[0]["userMetadata"] == at(10).to_json()


def test_compaction_and_other_commits_go_on_beside_a_fold(history: ViewCase, mirror: ViewCase) -> None:
    events = some_events(80)
    with opened(history) as view:
        view.prepare(history.shape, START)
        play(view, history, events, [20, 40, 60])
        table_of(history).optimize.compact()
        assert view.bookmark() == at(60)
        view.apply(history.delta(events, 60, 80), at(60), at(80))
        assert held(view) == in_order(history.content(events, 80))


def test_a_range_is_not_lost_when_compactions_keep_coming_first(mirror: ViewCase) -> None:
    events = some_events(200)

    def compact() -> None:
        for _ in range(20):
            table_of(mirror).optimize.compact()

    with opened(mirror) as view:
        view.prepare(mirror.shape, START)
        results = outcomes([compact, lambda: play(view, mirror, events, range(20, 201, 20))])
        assert results[1] is None
        assert held(view) == in_order(mirror.content(events, 200))


@pytest.mark.parametrize("mode", ["merge", pytest.param("append", marks=pytest.mark.faults)])
def test_runners_in_several_processes_apply_every_range_once(tmp_path: Path, mode: Any) -> None:
    case = (HistoryCase if mode == "append" else ViewCase)(lambda: lake(tmp_path / "payments", mode=mode))
    events = some_events(120)
    with opened(case) as view:
        view.prepare(case.shape, START)
        code = (
            "from views.lake.lake_cases import *;"
            f"view = lake({str(tmp_path / 'payments')!r}, mode={mode!r});"
            "print(apply_in_turns(view, ViewCase(lambda: view), some_events(120), 10))"
        )
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        others = [
            subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) for _ in range(2)
        ]
        own = apply_in_turns(view, case, events, 10)
        counts = [int(process.communicate(timeout=120)[0]) for process in others]
        assert own + sum(counts) == 12
        assert held(view) == in_order(case.content(events, 120))


@pytest.mark.faults
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_killed_process_leaves_what_the_bookmark_says(tmp_path: Path, mode: Any) -> None:
    path = tmp_path / "payments"
    case = (HistoryCase if mode == "append" else ViewCase)(lambda: lake(path, mode=mode))
    check_kills(case, path, "delta", mode, kills=3)


def test_what_a_swap_replaced_can_be_read_until_it_is_dropped(history: ViewCase) -> None:
    events = some_events(40)
    with opened(history) as view, closing(view.shadow("rebuild")) as shadow:
        view.prepare(history.shape, START)
        play(view, history, events, [10, 20])
        before = table_of(history)
        old_files = before.file_uris()
        shadow.prepare(history.shape, at(0, epoch=1))
        play(shadow, history, events, [40], epoch=1)
        view.swap(shadow)
        old = DeltaTable(before.table_uri, version=before.version())
        assert old.to_pyarrow_table().num_rows == 20
        assert view.drop_old()
        assert not any(os.path.exists(file) for file in old_files)
        assert table_of(history).to_pyarrow_table().num_rows == 40


def test_a_swap_may_bring_another_topic_other_columns_and_another_key(mirror: ViewCase) -> None:
    with opened(mirror) as view, closing(view.shadow("rebuild")) as shadow:
        view.prepare(mirror.shape, START)
        play(view, mirror, some_events(20), [20])
        columns = pa.schema([("tx_id", pa.string()), ("line", pa.int32()), ("amount", pa.string())])
        shape = Shape(columns, "tx_id", ("tx_id", "line"))
        start = Bookmark("payments", "topic-id-2", {0: Position(0)}, {0: 0}, epoch=1)
        shadow.prepare(shape, start)
        new = Bookmark("payments", "topic-id-2", {0: Position(1), 1: Position(0)}, {0: 0, 1: 0}, epoch=1)
        shadow.apply(delta_of([{"tx_id": "a", "line": 1, "amount": "x", "_offset": 0}], columns, 0, 1), start, new)
        view.swap(shadow)
        assert view.bookmark() == new
        assert view.prepare(shape, start) == new
        with pytest.raises(SchemaChanged):
            view.prepare(mirror.shape, START)
        assert held(view) == [{"tx_id": "a", "line": 1, "amount": "x"}]


@pytest.mark.parametrize("loading", [False, True])
def test_a_newer_record_replaces_all_rows_of_an_older_one(tmp_path: Path, loading: bool) -> None:
    columns = pa.schema([("tx_id", pa.string()), ("line", pa.int32()), ("item", pa.string())])
    shape = Shape(columns, "tx_id", ("tx_id",))

    def rows(offset: int, tx_id: str, *items: str) -> list[dict[str, object]]:
        return [{"tx_id": tx_id, "line": n, "item": item, "_offset": offset} for n, item in enumerate(items)]

    with closing(lake(tmp_path / "lines", mode="merge", key=["tx_id", "line"]).shadow("rebuild")) as view:
        view.prepare(shape, START, loading=loading)
        view.apply(delta_of([*rows(0, "a", "tea", "milk"), *rows(1, "b", "bun")], columns, 0, 2), START, at(2))
        gone: dict[str, object] = {"tx_id": "b", "_deleted": True, "_offset": 4}
        newer = [*rows(2, "a", "x", "y", "z"), *rows(3, "a", "coffee"), gone]
        view.apply(delta_of(newer, columns, 2, 5), at(2), at(5))
        view.finish_loading()
        assert held(view) == [{"tx_id": "a", "line": 0, "item": "coffee"}]


def test_a_bulk_load_of_many_parts_ends_with_the_newest_of_each_key(
    mirror: ViewCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_delta_modes, "LAKE_SORT_ROWS", 30)
    events = some_events(400, keys=150)
    with opened(mirror) as view:
        view.prepare(mirror.shape, START, loading=True)
        play(view, mirror, events, [90, 200, 330])
        # Killed before the end: whoever comes next, and does not load, finds it as it has to be.
        with opened(mirror) as other:
            assert other.prepare(mirror.shape, START) == at(330)
            assert held(other) == in_order(mirror.content(events, 330))
        view.apply(mirror.delta(events, 330, 400), at(330), at(400))
        assert held(view) == in_order(mirror.content(events, 400))
        assert len(table_of(mirror).file_uris()) <= 2


@pytest.mark.parametrize("loading", [False, True])
def test_a_row_without_key_is_refused_and_nothing_changes(mirror: ViewCase, loading: bool) -> None:
    with opened(mirror) as view:
        view.prepare(mirror.shape, START, loading=loading)
        with pytest.raises(InvalidArgument, match="a row without 'tx_id'"):
            view.apply(delta_of([{"tx_id": None, "amount": 1, "_offset": 0}], COLUMNS, 0, 1), START, at(1))
        assert view.bookmark() == START


def test_a_merge_needs_a_key(mirror: ViewCase) -> None:
    with opened(mirror) as view:
        with pytest.raises(InvalidArgument, match="the topic names none"):
            view.prepare(Shape(COLUMNS), START)
        with pytest.raises(SchemaChanged, match="gives no column 'tx_id'"):
            view.prepare(Shape(pa.schema([("amount", pa.int64())]), "tx_id", ("tx_id",)), START)
        with pytest.raises(InvalidArgument, match="has to include 'tx_id'"):
            view.prepare(Shape(COLUMNS, "tx_id", ("merchant",)), START)
        odd = pa.schema([("tx_id", pa.string()), ('a "quoted" name', pa.int64())])
        with pytest.raises(InvalidArgument, match="rename column"):
            view.prepare(Shape(odd, "tx_id", ("tx_id",)), START)
        assert view.bookmark() is None


def test_the_types_of_spark_come_back_as_they_were(mirror: ViewCase) -> None:
    columns = pa.schema(
        [
            ("tx id.x", pa.large_string()),
            ("small", pa.int8()),
            ("real", pa.float32()),
            ("price", pa.decimal128(20, 4)),
            ("at", pa.timestamp("us", "Asia/Kolkata")),
            ("local", pa.timestamp("us")),
            ("day", pa.date32()),
            ("raw", pa.large_binary()),
            ("list", pa.list_(pa.field("item", pa.struct([("x", pa.int32())]), nullable=False))),
            ("map", pa.map_(pa.string(), pa.int64())),
        ]
    )
    filled: dict[str, object] = {
        "tx id.x": "k",
        "small": 1,
        "real": 0.5,
        "price": pa.scalar("1.5").cast(pa.decimal128(20, 4)).as_py(),
        "at": pa.scalar(10**15, pa.timestamp("us", "UTC")).as_py(),
        "local": pa.scalar(10**15, pa.timestamp("us")).as_py(),
        "day": pa.scalar(9, pa.date32()).as_py(),
        "raw": b"\x00\xff",
        "list": [{"x": 1}, {"x": None}],
        "map": [("a", 1), ("b", None)],
    }
    shape = Shape(columns, "tx id.x", ("tx id.x",))
    with opened(mirror) as view:
        view.prepare(shape, START)
        assert view.prepare(shape, START) == START
        view.apply(delta_of([{**filled, "small": 2, "_offset": 0}], columns, 0, 1), START, at(1))
        view.apply(delta_of([{**filled, "_offset": 1}], columns, 1, 2), at(1), at(2))
        assert held(view) == [filled]


@pytest.mark.parametrize("kind", [pa.duration("us"), pa.null(), pa.uint64(), pa.time64("us")])
def test_a_type_that_lakes_do_not_have_is_named(history: ViewCase, kind: pa.DataType) -> None:
    with opened(history) as view, pytest.raises(InvalidArgument, match=r"no type for column 'x'.*cast it"):
        view.prepare(Shape(pa.schema([("x", kind)])), START)


def test_a_table_of_somebody_else_is_left_alone(history: ViewCase, mirror: ViewCase, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "payments", pa.table({"a": [1]}))
    with opened(history) as view:
        for call in (view.bookmark, view.drop, lambda: view.prepare(history.shape, START)):
            with pytest.raises(ViewUnavailable, match="no fold has made"):
                call()
    assert DeltaTable(tmp_path / "payments").to_pyarrow_table().num_rows == 1


def test_another_mode_or_another_directory_is_not_taken_for_the_view(
    history: ViewCase, mirror: ViewCase, tmp_path: Path
) -> None:
    with opened(history) as view, opened(mirror) as other:
        view.prepare(history.shape, START)
        with pytest.raises(ViewUnavailable, match="made with mode='append' and not 'merge'"):
            other.bookmark()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"")
    with pytest.raises(ViewUnavailable, match="holds other files"):
        lake(tmp_path / "photos").prepare(history.shape, START)


def test_a_broken_log_is_one_sentence_with_the_place(history: ViewCase) -> None:
    with opened(history) as view:
        view.prepare(history.shape, START)
        table = table_of(history)
        commit = Path(table.table_uri.removeprefix("file://")) / "_delta_log" / f"{0:020d}.json"
        commit.write_text("{")
        with pytest.raises(ViewUnavailable, match=r"^delta:/.*payments cannot be used: ") as refused:
            view.bookmark()
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "package", "extra"),
    [("delta", "deltalake", "views"), ("iceberg", "pyiceberg", "iceberg"), ("parquet", "pyarrow.parquet", "views")],
)
def test_a_package_that_is_missing_is_named_with_the_way_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, package: str, extra: str
) -> None:
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    view = lake(tmp_path / "payments", kind)
    calls = (
        view.bookmark,
        view.scan,
        view.drop_old,
        lambda: view.prepare(Shape(COLUMNS), START),
        lambda: view.move(START, at(1)),
    )
    for call in calls:
        with pytest.raises(MissingDependency, match=rf"pip install 'foldlog\[{extra}\]'"):
            call()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"format": "orc"}, "a lake's format is one of delta, iceberg, parquet, not 'orc'"),
        ({"mode": "upsert"}, "a lake's mode is one of append, merge, not 'upsert'"),
        ({"format": "iceberg", "mode": "merge"}, "upserts through pyiceberg are very slow.*use format='delta'"),
        ({"key": "tx_id"}, "a lake that appends has no key="),
        ({"format": "parquet", "mode": "merge"}, "cannot be changed.*use format='delta'"),
    ],
)
def test_what_no_lake_can_be_is_refused_before_anything_is_touched(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidArgument, match=sentence):
        lake("payments", **arguments)


@pytest.mark.parametrize(
    ("path", "arguments", "sentence"),
    [
        ("ftp://host/payments", {}, "a lake is a directory.*or a URL of an object store.*ftp:// is neither"),
        ("s3://bucket", {}, "names a bucket and no table in it"),
        ("s3://me:pw@bucket/payments", {}, "no password and no query; give storage_options="),
        ("abfss://c@a.dfs.core.windows.net/p?sig=x", {}, "no password and no query"),
        ("s3://bucket/payments", {"format": "iceberg"}, "needs a catalog"),
        ("views/payments", {"storage_options": {"AWS_REGION": "x"}}, "storage_options= are for a table in an object"),
        ("s3://bucket/payments", {"storage_options": {"AWS_REGION": 1}}, "setting 'AWS_REGION' has a int"),
        ("views/payments", {"catalog": "prod"}, "has no catalog="),
        ("payments", {"format": "iceberg", "catalog": "prod"}, "named as in 'shop.payments'"),
        ("shop.payments", {"format": "iceberg", "catalog": 7}, "catalog= is a name of pyiceberg's configuration"),
        ("views/payments", {"partition_by": "_timestamp"}, "not a column of the fold's"),
        ("views/payments", {"partition_by": ["day", "day"]}, "names a column twice"),
    ],
)
def test_a_lake_that_cannot_be_reached_so_is_refused_before_anything_is_touched(
    path: str, arguments: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InvalidArgument, match=sentence) as refused:
        lake(path, **arguments)
    assert "pw@" not in str(refused.value)
    assert "sig=" not in str(refused.value)


@pytest.mark.parametrize("loading", [False, pytest.param(True, marks=pytest.mark.faults)])
def test_executors_refuse_a_partition_that_would_be_read_as_null(tmp_path: Path, loading: bool) -> None:
    view = lake(tmp_path / "payments", mode="merge" if loading else "append", partition_by="merchant")
    view.prepare(HistoryCase.shape, START, loading=loading)
    place = view.stage({0: (0, 1)}, START)
    assert place is not None
    rows = delta_of([{"tx_id": "a", "merchant": "", "_offset": 0}], COLUMNS, 0, 1).rows.drop_columns(["_topic"])
    (refusal,) = reports(place, rows, 0)
    assert isinstance(refusal, StageRefusal)
    assert "would be read as null" in refusal.why
