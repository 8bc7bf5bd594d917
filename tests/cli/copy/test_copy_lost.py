"""A copy whose source has lost records since an earlier one: nobody goes on there at a guess, and nothing is said to be
the same that was not compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import foldlog
from foldlog.cli.main import main
from foldlog.client.positions import TopicPartition
from foldlog.spark.folds.declaration import load_folds
from foldlog.testing import KafkaBroker
from foldlog.views.bookmark import Bookmark, Position
from foldlog.views.contract import Shape

Copy = Callable[..., Any]

FOLDS = """
import foldlog.spark as fl
prices = fl.topic("prices", key="item", schema="paise BIGINT")

@fl.fold(prices, into=fl.table("shop.db", "mirror"))
def mirror(rows): return rows

@fl.fold(prices, into=fl.table("shop.db", "late"))
def late(rows): return rows
"""
SHAPE = Shape(pa.schema([("item", pa.string()), ("paise", pa.int64())]), "item", ("item",))


@pytest.fixture
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker.launch() as running:
        yield running


@pytest.fixture
def copy(
    broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Copy:
    monkeypatch.chdir(tmp_path)

    def run(*more: str) -> Any:
        capsys.readouterr()
        code = main(["copy", "prices", "--from", "data", "--to", str(broker), *more])
        printed = capsys.readouterr()
        has_left_views = "did not go on in the copy" in printed.err
        assert (code, printed.err != "") == ((5, True) if has_left_views else (0, False)), printed.err
        return json.loads(printed.out) if "json" in more else printed.out

    return run


def append(first: int, end: int) -> None:
    """Records that are to be compacted, with their offsets for values."""
    with foldlog.open("data") as log:
        for number in range(first, end):
            log.append("prices", {"paise": number}, key=f"k{number % 3}", timestamp_ms=number + 1)


def compact() -> None:
    with foldlog.open("data") as log:
        log.compact("prices")


def place_views(positions: dict[str, int], origins: dict[str, int] | None = None) -> None:
    with foldlog.open("data", mode="r") as log:
        topic_id = log.topic("prices").topic_id
    for fold in load_folds("folds.py"):
        if fold.name in positions:
            origin = (origins or {}).get(fold.name, 0)
            bookmark = Bookmark("prices", topic_id, {0: Position(positions[fold.name])}, {0: origin})
            known = fold.view.bookmark()
            if known is None:
                fold.view.prepare(SHAPE, bookmark)
            else:
                fold.view.move(known, bookmark)
        fold.view.close()


def positions() -> dict[str, dict[int, int]]:
    found = {}
    for fold in load_folds("folds.py"):
        bookmark = fold.view.bookmark()
        if bookmark is not None:
            found[fold.name] = {number: at.offset for number, at in bookmark.positions.items()}
        fold.view.close()
    return found


@pytest.fixture
def mapped(copy: Copy) -> int:
    """A copy of a compacted topic, at other offsets than the source; it goes up to 60 of the source. How many records
    it has of what lies before 50."""
    Path("folds.py").write_text(FOLDS)
    with foldlog.open("data") as log:
        log.create_topic("prices", config={"cleanup.policy": "compact", "foldlog.segment.records": 10})
    append(0, 30)
    compact()
    append(30, 60)
    with foldlog.open("data", mode="r") as log:
        before = sum(1 for record in log.read("prices", 0) if record.offset < 50)
    (partition,) = copy("--format", "json")["partitions"]
    assert (partition["source_end"], partition["target_end"], partition["offsets"]) == (60, before + 10, "mapped")
    return before


def test_a_view_whose_place_cannot_be_told_any_more_stays(copy: Copy, mapped: int) -> None:
    """It would count records twice, at a place that was reckoned from what the source still has."""
    append(60, 65)
    compact()
    place_views({"mirror": 50, "late": 65}, {"late": 50})
    for more in ((), ("--dry-run",)):
        outcomes = {
            one["fold"]: one["outcome"] for one in copy("--folds", "folds.py", "--format", "json", *more)["folds"]
        }
        assert outcomes == {
            "mirror": "the source has lost records since they were copied, and how far it has read partition 0 of the"
            " copy cannot be told: run it at the source to the end and copy again, or rebuild it there",
            "late": "the source has lost records since they were copied, and where it began in partition 0 of the copy"
            " cannot be told: rebuild it there",
        }
    assert positions() == {"mirror": {0: 50}, "late": {0: 65}}
    assert "mirror in sqlite:///" in (told := copy("--folds", "folds.py"))
    assert "is left as it is: the source has lost records" in told


def test_a_view_goes_on_once_it_has_read_to_the_end_of_the_source(copy: Copy, mapped: int) -> None:
    """As the sentence says that keeps it; and one that stands where the copy is as dense as the source."""
    append(60, 70)
    copy("--format", "json")
    append(70, 75)
    compact()
    place_views({"mirror": 75})
    (told,) = [one for one in copy("--folds", "folds.py", "--format", "json")["folds"] if one["fold"] == "mirror"]
    with foldlog.open("data", mode="r") as log:
        newest = sum(1 for record in log.read("prices", 0) if record.offset >= 70)
    assert (told["outcome"], told["after"]) == ("moved", {"0": mapped + 10 + 10 + newest})


def test_a_view_is_moved_where_the_source_has_lost_nothing_since(copy: Copy, mapped: int) -> None:
    place_views({"mirror": 50})
    (told,) = [one for one in copy("--folds", "folds.py", "--format", "json")["folds"] if one["fold"] == "mirror"]
    assert (told["outcome"], told["after"]) == ("moved", {"0": mapped})


def moves(told: Any) -> dict[str, tuple[str, int, int]]:
    return {one["group"]: (one["outcome"], one["target_offset"], one["reread_max"]) for one in told["groups"]}


def commit(*groups: str, offset: int) -> None:
    with foldlog.open("data") as log:
        for group in groups:
            log.reset_group(group, {("prices", 0): offset})


def test_a_group_whose_place_cannot_be_told_any_more_is_sent_back_and_told_so(
    copy: Copy, mapped: int, broker: KafkaBroker
) -> None:
    """It misses nothing, and may read some again: as many as it is told. One that stands in the copy is left there."""
    commit("known", offset=45)
    commit("ahead", offset=30)
    assert moves(copy("--format", "json")) == {"known": ("moved", mapped - 5, 0), "ahead": ("moved", mapped - 20, 0)}
    broker.log.reset_group("known", {("prices", 0): mapped - 3})
    broker.log.reset_group("ahead", {("prices", 0): mapped + 10})
    append(60, 65)
    compact()  # of what was copied nothing is left
    commit("new", offset=50)
    commit("done", offset=65)
    told = copy("--format", "json")
    assert moves(told) == {
        "known": ("left back", mapped - 3, 13),
        "ahead": ("ahead", 30, 0),
        "new": ("moved back", mapped, 10),
        "done": ("moved", told["partitions"][0]["target_end"], 0),
    }
    place = TopicPartition("prices", 0)
    assert broker.log.committed("new")[place].offset == mapped
    assert broker.log.committed("known")[place].offset == mapped - 3
    broker.log.delete_group("new")
    text = copy()  # which knows less than the one before: only where that ended
    assert "moved back: reads up to 12 records again, as the source has lost some since" in text
    assert "left there: reads up to 13 records again, as the source has lost some since" in text


def test_what_was_not_compared_is_not_said_to_be_the_same(copy: Copy, mapped: int) -> None:
    """A copy that brings nothing new, and one that brings five records, after the source has lost those it had."""

    def told() -> tuple[int, int, str]:
        (partition,) = copy("--check-all", "--format", "json")["partitions"]
        return partition["checked"], partition["uncompared"], partition["result"]

    whole = mapped + 10
    assert told() == (whole, 0, "same")
    append(60, 65)
    compact()
    with foldlog.open("data", mode="r") as log:
        new = sum(1 for record in log.read("prices", 0) if record.offset >= 60)
    partly = f"same, but {whole} earlier records not compared: the source has lost some since"
    assert told() == (new, whole, partly)
    assert told() == (0, whole + new, "not compared: the source or the copy has lost what could be")


def test_a_kept_copy_of_what_the_source_has_expired_is_not_compared(copy: Copy) -> None:
    """Nor is one whose records are all gone from the source; but an empty one is as good as its source."""
    with foldlog.open("data") as log:
        log.create_topic("prices")
    assert copy("--format", "json")["partitions"][0]["result"] == "same"
    append(0, 5)
    assert copy("--format", "json")["partitions"][0]["result"] == "same"
    with foldlog.open("data") as log:
        log.delete_records("prices", {0: 5})
    (partition,) = copy("--check-all", "--format", "json")["partitions"]
    assert (partition["offsets"], partition["checked"], partition["removed"]) == ("kept", 0, 5)
    assert partition["result"].startswith("not compared: ")
