"""Every byte of a small data directory, flipped in turn: never are wrong records served.

A log with two topics (one plain, with rolled segments and an idempotent producer; one compacted, with gaps) is written
and closed. Then each byte of each file is damaged in two ways (all bits, and one bit) and the directory opened and
read in full: as the writer, and as a reader beside it. In `make test` each byte is met once: in one of the ways, by one
of them. Either that raises a FoldlogError, or every record, every lookup by offset and by time is what it was, and the
producer's last batch is still known for a duplicate. OUTCOMES says, file by file, which of the two it is: where it says
"harmless" the file has no checksum of its own, or a copy, and is verified against the log and made anew.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from budgets import BUDGETS, WHOLE
from foldlog.broker.broker import Broker
from foldlog.errors import FoldlogError
from foldlog.files.memory import MemoryFiles
from foldlog.log.partition import Partition
from foldlog.records.loops import decode, pack
from foldlog.testing.disk_image import DiskImage, Tree
from foldlog.testing.power_loss import SECTOR_BYTES
from foldlog.testing.sim_clock import SimClock

START_MS = 1_700_000_000_000
Contents = dict[tuple[str, int], tuple[object, ...]]

OUTCOMES: dict[str, dict[str, set[str]]] = {
    # The catalog and every batch are covered by a CRC-32C; base offsets and epochs by comparison with their neighbours.
    "catalog.json": {"w": {"CorruptLog"}, "r": {"CorruptLog"}},
    ".log": {"w": {"CorruptLog"}, "r": {"CorruptLog"}},
    # Hints: what they lead to is verified, and they are made anew.
    ".index": {"w": {"harmless"}, "r": {"harmless"}},
    ".timeindex": {"w": {"harmless"}, "r": {"harmless"}},
    ".snapshot": {"w": {"harmless"}, "r": {"harmless"}},
    # The batches carry the epochs too: the writer makes the file anew from them, a reader cannot.
    "leader-epoch-checkpoint": {"w": {"harmless"}, "r": {"CorruptLog"}},
    # Two slots with a CRC each, and a first line that says what file it is. Without its slot the writer recovers from
    # the segments; a reader has to wait for a writer to do so. Its version may become one that is not known yet.
    "checkpoint": {"w": {"harmless", "CorruptLog", "NewerVersion"}, "r": {"harmless", "CorruptLog", "NewerVersion"}},
    # Kept for Kafka's tools; the catalog is what counts.
    "partition.metadata": {"w": {"harmless"}, "r": {"harmless"}},
}


def last_batch() -> bytearray:
    return pack(
        [(START_MS + 70, None, b"plain 7" + b"." * 40, (("h", b"1"),))],
        producer_id=7,
        producer_epoch=0,
        base_sequence=7,
    )


def write_log() -> DiskImage:
    files = MemoryFiles()
    broker = Broker.open("data", files=files, clock=SimClock(START_MS), background=False)
    broker.create_topic("plain", 1, {"index.interval.bytes": 100})
    broker.create_topic("keyed", 1, {"cleanup.policy": "compact", "index.interval.bytes": 100})
    plain, keyed = broker.partition("plain", 0), broker.partition("keyed", 0)
    assert isinstance(plain, Partition)
    assert isinstance(keyed, Partition)
    for number in range(7):
        record = (START_MS + number * 10, None, b"plain %d" % number + b"." * 40, (("h", b"1"),))
        plain.append(pack([record], producer_id=7, producer_epoch=0, base_sequence=number))
        keyed.append(pack([(START_MS + number * 10, b"k%d" % (number % 3), b"keyed %d" % number + b"." * 40, ())]))
        if number == 3:
            plain.roll()
    plain.append(last_batch())
    keyed.compact(force=True)
    keyed.append(pack([(START_MS + 70, b"k0", b"the newest", ())]))
    broker.close()
    return DiskImage({"data": read_tree(files, "data")})


def read_tree(files: MemoryFiles, directory: str) -> dict[str, Tree]:
    tree: dict[str, Tree] = {}
    for entry in files.entries(directory):
        path = f"{directory}/{entry.name}"
        tree[entry.name] = read_tree(files, path) if entry.is_directory else files.open(path).read(0, entry.size_bytes)
    return tree


def contents(image: DiskImage, mode: str) -> Contents:
    """Everything a user can read, and what a producer is told that repeats itself."""
    broker = Broker.open("data", files=image.files(), clock=SimClock(START_MS), mode=mode, background=False)
    found: Contents = {}
    for topic in broker.topics():
        for number in range(broker.topic(topic).partition_count):
            partition = broker.partition(topic, number)
            offset, records = partition.log_start_offset, []
            while offset < partition.high_watermark:
                piece = partition.read(offset, 500)
                records += decode(piece.data, topic, number, start_offset=offset)[0]
                offset = piece.next_offset
            seen = [(one.offset, one.timestamp_ms, one.key, one.value, one.headers) for one in records]
            times = [partition.offset_at_time(START_MS + at) for at in (0, 35, 70, 71)]
            middle = [partition.read(one.offset, 1).next_offset for one in records]
            found[topic, number] = (partition.log_start_offset, partition.high_watermark, seen, times, middle)
    if mode == "w":
        partition = broker.partition("plain", 0)
        assert isinstance(partition, Partition)
        found["repeated", 0] = tuple(partition.append(last_batch()))
    broker.close()
    return found


def files_of(tree: dict[str, Tree], prefix: str = "") -> Iterator[tuple[str, bytes]]:
    for name, inner in sorted(tree.items()):
        if isinstance(inner, bytes):
            yield prefix + name, inner
        else:
            yield from files_of(inner, f"{prefix}{name}/")


def replaced(tree: dict[str, Tree], path: str, data: bytes) -> dict[str, Tree]:
    name, _, rest = path.partition("/")
    inner = tree[name]
    return {**tree, name: replaced(inner, rest, data) if isinstance(inner, dict) else data}


def kind_of(path: str) -> str:
    name = path.rpartition("/")[2]
    return "." + name.rpartition(".")[2] if name[:1].isdigit() else name


def flips(path: str, data: bytes, mode: str, budget: int) -> Iterator[tuple[int, int, bytes]]:
    """Each byte with all its bits flipped, and with one, or in turns; (position, mask, damaged file)."""
    for position in range(len(data)):
        if budget != WHOLE and position % 5 % 2 == (mode == "w"):
            continue  # the other one meets it
        # Of the checkpoint: the sectors in use, each as far as it is filled; a sample of the zeroes that follow.
        is_unused = position >= 5 * SECTOR_BYTES or position % SECTOR_BYTES >= 128
        if kind_of(path) == "checkpoint" and is_unused and position % 1021:
            continue
        masks = (0xFF, 1 << position % 8)
        # Not even and odd: numbers have an even count of bytes, and each would be damaged in one way only.
        for mask in masks if budget == WHOLE else masks[position // 3 % 2 :][:1]:
            damaged = bytearray(data)
            damaged[position] ^= mask
            yield position, mask, bytes(damaged)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("mode", ["w", "r"])
@pytest.mark.parametrize("kind", OUTCOMES)
def test_a_flipped_byte_is_refused_or_changes_nothing(kind: str, mode: str, budget: int) -> None:
    image = write_log()
    intact = contents(image, mode)
    outcomes: dict[str, int] = {}
    wrong: list[str] = []
    for path, data in files_of(image.tree):
        if kind_of(path) != kind:
            continue
        for position, mask, damaged in flips(path, data, mode, budget):
            try:
                found = contents(DiskImage(replaced(image.tree, path, damaged)), mode)
            except FoldlogError as error:
                outcome = type(error).__name__
            else:
                outcome = "harmless"
                if found != intact:
                    wrong.append(f"{path} byte {position} xor {mask:#x}")
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
    assert not wrong, f"{len(wrong)} flips changed what is read: {wrong[:5]}"
    assert outcomes
    assert set(outcomes) <= OUTCOMES[kind][mode], outcomes
    # Some bytes give an outcome only when they are damaged in one of the ways.
    assert budget != WHOLE or set(outcomes) == OUTCOMES[kind][mode], outcomes


def test_every_file_of_a_data_directory_is_flipped() -> None:
    written = {kind_of(path) for path, data in files_of(write_log().tree) if data}
    assert written == set(OUTCOMES)
