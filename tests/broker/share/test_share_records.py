"""The records of share groups are Kafka's, byte by byte, and what is not one is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.broker.groups.offsets_format import ShareKey, decode_key
from foldlog.broker.share import member_records
from foldlog.broker.share.member_records import StoredShareMember, StoredShareProgress, decode_share_value
from foldlog.broker.share.messages import RecordState, StateBatch
from foldlog.broker.share.records import (
    StoredShare,
    StoredUpdate,
    decode_record,
    overlaid,
    snapshot_record,
    tombstone,
    update_record,
)
from foldlog.errors import CorruptGroupRecord

TOPIC = bytes(range(16))
KEY = ("g", TOPIC, 3)
BATCH = StateBatch(5, 6, RecordState.ACKNOWLEDGED, 2)


def test_a_snapshot_is_kafkas_byte_by_byte() -> None:
    key, value = snapshot_record(KEY, StoredShare(1, 2, 3, 4, 100, (BATCH,)), 2, 200)
    assert key == b"\0\0" + b"\0\1g" + TOPIC + b"\0\0\0\3"
    numbers = (1, 2, 3)
    assert value == (
        b"\0\0"
        + b"".join(number.to_bytes(4, "big") for number in numbers)
        + b"".join(number.to_bytes(8, "big") for number in (4, 100, 200))
        + b"\2" + (5).to_bytes(8, "big") + (6).to_bytes(8, "big") + b"\2" + b"\0\2" + b"\0"
        + b"\1\0\4\0\0\0\2"
    )  # fmt: skip
    assert decode_record(key, value) == (KEY, StoredShare(1, 2, 3, 4, 100, (BATCH,)))


def test_an_update_is_read_as_it_was_written_and_a_tombstone_ends_the_state() -> None:
    update = StoredUpdate(7, -1, 4, (BATCH,))
    assert decode_record(*update_record(KEY, update, 1)) == (KEY, update)
    assert decode_record(*tombstone(KEY)) == (KEY, None)


def test_an_update_of_an_older_snapshot_is_in_the_newer_one_already() -> None:
    share = StoredShare(5, 0, 0, 10, 0)
    assert share.updated(StoredUpdate(4, 0, 3, (BATCH,))) is share
    assert share.updated(StoredUpdate(5, 0, 12, (StateBatch(11, 14, RecordState.AVAILABLE, 1),))).batches == (
        StateBatch(12, 14, RecordState.AVAILABLE, 1),
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (b"\0\2" + b"\0\1g" + TOPIC + b"\0\0\0\3", None),
        (b"\0\0" + b"\0\1g" + TOPIC + b"\xff\xff\xff\xff", None),
        (b"\0\0" + b"\0\1g" + TOPIC + b"\0\0\0\3", b"\0\1"),
        (b"\0\1" + b"\0\1g" + TOPIC + b"\0\0\0\3", b"\0\0" + bytes(16) + b"\xff\xff\xff\x7f"),
    ],
)
def test_what_is_no_record_is_refused(key: bytes, value: bytes | None) -> None:
    with pytest.raises(CorruptGroupRecord):
        decode_record(key, value)


batches = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 6), st.sampled_from([0, 2, 4]), st.integers(0, 5)), max_size=6
).map(
    lambda drawn: [
        StateBatch(40 * index + first, 40 * index + first + length, RecordState(state), count)
        for index, (first, length, state, count) in enumerate(drawn)
    ]
)


@given(batches, batches, st.integers(0, 80), st.integers(0, 60))
def test_newer_batches_lie_over_older_ones_offset_by_offset(
    older: list[StateBatch], newer: list[StateBatch], shift: int, start: int
) -> None:
    newer = [batch._replace(first=batch.first + shift, last=batch.last + shift) for batch in newer]
    expected: dict[int, tuple[int, int]] = {}
    for batch in (*older, *newer):
        for offset in range(batch.first, batch.last + 1):
            expected[offset] = (batch.state, batch.delivery_count)
    found: dict[int, tuple[int, int]] = {}
    for batch in overlaid(older, newer, start):
        for offset in range(batch.first, batch.last + 1):
            assert offset not in found
            found[offset] = (batch.state, batch.delivery_count)
    assert found == {offset: state for offset, state in expected.items() if offset >= start}


def test_records_of_members_are_read_as_they_were_written() -> None:
    member = StoredShareMember(None, "client", "/127.0.0.1", ("a", "b"))
    progress = StoredShareProgress(4, 3, frozenset({(TOPIC, 0), (TOPIC, 2)}))
    written = [
        (member_records.group_record("g", 7, -5), (7, -5)),
        (member_records.member_record("g", "m", member), member),
        (member_records.target_epoch_record("g", 7), 7),
        (member_records.target_record("g", "m", progress.assigned), progress.assigned),
        (member_records.current_record("g", "m", progress), progress),
    ]
    for (key, value), expected in written:
        decoded = decode_key(key)
        assert isinstance(decoded, ShareKey)
        assert value is not None
        assert decode_share_value(key, decoded, value) == expected
        with pytest.raises(CorruptGroupRecord):
            decode_share_value(key, decoded, value + b"x")
