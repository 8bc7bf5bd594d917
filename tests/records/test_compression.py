"""Compressed batches: every form that clients send is read, and nothing expands beyond its limit.

The limit is shown by measuring what Python allocated while a bomb was refused, not by trusting a declared size.
"""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from types import ModuleType

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.errors import DecompressedTooLarge, InvalidArgument, InvalidBatch, RefusedBatch
from foldlog.records import compression
from foldlog.records.batch import Compression
from foldlog.records.compression import compress, decompress
from records.generated import CODECS

COMPRESSED = [codec for codec in CODECS if codec]
XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def zstd_without_size(data: bytes) -> bytes:
    """A streaming compressor does not know the size when it writes the frame's header."""
    stream = cramjam.zstd.Compressor()
    stream.compress(data)
    return bytes(stream.finish())


def lz4_stream(data: bytes) -> bytes:
    stream = cramjam.lz4.Compressor()
    for start in range(0, len(data), 1000):
        stream.compress(data[start : start + 1000])
    return bytes(stream.finish())


@given(data=st.binary(max_size=2000) | st.integers(0, 200_000).map(bytes), codec=st.sampled_from(CODECS))
def test_what_was_compressed_expands_to_itself(data: bytes, codec: int) -> None:
    packed = compress(codec, memoryview(data))
    assert bytes(decompress(codec, memoryview(packed), len(data))) == data


@pytest.mark.parametrize("codec", COMPRESSED)
def test_the_limit_is_exact(codec: int) -> None:
    packed = compress(codec, b"x" * 1000)
    assert len(decompress(codec, packed, 1000)) == 1000
    with pytest.raises(InvalidBatch, match="more than 999 bytes"):
        decompress(codec, packed, 999)


BOMB_BYTES = 64 << 20


def bombs() -> dict[str, tuple[int, bytes]]:
    """64 MiB of zeros in each codec, and in the forms that do not, or not truly, declare their size."""
    zeros = bytes(BOMB_BYTES)
    found = {Compression(codec).name.lower(): (codec, compress(codec, zeros)) for codec in COMPRESSED}
    found["zstd without size"] = (Compression.ZSTD, zstd_without_size(zeros))
    found["gzip with a false size"] = (Compression.GZIP, found["gzip"][1][:-4] + struct.pack("<I", 10))
    return found


def test_a_bomb_is_refused_without_being_expanded() -> None:
    for name, (codec, packed) in bombs().items():
        assert most_allocated_bytes_while_refusing(codec, packed, 1 << 20) < (2 << 20) + len(packed), name


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_what_does_not_say_its_size_is_expanded_little_more_than_once(
    codec: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a thread's own memory, which is large enough from the second time on, exactly once."""
    whole = bytes(BOMB_BYTES // 4)
    streams = {Compression.GZIP: gzip.compress(whole) + gzip.compress(b""), Compression.LZ4: lz4_stream(whole)}
    packed = streams.get(codec) or zstd_without_size(whole)
    limit_bytes = BOMB_BYTES // 8
    tried: list[int] = []

    class Counted:
        @staticmethod
        def decompress_into(data: bytes, output: memoryview) -> int:
            tried.append(len(output))
            return int(getattr(cramjam, codec.name.lower()).decompress_into(data, output))

    monkeypatch.setitem(compression._MODULES, codec, Counted)
    for runs in (None, [limit_bytes]):
        tried.clear()
        with pytest.raises(DecompressedTooLarge):
            decompress(codec, packed, limit_bytes, briefly=True)
        assert sum(tried) < 2 * limit_bytes
        assert runs in (None, tried)


def most_allocated_bytes_while_refusing(codec: int, packed: bytes, limit_bytes: int) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(RefusedBatch):
            decompress(codec, packed, limit_bytes)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return most


def test_a_zstd_window_beyond_the_limit_is_refused_before_it_is_allocated() -> None:
    frame = b"\x28\xb5\x2f\xfd" + bytes([0x00, 17 << 3]) + b"\x01\x00\x00"
    with pytest.raises(RefusedBatch, match="window"):
        decompress(Compression.ZSTD, frame, 1 << 20)


def test_a_declared_zstd_size_beyond_the_limit_is_refused() -> None:
    frame = bytearray(compress(Compression.ZSTD, b"x" * 70_000))
    with pytest.raises(RefusedBatch, match="more than 69999"):
        decompress(Compression.ZSTD, frame, 69_999)


def test_snappy_is_written_in_xerial_blocks_of_32_kib() -> None:
    data = bytes(range(256)) * 400
    packed = compress(Compression.SNAPPY, data)
    assert packed.startswith(XERIAL_HEADER)
    position, plain = len(XERIAL_HEADER), b""
    while position < len(packed):
        (size,) = struct.unpack_from(">i", packed, position)
        block = bytes(cramjam.snappy.decompress_raw(packed[position + 4 : position + 4 + size]))
        assert len(block) <= 32 << 10
        plain += block
        position += 4 + size
    assert plain == data


@given(data=st.binary(max_size=500))
def test_a_bare_snappy_block_is_read_too(data: bytes) -> None:
    assert bytes(decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(data)), 500)) == data


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        XERIAL_HEADER[:12],
        XERIAL_HEADER + b"\x00\x00",
        XERIAL_HEADER + struct.pack(">i", 0),
        XERIAL_HEADER + struct.pack(">i", 50) + b"abc",
        XERIAL_HEADER + struct.pack(">i", -1) + b"abc",
        XERIAL_HEADER + struct.pack(">i", 3) + b"\xff\xff\xff",
        XERIAL_HEADER + struct.pack(">i", 3) + b"\x05\x00a",
        b"\xff\xff\xff\xff\x0f" + b"a" * 20,
        b"\x80\x80\x80\x80\x80\x80",
        b"\x05",
    ],
)
def test_broken_snappy_is_refused(broken: bytes) -> None:
    with pytest.raises(InvalidBatch):
        decompress(Compression.SNAPPY, broken, 1 << 20)


@pytest.mark.parametrize("start", [b"", XERIAL_HEADER + struct.pack(">i", 12)], ids=["bare", "xerial"])
def test_a_snappy_block_that_declares_more_than_it_can_hold_takes_no_memory(start: bytes) -> None:
    declared = 64 * 12 + 1
    size = bytes([declared & 127 | 128, declared >> 7])
    with pytest.raises(InvalidBatch, match="declares more than its bytes can hold"):
        decompress(Compression.SNAPPY, start + size + b"\x00" * 10, 1 << 20)
    huge = b"\x80\x80\x80\x40"  # 128 MiB
    tracemalloc.start()
    try:
        with pytest.raises(InvalidBatch, match="declares more than its bytes can hold"):
            decompress(Compression.SNAPPY, start + huge + b"\x00" * 8, 1 << 30)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1 << 20


def test_frames_without_content_size_and_concatenated_ones_are_read() -> None:
    data = b"a record or two " * 9000
    half = len(data) // 2
    forms = {
        Compression.ZSTD: [
            zstd_without_size(data),
            compress(Compression.ZSTD, data[:half]) + compress(Compression.ZSTD, data[half:]),
            zstd_without_size(data[:half]) + zstd_without_size(data[half:]),
        ],
        Compression.LZ4: [lz4_stream(data), bytes(cramjam.lz4.compress(data, level=9))],
        Compression.GZIP: [gzip.compress(data), gzip.compress(data[:half]) + gzip.compress(data[half:])],
    }
    for codec, packed in forms.items():
        for form in packed:
            assert bytes(decompress(codec, form, len(data))) == data


@given(codec=st.sampled_from(COMPRESSED), noise=st.binary(max_size=200))
def test_noise_is_refused_or_stays_within_the_limit(codec: int, noise: bytes) -> None:
    try:
        plain = decompress(codec, noise, 5000)
    except InvalidBatch:
        return
    assert len(plain) <= 5000


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_inside_a_batch_is_an_invalid_batch_with_its_place(loops: ModuleType, codec: int) -> None:
    good = loops.pack([(1, b"k", b"v", ())])
    bomb = loops.pack([(1, None, bytes(1 << 20), ())], codec)
    with pytest.raises(InvalidBatch, match="more than") as caught:
        loops.validate(good + bomb, max_batch_bytes=1 << 20, decompressed_limit=1 << 16)
    assert caught.value.position == len(good)
    with pytest.raises(InvalidBatch, match="more than"):
        loops.decode(bomb, "t", 0, decompressed_limit=1 << 16)


def test_a_level_is_used_and_a_wrong_one_is_refused() -> None:
    data = bytes(range(256)) * 200 + b"ab" * 20_000
    assert len(compress(Compression.GZIP, data, 9)) <= len(compress(Compression.GZIP, data, 1))
    for codec, level in ((Compression.GZIP, 10), (Compression.ZSTD, 0), (Compression.SNAPPY, 1), (Compression.NONE, 1)):
        with pytest.raises(InvalidArgument, match="level"):
            compress(codec, data, level)
    with pytest.raises(InvalidArgument, match="codec"):
        compress(5, data)


def test_codecs_go_by_kafkas_names() -> None:
    assert [Compression.named(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")] == list(Compression)
    assert Compression.named("uncompressed") is Compression.NONE
    with pytest.raises(InvalidArgument, match=r"brotli.*none, gzip, snappy, lz4, zstd"):
        Compression.named("brotli")


def test_lz4_blocks_stand_alone_as_javas_reader_demands() -> None:
    frame = compress(Compression.LZ4, bytes(range(256)) * 4096)
    flags = frame[4]
    assert flags & 0xC0 == 0x40, "version 1 of the frame format"
    assert flags & 0x20, "blocks are independent"
    assert not flags & 0x01, "no dictionary"
    assert bytes(decompress(Compression.LZ4, frame, 1 << 21)) == bytes(range(256)) * 4096


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
def test_what_is_only_looked_at_is_the_same_in_memory_that_is_used_again(codec: Compression) -> None:
    for size in (10, 100_000, 3_000_000, 50, 20_000_000):
        data = bytes(range(256)) * (size // 256 + 1)
        compressed = compress(codec, data)
        assert bytes(decompress(codec, compressed, len(data), briefly=True)) == data
        with pytest.raises(InvalidBatch):
            decompress(codec, compressed, len(data) - 1, briefly=True)
