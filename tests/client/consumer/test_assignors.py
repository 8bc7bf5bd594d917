"""Assignors: every partition has exactly one reader that wants it, loads are balanced, and sticky moves the minimum.

Generated groups, and for the claims of minimality and optimality a brute-force search over small ones.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.broker.groups.consumer_protocol import Subscription, TopicPartition, encode_sticky_user_data
from foldlog.client.consumer.assignors import (
    ASSIGNORS,
    DEFAULT_ASSIGNOR,
    Assignments,
    Assignor,
    assign_range,
    assign_round_robin,
    assign_sticky,
)

Owned = dict[str, list[TopicPartition]]

COUNTS = st.dictionaries(st.sampled_from("uvwxyz"), st.integers(0, 6), max_size=4)
MIXED = st.dictionaries(
    st.sampled_from([f"m{n}" for n in range(7)]),
    st.sets(st.sampled_from("uvwxyz"), max_size=4).map(lambda topics: Subscription(tuple(sorted(topics)))),
    min_size=1,
    max_size=6,
)
every_assignor = pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=list(ASSIGNORS))


def same_wish(members: int, counts: dict[str, int]) -> dict[str, Subscription]:
    return {f"m{number}": Subscription(tuple(sorted(counts))) for number in range(members)}


def loads(assigned: Assignments) -> list[int]:
    return sorted(len(held) for held in assigned.values())


def holding(assigned: Owned, members: dict[str, Subscription], generation: int = 1) -> dict[str, Subscription]:
    """Those wishes, from members that say what they were assigned."""
    return {
        member: Subscription(wish.topics, tuple(assigned.get(member, ())), generation)
        for member, wish in members.items()
    }


def check_complete(assigned: Assignments, members: dict[str, Subscription], counts: dict[str, int]) -> None:
    assert set(assigned) == set(members)
    given_out = Counter(partition for held in assigned.values() for partition in held)
    wanted = {topic for wish in members.values() for topic in wish.topics} & set(counts)
    assert given_out == Counter((topic, number) for topic in wanted for number in range(counts[topic]))
    for member, held in assigned.items():
        assert {topic for topic, _ in held} <= set(members[member].topics)


@every_assignor
@given(members=MIXED, counts=COUNTS)
def test_every_partition_goes_to_exactly_one_member_that_wants_it(
    assign: Assignor, members: dict[str, Subscription], counts: dict[str, int]
) -> None:
    check_complete(assign(members, counts), members, counts)


@every_assignor
@given(members=MIXED, counts=COUNTS, data=st.data())
def test_the_order_in_which_members_are_named_does_not_matter(
    assign: Assignor, members: dict[str, Subscription], counts: dict[str, int], data: st.DataObject
) -> None:
    shuffled = {member: members[member] for member in data.draw(st.permutations(sorted(members)))}
    assert assign(shuffled, counts) == assign(members, counts)


@pytest.mark.parametrize("assign", [assign_round_robin, assign_sticky])
@given(size=st.integers(1, 8), counts=COUNTS)
def test_with_equal_wishes_loads_differ_by_at_most_one(assign: Assignor, size: int, counts: dict[str, int]) -> None:
    balanced = loads(assign(same_wish(size, counts), counts))
    assert balanced[-1] - balanced[0] <= 1


@every_assignor
def test_more_members_than_partitions_leaves_some_idle(assign: Assignor) -> None:
    assert loads(assign(same_wish(5, {"t": 3}), {"t": 3})) == [0, 0, 1, 1, 1]


@every_assignor
def test_members_that_want_nothing_that_exists_get_nothing(assign: Assignor) -> None:
    assert assign({"m": Subscription(("gone",))}, {"t": 3}) == {"m": []}
    assert assign({}, {"t": 3}) == {}


def test_range_cuts_each_topic_into_contiguous_runs() -> None:
    counts = {"a": 5, "b": 3}
    assert assign_range(same_wish(2, counts), counts) == {
        "m0": [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)],
        "m1": [("a", 3), ("a", 4), ("b", 2)],
    }


def test_round_robin_deals_partitions_out_in_turn() -> None:
    counts = {"a": 3, "b": 3}
    members = {"m0": Subscription(("a",)), "m1": Subscription(("a", "b")), "m2": Subscription(("a", "b"))}
    assert assign_round_robin(members, counts) == {
        "m0": [("a", 0)],
        "m1": [("a", 1), ("b", 0), ("b", 2)],
        "m2": [("a", 2), ("b", 1)],
    }


def test_static_members_keep_their_ranges_when_their_member_ids_change() -> None:
    before = {"x": Subscription(("t",), group_instance_id="1"), "y": Subscription(("t",), group_instance_id="2")}
    after = {"z": Subscription(("t",), group_instance_id="1"), "a": Subscription(("t",), group_instance_id="2")}
    for assign in (assign_range, assign_round_robin):
        old, new = assign(before, {"t": 4}), assign(after, {"t": 4})
        assert (old["x"], old["y"]) == (new["z"], new["a"])


def test_the_default_is_named_and_registered() -> None:
    assert DEFAULT_ASSIGNOR == "sticky"
    assert list(ASSIGNORS) == ["sticky", "range", "roundrobin"]


# --- sticky ----------------------------------------------------------------------------------------------------------


def kept(before: Owned, after: Assignments) -> int:
    return sum(len(set(before.get(member, ())) & set(held)) for member, held in after.items())


def most_that_can_be_kept(owned_sizes: list[int], total: int) -> int:
    """The best choice of who gets one more, by trying them all."""
    each, extra = divmod(total, len(owned_sizes))
    return max(
        sum(min(size, each + (index in lucky)) for index, size in enumerate(owned_sizes))
        for lucky in combinations(range(len(owned_sizes)), extra)
    )


@given(
    counts=st.dictionaries(st.sampled_from("xyz"), st.integers(1, 8), min_size=1, max_size=3),
    size=st.integers(1, 6),
    data=st.data(),
)
def test_sticky_keeps_as_much_as_any_balanced_assignment_could(
    counts: dict[str, int], size: int, data: st.DataObject
) -> None:
    members = same_wish(size, counts)
    owned: Owned = {member: [] for member in members}
    everything = [(topic, number) for topic, count in sorted(counts.items()) for number in range(count)]
    for partition in everything:
        owner = data.draw(st.sampled_from([*members, "nobody"]))
        if owner in owned:
            owned[owner].append(partition)
    after = assign_sticky(holding(owned, members), counts)
    check_complete(after, members, counts)
    assert loads(after)[-1] - loads(after)[0] <= 1
    assert kept(owned, after) == most_that_can_be_kept([len(held) for held in owned.values()], len(everything))


@given(counts=COUNTS, size=st.integers(1, 7), data=st.data())
def test_when_a_member_leaves_only_its_partitions_move(counts: dict[str, int], size: int, data: st.DataObject) -> None:
    members = same_wish(size + 1, counts)
    before = assign_sticky(members, counts)
    gone = data.draw(st.sampled_from(sorted(members)))
    staying = {member: wish for member, wish in holding(before, members).items() if member != gone}
    after = assign_sticky(staying, counts)
    assert all(set(before[member]) <= set(after[member]) for member in staying)


@given(counts=COUNTS, size=st.integers(1, 7))
def test_when_a_member_joins_partitions_move_only_to_it(counts: dict[str, int], size: int) -> None:
    members = same_wish(size, counts)
    before = assign_sticky(members, counts)
    after = assign_sticky({**holding(before, members), "newcomer": Subscription(tuple(counts))}, counts)
    assert all(set(after[member]) <= set(before[member]) for member in members)


@given(members=MIXED, counts=COUNTS)
def test_when_nothing_changes_nothing_moves(members: dict[str, Subscription], counts: dict[str, int]) -> None:
    before = assign_sticky(members, counts)
    assert assign_sticky(holding(before, members), counts) == before


@given(
    members=st.dictionaries(
        st.sampled_from(["m0", "m1", "m2"]),
        st.sets(st.sampled_from("xyz"), min_size=1).map(lambda topics: Subscription(tuple(sorted(topics)))),
        min_size=1,
    ),
    counts=st.dictionaries(st.sampled_from("xyz"), st.integers(1, 2), min_size=1),
    data=st.data(),
)
def test_with_unequal_wishes_no_assignment_is_better_balanced(
    members: dict[str, Subscription], counts: dict[str, int], data: st.DataObject
) -> None:
    wanted = [
        ((topic, number), [member for member, wish in sorted(members.items()) if topic in wish.topics])
        for topic, count in sorted(counts.items())
        for number in range(count)
    ]
    wanted = [(partition, takers) for partition, takers in wanted if takers]
    owned: Owned = {}
    for partition, takers in wanted:
        owned.setdefault(data.draw(st.sampled_from(takers)), []).append(partition)
    after = assign_sticky(holding(owned, members), counts)
    best = min(
        sum(load * load for load in Counter(choice).values()) for choice in product(*(takers for _, takers in wanted))
    )
    assert sum(load * load for load in loads(after)) == best


def test_a_chain_of_moves_is_found_where_a_single_move_cannot_help() -> None:
    members = {
        "a": Subscription(("x",), (("x", 0), ("x", 1), ("x", 2)), 1),
        "b": Subscription(("x", "y"), (("y", 0), ("y", 1)), 1),
        "c": Subscription(("y",), (), 1),
    }
    assert loads(assign_sticky(members, {"x": 3, "y": 2})) == [1, 2, 2]


def test_the_newer_of_two_claims_wins_and_equal_claims_count_for_nobody() -> None:
    zombie = Subscription(("t",), (("t", 0), ("t", 1)), generation=3)
    current = Subscription(("t",), (("t", 0),), generation=4)
    assert ("t", 0) in assign_sticky({"a": zombie, "b": current}, {"t": 2})["b"]
    for number in (0, 1):
        claims = {member: Subscription(("t",), (("t", number),), 4) for member in ("a", "b")}
        assert assign_sticky(claims, {"t": 2}) == {"a": [("t", 0)], "b": [("t", 1)]}


def test_claims_to_what_does_not_exist_or_is_not_wanted_are_ignored() -> None:
    claims = {"a": Subscription(("t",), (("t", 9), ("gone", 0), ("u", 0)), 1), "b": Subscription(("u",))}
    assert assign_sticky(claims, {"t": 1, "u": 1}) == {"a": [("t", 0)], "b": [("u", 0)]}


def test_what_a_kafka_client_says_in_user_data_counts_too() -> None:
    old = Subscription(("t",), user_data=encode_sticky_user_data([("t", 1)], 7))
    other = Subscription(("t",), user_data=b"\xff not sticky's")
    assert assign_sticky({"a": other, "b": old}, {"t": 2}) == {"a": [("t", 0)], "b": [("t", 1)]}
    assert assign_sticky({"a": old, "b": other}, {"t": 2}) == {"a": [("t", 1)], "b": [("t", 0)]}


def test_ten_thousand_partitions_over_a_hundred_members_are_balanced_after_half_of_them_leave() -> None:
    counts = {f"t{number}": 100 for number in range(100)}
    members = same_wish(100, counts)
    before = assign_sticky(members, counts)
    staying = dict(list(holding(before, members).items())[:50])
    after = assign_sticky(staying, counts)
    assert loads(after) == [200] * 50
    assert kept(before, after) == 5_000
