"""Records of `__transaction_state` are Kafka's: bytes written out by hand from its schema, and every state comes back.

Damaged records raise `CorruptTransactionRecord`, and nothing else.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.broker.transactions.state_format import (
    TransactionMetadata,
    TransactionState,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from foldlog.errors import CorruptTransactionRecord

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
INT64 = st.integers(-1, (1 << 63) - 1)
METADATA = st.builds(
    TransactionMetadata,
    NAMES,
    INT64,
    st.integers(-1, (1 << 15) - 1),
    st.integers(1, (1 << 31) - 1),
    st.sampled_from([state for state in TransactionState if state is not TransactionState.EMPTY]),
    st.frozensets(st.tuples(NAMES, st.integers(0, (1 << 31) - 1)), max_size=8),
    INT64,
    INT64,
    INT64,
    INT64,
    st.integers(0, 2),
)


def test_an_ongoing_transaction_is_written_as_kafka_writes_it() -> None:
    metadata = TransactionMetadata(
        "etl",
        7,
        3,
        60_000,
        TransactionState.ONGOING,
        frozenset({("orders", 1), ("orders", 0), ("a", 5)}),
        updated_ms=0x102,
        start_ms=0x101,
        previous_producer_id=6,
        client_version=2,
    )
    assert encode_key("etl") == bytes.fromhex("0000 0003 65746c")
    assert encode_value(metadata) == bytes.fromhex(
        "0001"  # version
        "0000000000000007 0003 0000ea60 01"  # producer id, epoch, timeout, Ongoing
        "03"  # two topics
        "02 61 02 00000005 00"  # a: 5
        "07 6f7264657273 03 00000000 00000001 00"  # orders: 0, 1
        "0000000000000102 0000000000000101"  # updated, started
        "02 00 08 0000000000000006 02 02 0002"  # previous producer id, client version
    )


def test_an_empty_id_has_no_list_of_partitions() -> None:
    metadata = TransactionMetadata("etl", 7, 0, 1, updated_ms=9)
    value = bytes.fromhex("0001 0000000000000007 0000 00000001 00 00 0000000000000009 ffffffffffffffff 00")
    assert encode_value(metadata) == value
    assert decode_value(encode_key("etl"), value) == metadata


def test_version_0_of_older_kafkas_is_read() -> None:
    value = bytes.fromhex(
        "0000 0000000000000007 0003 0000ea60 02"
        "00000001 0001 61 00000002 00000005 00000006"
        "0000000000000102 0000000000000101"
    )
    assert decode_value(encode_key("etl"), value) == TransactionMetadata(
        "etl", 7, 3, 60_000, TransactionState.PREPARE_COMMIT, frozenset({("a", 5), ("a", 6)}), 0x102, 0x101
    )
    no_list = bytes.fromhex("0000 0000000000000007 0003 0000ea60 00 ffffffff 0000000000000102 ffffffffffffffff")
    assert decode_value(encode_key("etl"), no_list).partitions == frozenset()


@given(METADATA)
def test_what_is_written_is_read(metadata: TransactionMetadata) -> None:
    key = encode_key(metadata.transactional_id)
    assert decode_key(key) == metadata.transactional_id
    assert decode_value(key, encode_value(metadata)) == metadata
    empty = replace(metadata, state=TransactionState.EMPTY, partitions=frozenset())
    assert decode_value(key, encode_value(empty)) == empty


@given(METADATA, st.data())
def test_damaged_records_are_refused_or_read_as_some_state(metadata: TransactionMetadata, data: st.DataObject) -> None:
    value = bytearray(encode_value(metadata))
    at = data.draw(st.integers(0, len(value) - 1))
    cut = data.draw(st.booleans())
    if cut:
        del value[at:]
    else:
        value[at] = data.draw(st.integers(0, 255))
    try:
        found = decode_value(encode_key("etl"), bytes(value))
    except CorruptTransactionRecord:
        return
    assert not cut
    assert found.transactional_id == "etl"


@pytest.mark.parametrize("key", [None, b"", b"\0", bytes.fromhex("0001 0001 61"), bytes.fromhex("0000 0001 6162")])
def test_keys_of_something_else_are_refused(key: bytes | None) -> None:
    with pytest.raises(CorruptTransactionRecord):
        decode_key(key)


@pytest.mark.parametrize("state", [6, 7, -1])
def test_states_that_are_never_stored_are_refused(state: int) -> None:
    value = bytearray(encode_value(TransactionMetadata("etl", 7, 0, 1)))
    value[16:17] = state.to_bytes(1, "big", signed=True)
    with pytest.raises(CorruptTransactionRecord, match="no state"):
        decode_value(encode_key("etl"), bytes(value))


def test_bytes_behind_a_record_are_damage() -> None:
    key = encode_key("etl")
    value = encode_value(TransactionMetadata("etl", 7, 3, 60_000, TransactionState.EMPTY))
    assert decode_value(key, value).producer_id == 7
    with pytest.raises(CorruptTransactionRecord):
        decode_value(key, value + b"\0")
