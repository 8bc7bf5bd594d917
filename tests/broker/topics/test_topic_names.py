"""No topic name leads out of the data directory, and every directory name leads back to one topic only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.broker.topics.names import (
    OFFSETS_TOPIC,
    check_topic_name,
    check_user_topic_name,
    deleted_directory,
    is_internal,
    is_partition_directory,
    parse_deleted_directory,
    partition_directory,
    refuse_collision,
)
from foldlog.errors import InvalidTopicName

NAMES = st.text("abcXYZ019._-", min_size=1, max_size=249).filter(lambda name: name not in {".", ".."})
TOPIC_IDS = st.uuids().map(lambda value: value.hex)


@pytest.mark.parametrize("name", ["a", "orders", "A.b_c-9", "...", "-", "__folds", "x" * 249])
def test_kafkas_names_are_allowed(name: str) -> None:
    assert check_topic_name(name) == name
    assert check_user_topic_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a/b", "../up", "/etc", "a\\b", "a b", "a\n", "a\0", "ä", "x" * 250, None, 5, b"orders", "a:b"],
)
def test_other_names_are_refused(name: object) -> None:
    with pytest.raises(InvalidTopicName):
        check_topic_name(name)


def test_only_the_log_itself_makes_the_offsets_topic() -> None:
    assert check_topic_name(OFFSETS_TOPIC) == OFFSETS_TOPIC
    with pytest.raises(InvalidTopicName, match="__consumer_offsets"):
        check_user_topic_name(OFFSETS_TOPIC)
    assert is_internal(OFFSETS_TOPIC)
    assert not is_internal("_x")


@pytest.mark.parametrize(
    ("name", "other"),
    [("a.b", "a_b"), ("a_b", "a.b"), ("._", "_."), ("a.b_c", "a_b.c"), ("_consumer.offsets", "_consumer_offsets")],
)
def test_names_that_differ_in_dots_and_underscores_only_are_one_too_many(name: str, other: str) -> None:
    with pytest.raises(InvalidTopicName, match=r"only in '\.' and '_'"):
        refuse_collision(name, ["orders", other])
    refuse_collision(name, ["orders", name, other.replace("_", "-").replace(".", "-")])


@given(NAMES, st.integers(0, 9999), NAMES, st.integers(0, 9999))
def test_two_partitions_never_share_a_directory(one: str, first: int, other: str, second: int) -> None:
    same = (one, first) == (other, second)
    assert (partition_directory(one, first) == partition_directory(other, second)) is same
    assert is_partition_directory(partition_directory(one, first))


@given(NAMES, st.integers(0, 9999), TOPIC_IDS)
def test_a_directory_on_its_way_out_fits_a_file_name_and_tells_its_topic_id(
    topic: str, partition: int, topic_id: str
) -> None:
    name = deleted_directory(topic, partition, topic_id)
    assert len(name) <= 255
    assert parse_deleted_directory(name) == (partition, topic_id)
    assert not is_partition_directory(name)


@given(NAMES, st.integers(0, 9999))
def test_a_live_directory_is_never_taken_for_one_on_its_way_out(topic: str, partition: int) -> None:
    assert parse_deleted_directory(partition_directory(topic, partition)) is None
    assert parse_deleted_directory(partition_directory(f"a-0.{'0' * 32}-delete", partition)) is None


def test_every_legal_name_fits_a_file_name() -> None:
    assert len(partition_directory("x" * 249, 9999)) <= 255
