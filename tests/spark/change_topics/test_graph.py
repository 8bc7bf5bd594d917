"""The graph of folds: their order, what lies behind one, circles; drawn as text, JSON and SVG; and rewinds of a fold
with others behind it. No Spark runs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldlog
from foldlog.cli.main import main
from foldlog.client.fold_graphs.drawing import as_svg, as_text
from foldlog.client.fold_graphs.graph import FoldGraph, GraphFold
from foldlog.errors import FoldError
from foldlog.spark.folds.declaration import load_folds
from foldlog.spark.origins.origin import origin_spec
from views.view_contract import START, ViewCase, play, some_events

PIPELINE = """
import foldlog.spark as fl

payments = fl.topic("payments", key="tx_id", schema="merchant STRING, amount BIGINT")
large = fl.topic("large", key="tx_id", schema="merchant STRING, amount BIGINT")

@fl.fold(large, into=fl.table("views.db", "newest"))
def mirror(rows): return rows

@fl.fold(payments, into=fl.changes("large"))
def keep_large(rows): return rows

@fl.fold(payments, into=fl.counters("counts.db", by=["merchant"], measures={"n": fl.count()}))
def counted(rows): return rows
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "folds.py"
    path.write_text(PIPELINE)
    return path


def test_the_graph_is_a_tree_of_text(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fold", "graph", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "payments"
    assert lines[1] == "├─ keep_large → topic large"
    assert lines[2].startswith("│  └─ mirror → table ")
    assert lines[3].startswith("└─ counted → counters ")


def test_the_graph_as_json_says_what_lies_behind(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fold", "graph", str(file), "--format", "json"]) == 0
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert found["keep_large"]["downstream"] == ["mirror"]
    assert (found["keep_large"]["writes"], found["mirror"]["reads"]) == ("large", ["large"])
    assert list(found).index("keep_large") < list(found).index("mirror")


def test_the_graph_is_a_picture(file: Path, tmp_path: Path) -> None:
    assert main(["fold", "graph", str(file), "--svg", str(tmp_path / "folds.svg")]) == 0
    root = ET.parse(tmp_path / "folds.svg").getroot()
    space = {"svg": "http://www.w3.org/2000/svg"}
    titles = {one.text for one in root.iterfind(".//svg:g/svg:title", space)}
    assert {"payments (topic)", "large (topic of changes)", "keep_large (fold)"} < titles
    assert len(root.findall("svg:path", space)) == 6  # an arrow to each fold, and one from it


def test_names_of_a_drawing_are_text() -> None:
    odd = GraphFold("a<b>&", ("t<script>",), "x&y", "table")
    root = ET.fromstring(as_svg(FoldGraph([odd])))
    assert "a<b>&" in {one.text for one in root.iter("{http://www.w3.org/2000/svg}text")}


def test_a_circle_is_told_when_the_file_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "round.py"
    path.write_text(PIPELINE.replace('fl.changes("large")', 'fl.changes("payments")'))
    with pytest.raises(FoldError, match=r"in a circle .keep_large <- keep_large."):
        load_folds(path)


def test_a_fold_of_two_topics_is_drawn_once() -> None:
    one = GraphFold("one", ("a",), "topic b", "changes", "b")
    both = GraphFold("both", ("a", "b"), "v", "table")
    assert as_text(FoldGraph([both, one])).splitlines() == [
        "a",
        "├─ one → topic b",
        "│  └─ both (with a) → table v",
        "└─ both (above)",
    ]


_topics = st.integers(0, 5)
_folds = st.lists(st.tuples(st.sets(_topics, min_size=1, max_size=2), st.none() | _topics), max_size=7)


@settings(max_examples=150)
@given(given_folds=_folds)
def test_upstream_comes_first_and_circles_are_those_that_a_search_finds(
    given_folds: list[tuple[set[int], int | None]],
) -> None:
    folds = [
        GraphFold(f"f{n}", tuple(f"t{topic}" for topic in sorted(reads)), "v", "k", None if w is None else f"t{w}")
        for n, (reads, w) in enumerate(given_folds)
    ]
    reach = {fold.name: _reached(fold, folds) for fold in folds}
    if any(name in behind for name, behind in reach.items()):
        with pytest.raises(FoldError, match="circle"):
            FoldGraph(folds)
        return
    graph = FoldGraph(folds)
    order = [fold.name for fold in graph.folds]
    for name, behind in reach.items():
        assert {one.name for one in graph.downstream(name)} == behind
        assert all(order.index(name) < order.index(other) for other in behind)
    assert all(fold.name in as_text(graph) for fold in folds)
    ET.fromstring(as_svg(graph))


def _reached(fold: GraphFold, folds: Sequence[GraphFold]) -> set[str]:
    """By walking, without the graph."""
    found: set[str] = set()
    left = [fold]
    while left:
        one = left.pop()
        for other in folds:
            if one.writes is not None and one.writes in other.reads and other.name not in found:
                found.add(other.name)
                left.append(other)
    return found


def test_a_rewind_says_what_lies_behind_and_goes_there_if_it_is_asked(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with foldlog.open(tmp_path / "data") as log:
        payments = log.create_topic("payments")
        for number in range(40):
            log.append("payments", {"merchant": "tea", "amount": number}, key=f"t{number}")
    mirror, changed, _ = load_folds(file)
    changed.view.bind(origin_spec(tmp_path / "data"))  # type: ignore[attr-defined]
    for fold, topic, topic_id in ((changed, "payments", payments.topic_id), (mirror, "large", "")):
        if not topic_id:
            with foldlog.open(tmp_path / "data", mode="r") as log:
                topic_id = log.topic("large").topic_id
        case = ViewCase(lambda fold=fold: fold.view)  # type: ignore[misc]
        fold.view.prepare(case.shape, START)
        play(fold.view, case, some_events(10), [10])
        at = fold.view.bookmark()
        assert at is not None
        fold.view.move(at, at.__class__(topic, topic_id, at.positions, at.origins, at.epoch))
        fold.view.close()
    rewind = ["fold", "rewind", "keep_large", "-f", str(file), "-d", str(tmp_path / "data"), "--dry-run", "--to"]
    assert main([*rewind, "5"]) == 0
    told = capsys.readouterr()
    assert told.out == "keep_large would go from 0=10 to 0=5: 5 offsets to read again\n"
    assert "behind keep_large: mirror; they read what it changes by themselves" in told.err
    assert main([*rewind, "5", "--downstream"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "mirror would go from 0=10 to 0=0: 10 offsets to read again"
