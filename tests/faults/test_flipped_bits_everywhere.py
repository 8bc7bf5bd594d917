"""One or two bits flipped in any file of a data directory: whoever opens, reads, inspects, appends, compacts,
recompresses, expires or repairs it gets an answer or a FoldlogError, and no other exception.

With two bits damage can agree with itself: a base offset and the length behind it, an index and the batch it leads to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from faults.test_flipped_bytes import START_MS, contents, files_of, kind_of, replaced, write_log
from foldlog.broker.broker import Broker
from foldlog.errors import FoldlogError
from foldlog.files.base import Files
from foldlog.log.checkpoint import Checkpoint
from foldlog.log.config import LogConfig
from foldlog.log.doctor.inspection import inspect, inspect_alone
from foldlog.log.doctor.repair import cut_out, rebuild
from foldlog.log.partition import Partition
from foldlog.records.batch import RECORDS_AT
from foldlog.records.loops import pack, walk
from foldlog.testing.disk_image import DiskImage
from foldlog.testing.power_loss import SECTOR_BYTES
from foldlog.testing.sim_clock import SimClock

IMAGE = write_log()
FILES = {path: data for path, data in files_of(IMAGE.tree) if data}
PARTITIONS = ("plain", "keyed")


def bits_of(path: str) -> st.SearchStrategy[tuple[str, int]]:
    """Of a segment mostly those of headers; of the checkpoint those of the sectors in use."""
    data = FILES[path]
    any_bit = st.integers(0, 8 * len(data) - 1)
    if kind_of(path) == ".log":
        starts = [header.position for header in walk(data).headers]
        any_bit |= st.builds(
            lambda start, bit: 8 * start + bit, st.sampled_from(starts), st.integers(0, 8 * RECORDS_AT)
        )
    if kind_of(path) == "checkpoint":
        any_bit = st.builds(
            lambda sector, bit: 8 * SECTOR_BYTES * sector + bit, st.integers(0, 4), st.integers(0, 8 * 128 - 1)
        )
    return st.tuples(st.just(path), any_bit.filter(lambda bit: bit < 8 * len(data)))


BITS = st.sampled_from(sorted(FILES)).flatmap(bits_of)
TWO_OF_ONE_FILE = st.sampled_from(sorted(FILES)).flatmap(lambda path: st.lists(bits_of(path), min_size=2, max_size=2))


def flipped(bits: list[tuple[str, int]]) -> DiskImage:
    tree = IMAGE.tree
    for path, bit in bits:
        data = bytearray(dict(files_of(tree))[path])
        data[bit // 8] ^= 1 << bit % 8
        tree = replaced(tree, path, bytes(data))
    return DiskImage(tree)


def looks(files: Files) -> Iterator[Callable[[], object]]:
    checkpoint = Checkpoint.open(files, "data/checkpoint", write=False)
    for slot, topic in enumerate(PARTITIONS):
        directory = f"data/{topic}-0"
        yield lambda: inspect(files, directory, checkpoint.slot(slot).load())  # noqa: B023 called at once
        yield lambda: inspect(files, directory, None)  # noqa: B023
        yield lambda: inspect_alone(files, directory)  # noqa: B023


def repairs(files: Files) -> Iterator[Callable[[], object]]:
    checkpoint = Checkpoint.open(files, "data/checkpoint", write=True)
    for number, topic in enumerate(PARTITIONS):
        directory, slot, clock = f"data/{topic}-0", checkpoint.slot(number), SimClock(START_MS)
        yield partial(rebuild, files, directory, slot, LogConfig(), clock=clock, label=(topic, 0))
        yield partial(cut_out, files, directory, slot, topic_id="0" * 32)


def changes(files: Files) -> Iterator[Callable[[], object]]:
    broker = Broker.open("data", files=files, clock=SimClock(START_MS), background=False)
    for topic in PARTITIONS:
        yield partial(broker.compact, topic)
        yield partial(broker.recompress, topic, "zstd")
        yield partial(broker.enforce_retention, topic)
        try:
            found = broker.partition(topic, 0)
        except FoldlogError:
            continue
        assert isinstance(found, Partition)
        yield partial(found.append, pack([(START_MS + 99, b"k", b"v", ())]))
        yield found.max_timestamp_offset
        yield found.producers_info
        yield found.sync
    broker.close()


def only_our_errors(calls: Callable[[], Iterator[Callable[[], object]]]) -> None:
    try:
        for call in calls():
            try:
                call()
            except FoldlogError:
                continue
    except FoldlogError:
        return


@given(st.lists(BITS, min_size=1, max_size=2) | TWO_OF_ONE_FILE)
@settings(max_examples=60)
def test_one_or_two_flipped_bits_raise_our_own_errors_only(bits: list[tuple[str, int]]) -> None:
    image = flipped(bits)
    only_our_errors(lambda: iter([lambda: contents(image, "r"), lambda: contents(image, "w")]))
    for use in (looks, changes, repairs):
        only_our_errors(partial(use, image.files()))


def test_two_bits_that_put_a_batch_billions_of_offsets_away_are_damage() -> None:
    """An index that is made anew could not hold them."""
    path = next(path for path in sorted(FILES) if path.endswith("plain-0/00000000000000000000.log"))
    starts = [header.position for header in walk(FILES[path]).headers]
    image = flipped([(path, 8 * (starts[-1] + 2) + 4), (path, 8 * (starts[-1] + 2) + 5)])
    for use in (looks, changes, repairs):
        only_our_errors(partial(use, image.files()))
