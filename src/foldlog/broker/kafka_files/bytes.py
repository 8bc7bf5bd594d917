"""Kafka's primitive encodings, read with every declared length and count checked against the bytes left.

Enough for the structures that groups and transactions exchange and store: records of __consumer_offsets and
__transaction_state, and ConsumerProtocol. A count is refused before anything is allocated for it, if that many of the
smallest possible items do not fit into the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType

from foldlog.errors import InvalidArgument, MalformedBytes

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")

STRING_BYTES_MAX = (1 << 15) - 1
UVARINT_BYTES_MAX = 5


class BytesReader:
    """Reads one structure from the start of `data` to its end. One owner; raises `MalformedBytes` only."""

    __slots__ = ("_at", "_data", "_what")

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self._at = 0

    @property
    def remaining(self) -> int:
        return len(self._data) - self._at

    def malformed(self, reason: str) -> MalformedBytes:
        return MalformedBytes(self._what, reason, self._at)

    def _take(self, count: int, field: str) -> bytes:
        if count > self.remaining:
            raise self.malformed(f"{field} needs {count} bytes and {self.remaining} are left")
        start = self._at
        self._at = start + count
        return self._data[start : self._at]

    def int8(self) -> int:
        return int.from_bytes(self._take(1, "an int8"), "big", signed=True)

    def uuid(self) -> bytes:
        return self._take(16, "a UUID")

    def int16(self) -> int:
        value: int = _INT16.unpack(self._take(2, "an int16"))[0]
        return value

    def int32(self) -> int:
        value: int = _INT32.unpack(self._take(4, "an int32"))[0]
        return value

    def int64(self) -> int:
        value: int = _INT64.unpack(self._take(8, "an int64"))[0]
        return value

    def uvarint(self) -> int:
        value = 0
        for index in range(UVARINT_BYTES_MAX):
            byte = self._take(1, "an unsigned varint")[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                if value >= 1 << 32:
                    break
                return value
        raise self.malformed("an unsigned varint is longer than 32 bits")

    def _text(self, length: int) -> str:
        raw = self._take(length, "a string")
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self.malformed("a string is not UTF-8") from None

    def nullable_string(self, compact: bool = False) -> str | None:
        length = self.uvarint() - 1 if compact else self.int16()
        if length == -1:
            return None
        if length < 0:
            raise self.malformed(f"a string has the length {length}")
        return self._text(length)

    def string(self, compact: bool = False) -> str:
        value = self.nullable_string(compact)
        if value is None:
            raise self.malformed("a string is null where none may be")
        return value

    def nullable_bytes(self, compact: bool = False) -> bytes | None:
        length = self.uvarint() - 1 if compact else self.int32()
        if length == -1:
            return None
        if length < 0:
            raise self.malformed(f"bytes have the length {length}")
        return self._take(length, "bytes")

    def bytes_(self, compact: bool = False) -> bytes:
        value = self.nullable_bytes(compact)
        if value is None:
            raise self.malformed("bytes are null where none may be")
        return value

    def array_count(self, item_bytes_min: int, compact: bool = False, *, nullable: bool = False) -> int:
        """The declared count of an array, checked to fit into the rest; with `nullable` 0 for a null one."""
        count = self.uvarint() - 1 if compact else self.int32()
        if count == -1 and nullable:
            return 0
        if count < 0:
            raise self.malformed(f"an array has the count {count}")
        if count * item_bytes_min > self.remaining:
            raise self.malformed(f"an array of {count} items cannot fit into {self.remaining} bytes")
        return count

    def tagged_fields(self) -> dict[int, bytes]:
        """The tagged fields of a flexible version, unknown ones included, so that the caller may skip them."""
        count = self.uvarint()
        if count * 2 > self.remaining:
            raise self.malformed(f"{count} tagged fields cannot fit into {self.remaining} bytes")
        fields: dict[int, bytes] = {}
        for _ in range(count):
            tag = self.uvarint()
            fields[tag] = self._take(self.uvarint(), f"tagged field {tag}")
        return fields

    def end(self) -> None:
        if self.remaining:
            raise self.malformed(f"{self.remaining} bytes follow the end")


class BytesWriter:
    """Builds one structure. One owner; raises InvalidArgument for values that the format cannot hold."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def int8(self, value: int) -> BytesWriter:
        return self._packed(_INT8, value)

    def int16(self, value: int) -> BytesWriter:
        return self._packed(_INT16, value)

    def int32(self, value: int) -> BytesWriter:
        return self._packed(_INT32, value)

    def int64(self, value: int) -> BytesWriter:
        return self._packed(_INT64, value)

    def _packed(self, layout: struct.Struct, value: int) -> BytesWriter:
        try:
            self._parts.append(layout.pack(value))
        except struct.error:
            raise InvalidArgument(f"{value} does not fit into an int{8 * layout.size}") from None
        return self

    def uvarint(self, value: int) -> BytesWriter:
        raw = bytearray()
        while value >= 0x80:
            raw.append(value & 0x7F | 0x80)
            value >>= 7
        raw.append(value)
        self._parts.append(bytes(raw))
        return self

    def array_count(self, count: int | None, compact: bool = False) -> BytesWriter:
        """How many items follow; None: the array is null."""
        declared = -1 if count is None else count
        return self.uvarint(declared + 1) if compact else self.int32(declared)

    def tagged_fields(self, fields: Mapping[int, bytes] = MappingProxyType({})) -> BytesWriter:
        """The tagged fields of a flexible version, which follow all others."""
        self.uvarint(len(fields))
        for tag, value in sorted(fields.items()):
            self.uvarint(tag).uvarint(len(value)).raw(value)
        return self

    def string(self, value: str | None, compact: bool = False) -> BytesWriter:
        if value is None:
            return self.uvarint(0) if compact else self.int16(-1)
        try:
            raw = value.encode("utf-8")
        except UnicodeEncodeError:
            raise InvalidArgument(f"{value!r} is not text: it has a lone surrogate") from None
        if len(raw) > STRING_BYTES_MAX:
            raise InvalidArgument(f"a text of {len(raw)} bytes is over the {STRING_BYTES_MAX} of Kafka's formats")
        if compact:
            self.uvarint(len(raw) + 1)
        else:
            self.int16(len(raw))
        self._parts.append(raw)
        return self

    def bytes_(self, value: bytes | None, compact: bool = False) -> BytesWriter:
        if value is None:
            return self.uvarint(0) if compact else self.int32(-1)
        if compact:
            self.uvarint(len(value) + 1)
        else:
            self.int32(len(value))
        return self.raw(bytes(value))

    def raw(self, value: bytes) -> BytesWriter:
        """Bytes as they are: a UUID, or a structure that is encoded already."""
        self._parts.append(value)
        return self

    def done(self) -> bytes:
        return b"".join(self._parts)
