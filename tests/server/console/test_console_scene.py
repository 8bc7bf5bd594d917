"""The scene "Log or queue?": the log keeps what was read and the queue does not, both for real.

The log's half is a topic that any client can read, with offsets that the broker keeps; the queue gives each item once.
"""

from __future__ import annotations

import ast
import inspect
import string
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.broker.broker import Broker
from foldlog.broker.groups.messages import JoinRequest, JoinResult
from foldlog.broker.topics.names import SCENE_TOPIC
from foldlog.clock import SystemClock
from foldlog.limits import CONSOLE_SCENE_RECORDS_MAX, CONSOLE_SCENE_VALUE_CHARS_MAX
from foldlog.server.console.scene import READERS, Scene, SceneLog, SceneQueue, group_of
from server.console.console_site import console

BILLING, SEARCH = READERS


def bookmarks(state: dict[str, Any]) -> dict[str, int]:
    return {reader["reader"]: reader["offset"] for reader in state["log"]["readers"]}


def values(half: dict[str, Any]) -> list[str]:
    return [record["value"] for record in half["records"]]


def test_the_second_reader_of_a_queue_gets_none() -> None:
    queue = SceneQueue[str]()
    queue.enqueue("tea")
    assert queue.dequeue() == "tea"
    assert queue.dequeue() is None


@given(st.lists(st.one_of(st.none(), st.integers())))
def test_a_queue_gives_every_item_once_and_in_order(steps: list[int | None]) -> None:
    """None is a read, a number is an item."""
    queue, taken = SceneQueue[int](), list[int]()
    for step in steps:
        if step is not None:
            queue.enqueue(step)
        elif (item := queue.dequeue()) is not None:
            taken.append(item)
        else:
            assert len(queue) == 0
    assert taken + list(queue.waiting()) == [step for step in steps if step is not None]


def test_both_groups_read_everything_from_the_log_and_the_queue_serves_one_of_them() -> None:
    with console() as site:
        for value in ("tea", "rice"):
            site.posted("/api/scene/append", {"value": value})
        for reader in READERS:
            for offset, value in enumerate(("tea", "rice")):
                did = site.posted("/api/scene/read", {"reader": reader})["did"]
                expected = {"verb": "read", "side": "log", "reader": reader}
                assert did == {**expected, "record": {"offset": offset, "value": value}}
        for value in ("tea", "rice"):
            did = site.posted("/api/scene/dequeue", {"reader": BILLING})["did"]
            assert did["record"]["value"] == value
        state = site.posted("/api/scene/dequeue", {"reader": SEARCH})
        assert state.pop("did") == {"verb": "dequeue", "side": "queue", "reader": SEARCH, "record": None}
        assert state == site.get("/api/scene")
        assert values(state["log"]) == ["tea", "rice"]
        assert bookmarks(state) == {BILLING: 2, SEARCH: 2}
        assert values(state["queue"]) == []
        assert [reader["handled"] for reader in state["queue"]["readers"]] == [[0, 1], []]


def test_a_crash_costs_the_log_nothing_and_the_queue_its_record() -> None:
    with console() as site:
        site.posted("/api/scene/append", {"value": "tea"})
        crashed = site.posted("/api/scene/crash", {"side": "log", "reader": BILLING})
        assert (crashed["did"]["verb"], crashed["did"]["record"]["offset"]) == ("crash", 0)
        assert bookmarks(crashed)[BILLING] == 0
        assert crashed["log"]["readers"][0]["is_down"]
        again = site.posted("/api/scene/read", {"reader": BILLING})
        assert again["did"]["record"] == {"offset": 0, "value": "tea"}
        assert again["log"]["readers"][0]["again"] == [0]
        assert not again["log"]["readers"][0]["is_down"]

        lost = site.posted("/api/scene/crash", {"side": "queue", "reader": BILLING})
        assert lost["queue"]["readers"][0] == {"reader": BILLING, "is_down": True, "handled": [], "lost": [0]}
        assert site.posted("/api/scene/dequeue", {"reader": BILLING})["did"]["record"] is None
        assert site.posted("/api/scene/dequeue", {"reader": SEARCH})["did"]["record"] is None


@pytest.mark.parametrize("side", ["log", "queue"])
def test_who_has_nothing_in_hand_does_not_crash(side: str) -> None:
    with console() as site:
        state = site.posted("/api/scene/crash", {"side": side, "reader": BILLING})
        assert state["did"]["record"] is None
        assert not state[side]["readers"][0]["is_down"]


def test_the_log_of_the_scene_is_a_topic_like_any_other_but_not_among_the_users_own() -> None:
    with console() as site:
        assert site.get("/api/scene")["log"]["records"] == []
        assert site.broker.topics(include_internal=True) == [], "looking makes nothing"
        site.posted("/api/scene/append", {"value": "tea"})
        site.posted("/api/scene/read", {"reader": SEARCH})
        assert site.broker.topics() == []
        assert SCENE_TOPIC in site.broker.topics(include_internal=True)
        assert site.broker.committed(group_of(SEARCH))[SCENE_TOPIC, 0].offset == 1
        assert site.get(f"/api/topics/{SCENE_TOPIC}/0/records/0")["value"]["text"] == "tea"
        rewind = {"topic": SCENE_TOPIC, "partition": 0, "offset": 0}
        site.posted(f"/api/groups/{group_of(SEARCH)}/rewind", rewind)
        assert bookmarks(site.get("/api/scene"))[SEARCH] == 0, "a rewind elsewhere is a rewind here"


def test_the_code_that_is_shown_is_the_code_that_runs() -> None:
    with console() as site:
        code = site.get("/api/scene/code")
    for method, text in (
        (SceneLog.append, code["append"]),
        (SceneLog.read, code["read"]),
        (SceneQueue.dequeue, code["dequeue"]),
    ):
        assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(textwrap.dedent(inspect.getsource(method))))
        assert len(text.splitlines()) <= 8, "it is there to be read"


def test_a_reset_leaves_nothing_behind() -> None:
    with console() as site:
        site.posted("/api/scene/reset", {})
        site.posted("/api/scene/append", {"value": "tea"})
        site.posted("/api/scene/read", {"reader": BILLING})
        state = site.posted("/api/scene/reset", {})
        assert (values(state["log"]), values(state["queue"]), bookmarks(state)) == ([], [], {BILLING: 0, SEARCH: 0})
        assert SCENE_TOPIC not in site.broker.topics(include_internal=True)
        assert site.broker.group_names() == []
        assert site.posted("/api/scene/append", {"value": "rice"})["did"]["record"] == {"offset": 0, "value": "rice"}


def test_a_group_that_somebody_has_joined_is_not_taken_from_them() -> None:
    with console() as site:
        site.posted("/api/scene/append", {"value": "tea"})
        joined: list[JoinResult] = []
        with site.broker.coordinator() as coordinator:
            coordinator.join(
                JoinRequest(group_of(BILLING), "consumer", (("range", b""),), 60_000, 60_000), joined.append
            )
        for path, body in (("reset", {}), ("read", {"reader": BILLING})):
            answer = site.post(f"/api/scene/{path}", body)
            assert answer.status == 409, answer.body
        assert values(site.get("/api/scene")["log"]) == ["tea"]


def test_the_log_outlives_the_broker_and_the_queue_does_not(tmp_path: Path) -> None:
    for run in range(2):
        with Broker.open(str(tmp_path / "data"), background=False) as broker:
            scene = Scene(broker, SystemClock())
            if run == 0:
                scene.append("tea")
                scene.append("rice")
                scene.read(BILLING)
            state = scene.state()
            assert values(state["log"]) == ["tea", "rice"]
            assert bookmarks(state) == {BILLING: 1, SEARCH: 0}
            assert state["queue"]["enqueued"] == (2 if run == 0 else 0)


def test_a_scene_is_bounded_and_says_how_to_go_on() -> None:
    with console() as site:
        for number in range(CONSOLE_SCENE_RECORDS_MAX):
            site.posted("/api/scene/append", {"value": str(number)})
        answer = site.post("/api/scene/append", {"value": "one more"})
        assert answer.status == 409
        assert "reset" in answer.json["error"]
        site.append(SCENE_TOPIC, 0, *((None, b"\xff" * 1000) for _ in range(30)))
        state = site.get("/api/scene")
        assert len(state["log"]["records"]) == CONSOLE_SCENE_RECORDS_MAX
        assert all(len(value) == CONSOLE_SCENE_VALUE_CHARS_MAX for value in values(state["log"]))


REFUSED: list[tuple[str, Any]] = [
    ("append", {}), ("append", {"value": ""}), ("append", {"value": 7}), ("append", {"value": "x" * 17}),
    ("append", {"value": "\ud800"}), ("append", {"value": "tea", "key": "k"}), ("append", []),
    ("read", {}), ("read", {"reader": "nobody"}), ("read", {"reader": [BILLING]}), ("dequeue", {"reader": None}),
    ("crash", {"reader": BILLING}), ("crash", {"side": "left", "reader": BILLING}), ("crash", {"side": "log"}),
    ("reset", {"all": True}),
]  # fmt: skip


def test_what_the_scene_does_not_know_is_refused_in_one_sentence() -> None:
    with console() as site:
        for path, body in REFUSED:
            answer = site.post(f"/api/scene/{path}", body)
            assert answer.status == 400, (path, body, answer.body)
            assert set(answer.json) == {"error"}
        assert site.broker.topics(include_internal=True) == []


def test_a_read_only_console_shows_the_scene_and_plays_none() -> None:
    with console(read_only=True) as site:
        assert site.get("/api/scene")["log"]["end"] == 0
        bodies: dict[str, dict[str, str]] = {
            "append": {"value": "tea"}, "read": {"reader": BILLING}, "dequeue": {"reader": BILLING},
            "crash": {"side": "log", "reader": BILLING}, "reset": {},
        }  # fmt: skip
        for path, body in bodies.items():
            answer = site.post(f"/api/scene/{path}", body)
            assert (answer.status, "read-only" in answer.json["error"]) == (403, True)


steps = st.lists(
    st.tuples(st.sampled_from(["append", "read", "dequeue"]), st.sampled_from(READERS), st.booleans()), max_size=30
)


@given(steps)
def test_whatever_is_played_the_log_has_all_and_the_queue_each_once(played: list[tuple[str, str, bool]]) -> None:
    """On a model: a log is a list that only grows, and a queue's records are waiting, handled or lost, one of them."""
    with Broker.open(":memory:", background=False) as broker:
        scene, written = Scene(broker, SystemClock()), list[str]()
        places = dict.fromkeys(READERS, 0)
        for verb, reader, crash in played:
            if verb == "append" and len(written) < CONSOLE_SCENE_RECORDS_MAX:
                written.append(string.ascii_letters[len(written)])
                scene.append(written[-1])
            elif verb == "read":
                did = scene.read(reader, crash=crash)["did"]
                assert (did["record"] or {}).get("offset") == (
                    places[reader] if places[reader] < len(written) else None
                )
                places[reader] += did["record"] is not None and not crash
            elif verb == "dequeue":
                scene.dequeue(reader, crash=crash)
        state = scene.state()
        assert values(state["log"]) == written
        assert bookmarks(state) == places
        gone = [offset for one in state["queue"]["readers"] for offset in one["handled"] + one["lost"]]
        waiting = [record["offset"] for record in state["queue"]["records"]]
        assert sorted(gone) + waiting == list(range(len(written)))


def test_steps_of_several_pages_do_not_mix() -> None:
    """Each answer is of one moment, whoever else plays."""
    numbers = range(CONSOLE_SCENE_RECORDS_MAX)
    with console() as site, ThreadPoolExecutor(4) as pages:
        written = list(pages.map(lambda n: site.posted("/api/scene/append", {"value": str(n)}), numbers))
        taken = list(pages.map(lambda n: site.posted("/api/scene/dequeue", {"reader": READERS[n % 2]}), numbers))
    for answers in (written, taken):
        assert sorted(answer["did"]["record"]["offset"] for answer in answers) == list(numbers)
    assert all(answer["did"]["record"]["offset"] == answer["log"]["end"] - 1 for answer in written)
