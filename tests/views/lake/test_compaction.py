"""A compaction joins small files and changes nothing else: not a row, not the bookmark, whoever writes meanwhile.

Files are counted with what the formats' own libraries and the file system say.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from foldlog.errors import InvalidArgument, ViewUnavailable
from foldlog.views.contract import View
from foldlog.views.lake import iceberg as lake_iceberg
from foldlog.views.lake import parquet as lake_parquet
from foldlog.views.lake.compaction import CompactionGoal
from foldlog.views.lake.delta import DeltaView
from foldlog.views.lake.lake import lake
from foldlog.views.lake.staged_files import adopt
from foldlog.views.table.table import table
from views.lake.lake_cases import HistoryCase
from views.staged_contract import Died, places_below, stage
from views.view_contract import START, ViewCase, at, held, in_order, opened, play, some_events

EVENTS = some_events(60)
CUTS = range(8, 41, 8)
GOAL = CompactionGoal(1 << 20, 0)

KINDS = ["delta", "iceberg", "parquet"]
MORE_KINDS = ["merge", "delta by merchant", "iceberg by merchant", "parquet by merchant"]


def case_of(kind: str, path: Path) -> ViewCase:
    name, _, column = kind.partition(" by ")
    if kind == "merge":
        return ViewCase(lambda: lake(path, mode="merge"))
    return HistoryCase(lambda: lake(path, name, partition_by=column or None))  # type: ignore[arg-type]


def files_in(kind: str, path: Path) -> list[str]:
    """The files of the newest state."""
    if kind.startswith("parquet"):
        return [str(one) for one in (path / "current").rglob("p*.parquet")]
    if not kind.startswith("iceberg"):
        return DeltaTable(path).file_uris()
    with closing(SqlCatalog("foldlog", uri=f"sqlite:///{path}/catalog.db")) as catalog:
        found: list[str] = catalog.load_table("foldlog.payments").inspect.files()["file_path"].to_pylist()
        return found


def on_disk(path: Path) -> list[Path]:
    return [one for one in path.rglob("*.parquet") if one.is_file() and "current" not in one.parts]


@pytest.mark.parametrize("kind", [*KINDS, *(pytest.param(one, marks=pytest.mark.faults) for one in MORE_KINDS)])
def test_small_files_are_joined_and_nothing_else_changes(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "payments"
    case = case_of(kind, path)
    with opened(case) as view:
        view.prepare(case.shape, START)
        play(view, case, EVENTS, CUTS)
        before, bookmark = len(files_in(kind, path)), view.bookmark()
        done = view.compact(GOAL)
        assert view.bookmark() == bookmark
        assert held(view) == in_order(case.content(EVENTS, 40))
        assert done.files == len(files_in(kind, path))
        if kind == "merge":
            assert before == 1  # a merge joins by itself
        else:
            assert done.joined == before > 3 * done.files
            assert len(on_disk(path)) == done.files, "files of older states are left"
        view.apply(case.delta(EVENTS, 40, 60), at(40), at(60))
        assert held(view) == in_order(case.content(EVENTS, 60))
        again = view.compact(CompactionGoal(10, 7 * 24 * 3_600_000))
        assert (again.joined, again.removed) == (0, 0), "they are larger than what was asked for, and young"
        assert held(view) == in_order(case.content(EVENTS, 60))


@pytest.mark.faults
@pytest.mark.parametrize("kind", KINDS)
def test_what_executors_have_written_meanwhile_is_committed_or_read_again(kind: str, tmp_path: Path) -> None:
    case = case_of(kind, tmp_path / "payments")
    with opened(case) as view:
        view.prepare(case.shape, START)
        play(view, case, EVENTS, CUTS)
        staged = stage(view, case, EVENTS, 40, 50)
        view.compact(GOAL)
        assert held(view) == in_order(case.content(EVENTS, 40)), "what is staged is read as data"
        if kind == "parquet":  # the runner reads the range again
            with pytest.raises(ViewUnavailable, match="replaced by another one meanwhile"):
                view.apply_staged(staged, at(40), at(50))
            staged = stage(view, case, EVENTS, 40, 50)
        view.apply_staged(staged, at(40), at(50))
        assert held(view) == in_order(case.content(EVENTS, 50))


def _beside(view: View, case: ViewCase, real: Callable[..., object]) -> Callable[..., object]:
    """A function before whose first call a runner commits a range."""
    seen: list[int] = []

    def called(*given: object, **named: object) -> object:
        if not seen:
            seen.append(1)
            view.apply(case.delta(EVENTS, 40, 50), at(40), at(50))
        return real(*given, **named)

    return called


@pytest.mark.faults
@pytest.mark.parametrize("kind", KINDS)
def test_a_runner_that_commits_in_the_middle_loses_nothing(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = case_of(kind, tmp_path / "payments")
    with opened(case) as view, opened(case) as runner:
        view.prepare(case.shape, START)
        play(view, case, EVENTS, CUTS)
        if kind == "iceberg":  # after the rows were read, before they are committed
            monkeypatch.setattr(lake_iceberg, "adopt", _beside(runner, case, adopt))
        elif kind == "parquet":
            monkeypatch.setattr(lake_parquet, "_join", _beside(runner, case, lake_parquet._join))
        else:
            monkeypatch.setattr(DeltaView, "_sync", _beside(runner, case, DeltaView._sync))
        done = view.compact(GOAL)
        assert done.joined
        assert view.bookmark() == at(50)
        assert held(view) == in_order(case.content(EVENTS, 50))


@pytest.mark.faults
@pytest.mark.parametrize(
    ("kind", "step"),
    [("iceberg", "adopt"), ("iceberg", "finish"), ("parquet", "_join"), ("parquet", "sync_directory")],
)
def test_a_compaction_that_dies_leaves_the_table_as_it_was_or_joined(
    kind: str, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "payments"
    case = case_of(kind, path)
    with opened(case) as view:
        view.prepare(case.shape, START)
        play(view, case, EVENTS, CUTS)

        def dies(*_: object, **__: object) -> None:
            raise Died

        with monkeypatch.context() as patched:
            patched.setattr(lake_iceberg if kind == "iceberg" else lake_parquet, step, dies)
            with pytest.raises(Died):
                view.compact(GOAL)
    with opened(case) as view:
        assert view.prepare(case.shape, START) == at(40)
        assert held(view) == in_order(case.content(EVENTS, 40))
        view.apply(case.delta(EVENTS, 40, 60), at(40), at(60))
        monkeypatch.setattr(lake_iceberg, "_FORSAKEN_MS", -60_000)  # as if a day had gone by
        view.compact(GOAL)
        assert held(view) == in_order(case.content(EVENTS, 60))
        assert places_below(path) == []
        assert len(on_disk(path)) == len(files_in(kind, path))
        if kind == "parquet":
            assert len([one for one in os.listdir(path) if one.startswith("g-")]) == 1


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_what_a_swap_replaced_is_kept_until_it_is_dropped(kind: str, tmp_path: Path) -> None:
    case = case_of(kind, tmp_path / "payments")
    with opened(case) as view:
        view.prepare(case.shape, START)
        play(view, case, EVENTS, CUTS)
        with closing(view.shadow("rebuild")) as shadow:
            shadow.prepare(case.shape, at(0, epoch=1))
            play(shadow, case, EVENTS, [50], epoch=1)
            view.swap(shadow)
        view.compact(GOAL)
        assert len(on_disk(tmp_path / "payments")) > 5
        assert view.drop_old()
        assert held(view) == in_order(case.content(EVENTS, 50))
        assert len(on_disk(tmp_path / "payments")) == 1


def test_what_has_no_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="has no files to join; lakes are compacted, and a table view is none"):
        table(tmp_path / "views.db", "payments").compact(GOAL)
    for kind in ("delta", "iceberg", "parquet"):
        with pytest.raises(ViewUnavailable, match="does not exist"):
            case_of(kind, tmp_path / kind).open().compact(GOAL)
