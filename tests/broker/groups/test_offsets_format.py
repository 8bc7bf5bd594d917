"""The bytes of __consumer_offsets: fixed examples written out by hand, round trips, and broken input.

The examples are laid out field by field after Kafka's OffsetCommitKey/Value and GroupMetadataKey/Value schemas,
so that a mistake shared by our encoder and decoder still shows.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.broker.groups.offsets_format import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    StoredGroup,
    StoredMember,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from foldlog.errors import CorruptGroupRecord, InvalidArgument

OFFSET_KEY = bytes.fromhex("0001 0001 67 0002 7470 00000007")
OFFSET_FIELDS = "000000000000002a"
TIMESTAMP = "0000018bcfe56800"
NOW_MS = 1_700_000_000_000

MEMBER = StoredMember("m", "i", "c", "h", 60_000, 10_000, b"S", b"AS")
GROUP = StoredGroup("consumer", 5, "range", "m", NOW_MS, (MEMBER,))
GROUP_VALUE = bytes.fromhex(
    "0003 0008 636f6e73756d6572 00000005 0005 72616e6765 0001 6d" + TIMESTAMP + "00000001"
    "0001 6d 0001 69 0001 63 0001 68 0000ea60 00002710 00000001 53 00000002 4153"
)
UNDATED_GROUP = "0008 636f6e73756d6572 00000005 0005 72616e6765 0001 6d 00000001"


def test_the_offset_key_is_kafkas() -> None:
    assert encode_offset_key(OffsetKey("g", "tp", 7)) == OFFSET_KEY
    assert decode_key(OFFSET_KEY) == OffsetKey("g", "tp", 7)
    assert decode_key(b"\x00\x00" + OFFSET_KEY[2:]) == OffsetKey("g", "tp", 7), "key version 0 has the same fields"


def test_the_group_key_is_kafkas() -> None:
    assert encode_group_key("g") == bytes.fromhex("0002 0001 67")
    assert decode_key(bytes.fromhex("0002 0001 67")) == GroupKey("g")


def test_the_offset_value_is_kafkas_version_three() -> None:
    value = CommittedOffset(42, 9, "hi", NOW_MS)
    encoded = bytes.fromhex("0003" + OFFSET_FIELDS + "00000009 0002 6869" + TIMESTAMP)
    assert encode_offset_value(value) == encoded
    assert decode_offset_value(OFFSET_KEY, encoded) == value


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        ("0000" + OFFSET_FIELDS + "0002 6869" + TIMESTAMP, CommittedOffset(42, -1, "hi", NOW_MS)),
        (
            "0001" + OFFSET_FIELDS + "0002 6869" + TIMESTAMP + "0000000000000005",
            CommittedOffset(42, -1, "hi", NOW_MS, expire_timestamp_ms=5),
        ),
        ("0002" + OFFSET_FIELDS + "0002 6869" + TIMESTAMP, CommittedOffset(42, -1, "hi", NOW_MS)),
        ("0004" + OFFSET_FIELDS + "00000009 03 6869" + TIMESTAMP + "00", CommittedOffset(42, 9, "hi", NOW_MS)),
        (
            "0004" + OFFSET_FIELDS + "00000009 03 6869" + TIMESTAMP + "02 00 10" + "ab" * 16 + "05 01 ff",
            CommittedOffset(42, 9, "hi", NOW_MS, topic_id=b"\xab" * 16),
        ),
    ],
)
def test_every_known_version_of_the_offset_value_is_read(encoded: str, value: CommittedOffset) -> None:
    assert decode_offset_value(OFFSET_KEY, bytes.fromhex(encoded)) == value


def test_the_group_value_is_kafkas_version_three() -> None:
    assert encode_group_value(GROUP) == GROUP_VALUE
    assert decode_group_value(b"", GROUP_VALUE) == GROUP


@pytest.mark.parametrize(
    ("encoded", "timestamp_ms", "member"),
    [
        (
            "0000" + UNDATED_GROUP + "0001 6d 0001 63 0001 68 00002710 00000001 53 00000002 4153",
            -1,
            StoredMember("m", None, "c", "h", 10_000, 10_000, b"S", b"AS"),
        ),
        (
            "0001" + UNDATED_GROUP + "0001 6d 0001 63 0001 68 0000ea60 00002710 00000001 53 00000002 4153",
            -1,
            StoredMember("m", None, "c", "h", 60_000, 10_000, b"S", b"AS"),
        ),
        (
            "0002 0008 636f6e73756d6572 00000005 0005 72616e6765 0001 6d" + TIMESTAMP + "00000001"
            "0001 6d 0001 63 0001 68 0000ea60 00002710 00000001 53 00000002 4153",
            NOW_MS,
            StoredMember("m", None, "c", "h", 60_000, 10_000, b"S", b"AS"),
        ),
        (
            "0004 09 636f6e73756d6572 00000005 06 72616e6765 02 6d" + TIMESTAMP + "02"
            "02 6d 02 69 02 63 02 68 0000ea60 00002710 02 53 03 4153 00 00",
            NOW_MS,
            MEMBER,
        ),
    ],
)
def test_every_known_version_of_the_group_value_is_read(encoded: str, timestamp_ms: int, member: StoredMember) -> None:
    expected = StoredGroup("consumer", 5, "range", "m", timestamp_ms, (member,))
    assert decode_group_value(b"", bytes.fromhex(encoded)) == expected


TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
MEMBERS = st.builds(
    StoredMember, TEXT, st.none() | TEXT, TEXT, TEXT, INT32, INT32, st.binary(max_size=40), st.binary(max_size=40)
)


@given(TEXT, TEXT, st.integers(0, (1 << 31) - 1), INT64, INT32, TEXT, INT64)
def test_offsets_come_back_as_they_were_written(
    group: str, topic: str, partition: int, offset: int, epoch: int, metadata: str, timestamp_ms: int
) -> None:
    key = OffsetKey(group, topic, partition)
    assert decode_key(encode_offset_key(key)) == key
    value = CommittedOffset(offset, epoch, metadata, timestamp_ms)
    assert decode_offset_value(b"", encode_offset_value(value)) == value


@given(
    st.builds(
        StoredGroup,
        TEXT,
        INT32,
        st.none() | TEXT,
        st.none() | TEXT,
        INT64,
        st.lists(MEMBERS, max_size=4, unique_by=lambda member: member.member_id).map(tuple),
    )
)
def test_groups_come_back_as_they_were_written(group: StoredGroup) -> None:
    assert decode_group_value(b"", encode_group_value(group)) == group


@pytest.mark.parametrize("length", range(len(GROUP_VALUE)))
def test_a_group_value_cut_anywhere_is_reported(length: int) -> None:
    with pytest.raises(CorruptGroupRecord):
        decode_group_value(b"key", GROUP_VALUE[:length])


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_reported_and_never_anything_else(data: bytes) -> None:
    for version in range(6):
        framed = version.to_bytes(2, "big") + data
        for decode in (decode_key, lambda raw: decode_offset_value(b"", raw), lambda raw: decode_group_value(b"", raw)):
            try:
                decode(framed)
            except CorruptGroupRecord:
                pass


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (OFFSET_KEY + b"\x00", "1 bytes follow the end"),
        (bytes.fromhex("0004 0001 67"), "key version 4 is not known here"),
        (bytes.fromhex("ffff"), "key version -1"),
        (bytes.fromhex("0001 ffff 0000 00000000"), "null where none may be"),
        (bytes.fromhex("0001 fffe 0000 00000000"), "length -2"),
        (bytes.fromhex("0001 0001 ff 0000 00000000"), "not UTF-8"),
        (bytes.fromhex("0001 0001 67 0002 7470 ffffffff"), "partition -1 cannot exist"),
        (bytes.fromhex("0002 7fff 67"), "needs 32767 bytes and 1 are left"),
    ],
)
def test_a_malformed_key_is_reported_with_its_reason(raw: bytes, reason: str) -> None:
    with pytest.raises(CorruptGroupRecord, match=reason):
        decode_key(raw)


@pytest.mark.parametrize("count", ["7fffffff", "ffffffff", "00000002"])
def test_a_member_count_that_cannot_fit_is_refused_before_anything_is_read(count: str) -> None:
    raw = GROUP_VALUE.replace(bytes.fromhex(TIMESTAMP + "00000001"), bytes.fromhex(TIMESTAMP + count))
    with pytest.raises(CorruptGroupRecord, match="an array"):
        decode_group_value(b"", raw)


def test_a_topic_id_of_another_size_is_reported() -> None:
    raw = bytes.fromhex("0004" + OFFSET_FIELDS + "00000009 03 6869" + TIMESTAMP + "01 00 02 abab")
    with pytest.raises(CorruptGroupRecord, match="topic id has 2 bytes"):
        decode_offset_value(b"", raw)


def test_what_the_format_cannot_hold_is_refused_on_writing() -> None:
    for key in (OffsetKey("g" * 32768, "t", 0), OffsetKey("g", "\ud800", 0), OffsetKey("g", "t", 1 << 31)):
        with pytest.raises(InvalidArgument):
            encode_offset_key(key)
