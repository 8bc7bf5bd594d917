"""A coordinator that restarts knows its groups from the records it gave out to be written, and from nothing else."""

from __future__ import annotations

import pytest

from broker.groups.group_bench import GROUP, SESSION_MS, GroupBench, batch_of
from foldlog.broker.groups.committed import (
    CommittedOffsets,
    OffsetAndMetadata,
    load_records,
)
from foldlog.broker.groups.coordinator import GroupCoordinator
from foldlog.broker.groups.errors import GroupErrorCode
from foldlog.broker.groups.messages import GroupState
from foldlog.broker.groups.offsets_format import (
    OffsetKey,
    StoredGroup,
    StoredMember,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
)
from foldlog.errors import CorruptGroupRecord
from foldlog.testing.sim_clock import SimClock

OK = GroupErrorCode.NONE
KEY = encode_group_key(GROUP)


@pytest.fixture
def bench() -> GroupBench:
    return GroupBench()


def stored_member(**changes: object) -> StoredMember:
    fields: dict[str, object] = {
        "member_id": "m",
        "group_instance_id": None,
        "client_id": "app",
        "client_host": "/h",
        "rebalance_timeout_ms": 1000,
        "session_timeout_ms": 1000,
        "subscription": b"",
        "assignment": b"",
    }
    return StoredMember(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_stable_group_goes_on_where_it_was(bench: GroupBench) -> None:
    leader, follower = bench.stable(2)
    before = bench.coordinator.describe(GROUP)
    bench.restart()
    assert bench.coordinator.describe(GROUP) == before
    assert bench.heartbeat(leader, 2) is bench.heartbeat(follower, 2) is OK
    assert bench.coordinator.validate_commit(GROUP, follower, None, 2) is OK
    assert bench.sync(follower, 2).result.assignment == follower.encode()
    assert bench.heartbeat(leader, 1) is GroupErrorCode.ILLEGAL_GENERATION


def test_members_get_a_full_session_after_a_restart_and_no_more(bench: GroupBench) -> None:
    leader, silent = bench.stable(2)
    bench.pass_time(SESSION_MS - 1, heartbeats={})
    bench.restart()
    bench.pass_time(SESSION_MS - 1, heartbeats={leader: 2})
    assert bench.state is GroupState.STABLE
    bench.pass_time(1, heartbeats={leader: 2})
    assert bench.heartbeat(silent, 2) is GroupErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_that_was_under_way_starts_over_from_the_last_stable_generation(bench: GroupBench) -> None:
    leader, follower = bench.stable(2)
    bench.join(leader)
    generation = bench.join(follower).result.generation
    bench.restart()
    assert bench.sync(follower, generation).result.error is GroupErrorCode.ILLEGAL_GENERATION
    rejoined = [bench.join(leader), bench.join(follower, protocols=(("range", b"topics"),))]
    bench.settle(rejoined)
    assert bench.generation == 3


def test_an_empty_group_keeps_its_generation_and_the_moment_it_became_empty(bench: GroupBench) -> None:
    members = bench.stable(1)
    bench.pass_time(5_000)
    emptied_ms = bench.clock.now_ms()
    bench.leave(*members)
    bench.pass_time(5_000)
    bench.restart()
    assert (bench.state, bench.generation) == (GroupState.EMPTY, 2)
    assert bench.coordinator.empty_since_ms(GROUP) == emptied_ms
    assert bench.join().result.generation == 3
    assert bench.coordinator.empty_since_ms(GROUP) is None
    assert bench.coordinator.empty_since_ms("nobody") == -1


def test_a_deleted_group_stays_deleted(bench: GroupBench) -> None:
    bench.leave(*bench.stable(1))
    bench.coordinator.delete(GROUP)
    bench.restart()
    assert bench.state is GroupState.DEAD


def test_a_static_member_that_returned_is_known_under_its_new_id(bench: GroupBench) -> None:
    first = bench.join(instance="a").result.member_id
    bench.sync(first, 1, {first: b"mine"}, instance="a")
    back = bench.join(instance="a").result.member_id
    bench.restart()
    assert bench.heartbeat(back, 1, "a") is OK
    assert bench.heartbeat(first, 1, "a") is GroupErrorCode.FENCED_INSTANCE_ID
    assert bench.sync(back, 1, instance="a").result.assignment == b"mine"


def test_what_is_written_is_the_snapshot_and_comes_before_the_answer(bench: GroupBench) -> None:
    member = bench.join().result.member_id
    assert bench.coordinator.take_writes() == [], "a generation without assignments is nothing to remember"
    bench.sync(member, 1, {member: b"x"})
    assert bench.coordinator.take_writes() == [bench.coordinator.snapshot(GROUP)]
    assert bench.coordinator.take_writes() == []
    assert bench.coordinator.snapshot("nobody") is None


@pytest.mark.parametrize(
    "stored",
    [
        StoredGroup("consumer", -1, None, None, 0, ()),
        StoredGroup("consumer", 1, None, None, 0, (stored_member(),)),
        StoredGroup("", 1, "range", None, 0, (stored_member(),)),
        StoredGroup("consumer", 1, "range", None, 0, (stored_member(session_timeout_ms=0),)),
        StoredGroup("consumer", 1, "range", None, 0, (stored_member(rebalance_timeout_ms=-1),)),
        StoredGroup("consumer", 1, "range", None, 0, (stored_member(member_id=""),)),
        StoredGroup("consumer", 1, "range", None, 0, (stored_member(), stored_member())),
        StoredGroup(
            "consumer",
            1,
            "range",
            None,
            0,
            (stored_member(group_instance_id="i"), stored_member(member_id="n", group_instance_id="i")),
        ),
    ],
)
def test_a_group_that_no_coordinator_writes_is_reported_and_changes_nothing(
    bench: GroupBench, stored: StoredGroup
) -> None:
    (member,) = bench.stable(1)
    with pytest.raises(CorruptGroupRecord):
        bench.coordinator.restore(KEY, encode_group_value(stored))
    assert bench.heartbeat(member, 1) is OK


def test_only_group_metadata_can_be_restored(bench: GroupBench) -> None:
    with pytest.raises(CorruptGroupRecord, match="not group metadata"):
        bench.coordinator.restore(encode_offset_key(OffsetKey("g", "t", 0)), None)


def test_a_leader_that_is_not_among_the_members_is_replaced(bench: GroupBench) -> None:
    stored = StoredGroup("consumer", 4, "range", "gone", 0, (stored_member(),))
    bench.coordinator.restore(KEY, encode_group_value(stored))
    assert bench.coordinator.describe(GROUP).leader == "m"


def test_malformed_records_are_reported_and_cost_nothing_else(bench: GroupBench) -> None:
    (member,) = bench.stable(1)
    offsets = CommittedOffsets()
    (commit,) = offsets.plan_commit(GROUP, {("orders", 0): OffsetAndMetadata(7)}, now_ms=1)
    broken = [
        (None, b"no key"),
        (b"", b""),
        (b"\x00\x63future", b""),
        (commit[0][:-1], commit[1]),
        (encode_offset_key(OffsetKey(GROUP, "orders", 1)), b"\x00\x03short"),
        (encode_group_key("half"), b"\x00\x03\x00"),
    ]
    records = [*broken[:3], commit, *broken[3:], *bench.coordinator.take_writes()]
    loaded, coordinator = CommittedOffsets(), GroupCoordinator(SimClock())
    skipped = load_records(batch_of(records), loaded, coordinator)
    assert len(skipped) == len(broken)
    assert all("__consumer_offsets was skipped" in str(error) for error in skipped)
    assert loaded.fetch(GROUP)["orders", 0].offset == 7
    assert coordinator.heartbeat(GROUP, member, 1) is OK


def test_loading_takes_the_newest_record_of_each_group(bench: GroupBench) -> None:
    members = bench.stable(2)
    bench.leave(*members)
    records: list[tuple[bytes | None, bytes | None]] = [*bench.coordinator.take_writes()]
    coordinator = GroupCoordinator(SimClock())
    assert load_records(batch_of(records), CommittedOffsets(), coordinator) == []
    assert coordinator.describe(GROUP).state is GroupState.EMPTY
    assert load_records(batch_of([*records, (KEY, None)]), CommittedOffsets(), coordinator) == []
    assert coordinator.describe(GROUP).state is GroupState.DEAD
