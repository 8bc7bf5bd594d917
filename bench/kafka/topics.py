"""Topics that are read: filled with the same encoded batches on both sides, and dropped from the page cache."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench.broker_load import produce_load, run_flat_out
from bench.kafka.librdkafka import values_of
from bench.kafka.sides import Side

from foldlog.clock import SystemClock
from foldlog.records.loops import pack

BATCH_BYTES = 64_000
_WINDOW = 16
_FILL_S = 600.0
_CACHED_SHARE_MAX = 0.05
_DROPS_MAX = 20
_BETWEEN_DROPS_S = 0.25
_LIBC = ctypes.CDLL(None, use_errno=True)


class NotCold(Exception):
    """The pages of a file stay in memory, whatever the kernel is asked: there is no cold figure here."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A topic that has the same batch again and again: how many in each partition."""

    name: str
    batch: bytes
    batch_records: int
    batches: Sequence[int]

    @property
    def records(self) -> int:
        return sum(self.batches) * self.batch_records

    @property
    def stored_bytes(self) -> int:
        return sum(self.batches) * len(self.batch)


@cache
def encoded_batch(value_bytes: int, batch_bytes: int = BATCH_BYTES) -> tuple[bytes, int]:
    """Not compressed, and how many records it has. Of this moment: retention.ms would delete what is from 1970."""
    now_ms = SystemClock().now_ms()
    records = max(1, batch_bytes // (value_bytes + 10))
    return bytes(pack([(now_ms, None, value, ()) for value in values_of(value_bytes, records)], 0)), records


def fill(side: Side, topic: str, partitions: int, value_bytes: int, total_bytes: int, batch_bytes: int) -> Filled:
    """Make the topic and write about so many bytes of batches, the same to each partition; acknowledged by all."""
    batch, records = encoded_batch(value_bytes, batch_bytes)
    side.create_topic(topic, partitions)
    load = produce_load(topic, partitions, batch, records, -1, _WINDOW)
    rounds = max(1, total_bytes // (len(batch) * partitions))
    found = run_flat_out(side.address, load, 1, _FILL_S, rounds * partitions * len(batch))
    return Filled(topic, batch, records, [end // records for end in found.ends])


def drop_from_cache(files: Sequence[Path]) -> None:
    """Written out, and out of the page cache: the next read goes to the disk, which may have a cache of its own."""
    share = 1.0
    for _ in range(_DROPS_MAX):  # a page that somebody looks at in that moment stays
        for path in files:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
        share = cached_share(files)
        if share <= _CACHED_SHARE_MAX:
            break
        time.sleep(_BETWEEN_DROPS_S)
    else:
        raise NotCold(f"{share:.0%} of the pages are still in the page cache")


def cached_share(files: Sequence[Path]) -> float:
    """Of all pages of the files, those in the page cache. It asks the kernel, and reads nothing: a read would fetch."""
    cached = pages = 0
    for path in files:
        resident = _resident_pages(path)
        cached += sum(resident)
        pages += len(resident)
    return cached / pages if pages else 0.0


def _resident_pages(path: Path) -> list[int]:
    """1 or 0 for each page, as mincore(2) has it."""
    size = path.stat().st_size
    if not size:
        return []
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) as mapped:
        answer = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        start = ctypes.c_char.from_buffer(mapped)
        failed = _LIBC.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), answer)
        del start  # else the map could not be closed
        if failed:
            raise OSError(ctypes.get_errno(), "mincore", str(path))
        return [state & 1 for state in answer]
