"""Zigzag variable-length integers, as records use them: 7 bits a byte, lowest first, sign in the lowest bit.

Only the shortest form is accepted, so that two records with equal fields have equal bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.records.batch import FAULT_RECORD_CUT_OFF, FAULT_VARINT


class VarintError(ValueError):
    """The bytes are not a number in its shortest form, or end too early. Its text is the reason."""


def encode(value: int, into: bytearray) -> None:
    """Append `value`, an int32 or int64, to `into`.

    >>> out = bytearray(); encode(-65, out); out.hex()
    '8101'
    """
    zigzag = (value << 1) ^ (value >> 63)
    while zigzag > 0x7F:
        into.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    into.append(zigzag)


def size(value: int) -> int:
    """How many bytes `encode` needs.

    >>> size(63), size(64), size(-64)
    (1, 2, 1)
    """
    zigzag = (value << 1) ^ (value >> 63)
    return max(1, (zigzag.bit_length() + 6) // 7)


def decode32(data: Sequence[int], position: int, end: int) -> tuple[int, int]:
    """An int32 at `position` and the position after it; it must end before `end`."""
    return _decode(data, position, end, 32)


def decode64(data: Sequence[int], position: int, end: int) -> tuple[int, int]:
    """An int64 at `position` and the position after it; it must end before `end`."""
    return _decode(data, position, end, 64)


def _decode(data: Sequence[int], position: int, end: int, bits: int) -> tuple[int, int]:
    zigzag = 0
    shift = 0
    while True:
        if position >= end:
            raise VarintError(FAULT_RECORD_CUT_OFF)
        byte = data[position]
        position += 1
        room = bits - shift
        if room < 7 and (byte & 0x7F) >> room:
            raise VarintError(FAULT_VARINT)
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            raise VarintError(FAULT_VARINT)
    if byte == 0 and shift:
        raise VarintError(FAULT_VARINT)
    return (zigzag >> 1) ^ -(zigzag & 1), position
