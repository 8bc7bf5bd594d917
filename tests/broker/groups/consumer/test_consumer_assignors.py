"""The coordinator's assignors, by generated members and topics: each partition at one member who wants it, as even as
subscriptions allow, and little moved."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foldlog.broker.groups.consumer.assignors import (
    ASSIGNORS,
    Candidate,
    PartitionCounts,
    Targets,
    assign_range,
    assign_uniform,
)

TOPICS = (b"a", b"b", b"c")
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1)


def candidates(subscriptions: list[frozenset[bytes]], targets: Targets | None = None) -> list[Candidate]:
    names = [f"m{index}" for index in range(len(subscriptions))]
    return [
        Candidate(name, None, topics, (targets or {}).get(name, frozenset()))
        for name, topics in zip(names, subscriptions, strict=True)
    ]


def check(members: list[Candidate], counts: PartitionCounts, targets: Targets) -> None:
    assert set(targets) == {member.member_id for member in members}
    given_out = [partition for target in targets.values() for partition in target]
    assert len(given_out) == len(set(given_out)), "one partition, one member"
    wanted = {topic for member in members for topic in member.topics}
    assert set(given_out) == {(t, n) for t, count in counts.items() for n in range(count) if t in wanted}
    for member in members:
        assert {topic for topic, _ in targets[member.member_id]} <= member.topics


@given(st.lists(st.frozensets(st.sampled_from(TOPICS)), min_size=1, max_size=6), COUNTS, st.sampled_from([*ASSIGNORS]))
def test_each_partition_goes_to_one_member_that_wants_it(
    subscriptions: list[frozenset[bytes]], counts: dict[bytes, int], name: str
) -> None:
    members = candidates(subscriptions)
    check(members, counts, ASSIGNORS[name](members, counts))


@given(st.integers(1, 7), st.integers(1, 7), COUNTS)
def test_uniform_is_even_and_moves_no_more_than_it_must(before: int, after: int, counts: dict[bytes, int]) -> None:
    everything = frozenset(TOPICS)
    old = assign_uniform(candidates([everything] * before), counts)
    members = candidates([everything] * after, old)
    new = assign_uniform(members, counts)
    check(members, counts, new)
    sizes = [len(target) for target in new.values()]
    assert max(sizes) - min(sizes) <= 1
    stayed = [member for member in old if member in new]
    for member in stayed:
        if after >= before:
            assert new[member] <= old[member], "who loses some gets no others"
        else:
            assert new[member] >= old[member], "who gets some loses none"
    assert assign_uniform(candidates([everything] * after, new), counts) == new, "and then nothing moves"


@given(st.lists(st.frozensets(st.sampled_from(TOPICS), min_size=1), min_size=2, max_size=6), COUNTS)
def test_uniform_is_as_even_as_subscriptions_allow_for_any_two(
    subscriptions: list[frozenset[bytes]], counts: dict[bytes, int]
) -> None:
    members = candidates(subscriptions)
    new = assign_uniform(members, counts)
    wants = {member.member_id: member.topics for member in members}
    for has in new.values():
        for taker in new:
            if len(has) - len(new[taker]) > 1:
                assert not any(topic in wants[taker] for topic, _ in has), "a move would make it more even"
    again = assign_uniform(candidates(subscriptions, new), counts)
    assert again == new


def test_range_gives_neighbours_and_the_same_numbers_of_topics_of_one_size() -> None:
    targets = assign_range(candidates([frozenset({b"a", b"b"})] * 2), {b"a": 5, b"b": 5})
    assert targets["m0"] == {(topic, number) for topic in (b"a", b"b") for number in (0, 1, 2)}


def test_range_orders_static_members_by_their_instance() -> None:
    topics = frozenset({b"a"})
    members = [Candidate("z", "i-1", topics, frozenset()), Candidate("a", "i-2", topics, frozenset())]
    assert assign_range(members, {b"a": 2}) == {"z": {(b"a", 0)}, "a": {(b"a", 1)}}
