"""Damage meets every operation, not reads alone: nothing that could be got out of a directory before is lost after, and
what was refused is not served wrongly or passed over.

Directories of every kind (closed, killed, with records in the journal alone, in the middle of a compaction) are damaged
in every way, file by file: flipped, cut, with holes, grown, missing, swapped with another, of an earlier state. Over
each of them run all operations that write: opening, appending, compacting, recompressing, retention, deleting records,
changing topics, giving out producer ids, repairing, cutting out, rebuilding indexes, copying. plain_batches.py, which
shares no code with the log, says what was recoverable before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest

from broker.small_broker import writable
from budgets import times
from client.copy.copies import copy
from faults.damaged_directories import (
    DATA,
    IN_STORE,
    LATER_MS,
    START_MS,
    STORE_URL,
    TOPICS,
    WORLDS,
    Damaged,
    World,
    damages,
    files_in,
    in_place,
    opened,
    read_tree,
    recoverable,
)
from faults.plain_batches import batches_in
from foldlog.broker.broker import Broker
from foldlog.broker.data_directory import open_for_reading
from foldlog.cli.files import check
from foldlog.cli.files.check_report import CheckReport
from foldlog.cli.files.check_targets import find_targets
from foldlog.client.backends.local import LocalBackend
from foldlog.client.log import Log
from foldlog.errors import FoldlogError
from foldlog.files.memory import MemoryFiles
from foldlog.log.checkpoint import StartReason
from foldlog.log.doctor.inspection import inspect, inspect_alone
from foldlog.records.loops import decode, pack
from foldlog.testing.disk_image import DiskImage, Tree
from foldlog.testing.sim_clock import SimClock

NOW_MS = START_MS + LATER_MS + 10_000
DELETED_BELOW = 4
FRESH = b"appended after the damage"


@dataclass(frozen=True, slots=True)
class Served:
    """What a partition serves: `error`, or where it starts and its records by offset."""

    error: FoldlogError | None
    start: int = 0
    reason: StartReason = StartReason.WRITTEN
    records: tuple[tuple[int, bytes], ...] = ()


def served(files: MemoryFiles, world: World, mode: str = "w") -> dict[str, Served]:
    """What the log itself says of each partition, in full."""
    try:
        broker = opened(files, SimClock(NOW_MS), world.journal, mode)
    except FoldlogError as error:
        return dict.fromkeys(TOPICS, Served(error))
    found = {topic: _served(broker, topic) for topic in TOPICS}
    with suppress(FoldlogError):
        broker.close()
    return found


def _served(broker: Broker, topic: str) -> Served:
    records: list[tuple[int, bytes]] = []
    try:
        partition = broker.partition(topic, 0)
        offset = partition.log_start_offset
        while offset < partition.high_watermark:
            piece = partition.read(offset, 500)
            decoded = decode(piece.data, topic, 0, start_offset=offset)[0]
            records += [(one.offset, one.value) for one in decoded if one.value is not None]
            offset = piece.next_offset
        return Served(None, partition.log_start_offset, partition.start_reason, tuple(records))
    except FoldlogError as error:
        return Served(error)


# Operations. Each gets the files of a damaged directory, and may raise a FoldlogError.


def each(broker: Broker, act: Callable[[str], object], topics: Iterable[str] = TOPICS) -> None:
    """One topic's damage does not keep the operation from another's."""
    for topic in topics:
        with suppress(FoldlogError):
            act(topic)


def in_broker(act: Callable[[Broker], object]) -> Callable[[MemoryFiles, World], None]:
    def operation(files: MemoryFiles, world: World) -> None:
        broker = opened(files, SimClock(NOW_MS), world.journal)
        try:
            act(broker)
        finally:
            broker.close()

    return operation


def open_and_read(files: MemoryFiles, world: World) -> None:
    served(files, world)


def append(broker: Broker) -> None:
    def write(topic: str) -> None:
        partition = writable(broker, topic)
        appended = partition.append(pack([(NOW_MS, b"fresh", FRESH + topic.encode(), ())]))
        partition.wait_acknowledged(appended.next_offset)
        partition.roll()

    each(broker, write)
    broker.run_due()


def change_topics(broker: Broker) -> None:
    each(broker, lambda topic: broker.alter_topic(topic, {"index.interval.bytes": 300}))
    each(broker, lambda topic: broker.grow_topic(topic, 2))
    broker.create_topic("other", 1)
    broker.delete_topic("other")


def without_indexes(files: MemoryFiles, world: World) -> None:
    for topic in TOPICS:
        for entry in files.entries(f"{DATA}/{topic}-0"):
            if entry.name.endswith(("index", ".snapshot")):
                files.unlink(f"{DATA}/{topic}-0/{entry.name}")
    served(files, world)


def to_the_store(files: MemoryFiles, world: World) -> None:
    """Sealed segments are copied, read back and removed here; nothing expires."""
    broker = opened(files, SimClock(NOW_MS), world.journal, tier=STORE_URL)
    try:
        broker.alter_topic("plain", {**IN_STORE, "retention.ms": "-1"})
        writable(broker, "plain").roll()
        broker.enforce_retention("plain")
    finally:
        broker.close()


def without_a_journal(files: MemoryFiles, world: World) -> None:
    """The journal is replayed a last time, and its files go."""
    broker = opened(files, SimClock(NOW_MS))
    each(broker, lambda topic: writable(broker, topic))
    broker.close()


def checking(change: check.Change) -> Callable[[MemoryFiles, World], None]:
    def operation(files: MemoryFiles, world: World) -> None:
        list(check._change(files, find_targets(files, DATA, None), CheckReport(DATA), change))

    return operation


def look(files: MemoryFiles, world: World) -> None:
    """Whoever only reads changes no byte."""
    before = read_tree(files)
    served(files, world, "r")
    for topic in TOPICS:
        with suppress(FoldlogError, FileNotFoundError):
            inspect(files, f"{DATA}/{topic}-0", None)
        with suppress(FoldlogError, FileNotFoundError):
            inspect_alone(files, f"{DATA}/{topic}-0")
    assert read_tree(files) == before


def copied(files: MemoryFiles, world: World) -> None:
    """A copy has what it could read, at its offsets; the source stays as it is."""
    before = read_tree(files)
    with Log(LocalBackend(opened(files, SimClock(NOW_MS), mode="r"), files)) as source:
        for topic in TOPICS:
            with Log(LocalBackend(opened(MemoryFiles(), SimClock(NOW_MS)))) as target:
                is_whole = True
                try:
                    copy(source, target, topic)
                except FoldlogError:
                    is_whole = False
                found = list(target.read(topic, 0)) if topic in target.topics() else []
                for record in found:
                    assert record.value is None or world.written[record.value].offset == record.offset
                if is_whole and found:
                    start, end = source.offsets(topic)[0]  # by the checkpoint, which a reader has to believe
                    must = {at for at in world.must_be_served(topic) if start <= at < end}
                    assert must <= {record.offset for record in found}, "a copy says it is whole"
    assert read_tree(files) == before


def new_producers(broker: Broker) -> None:
    """An id that was given out once would make a new producer's batches look like repetitions."""
    taken = broker.allocate_producer_id()
    each(broker, lambda topic: _send(broker, topic, taken))


def _send(broker: Broker, topic: str, producer: int) -> None:
    data = pack(
        [(NOW_MS, b"fresh", FRESH + topic.encode(), ())], producer_id=producer, producer_epoch=0, base_sequence=0
    )
    partition = writable(broker, topic)
    end = partition.log_end_offset
    appended = partition.append(data, foreign=True)
    assert appended.base_offset == end, "a new producer's first batch was taken for another's"


OPERATIONS: dict[str, Callable[[MemoryFiles, World], None]] = {
    "look": look,
    "open": open_and_read,
    "append": in_broker(append),
    "compact": in_broker(lambda broker: broker.compact("keyed")),
    "recompress": in_broker(lambda broker: each(broker, lambda topic: broker.recompress(topic, "zstd"))),
    "retention": in_broker(lambda broker: each(broker, broker.enforce_retention)),
    "delete records": in_broker(
        lambda broker: each(broker, lambda topic: writable(broker, topic).delete_records(DELETED_BELOW), ["plain"])
    ),
    "topics": in_broker(change_topics),
    "producers": in_broker(new_producers),
    "to the store": to_the_store,
    "without indexes": without_indexes,
    "without a journal": without_a_journal,
    "repair": checking(check._rebuild),
    "cut out": checking(check._cut_out),
    "copy": copied,
}
CHAINS: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in OPERATIONS},
    "everything": ("append", "compact", "recompress", "retention", "repair", "append"),
    "to the store and on": ("to the store", "append", "to the store", "retention", "to the store"),
    "cut out and go on": ("cut out", "append", "compact", "recompress", "cut out", "without a journal"),
}


# Laws


def removable(world: World, chain: tuple[str, ...], after: set[bytes]) -> set[bytes]:
    """What the operations may remove: expired or deleted records, and those with a newer one of their key."""
    gone: set[bytes] = set()
    if "retention" in chain:
        gone |= {value for value in world.of("plain") if world.written[value].offset < world.expiring_below}
    if "delete records" in chain:
        gone |= {value for value in world.of("plain") if world.written[value].offset < DELETED_BELOW}
    if "compact" in chain or world.name == "swapping":  # which the next open finishes
        newest = [world.written[value] for value in world.newest(after & world.of("keyed"))]
        kept = {one.key: one.offset for one in newest}
        gone |= {
            value for value in world.of("keyed") if world.written[value].offset < kept.get(world.written[value].key, -1)
        }
    return gone


def wrongs(world: World, damaged: Damaged, chain: tuple[str, ...]) -> Iterator[str]:
    """What the operations did that they must not."""
    files = DiskImage({DATA: damaged.tree}).files()
    before = _recoverable_before(world, damaged)
    for name in chain:
        try:
            OPERATIONS[name](files, world)
        except FoldlogError:
            pass
        except AssertionError as error:
            yield f"{name}: {error}"
    tree = read_tree(files)
    after = recoverable(tree)
    for value in sorted(before - after - removable(world, chain, after)):
        yield f"lost {value.rstrip(b'. ').decode()}"
    yield from _wrong_objects(world, tree, damaged)
    was = served(DiskImage({DATA: damaged.tree}).files(), world)
    is_of_store = damaged.where.startswith(("store", "tier.json"))  # no cut mends it
    for topic, found in served(files, world).items():
        if found.error is None or not is_of_store:
            yield from _wrongs_of(world, topic, found, was[topic], chain, tree)


def _wrong_objects(world: World, tree: dict[str, Tree], damaged: Damaged) -> Iterator[str]:
    """What was put into the store is a log of the offsets in its name, with the records that were written there."""
    before = dict(files_in(damaged.tree))
    for path, data in files_in(tree):
        if not path.endswith(".segment") or path in before:
            continue
        base, end = (int(part) for part in path.rpartition("/")[2].split("-")[:2])
        at = base
        for batch in batches_in(data):
            if batch.base_offset != at:
                yield f"{path} goes from {at} to {batch.base_offset}"
            at = batch.next_offset
            for record in batch.records:
                known = world.written.get(record.value or b"")
                if (
                    not batch.is_control
                    and not (record.value or b"").startswith(FRESH)
                    and (known is None or (known.topic, known.offset) != ("plain", record.offset))
                ):
                    yield f"{path} has {record.value!r} at {record.offset}"
        if at != end:
            yield f"{path} ends at {at}"


def _recoverable_before(world: World, damaged: Damaged) -> set[bytes]:
    """The journal counts for what it alone had: it also has copies, for a while, of what is synced in a segment."""
    segments = recoverable({name: tree for name, tree in damaged.tree.items() if name != "journal"})
    only_there = set(world.written) - recoverable(
        {name: tree for name, tree in world.tree.items() if name != "journal"}
    )
    return (segments | (recoverable(damaged.tree) & only_there)) & set(world.written)


def _wrongs_of(
    world: World, topic: str, found: Served, was: Served, chain: tuple[str, ...], tree: dict[str, Tree]
) -> Iterator[str]:
    if found.error is not None:
        if "cut out" in chain and was.error is not None and "catalog" not in str(found.error):
            yield f"{topic} is refused after a cut: {found.error}"
        return
    for offset, value in found.records:
        if value == FRESH + topic.encode():
            continue
        known = world.written.get(value)
        if known is None or known.topic != topic or known.offset != offset:
            yield f"{topic} serves {value[:20]!r} at {offset}"
    missing = {at for at in world.must_be_served(topic) if at >= found.start} - {offset for offset, _ in found.records}
    if "cut out" in chain:
        sound = in_place(world, tree, topic)
        missing &= {world.written[value].offset for value in sound}
    if missing:
        yield f"{topic} passes over {sorted(missing)} ({'refused' if was.error else 'served'} before)"
    allowed = world.expiring_below if "retention" in chain and topic == "plain" else 0
    if "delete records" in chain and topic == "plain":
        allowed = DELETED_BELOW
    if found.start > allowed and found.reason is not StartReason.MISSING:
        yield f"{topic} starts at {found.start} ({found.reason.name})"


# The matrix


def runs(every: int) -> Iterator[tuple[World, Damaged, str]]:
    """Each damage with each chain of operations, or every so manieth pair; over all of them, each meets each."""
    for make in WORLDS.values():
        world = make()
        for at, damaged in enumerate(damages(world)):
            for shift, name in enumerate(CHAINS):
                if (at + shift) % every == 0:
                    yield world, damaged, name


def found(every: int) -> Iterator[str]:
    for world, damaged, name in runs(every):
        for wrong in wrongs(world, damaged, CHAINS[name]):
            yield f"{world.name}: {damaged.name}: {name}: {wrong}"


@pytest.mark.parametrize("every", times(557, 13))
def test_no_operation_makes_damage_worse(every: int) -> None:
    wrong = list(found(every))
    assert not wrong, f"{len(wrong)}, as {wrong[:5]}"


def test_every_kind_of_file_is_damaged_in_every_way_that_it_can_be() -> None:
    ways: dict[str, set[str]] = {}
    for make in WORLDS.values():
        for damaged in damages(make()):
            ways.setdefault(damaged.kind, set()).add(damaged.way)
    usual = {"flip", "cut", "hole", "missing", "grown"}
    assert all(usual <= found for kind, found in ways.items() if kind != "directory")
    assert {kind for kind, found in ways.items() if "stale" in found} >= {
        ".log",
        ".index",
        ".timeindex",
        "checkpoint",
        "directory",
    }
    assert {kind for kind, found in ways.items() if "swapped" in found} >= {".log", ".index", ".timeindex", ".snapshot"}
    assert set(ways) >= {
        "catalog.json",
        "checkpoint",
        "producer-ids",
        "leader-epoch-checkpoint",
        "partition.metadata",
        ".journal",
        ".txnindex",
        ".log.swap",
    }


def test_the_undamaged_directories_hold_everything() -> None:
    """What the matrix compares with: the plain walker and the log agree."""
    for make in WORLDS.values():
        world = make()
        whole = recoverable(world.tree)
        for topic in TOPICS:
            assert set(world.must_be_served(topic).values()) <= whole
        for name, chain in CHAINS.items():
            assert list(wrongs(world, Damaged("", "none", "", world.tree), chain)) == [], name


# What the matrix found, by name


def damaged_so(world: World, way: str, *where: str) -> Damaged:
    """The first damage of that kind whose place holds all of these."""
    return next(one for one in damages(world) if one.way == way and all(part in one.where for part in where))


def after(world: World, damaged: Damaged, *chain: str) -> dict[str, Served]:
    files = DiskImage({DATA: damaged.tree}).files()
    assert list(wrongs(world, damaged, chain)) == []
    for name in chain:
        with suppress(FoldlogError):
            OPERATIONS[name](files, world)
    return served(files, world)


def test_a_repair_without_checkpoint_keeps_what_only_the_journal_has() -> None:
    world = WORLDS["journaled"]()
    damaged = damaged_so(world, "flip", "checkpoint 3")
    assert all(one.error is not None for one in served(DiskImage({DATA: damaged.tree}).files(), world).values())
    for topic, one in after(world, damaged, "repair").items():
        assert world.must_be_served(topic).items() <= set(one.records)


def test_a_file_that_is_not_the_one_the_checkpoint_speaks_of_is_not_cut() -> None:
    world = WORLDS["killed"]()
    damaged = damaged_so(world, "swapped", "keyed-0/00000000000000000000.log and keyed-0/00000000000000000016.log")
    files = DiskImage({DATA: damaged.tree}).files()
    assert served(files, world)["keyed"].error is not None
    assert {path: data for path, data in files_in(read_tree(files)) if path.startswith("keyed-0/")} == {
        path: data for path, data in files_in(damaged.tree) if path.startswith("keyed-0/")
    }


def test_a_cut_out_gets_a_partition_out_of_which_the_journal_lost_a_commit() -> None:
    """What is behind the lost commit is served; what is lost is kept beside."""
    world = WORLDS["journaled"]()
    whole = {topic: len(world.must_be_served(topic)) for topic in TOPICS}
    flips = [one for one in damages(world) if one.kind == ".journal" and one.way == "flip"][::3]
    refused = [
        one
        for one in flips
        if any(found.error for found in served(DiskImage({DATA: one.tree}).files(), world).values())
    ]
    assert refused
    for damaged in refused:
        found = after(world, damaged, "cut out")
        assert [one.error for one in found.values()] == [None, None]
        missing = [at for topic in TOPICS for at in world.must_be_served(topic) if at not in dict(found[topic].records)]
        assert 0 < len(missing) < min(whole.values())


def test_a_journal_that_was_lost_is_said_until_the_loss_is_cut_out() -> None:
    world = WORLDS["journaled"]()
    damaged = damaged_so(world, "missing", ".journal")
    files = DiskImage({DATA: damaged.tree}).files()
    for _ in range(2):
        assert all(one.error is not None for one in served(files, world).values())
    report = CheckReport(DATA)
    lines = list(check._report_journal(files, DATA, open_for_reading(files, DATA), report))
    assert not report.is_whole
    assert sum("were durable" in line for line in lines) == len(TOPICS)
    assert all(one.error is None for one in after(world, damaged, "cut out").values())


def test_an_empty_swap_file_replaces_nothing() -> None:
    world = WORLDS["swapping"]()
    damaged = damaged_so(world, "cut", ".log.swap to 0")
    assert list(wrongs(world, damaged, ("open",))) == []
    assert list(wrongs(world, damaged, ("cut out",))) == []


def test_a_sealed_segment_that_lost_its_young_end_does_not_expire() -> None:
    world = WORLDS["closed"]()
    damaged = damaged_so(world, "stale", "plain-0/00000000000000000012.log")
    assert after(world, damaged, "retention")["plain"].error is not None
