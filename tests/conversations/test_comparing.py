"""A difference between two answers is noticed wherever it is, unless it was reviewed; and what is reviewed is exact."""

from __future__ import annotations

from typing import Any

import pytest

from conversations.comparing import ABSENT, Names, Row, differing, plain
from conversations.reviewed import ANY, ONE_MORE, Reviewed
from conversations.running import CONVERSATIONS, Outcome, never
from conversations.talk import codes_in
from foldlog.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from foldlog.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)


def fetched(topic_id: bytes, **changes: Any) -> OffsetFetchResponse:
    partitions = [
        OffsetFetchResponsePartitions(partition_index=number, committed_offset=7, **changes) for number in (1, 0)
    ]
    topics = [OffsetFetchResponseTopics(topic_id=topic_id, partitions=partitions)]
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="a.readers", topics=topics)])


def rows(ours: Any, kafka: Any, version: int = 10) -> list[Row]:
    told = [plain(one, version, Names("a.")) for one in (ours, kafka)]
    return list(differing(*told))


def test_ids_that_brokers_make_up_and_the_order_of_elements_are_no_difference() -> None:
    other = fetched(b"b" * 16)
    other.groups[0].topics[0].partitions = other.groups[0].topics[0].partitions[::-1]
    assert not rows(fetched(b"a" * 16), other)


@pytest.mark.parametrize("field", ["committed_offset", "committed_leader_epoch", "metadata", "error_code"])
def test_any_other_field_is_one(field: str) -> None:
    changed = fetched(b"a" * 16)
    found = changed.groups[0].topics[0].partitions[0]
    setattr(found, field, "x" if field == "metadata" else 99)
    (row,) = rows(fetched(b"a" * 16), changed)
    assert row.path == f"groups.readers.topics.id 1.partitions.1.{field}"


def test_an_element_that_only_one_side_has_is_a_difference() -> None:
    less = fetched(b"a" * 16)
    less.groups[0].topics[0].partitions = less.groups[0].topics[0].partitions[:1]
    (row,) = rows(fetched(b"a" * 16), less)
    assert (row.path, row.kafka) == ("groups.readers.topics.id 1.partitions.0", ABSENT)


def test_a_field_that_the_version_does_not_have_is_not_compared() -> None:
    ours, kafka = (ListGroupsResponse(groups=[ListedGroup(group_id="g", group_state=state)]) for state in ("A", "B"))
    assert rows(ours, kafka, 4)
    assert not rows(ours, kafka, 3)


def test_a_reviewed_difference_is_one_of_that_place_and_those_values_only() -> None:
    listed = Reviewed("joins", "some", "groups.*.error_code", 24, 69, "for a test", (2, 5))
    row = Row("groups.g.error_code", 24, 69)
    assert listed.covers("joins", "some", 3, row)
    assert not listed.covers("leaves", "some", 3, row)
    assert not listed.covers("joins", "all", 3, row)
    assert not listed.covers("joins", "some", 6, row)
    assert not listed.covers("joins", "some", 3, row._replace(path="groups.g.state"))
    assert not listed.covers("joins", "some", 3, row._replace(ours=0))
    assert not listed.covers("joins", "some", 3, row._replace(kafka=0))


def test_one_more_is_exactly_that() -> None:
    listed = Reviewed("*", "*", "epoch", ANY, ONE_MORE, "for a test")
    assert listed.covers("joins", "some", 1, Row("epoch", 1, 2))
    assert not listed.covers("joins", "some", 1, Row("epoch", 1, 3))
    assert not listed.covers("joins", "some", 1, Row("epoch", ABSENT, 1))


def test_versions_that_were_never_asked_are_named() -> None:
    outcome = Outcome(accepted={("Fetch", 4)}, refused={("Fetch", 5)})
    assert never([outcome], {"Fetch": (4, 5)}) == (["Fetch 5"], ["Fetch 4"])


def test_every_error_code_of_an_answer_is_found() -> None:
    assert codes_in(fetched(b"a" * 16, error_code=88)) == {0, 88}


def test_conversations_have_names_of_their_own() -> None:
    names = [one.name for one in CONVERSATIONS]
    assert len(names) == len(set(names))
