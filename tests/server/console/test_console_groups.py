"""Groups in the console: who is in them and where they stand, and a rewind that live members follow."""

from __future__ import annotations

import pytest

from foldlog import limits
from foldlog.broker.broker import Broker
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.broker.groups.messages import GroupSettings, JoinRequest, JoinResult
from server.console.console_site import ConsoleSite, console
from server.group_readers import GROUP, TOPIC, Reader, running_readers, wait_until


def filled(site: ConsoleSite, records: int) -> None:
    site.broker.create_topic(TOPIC)
    site.append(TOPIC, 0, *((b"k", b"%d" % n) for n in range(records)))


def test_a_group_has_its_members_and_where_each_cursor_stands() -> None:
    with console() as site:
        filled(site, 5)
        site.broker.commit_offsets(GROUP, {(TOPIC, 0): OffsetAndMetadata(2)})
        empty = site.get(f"/api/groups/{GROUP}")
        assert (empty["state"], empty["members"], empty["is_fold"]) == ("Empty", [], False)
        (cursor,) = empty["cursors"]
        assert cursor | {"committed_ms": 0} == {
            "topic": TOPIC, "partition": 0, "offset": 2, "is_committed": True, "end": 5, "lag": 3, "committed_ms": 0,
        }  # fmt: skip
        assert cursor["committed_ms"] > 1_600_000_000_000
        with running_readers() as readers:
            readers.append(Reader(site.server, client_id="till-7"))
            wait_until(readers, lambda: readers[0].assigned == {0})
            stable = site.get(f"/api/groups/{GROUP}")
            assert stable["state"] == "Stable"
            (found,) = stable["members"]
            assert (found["client_id"], found["host"], found["instance_id"]) == ("till-7", "127.0.0.1", None)
            assert found["assignment"] == [{"topic": TOPIC, "partition": 0}]


def test_a_group_may_have_any_name() -> None:
    name = "a/b ü?#%"
    with console() as site:
        filled(site, 1)
        site.broker.commit_offsets(name, {(TOPIC, 0): OffsetAndMetadata(0)})
        assert site.get("/api/groups/a%2Fb%20%C3%BC%3F%23%25")["group"] == name


def test_a_group_without_members_is_moved_and_the_answer_says_what_is_read_again() -> None:
    with console() as site:
        filled(site, 5)
        site.broker.commit_offsets(GROUP, {(TOPIC, 0): OffsetAndMetadata(4)})
        answer = site.posted(f"/api/groups/{GROUP}/rewind", {"topic": TOPIC, "partition": 0, "offset": 1})
        assert answer == {
            "moved": [{"topic": TOPIC, "partition": 0, "from": 4, "to": 1}], "read_again": 3, "evicted": [],
        }  # fmt: skip
        assert site.broker.committed(GROUP)[TOPIC, 0].offset == 1
        forward = site.posted(f"/api/groups/{GROUP}/rewind", {"topic": TOPIC, "partition": 0, "offset": 5})
        assert forward["read_again"] == 0


def test_live_members_are_named_and_once_evicted_rejoin_at_the_new_offset() -> None:
    with console() as site, running_readers() as readers:
        filled(site, 6)
        reader = Reader(site.server, client_id="till-7")
        readers.append(reader)
        wait_until(readers, lambda: (TOPIC, 0) in site.broker.committed(GROUP) and len(reader.read) == 6)
        wait_until(readers, lambda: site.broker.committed(GROUP)[TOPIC, 0].offset == 6)
        body = {"topic": TOPIC, "partition": 0, "offset": 2}
        refused = site.post(f"/api/groups/{GROUP}/rewind", body)
        assert refused.status == 409
        (name,) = refused.json["members"]
        assert name.startswith("till-7/till-7-")
        assert name in refused.json["error"]
        assert site.broker.committed(GROUP)[TOPIC, 0].offset == 6
        moved = site.posted(f"/api/groups/{GROUP}/rewind", {**body, "evict": True})
        assert (moved["read_again"], moved["evicted"]) == (4, [name])
        wait_until(readers, lambda: len(reader.read) == 10)
        assert [offset for _, offset in reader.read] == [0, 1, 2, 3, 4, 5, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("group", "body", "status", "words"),
    [
        ("nobody", {"topic": TOPIC, "partition": 0, "offset": 0}, 404, "there is no group 'nobody'"),
        (GROUP, {"topic": "others", "partition": 0, "offset": 0}, 404, "no topic 'others'"),
        (GROUP, {"topic": TOPIC, "partition": 9, "offset": 0}, 404, "has no partition 9"),
        (GROUP, {"topic": TOPIC, "partition": 0, "offset": 6}, 400, "offset 6 is not in orders-0; it is from 0 to 5"),
        ("fold.shop", {"topic": TOPIC, "partition": 0, "offset": 0}, 409, "rewind the fold instead"),
    ],
)
def test_a_place_that_is_none_moves_nothing(group: str, body: dict[str, object], status: int, words: str) -> None:
    with console() as site:
        filled(site, 5)
        for name in (GROUP, "fold.shop"):
            site.broker.commit_offsets(name, {(TOPIC, 0): OffsetAndMetadata(3)})
        answer = site.post(f"/api/groups/{group}/rewind", body)
        assert answer.status == status
        assert words in answer.json["error"]
        assert {site.broker.committed(name)[TOPIC, 0].offset for name in (GROUP, "fold.shop")} == {3}


def test_a_group_that_still_waits_for_more_members_is_moved_when_it_has_waited() -> None:
    """group.initial.rebalance.delay.ms: a commit from outside is refused until that is over, whoever has left."""
    settings = GroupSettings(initial_rebalance_delay_ms=300)
    with Broker.open(":memory:", group_settings=settings) as broker, console(broker) as site:
        filled(site, 5)
        broker.commit_offsets(GROUP, {(TOPIC, 0): OffsetAndMetadata(3)})
        answers: list[JoinResult] = []
        with broker.coordinator() as coordinator:
            coordinator.join(
                JoinRequest(GROUP, "consumer", (("range", b""),), 60_000, 60_000, client_id="till-7"), answers.append
            )
            assert answers == []  # nobody ticks while we have the coordinator
        body = {"topic": TOPIC, "partition": 0, "offset": 1, "evict": True}
        (evicted,) = site.posted(f"/api/groups/{GROUP}/rewind", body)["evicted"]
        assert evicted == f"till-7/{answers[0].member_id}"
        assert broker.committed(GROUP)[TOPIC, 0].offset == 1


def test_members_that_come_back_each_time_are_named_and_not_to_be_evicted_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "EVICTION_PAUSE_MS", 0)
    with console() as site, running_readers() as readers:
        filled(site, 1)
        readers.append(Reader(site.server, client_id="till-7"))
        wait_until(readers, lambda: (TOPIC, 0) in site.broker.committed(GROUP))
        monkeypatch.setattr(site.broker, "evict_members", lambda group: ())
        refused = site.post(f"/api/groups/{GROUP}/rewind", {"topic": TOPIC, "partition": 0, "offset": 0, "evict": True})
        assert refused.status == 409
        (name,) = refused.json["members"]
        assert refused.json["error"] == (
            f"group {GROUP!r} has 1 member: {name} (127.0.0.1); they came back each time they were removed: stop them"
        )


def test_groups_in_which_copies_note_how_far_they_are_are_not_listed() -> None:
    with console() as site:
        filled(site, 1)
        for group in (GROUP, "foldlog-copy", "foldlog-copy-check"):
            site.broker.commit_offsets(group, {(TOPIC, 0): OffsetAndMetadata(1)})
        assert [group["group"] for group in site.get("/api/overview")["groups"]] == [GROUP]
