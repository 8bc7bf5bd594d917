"""What is tantivy's own: the directory of generations, whatever interrupts a change of it, and one writer at a time.

A crash in the middle of a swap is played by raising at each single step of it; the next call has to find its way.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tantivy

from foldlog.errors import InvalidArgument, MissingDependency, ViewUnavailable
from foldlog.views.contract import Shape, View
from foldlog.views.generations import CURRENT, Generations
from foldlog.views.search.tantivy import TantivySearch
from views.view_contract import COLUMNS, START, ViewCase, at, held, in_order, play, some_events

EVENTS = some_events(40, seed=5)


@pytest.fixture
def case(tmp_path: Path) -> ViewCase:
    return ViewCase(lambda: TantivySearch(str(tmp_path / "search"), ["merchant"], wait_ms=0))


@pytest.fixture
def view(case: ViewCase) -> View:
    view = case.open()
    view.prepare(case.shape, START)
    play(view, case, EVENTS, [10])
    return view


def rebuilt(view: View, case: ViewCase) -> View:
    shadow = view.shadow("rebuild")
    shadow.prepare(case.shape, at(0, epoch=1), loading=True)
    play(shadow, case, EVENTS, [40], epoch=1)
    return shadow


def names(path: Path) -> list[str]:
    return sorted(os.listdir(path))


def test_a_view_is_a_generation_and_a_link_to_it(view: View, tmp_path: Path) -> None:
    assert names(tmp_path / "search") == ["current", "g-000001", "lock"]
    assert os.readlink(tmp_path / "search" / "current") == "g-000001"


def test_a_swap_changes_the_link_and_dropping_leaves_nothing(view: View, case: ViewCase, tmp_path: Path) -> None:
    view.swap(rebuilt(view, case))
    assert names(tmp_path / "search") == ["current", "g-000001", "g-000002", "lock", "old"]
    assert os.readlink(tmp_path / "search" / "current") == "g-000002"
    view.swap(rebuilt(view, case))
    assert names(tmp_path / "search") == ["current", "g-000002", "g-000003", "lock", "old"]
    view.drop_old()
    assert names(tmp_path / "search") == ["current", "g-000003", "lock"]
    view.drop()
    assert not (tmp_path / "search").exists()


def test_who_reads_the_old_generation_goes_on_when_it_is_removed(view: View, case: ViewCase) -> None:
    snapshot = view.scan()
    view.swap(rebuilt(view, case))
    view.drop_old()
    assert snapshot.bookmark == at(10)
    rows = [row for batch in snapshot.batches for row in batch.to_pylist()]
    assert in_order(rows) == in_order(case.content(EVENTS, 10))
    assert held(view) == in_order(case.content(EVENTS, 40))


class Crash(Exception):
    """The process ends here."""


@contextmanager
def crash_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Raises instead of the given change of the directory, counted from 0; the changes that were made."""
    made: list[str] = []

    def limited(change: Any) -> Any:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            if len(made) == step:
                raise Crash
            made.append(change.__name__)
            return change(*arguments, **options)

        return wrapped

    with monkeypatch.context() as patched:
        for owner, name in (
            (os, "symlink"),
            (os, "rename"),
            (os, "unlink"),
            (os, "mkdir"),
            (shutil, "rmtree"),
        ):
            patched.setattr(owner, name, limited(getattr(owner, name)))
        yield made


@pytest.mark.parametrize("step", range(8))
def test_a_swap_that_is_interrupted_anywhere_is_done_or_not_and_can_be_done_again(
    view: View, case: ViewCase, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step: int
) -> None:
    view.swap(rebuilt(view, case))
    shadow = view.shadow("rebuild")
    shadow.prepare(case.shape, at(0, epoch=2))
    crashed = False
    with crash_at(step, monkeypatch):
        try:
            view.swap(shadow)
        except Crash:
            crashed = True
    assert view.bookmark() in (at(40, epoch=1), at(0, epoch=2))
    if shadow.bookmark() is not None:
        view.swap(shadow)
    assert view.bookmark() == at(0, epoch=2)
    view.drop_old()
    assert held(view) == []
    assert names(tmp_path / "search") == ["current", "g-000003", "lock"]
    # symlink and rename of `old`, the same of `current`, unlink of the shadow's, and what was old before, file by file.
    assert crashed


@pytest.mark.parametrize("step", range(4))
def test_a_shadow_that_is_interrupted_while_it_is_made_or_dropped_leaves_the_view_alone(
    view: View, case: ViewCase, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step: int
) -> None:
    shadow = view.shadow("verify")
    with crash_at(step, monkeypatch):
        try:
            shadow.prepare(case.shape, START)
            shadow.drop()
        except Crash:
            pass
    assert view.bookmark() == at(10)
    shadow.drop()
    shadow.prepare(case.shape, START)
    assert shadow.bookmark() == START
    shadow.drop()
    assert len([name for name in names(tmp_path / "search") if name.startswith("g-")]) == 1
    assert held(view) == in_order(case.content(EVENTS, 10))


def test_dropping_a_shadow_that_already_became_the_view_removes_its_link_only(
    view: View, case: ViewCase, tmp_path: Path
) -> None:
    shadow = rebuilt(view, case)
    # As after a crash between the two links of a swap.
    os.symlink("g-000002", tmp_path / "search" / "new")
    os.rename(tmp_path / "search" / "new", tmp_path / "search" / "current")
    shadow.drop()
    assert view.bookmark() == at(40, epoch=1)
    assert held(view) == in_order(case.content(EVENTS, 40))


def test_another_writer_is_waited_for_and_then_named(view: View, case: ViewCase, tmp_path: Path) -> None:
    writer = tantivy.Index.open(str(tmp_path / "search" / "current")).writer()
    with pytest.raises(ViewUnavailable, match="another process has been writing to it"):
        view.apply(case.delta(EVENTS, 10, 40), at(10), at(40))
    writer.wait_merging_threads()
    view.apply(case.delta(EVENTS, 10, 40), at(10), at(40))
    assert held(view) == in_order(case.content(EVENTS, 40))


def test_links_do_not_change_while_a_range_is_applied(view: View, case: ViewCase, tmp_path: Path) -> None:
    shadow = rebuilt(view, case)
    with Generations(str(tmp_path / "search"), "here", wait_ms=0).reading():
        for change in (lambda: view.swap(shadow), view.drop, view.drop_old):
            with pytest.raises(ViewUnavailable, match="another process"):
                change()
    assert view.bookmark() == at(10)
    view.swap(shadow)


def test_a_failed_range_leaves_neither_rows_nor_a_lock(
    view: View, case: ViewCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(
            "foldlog.views.search.tantivy_index.Committed.to_bytes", lambda _: (_ for _ in ()).throw(OSError("disk"))
        )
        with pytest.raises(ViewUnavailable, match="disk"):
            view.apply(case.delta(EVENTS, 10, 40), at(10), at(40))
    assert held(view) == in_order(case.content(EVENTS, 10))
    view.apply(case.delta(EVENTS, 10, 40), at(10), at(40))
    assert held(view) == in_order(case.content(EVENTS, 40))


def test_many_small_ranges_do_not_pile_up_segments(view: View, case: ViewCase, tmp_path: Path) -> None:
    play_from, step = 10, 1
    for here in range(play_from, 40, step):
        view.apply(case.delta(EVENTS, here, here + step), at(here), at(here + step))
    assert tantivy.Index.open(str(tmp_path / "search" / "current")).searcher().num_segments < 12


def test_a_directory_with_other_files_is_left_alone(case: ViewCase, tmp_path: Path) -> None:
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "thesis.txt").write_text("mine")
    with pytest.raises(ViewUnavailable, match=r"other files \(thesis.txt\)"):
        case.open().prepare(case.shape, START)
    assert names(tmp_path / "search") == ["thesis.txt"]


def test_an_index_of_another_program_is_not_taken_for_a_view(case: ViewCase, tmp_path: Path) -> None:
    foreign = tmp_path / "search" / "g-000001"
    foreign.mkdir(parents=True)
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("_foldlog_key", tokenizer_name="raw", index_option="basic")
    tantivy.Index(builder.build(), path=str(foreign))
    os.symlink("g-000001", tmp_path / "search" / CURRENT)
    with pytest.raises(ViewUnavailable, match="no bookmark"):
        case.open().bookmark()


def test_a_damaged_index_is_one_sentence(view: View, tmp_path: Path) -> None:
    (tmp_path / "search" / "current" / "meta.json").write_text("{")
    with pytest.raises(ViewUnavailable, match="tantivy says") as refused:
        view.bookmark()
    assert str(refused.value).startswith(f"search {tmp_path}")


def test_names_of_the_index_cannot_be_searched(tmp_path: Path) -> None:
    import pyarrow as pa

    columns = pa.schema([*COLUMNS, ("_foldlog_row", pa.string())])
    view = TantivySearch(str(tmp_path / "search"), ["_foldlog_row"])
    with pytest.raises(InvalidArgument, match="belong to the index"):
        view.prepare(Shape(columns, "tx_id", ("tx_id",)), START)
    assert view.bookmark() is None


@pytest.mark.parametrize("label", ["", "Re build", "../x", "a" * 50])
def test_a_shadows_label_is_a_word(view: View, label: str) -> None:
    with pytest.raises(InvalidArgument, match="'rebuild'"):
        view.shadow(label)


def test_without_tantivy_it_is_said_what_to_install(case: ViewCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tantivy", None)
    with pytest.raises(MissingDependency, match=r"foldlog\[views\]"):
        case.open().prepare(case.shape, START)
