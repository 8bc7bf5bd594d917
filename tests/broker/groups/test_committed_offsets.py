"""Committed offsets: what was applied is what is fetched, in Kafka's own bytes, and it expires late rather than early.

Includes a model test: any sequence of commits and deletions, replayed from its records, gives the same state.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.broker.groups.committed import (
    CommittedOffsets,
    GroupRecord,
    OffsetAndMetadata,
    java_string_hash,
    partition_for_group,
)
from foldlog.broker.groups.offsets_format import (
    CommittedOffset,
    OffsetKey,
    encode_group_key,
    encode_offset_key,
)
from foldlog.errors import CorruptGroupRecord, InvalidArgument, MetadataTooLarge

DAY_MS = 24 * 3600 * 1000
NOW_MS = 1_700_000_000_000


def commit(
    offsets: CommittedOffsets, group: str, topic: str, partition: int, offset: int, now_ms: int = NOW_MS
) -> None:
    take(offsets, offsets.plan_commit(group, {(topic, partition): OffsetAndMetadata(offset)}, now_ms))


def take(offsets: CommittedOffsets, records: list[GroupRecord]) -> None:
    for key, value in records:
        assert offsets.apply(key, value)


def test_a_commit_counts_once_its_records_are_applied() -> None:
    offsets = CommittedOffsets()
    plan = offsets.plan_commit("g", {("orders", 1): OffsetAndMetadata(42, 3, "note ✓")}, NOW_MS)
    assert offsets.fetch("g") == {}
    take(offsets, plan)
    assert offsets.fetch("g") == {("orders", 1): CommittedOffset(42, 3, "note ✓", NOW_MS)}


def test_fetching_some_partitions_leaves_out_those_without_a_commit() -> None:
    offsets = CommittedOffsets()
    commit(offsets, "g", "orders", 0, 5)
    commit(offsets, "g", "orders", 1, 6)
    fetched = offsets.fetch("g", [("orders", 1), ("orders", 2)])
    assert {partition: committed.offset for partition, committed in fetched.items()} == {("orders", 1): 6}
    assert offsets.fetch("other", [("orders", 1)]) == {}


def test_two_groups_do_not_disturb_each_other() -> None:
    offsets = CommittedOffsets()
    commit(offsets, "a", "orders", 0, 5)
    commit(offsets, "b", "orders", 0, 9)
    assert offsets.fetch("a")["orders", 0].offset == 5
    assert offsets.groups() == ["a", "b"]


def test_a_bookmark_can_move_back() -> None:
    offsets = CommittedOffsets()
    commit(offsets, "g", "orders", 0, 9)
    commit(offsets, "g", "orders", 0, 2)
    assert offsets.fetch("g")["orders", 0].offset == 2


@pytest.mark.parametrize(
    ("partition", "committed"),
    [
        (("orders", -1), OffsetAndMetadata(1)),
        (("", 0), OffsetAndMetadata(1)),
        (("orders", 1 << 31), OffsetAndMetadata(1)),
        (("orders", 0), OffsetAndMetadata(1 << 63)),
    ],
)
def test_what_cannot_be_a_bookmark_is_refused(partition: tuple[str, int], committed: OffsetAndMetadata) -> None:
    with pytest.raises(InvalidArgument):
        CommittedOffsets().plan_commit("g", {partition: committed}, NOW_MS)


def test_metadata_may_have_4096_bytes_and_not_one_more() -> None:
    offsets = CommittedOffsets()
    take(offsets, offsets.plan_commit("g", {("orders", 0): OffsetAndMetadata(1, metadata="é" * 2048)}, NOW_MS))
    with pytest.raises(MetadataTooLarge, match=r"4098 bytes is over offset\.metadata\.max\.bytes=4096"):
        offsets.plan_commit("g", {("orders", 0): OffsetAndMetadata(1, metadata="é" * 2049)}, NOW_MS)


def test_one_refused_partition_refuses_the_whole_commit() -> None:
    offsets = CommittedOffsets()
    wanted = {("orders", 0): OffsetAndMetadata(1), ("orders", -5): OffsetAndMetadata(1)}
    with pytest.raises(InvalidArgument):
        offsets.plan_commit("g", wanted, NOW_MS)
    assert offsets.groups() == []


def test_group_metadata_is_left_to_the_coordinator() -> None:
    assert CommittedOffsets().apply(encode_group_key("g"), b"anything") is False


def test_a_malformed_record_raises_and_changes_nothing() -> None:
    offsets = CommittedOffsets()
    commit(offsets, "g", "orders", 0, 5)
    with pytest.raises(CorruptGroupRecord):
        offsets.apply(encode_offset_key(OffsetKey("g", "orders", 0)), b"\x00\x07")
    assert offsets.fetch("g")["orders", 0].offset == 5


def test_a_tombstone_for_what_was_never_committed_is_nothing() -> None:
    offsets = CommittedOffsets()
    assert offsets.apply(encode_offset_key(OffsetKey("g", "orders", 0)), None)
    assert offsets.groups() == []


def test_deleting_offsets_group_or_topic_plans_tombstones_for_what_exists() -> None:
    offsets = CommittedOffsets()
    for group, topic, partition in [("a", "x", 0), ("a", "x", 1), ("a", "y", 0), ("b", "x", 0)]:
        commit(offsets, group, topic, partition, 1)
    take(offsets, offsets.plan_delete_offsets("a", [("x", 1), ("x", 9)]))
    assert set(offsets.fetch("a")) == {("x", 0), ("y", 0)}
    plans = dict(offsets.plan_delete_topics(["x"]))
    assert {group: len(records) for group, records in plans.items()} == {"a": 1, "b": 1}
    for records in plans.values():
        take(offsets, records)
    assert offsets.groups() == ["a"]
    take(offsets, offsets.plan_delete_group("a"))
    assert offsets.groups() == []
    assert not offsets.has_offsets("a")
    assert offsets.plan_delete_group("a") == []


# --- expiry ----------------------------------------------------------------------------------------------------------


def expired(offsets: CommittedOffsets, now_ms: int, empty_since_ms: int | None) -> int:
    return sum(len(records) for _, records in offsets.plan_expire(now_ms, lambda group: empty_since_ms))


def test_offsets_expire_a_week_after_the_group_became_empty() -> None:
    offsets = CommittedOffsets()
    commit(offsets, "g", "orders", 0, 5)
    emptied_ms = NOW_MS + 30 * DAY_MS
    assert expired(offsets, emptied_ms + 7 * DAY_MS - 1, emptied_ms) == 0
    assert expired(offsets, emptied_ms + 7 * DAY_MS, emptied_ms) == 1


def test_a_group_with_members_keeps_its_offsets_forever() -> None:
    offsets = CommittedOffsets()
    commit(offsets, "g", "orders", 0, 5)
    assert expired(offsets, NOW_MS + 1000 * DAY_MS, None) == 0


def test_without_a_coordinators_group_the_age_counts_from_the_commit() -> None:
    offsets = CommittedOffsets()
    commit(offsets, "g", "orders", 0, 5)
    commit(offsets, "g", "orders", 1, 5, NOW_MS + DAY_MS)
    assert expired(offsets, NOW_MS + 7 * DAY_MS, -1) == 1
    assert expired(offsets, NOW_MS + 8 * DAY_MS, -1) == 2


def test_a_commit_after_the_group_became_empty_counts_from_itself() -> None:
    offsets = CommittedOffsets()
    commit(offsets, "g", "orders", 0, 5, NOW_MS + 6 * DAY_MS)
    assert expired(offsets, NOW_MS + 7 * DAY_MS, NOW_MS) == 0


def test_a_clock_that_went_back_deletes_nothing() -> None:
    offsets = CommittedOffsets()
    commit(offsets, "g", "orders", 0, 5)
    assert expired(offsets, 0, NOW_MS) == 0


def test_the_retention_can_be_set() -> None:
    offsets = CommittedOffsets(retention_ms=10)
    commit(offsets, "g", "orders", 0, 5)
    assert expired(offsets, NOW_MS + 10, NOW_MS) == 1


# --- which partition -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(1 << 31)),
        ("𝄞", 31 * 0xD834 + 0xDD1E),
        ("test", 3556498),
    ],
)
def test_the_hash_is_javas(text: str, value: int) -> None:
    assert java_string_hash(text) == value


def test_a_groups_partition_is_the_one_kafka_chooses() -> None:
    assert partition_for_group("hello", 50) == 99162322 % 50
    assert partition_for_group("polygenelubricants", 50) == 0, "abs of the smallest int is itself in Java"


@given(st.text(), st.integers(1, 10_000))
def test_every_group_has_a_partition(group: str, partitions: int) -> None:
    assert 0 <= partition_for_group(group, partitions) < partitions


# --- the model -------------------------------------------------------------------------------------------------------

GROUPS = st.sampled_from(["a", "b", "ü"])
PARTITIONS = st.tuples(st.sampled_from(["x", "y"]), st.integers(0, 2))
STEPS = st.one_of(
    st.tuples(st.just("commit"), GROUPS, PARTITIONS, st.integers(0, (1 << 63) - 1), st.text(max_size=20)),
    st.tuples(st.just("delete"), GROUPS, PARTITIONS),
    st.tuples(st.just("delete_group"), GROUPS),
    st.tuples(st.just("delete_topic"), st.sampled_from(["x", "y"])),
)


@given(st.lists(STEPS, max_size=30))
def test_replaying_the_records_gives_what_a_plain_dictionary_says(steps: list[tuple[object, ...]]) -> None:
    live, model = CommittedOffsets(), dict[tuple[str, tuple[str, int]], tuple[int, str]]()
    written: list[GroupRecord] = []

    def carry_out(records: list[GroupRecord]) -> None:
        written.extend(records)
        take(live, records)

    for step in steps:
        match step:
            case ("commit", str(group), (str(topic), int(number)), int(offset), str(metadata)):
                wanted = {(topic, number): OffsetAndMetadata(offset, metadata=metadata)}
                carry_out(live.plan_commit(group, wanted, NOW_MS))
                model[group, (topic, number)] = (offset, metadata)
            case ("delete", str(group), (str(topic), int(number))):
                carry_out(live.plan_delete_offsets(group, [(topic, number)]))
                model.pop((group, (topic, number)), None)
            case ("delete_group", str(group)):
                carry_out(live.plan_delete_group(group))
                model = {key: value for key, value in model.items() if key[0] != group}
            case ("delete_topic", str(topic)):
                for _, records in live.plan_delete_topics([topic]):
                    carry_out(records)
                model = {key: value for key, value in model.items() if key[1][0] != topic}

    replayed = CommittedOffsets()
    take(replayed, written)
    for state in (live, replayed):
        found = {
            (group, partition): (committed.offset, committed.metadata)
            for group in state.groups()
            for partition, committed in state.fetch(group).items()
        }
        assert found == model


@pytest.mark.parametrize(("logged_at", "fetched"), [(0, 10), (2, 20)])
def test_of_a_commit_and_a_transaction_the_later_record_counts(logged_at: int, fetched: int) -> None:
    """By where they stand in the log, not by when the transaction ends."""
    offsets = CommittedOffsets()
    ((key, held),) = offsets.plan_commit("g", {("orders", 1): OffsetAndMetadata(10)}, NOW_MS)
    ((_, plain),) = offsets.plan_commit("g", {("orders", 1): OffsetAndMetadata(20)}, NOW_MS)
    if logged_at == 0:
        offsets.apply(key, plain, 0)
    offsets.hold(0, 7, key, held, 1)
    if logged_at == 2:
        offsets.apply(key, plain, 2)
    assert offsets.unstable("g") == {("orders", 1)}
    offsets.end_transaction(0, 7, commit=True, offset=3)
    assert offsets.fetch("g")["orders", 1].offset == fetched
    assert offsets.unstable("g") == set()
