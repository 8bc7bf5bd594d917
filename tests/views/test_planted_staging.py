"""The staged contract finds bugs: each is planted into the code, and the contract that is to find it fails.

A file that is committed twice, a bookmark that is stored after the files, garbage that is read as data, garbage that is
removed while somebody may still commit it, and garbage that is never removed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from foldlog.errors import ViewUnavailable
from foldlog.views.lake import delta, staged_files
from foldlog.views.lake.lake import lake
from foldlog.views.staging import RangeName, StagedDelta, StagedPart
from views.lake.lake_cases import HistoryCase
from views.staged_contract import EVENTS, StagedCase, StagedContract, places_below, stage
from views.view_contract import START, at, opened

pytestmark = pytest.mark.faults


@pytest.fixture
def contract() -> StagedContract:
    return StagedContract()


def case_in(path: Path, form: str, *steps: str) -> StagedCase:
    inner = HistoryCase(lambda: lake(path / "payments", form))  # type: ignore[arg-type]
    return StagedCase(inner, lambda: places_below(path), steps=steps)


def fails(check: Callable[..., None], case: StagedCase, *others: object) -> None:
    with opened(case) as view:
        case.prepare(view)
        with pytest.raises(AssertionError):
            check(case, view, *others)


def test_a_file_that_nobody_reported_is_committed(
    contract: StagedContract, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adopt = staged_files.adopt

    def everything(staged: StagedDelta, data: str) -> list[tuple[str, StagedPart]]:
        place: Any = staged.stage
        (first, *_) = staged.parts
        there = [first._replace(name=name) for name in os.listdir(place.directory)]
        return adopt(StagedDelta(staged.stage, tuple(there), staged.ranges), data)

    check, case = contract.test_a_task_that_ran_twice_adds_nothing, case_in(tmp_path, "delta")
    with monkeypatch.context() as planted:
        planted.setattr(delta, "adopt", everything)
        fails(check, case)


def test_the_bookmark_is_stored_after_the_files(
    contract: StagedContract, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = delta.DeltaView._add

    def in_two_commits(view: Any, table: Any, staged: StagedDelta, properties: Any) -> None:
        add(view, table, staged, delta._properties({}))
        delta.commit_nothing(table, properties)

    monkeypatch.setattr(delta.DeltaView, "_add", in_two_commits)
    case = case_in(tmp_path, "delta", "foldlog.views.lake.delta.commit_nothing")
    with pytest.raises(AssertionError):
        contract.test_a_process_that_dies_in_a_commit_leaves_all_of_it_or_nothing_and_no_garbage_after_the_next_run(
            case, monkeypatch, "before"
        )


def test_garbage_is_read_as_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rows_of_a_reader(path: Path) -> int:
        case = case_in(path, "parquet")
        with opened(case) as view:
            case.prepare(view)
            view.apply_staged(stage(view, case, EVENTS, 0, 20), START, at(20))
            stage(view, case, EVENTS, 20, 40)
        return int(ds.dataset(path / "payments" / "current", format="parquet").count_rows())

    assert rows_of_a_reader(tmp_path / "right") == 20
    monkeypatch.setattr(staged_files, "STAGED", "foldlog_staged")
    assert rows_of_a_reader(tmp_path / "planted") == 40


@pytest.mark.parametrize("form", ["delta", "iceberg", "parquet"])
@pytest.mark.parametrize("is_past", [True, False], ids=["removed too early", "never removed"])
def test_garbage_is_removed_at_the_wrong_time(
    form: str, is_past: bool, contract: StagedContract, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RangeName, "is_past", lambda name, stored: is_past)
    fails(contract.test_what_may_still_be_committed_is_kept_and_what_may_not_is_removed, case_in(tmp_path, form))


def test_files_of_a_commit_are_taken_for_garbage(
    contract: StagedContract, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta.DeltaView, "_is_committed", lambda view, prefix: False)
    case = case_in(tmp_path, "delta", "foldlog.views.lake.delta.finish")
    with pytest.raises(ViewUnavailable, match="payments"):
        contract.test_a_process_that_dies_in_a_commit_leaves_all_of_it_or_nothing_and_no_garbage_after_the_next_run(
            case, monkeypatch, "before"
        )
