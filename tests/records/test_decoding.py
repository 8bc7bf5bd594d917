"""Decoders against the library that defines MessagePack's usual reading; and any bytes end with a value or a reason."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.errors import InvalidArgument
from foldlog.records.decoding import NAMES, decoder_named, document_of, from_hex, readable
from foldlog.records.msgpack import DEPTH_MAX, Extension, unpacked

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=40)
    | st.binary(max_size=300)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=8), inner, max_size=20)
)


BEFORE_1970 = bytes([0xC7, 12, 0xFF, 0, 0x0F, 0x42, 0x40, *(255,) * 8])


@given(VALUES)
def test_what_the_usual_library_packs_is_read_as_it_reads_it(value: Any) -> None:
    msgpack = pytest.importorskip("msgpack")
    packed = msgpack.packb(value)
    assert unpacked(packed) == msgpack.unpackb(packed) == value


@given(st.binary(max_size=200))
def test_any_bytes_end_with_a_value_or_a_reason(data: bytes) -> None:
    with suppress(ValueError):
        unpacked(data)
    for name in NAMES:
        text = readable(data, name)
        assert isinstance(text, str)
        json.dumps(document_of(data, name), allow_nan=False)


@pytest.mark.parametrize(
    ("packed", "value"),
    [
        (bytes([0xD6, 0xFF, 0, 0, 0, 1]), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        (
            bytes([0xC7, 12, 0xFF, 0, 0x0F, 0x42, 0x40, *(255,) * 8]),
            datetime(1969, 12, 31, 23, 59, 59, 1000, tzinfo=UTC),
        ),
        (bytes([0xD4, 7, 1]), Extension(7, b"\x01")),
        (bytes([0xA1, 0xFF]), b"\xff"),
        (bytes([0xC7, 12, 0xFF, 0, 0, 0, 0, *(127,) * 8]), Extension(-1, bytes([0, 0, 0, 0, *(127,) * 8]))),
    ],
)
def test_times_and_extensions(packed: bytes, value: object) -> None:
    assert unpacked(packed) == value


@pytest.mark.parametrize(
    "packed",
    [b"", bytes([0xC1]), bytes([0xDD, 0xFF, 0xFF, 0xFF, 0xFF]), bytes([0x91]) * (DEPTH_MAX + 5) + b"\x00", b"\x01\x01"],
)
def test_what_is_no_message_is_told_without_much_work(packed: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        unpacked(packed)


def test_auto_knows_json_and_messagepack_and_leaves_the_rest() -> None:
    assert document_of(b'{"n": 1}') == {"n": 1}
    assert document_of(bytes([0x81, 0xA1, 0x6E, 0x01])) == {"n": 1}
    assert document_of(b"\x07") is None, "a byte alone is no message"
    assert readable(b'{"n":  1}') == '{"n":  1}', "JSON stays as it was written"
    assert readable(b'{"n":  1}', "json") == '{"n": 1}'
    assert from_hex(bytes(range(17))).splitlines()[1].startswith("00000010  10 ")
    with pytest.raises(InvalidArgument, match="msgpack"):
        decoder_named("cobol")
