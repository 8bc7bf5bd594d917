"""The codecs of Kafka's batches, with a limit on the expanded size.

    gzip    RFC 1952, any number of members
    snappy  written in xerial's framing (16-byte header, then blocks of up to 32 KiB, each behind its int32 length),
            as the Java client does; a bare snappy block is read too, since some clients send one
    lz4     the frame format, with or without content size
    zstd    any number of frames, with or without content size

Declared sizes are hints for the first allocation and are never trusted beyond the caller's limit.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import cramjam

from foldlog.environment import MAX_DECOMPRESSED_BYTES
from foldlog.errors import DecompressedTooLarge, InvalidArgument, InvalidBatch
from foldlog.limits import BATCH_BYTES_MAX, DECOMPRESSED_BYTES_MAX
from foldlog.records.batch import Compression

READ_DECOMPRESSED_BYTES: Final = min(MAX_DECOMPRESSED_BYTES, BATCH_BYTES_MAX) or DECOMPRESSED_BYTES_MAX
"""How far one batch may expand when it is read, unless its topic allows more; also if no topic settings are known, as
for the answers of a foreign broker."""

Buffer = bytes | bytearray | memoryview

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 << 10

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_WINDOW_BYTES_ALWAYS: Final = 8 << 20
"""Every decoder has to support a window of this size, so it is allowed even if the limit is smaller."""

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_HAS_CONTENT_SIZE: Final = 0x08
_LZ4_LEVEL: Final = 1
"""The library's default is five times slower for a gain of a few per cent."""

_FIRST_GUESS_BYTES: Final = 16 << 10
_GUESS_RATIO: Final = 16
"""A guess for an undeclared size, relative to the compressed bytes; a wrong guess costs a second run."""

_BRIEF_BYTES_MAX: Final = 17 << 20
_BRIEF_GUESS_BYTES: Final = 4 << 20
_BRIEF_RATIO: Final = 4
"""Memory that a thread keeps for data that are only examined: the default limit of a topic. The interpreter's lock is
held while fresh memory is filled with zeros, milliseconds for a batch of that size. If no size is declared, the first
guess is cautious."""

_MODULES: Final[dict[Compression, Any]] = {
    Compression.GZIP: cramjam.gzip,
    Compression.LZ4: cramjam.lz4,
    Compression.ZSTD: cramjam.zstd,
}
_LEVELS: Final = {Compression.GZIP: (1, 9), Compression.LZ4: (1, 16), Compression.ZSTD: (1, 22)}


def check_codec(codec: int, level: int | None) -> None:
    """Refuse an unknown codec, or a level it does not have, before any data depends on it."""
    if not Compression.NONE <= codec <= Compression.ZSTD:
        raise InvalidArgument(f"there is no compression codec {codec}; there are 0 to {Compression.ZSTD:d}")
    if level is None:
        return
    low, high = _LEVELS.get(Compression(codec), (0, -1))
    if not low <= level <= high:
        name = Compression(codec).name.lower()
        allowed = f"{low} to {high}" if low <= high else "none: it takes no level"
        raise InvalidArgument(f"compression level {level} does not exist for {name}; allowed is {allowed}")


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` in the codec's format; `level` as the codec counts it, by default its usual one.

    >>> bytes(decompress(Compression.ZSTD, compress(Compression.ZSTD, b"abc" * 9), 100))[:6]
    b'abcabc'
    """
    check_codec(codec, level)
    if codec == Compression.NONE:
        return bytes(data)
    if codec == Compression.GZIP:
        return bytes(cramjam.gzip.compress(data, level=level))
    if codec == Compression.SNAPPY:
        return _compress_xerial(data)
    if codec == Compression.LZ4:
        # Linked blocks are smaller, but Java's clients and tools refuse them. The batch has a CRC of its own.
        made = cramjam.lz4.Compressor(
            level=_LZ4_LEVEL if level is None else level, content_checksum=False, block_linked=False
        )
        made.compress(bytes(data))
        return bytes(made.finish())
    return bytes(cramjam.zstd.compress(data, level=level))


def decompress(codec: int, data: Buffer, limit_bytes: int, briefly: bool = False) -> Buffer:
    """The expanded `data`, at most `limit_bytes`. `briefly`: in memory that this thread's next such call reuses, for
    callers that only examine it; allocating costs more than expanding.

    Raises DecompressedTooLarge if it expands to more, and InvalidBatch if it is not in the codec's format (both with
    position 0: the caller knows where the batch is). Allocates at most the limit, and the codec's own window.
    """
    if codec == Compression.NONE:
        if len(data) > limit_bytes:
            raise _too_large(limit_bytes)
        return data
    if codec == Compression.SNAPPY:
        return _decompress_snappy(data, limit_bytes)
    if codec not in _MODULES:
        raise InvalidBatch(f"compression codec {codec} is unknown", 0)
    return _expand(Compression(codec), data, declared_bytes(codec, data, limit_bytes), limit_bytes, briefly)


def declared_bytes(codec: int, data: Buffer, limit_bytes: int) -> int | None:
    """The declared expanded size of `data`, without expanding it; None if it does not declare one.

    Raises DecompressedTooLarge if that is over `limit_bytes`, before a single byte is expanded.
    """
    size_bytes = None
    if codec == Compression.GZIP:
        size_bytes = _gzip_size(data)
    elif codec == Compression.LZ4:
        size_bytes = _lz4_size(data)
    elif codec == Compression.ZSTD:
        size_bytes = _zstd_size(data, limit_bytes)
    elif codec == Compression.SNAPPY:
        with memoryview(data) as view:
            size_bytes = sum(size for _, size in _snappy_blocks(view, limit_bytes))
    if size_bytes is not None and size_bytes > limit_bytes:
        raise _too_large(limit_bytes)
    return size_bytes


def _too_large(limit_bytes: int) -> DecompressedTooLarge:
    return DecompressedTooLarge(f"its records expand to more than {limit_bytes} bytes", 0)


def _garbage(name: str, why: object) -> InvalidBatch:
    return InvalidBatch(f"its records are not valid {name} data ({why})", 0)


def _expand(codec: Compression, data: Buffer, size_bytes: int | None, limit_bytes: int, briefly: bool) -> Buffer:
    """Expand into a buffer of the declared size and, if that was wrong, into larger ones up to the limit."""
    module = _MODULES[codec]
    name = codec.name.lower()
    guess = max(_FIRST_GUESS_BYTES, _GUESS_RATIO * len(data)) if size_bytes is None else size_bytes
    if briefly and size_bytes is None:
        guess = min(guess, max(_BRIEF_GUESS_BYTES, _BRIEF_RATIO * len(data)))
    room = min(guess, limit_bytes)
    while True:
        output = _brief_memory(room)[:limit_bytes] if briefly else memoryview(bytearray(room))
        try:
            filled = module.decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if str(error) != _too_small_text(codec):
                raise _garbage(name, error) from None
            if len(output) >= limit_bytes:
                raise _too_large(limit_bytes) from None
            # From the size that was tried, not from `room`: a thread's memory may be larger already.
            room = min(max(4 * len(output), _FIRST_GUESS_BYTES), limit_bytes)
            continue
        return output[:filled]


class _Brief(threading.local):
    """A thread's memory for data that are examined and dropped."""

    memory = bytearray()


_BRIEF = _Brief()


def _brief_memory(room: int) -> memoryview:
    """At least that much memory of this thread; beyond the bound it is not kept."""
    if room > _BRIEF_BYTES_MAX:
        return memoryview(bytearray(room))
    if len(_BRIEF.memory) < room:
        _BRIEF.memory = bytearray(room)
    return memoryview(_BRIEF.memory)


@cache
def _too_small_text(codec: Compression) -> str:
    """The library's error text if the output does not fit. It has no error type for that, and broken data must not be
    tried again with ever larger buffers, so the text is obtained once with data known to be valid."""
    sample = compress(codec, bytes(100))
    try:
        _MODULES[codec].decompress_into(sample, bytearray(10))
    except cramjam.DecompressionError as error:
        return str(error)
    return ""


def _gzip_size(data: Buffer) -> int | None:
    """The last member's size modulo 2**32, at the end of the stream: the whole size, unless there are more members."""
    if len(data) < 18:
        return None
    size_bytes: int = struct.unpack_from("<I", data, len(data) - 4)[0]
    return size_bytes if size_bytes <= 1032 * len(data) else None


def _lz4_size(data: Buffer) -> int | None:
    if len(data) < 15 or bytes(data[:4]) != _LZ4_MAGIC or not data[4] & _LZ4_HAS_CONTENT_SIZE:
        return None
    size_bytes: int = struct.unpack_from("<Q", data, 6)[0]
    return size_bytes if size_bytes <= 256 * len(data) else None


def _zstd_size(data: Buffer, limit_bytes: int) -> int | None:
    """The first frame's declared size. Refuses a window that would make the decoder allocate beyond the limit."""
    if len(data) < 6 or bytes(data[:4]) != _ZSTD_MAGIC:
        return None
    descriptor = data[4]
    single_segment = descriptor & 0x20
    position = 5
    if not single_segment:
        exponent, mantissa = data[position] >> 3, data[position] & 7
        window_bytes = (1 << (10 + exponent)) // 8 * (8 + mantissa)
        if window_bytes > max(limit_bytes, _ZSTD_WINDOW_BYTES_ALWAYS):
            raise DecompressedTooLarge(f"its zstd window of {window_bytes} bytes is over the limit of {limit_bytes}", 0)
        position += 1
    position += (0, 1, 2, 4)[descriptor & 3]
    width = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    if width == 0 or len(data) < position + width:
        return None
    return int.from_bytes(data[position : position + width], "little") + (256 if width == 2 else 0)


def _compress_xerial(data: Buffer) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    with memoryview(data) as view:
        for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
            block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
            out += len(block).to_bytes(4, "big")
            out += block
    return bytes(out)


def _decompress_snappy(data: Buffer, limit_bytes: int) -> Buffer:
    with memoryview(data) as view:
        blocks = list(_snappy_blocks(view, limit_bytes))
        output = bytearray(sum(size for _, size in blocks))
        position = 0
        with memoryview(output) as target:
            for block, size_bytes in blocks:
                # The library refuses to write into an empty buffer; an empty block is one zero byte.
                if size_bytes == 0 and len(block) == 1:
                    continue
                try:
                    filled = cramjam.snappy.decompress_raw_into(block, target[position : position + size_bytes])
                except cramjam.DecompressionError as error:
                    raise _garbage("snappy", error) from None
                if filled != size_bytes:
                    raise _garbage("snappy", "a block is shorter than it declares")
                position += size_bytes
    return output


def _snappy_blocks(view: memoryview, limit_bytes: int) -> Iterator[tuple[memoryview, int]]:
    """Every block and its declared size, until their sum is over the limit: a refusal should not take the time to
    examine the rest."""
    left_bytes = limit_bytes
    for block in _raw_blocks(view):
        size_bytes = _snappy_size(block)
        left_bytes -= size_bytes
        if left_bytes < 0:
            raise _too_large(limit_bytes)
        yield block, size_bytes


def _raw_blocks(view: memoryview) -> Iterator[memoryview]:
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield view
        return
    if len(view) < len(_XERIAL_HEADER):
        raise _garbage("snappy", "its xerial header is cut off")
    position = len(_XERIAL_HEADER)
    while position < len(view):
        if len(view) - position < 4:
            raise _garbage("snappy", "a block's length is cut off")
        size_bytes = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if not 0 < size_bytes <= len(view) - position:
            raise _garbage("snappy", "a block is longer than what is left")
        yield view[position : position + size_bytes]
        position += size_bytes


def _snappy_size(block: memoryview) -> int:
    """The declared size at the start of a block; n bytes cannot expand to more than 64 n (a copy of 64 in 3)."""
    size_bytes = 0
    for index, byte in enumerate(block[:5]):
        size_bytes |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if size_bytes > 64 * len(block):
                raise _garbage("snappy", "a block declares more than its bytes can hold")
            return size_bytes
    raise _garbage("snappy", "a block's size is over-long or cut off")
