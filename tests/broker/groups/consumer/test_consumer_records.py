"""The records of consumer groups: what is written is read back, older forms are read, and broken bytes raise nothing
but CorruptGroupRecord. That Kafka's own classes read them is tested with its dump tool, in tests/clusters.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.broker.groups.consumer import records
from foldlog.broker.groups.consumer.messages import MemberState
from foldlog.broker.groups.consumer.records import StoredConsumerGroup, decode_consumer_value
from foldlog.broker.groups.consumer.state import ClassicMetadata, ConsumerGroup, ConsumerMember, ResolvedRegex
from foldlog.broker.groups.offsets_format import ConsumerKey, ConsumerRecord, decode_key, encode_consumer_key
from foldlog.errors import CorruptGroupRecord

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
NUMBERS = st.integers(0, (1 << 31) - 1)
PARTITIONS = st.tuples(st.binary(min_size=16, max_size=16), st.integers(0, 5))
ASSIGNED = st.dictionaries(PARTITIONS, NUMBERS, max_size=6)
CLASSIC = st.builds(
    ClassicMetadata, st.integers(1, 9999), st.lists(st.tuples(NAMES, st.binary(max_size=9)), min_size=1).map(tuple)
)
MEMBERS = st.builds(
    ConsumerMember,
    NAMES,
    st.none() | NAMES,
    st.none() | NAMES,
    TEXTS,
    TEXTS,
    st.sets(NAMES, max_size=4).map(lambda names: tuple(sorted(names))),
    TEXTS,
    st.integers(-1, 9999),
    st.none() | NAMES,
    st.none() | CLASSIC,
    st.integers(-2, 99),
    st.integers(0, 99),
    st.sampled_from([MemberState.STABLE, MemberState.UNRELEASED_PARTITIONS]),
    ASSIGNED,
)


@given(MEMBERS, NUMBERS, st.integers(-(1 << 63), (1 << 63) - 1), st.frozensets(PARTITIONS), st.frozensets(NAMES))
def test_a_group_is_built_again_from_its_records(
    member: ConsumerMember,
    epoch: int,
    topics_hash: int,
    target: frozenset[tuple[bytes, int]],
    found: frozenset[str],
) -> None:
    group = ConsumerGroup("g", epoch, epoch, topics_hash)
    group.put(member)
    group.targets[member.member_id] = target
    group.regexes["a.*"] = ResolvedRegex(found, 5)
    stored = StoredConsumerGroup()
    for key, value in reversed(records.group_records(group)):
        decoded = decode_key(key)
        assert isinstance(decoded, ConsumerKey)
        assert encode_consumer_key(decoded) == key
        assert value is not None
        stored.put(decoded, decode_consumer_value(key, decoded, value))
    assert stored.build("g") == group
    for key, value in records.group_tombstones(group):
        decoded = decode_key(key)
        assert isinstance(decoded, ConsumerKey)
        assert value is None
        stored.put(decoded, None)
    assert stored.build("g") is None


def test_assignments_of_kafka_before_4_3_count_as_made_at_the_members_epoch() -> None:
    """They have no assignment epochs: bytes as Kafka 4.0 writes them."""
    key = ConsumerKey(ConsumerRecord.CURRENT, "g", "m")
    partitions = b"\x02" + bytes(15) + b"\x07" + b"\x02" + bytes(4) + b"\x00"  # one topic, one partition, no tags
    value = bytes.fromhex("0000 00000005 00000004 00") + partitions + b"\x01\x00"
    current = decode_consumer_value(b"", key, value)
    assert isinstance(current, records.StoredCurrent)
    assert current.assigned == {(bytes(15) + b"\x07", 0): 5}


def test_a_member_whose_partition_another_has_is_left_out() -> None:
    group = ConsumerGroup("g", 1, 1)
    partition = (bytes(16), 0)
    stored = StoredConsumerGroup()
    for name in ("a", "b"):
        member = ConsumerMember(name, epoch=1, assigned={partition: 1})
        for key, value in (records.member_record("g", member), records.current_record("g", member)):
            decoded = decode_key(key)
            assert isinstance(decoded, ConsumerKey)
            stored.put(decoded, None if value is None else decode_consumer_value(key, decoded, value))
    key, value = records.group_record(group)
    assert value is not None
    whole = ConsumerKey(ConsumerRecord.GROUP, "g")
    stored.put(whole, decode_consumer_value(key, whole, value))
    built = stored.build("g")
    assert built is not None
    assert list(built.members) == ["a"]


@given(st.sampled_from(ConsumerRecord), st.binary(max_size=60))
def test_broken_values_raise_nothing_but_corrupt_group_record(record: ConsumerRecord, value: bytes) -> None:
    key = ConsumerKey(record, "g", "m")
    for data in (value, b"\x00\x00" + value):
        try:
            decode_consumer_value(b"key", key, data)
        except CorruptGroupRecord:
            pass


def test_a_value_of_a_newer_version_is_not_guessed() -> None:
    with pytest.raises(CorruptGroupRecord, match="value version 1 is not known here"):
        decode_consumer_value(b"", ConsumerKey(ConsumerRecord.GROUP, "g"), bytes.fromhex("0001 00000001 00"))
