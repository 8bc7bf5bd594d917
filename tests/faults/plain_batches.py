"""Batches found in any bytes, without the house's code: what could still be got out of a damaged directory.

Written from Kafka's description of RecordBatch v2 alone. It trusts no length, offset or name: wherever bytes look like
the head of a batch, the CRC-32C decides. So it finds what a person could with a hex editor and patience.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import zstandard
from crc32c import crc32c

HEAD = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base and max timestamp, producer id and
epoch, base sequence, count."""

_MAGIC_AT, _CRC_FROM, _LEAST_LENGTH = 16, 21, 49


@dataclass(frozen=True, slots=True)
class PlainRecord:
    """A record of a sound batch. Its offset is only as good as the batch's first eight bytes: no CRC covers them."""

    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class PlainBatch:
    """A sound batch at a position of some file."""

    position: int
    size: int
    base_offset: int
    next_offset: int
    is_control: bool
    records: tuple[PlainRecord, ...]


def batches_in(data: bytes) -> Iterator[PlainBatch]:
    """Every sound batch, wherever it begins."""
    magic_at = data.find(b"\x02", _MAGIC_AT)
    while magic_at >= 0:
        found = batch_at(data, magic_at - _MAGIC_AT)
        if found is not None:
            yield found
            # No sound batch begins inside another one: values of these tests hold none.
            magic_at = found.position + found.size + _MAGIC_AT - 1
        magic_at = data.find(b"\x02", magic_at + 1)


def batch_at(data: bytes, position: int) -> PlainBatch | None:
    """The batch that begins there, if it is sound."""
    if position + HEAD.size > len(data):
        return None
    base, length, _, _, crc, attributes, last_delta, _, _, _, _, _, count = HEAD.unpack_from(data, position)
    size = length + 12
    if length < _LEAST_LENGTH or position + size > len(data):
        return None
    if crc32c(data[position + _CRC_FROM : position + size]) != crc:
        return None
    body = _unpacked(attributes & 7, data[position + HEAD.size : position + size])
    records = tuple(_records(body, base, count))
    return PlainBatch(position, size, base, base + last_delta + 1, bool(attributes & 0x20), records)


def _unpacked(codec: int, body: bytes) -> bytes:
    if codec == 0 or not body:
        return body
    if codec == 1:
        return zlib.decompress(body, wbits=31)
    if codec == 4:
        return zstandard.ZstdDecompressor().decompressobj().decompress(body)
    raise AssertionError(f"these tests write no batch of codec {codec}")


def _records(body: bytes, base: int, count: int) -> Iterator[PlainRecord]:
    at = 0
    for _ in range(count):
        length, at = _varint(body, at)
        end = at + length
        _, at = _varint(body, at + 1)  # behind the attributes: the time
        delta, at = _varint(body, at)
        key, at = _bytes(body, at)
        value, at = _bytes(body, at)
        yield PlainRecord(base + delta, key, value)
        at = end


def _bytes(body: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _varint(body, at)
    return (None, at) if length < 0 else (body[at : at + length], at + length)


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
