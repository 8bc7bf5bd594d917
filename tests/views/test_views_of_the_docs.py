"""The views that docs/views.md shows how to write, as they stand on the page, keep the contract of views.

The code blocks are executed, and their classes run through `ViewContract`: the one with transactions against SQLite,
the two without against small servers that answer as Elasticsearch and ClickHouse document it. There the moments
between a change and its bookmark are tried too: a crash, two runners, and keys that moved to another partition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from foldlog.errors import StaleBookmark, ViewUnavailable
from foldlog.views.bookmark import Bookmark, Position
from foldlog.views.contract import View
from views.peek.document_servers import ClickHouseServer, Elasticsearch, serving
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

PAGE = Path(__file__).resolve().parents[2] / "docs" / "views.md"


def shown() -> dict[str, Any]:
    """What the page's code defines: blocks that define something; those that only use it are run with the page."""
    namespace: dict[str, Any] = {"__name__": "views_of_the_docs"}
    for code in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        if re.search(r"^(class|def) ", code, re.MULTILINE):
            exec(compile(code, str(PAGE), "exec"), namespace)
    return namespace


SHOWN = shown()


class TestLatest(ViewContract):
    """The page's first one, with transactions."""

    @pytest.fixture
    def case(self, tmp_path: Path) -> ViewCase:
        return ViewCase(lambda: SHOWN["Latest"](str(tmp_path / "latest.db"), "payments"))


class TestElastic(ViewContract):
    """Elasticsearch and OpenSearch."""

    @pytest.fixture
    def case(self, elastic: str) -> ViewCase:
        return ViewCase(lambda: SHOWN["Elastic"](elastic, "payments"))


class TestClickHouse(ViewContract):
    """ClickHouse, which cannot compare and set."""

    @pytest.fixture
    def case(self, clickhouse: str) -> ViewCase:
        return ViewCase(lambda: SHOWN["ClickHouse"](clickhouse, "payments"))

    def test_of_two_who_apply_the_same_range_at_once_one_is_refused(self, case: ViewCase, view: View) -> None:
        """Or neither is, and the content is the same: that is what the page promises."""
        events = some_events(40)
        view.prepare(case.shape, START)
        with opened(case) as other:
            for here in range(0, 40, 10):
                delta = case.delta(events, here, here + 10)
                calls = [
                    lambda who=who, delta=delta, here=here: who.apply(delta, at(here), at(here + 10))
                    for who in (view, other)
                ]
                refused = [type(outcome) for outcome in outcomes(calls) if outcome is not None]
                assert refused in ([], [StaleBookmark])
        assert view.bookmark() == at(40)
        assert held(view) == in_order(case.content(events, 40))


@pytest.fixture
def elastic() -> Iterator[str]:
    engine = Elasticsearch()
    with serving(engine) as url:
        yield url
    assert engine.unknown == []


@pytest.fixture
def clickhouse() -> Iterator[str]:
    engine = ClickHouseServer()
    with serving(engine) as url:
        yield url
    assert engine.unknown == []


@pytest.fixture(params=["Elastic", "ClickHouse"])
def without_transaction(request: pytest.FixtureRequest) -> ViewCase:
    name = request.param
    url = request.getfixturevalue(name.lower())
    return ViewCase(lambda: SHOWN[name](url, "payments"))


def crashing(view: Any, method: str) -> Any:
    """The view, whose process ends when it calls that method."""

    class Killed(BaseException):
        """Nothing catches it."""

    def never(*_: object) -> None:
        raise Killed

    setattr(view, method, never)
    return Killed


def test_a_range_that_a_crash_left_without_bookmark_is_applied_again_to_the_same_rows(
    without_transaction: ViewCase,
) -> None:
    case = without_transaction
    events = some_events(60, keys=8)
    with opened(case) as view:
        view.prepare(case.shape, START)
        play(view, case, events, [20])
        doomed: Any = case.open()
        killed = crashing(doomed, "store" if hasattr(doomed, "store") else "move")
        with pytest.raises(killed):
            doomed.apply(case.delta(events, 20, 45), at(20), at(45))
        assert view.bookmark() == at(20)
        # Whoever goes on may cut the log in another place.
        view.apply(case.delta(events, 20, 31), at(20), at(31))
        view.apply(case.delta(events, 31, 60), at(31), at(60))
        assert held(view) == in_order(case.content(events, 60))


def test_a_runner_that_was_asleep_changes_nothing_any_more(without_transaction: ViewCase) -> None:
    case = without_transaction
    events = some_events(60, keys=8)
    with opened(case) as view:
        view.prepare(case.shape, START)
        sleeper: Any = case.open()
        expect: Callable[[Bookmark], object] = sleeper.expect
        waking: list[object] = []

        def slow(expected: Bookmark) -> object:
            found = expect(expected)
            if not waking:
                waking.append(found)
                play(view, case, events, [30, 60])
            return found

        sleeper.expect = slow
        with pytest.raises(StaleBookmark):
            sleeper.apply(case.delta(events, 0, 10), START, at(10))
        assert view.bookmark() == at(60)
        assert held(view) == in_order(case.content(events, 60))


def test_a_key_that_moved_to_another_partition_keeps_its_newest_row(without_transaction: ViewCase) -> None:
    case = without_transaction
    start = Bookmark("payments", "topic-id-1", {0: Position(0)}, {0: 0})
    old = start.advanced({0: Position(100)})
    grown = old.met({1: 0})
    new = grown.advanced({1: Position(1)})
    with opened(case) as view:
        view.prepare(case.shape, start)
        first: dict[str, object] = {"tx_id": "a", "amount": 1, "_offset": 99}
        view.apply(delta_of([first], COLUMNS, 0, 100), start, old)
        view.move(old, grown)
        newer: dict[str, object] = {"tx_id": "a", "amount": 2, "_partition": 1, "_offset": 0}
        view.apply(delta_of([newer], COLUMNS, 0, 1), grown, new)
        assert held(view) == [{"tx_id": "a", "merchant": None, "amount": 2}]


def test_an_engine_that_cannot_be_reached_is_one_sentence() -> None:
    with serving(Elasticsearch()) as url:
        pass
    for name in ("Elastic", "ClickHouse"):
        with pytest.raises(ViewUnavailable, match=f"^{url}/payments cannot be used: "):
            SHOWN[name](url, "payments").bookmark()


def test_who_searches_by_the_alias_does_not_see_the_bookmark() -> None:
    engine = Elasticsearch()
    with serving(engine) as url:
        case = ViewCase(lambda: SHOWN["Elastic"](url, "payments"))
        with opened(case) as view:
            view.prepare(case.shape, START)
            play(view, case, some_events(20), [20])
        index, hides = engine.aliases["payments"]
        assert hides == {"bool": {"must_not": {"ids": {"values": ["__foldlog__"]}}}}
        assert "__foldlog__" in engine.indexes[index].documents
