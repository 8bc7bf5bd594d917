"""Cut the power after every file operation that makes, grows, changes or deletes a topic, or commits an offset.

The same harness as test_power_loss, one floor up: whole data directories, through the broker. On every image: it opens
and every topic opens; an acknowledged creation, growth or setting is there, an acknowledged deletion stays deleted, one
that was under way has happened or has not; a topic made again under an old name shows nothing of the old one; a
committed offset is the last acknowledged or the one being committed; and the directory takes a new topic and a record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from budgets import BUDGETS, SHORT
from foldlog.broker.broker import Broker
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.files.base import Files
from foldlog.log.partition import Partition
from foldlog.records.loops import decode, pack
from foldlog.testing.disk_image import DiskImage
from foldlog.testing.history import Found, PartitionHistory, Sent
from foldlog.testing.power_cuts import PowerCuts, Violation
from foldlog.testing.power_loss import PowerLossFiles
from foldlog.testing.sim_clock import SimClock

START_MS = 1_700_000_000_000


@dataclass
class TopicHistory:
    """One topic from its creation on: how many partitions and which setting it may have, and what is in them."""

    counts: set[int]
    settings: set[str]
    partitions: list[PartitionHistory] = field(default_factory=list)


class DirectoryHistory:
    """What was promised about a data directory. `topics` holds, for each name ever used, what may be found there:
    None stands for no topic of that name."""

    def __init__(self) -> None:
        self.topics: dict[str, list[TopicHistory | None]] = {}
        self.committed: dict[tuple[str, str, int], list[int]] = {}
        self.steps = 0

    def version(self) -> tuple[int, int]:
        histories = [one for choices in self.topics.values() for one in choices if one is not None]
        return self.steps, sum(partition.version for one in histories for partition in one.partitions)


class Directory:
    """An open broker, driven step by step, its history told of each step before and after."""

    def __init__(self, files: PowerLossFiles) -> None:
        self.files = files
        self.history = DirectoryHistory()
        self._count = 0
        self.open()

    def open(self) -> None:
        self.broker = Broker.open("data", files=self.files, clock=SimClock(START_MS), background=False)

    def create(self, name: str, count: int, **settings: object) -> None:
        fresh = TopicHistory({count}, {"-1"}, [PartitionHistory() for _ in range(count)])
        self._between(name, [*self.history.topics.get(name, [None]), fresh])
        self.broker.create_topic(name, count, {key.replace("_", "."): value for key, value in settings.items()})
        self._between(name, [fresh])

    def grow(self, name: str, count: int) -> None:
        topic = self.topic(name)
        topic.partitions += [PartitionHistory() for _ in range(count - len(topic.partitions))]
        topic.counts.add(count)
        self.history.steps += 1
        self.broker.grow_topic(name, count)
        topic.counts = {count}
        self.history.steps += 1

    def alter(self, name: str, retention_ms: int) -> None:
        topic = self.topic(name)
        topic.settings.add(str(retention_ms))
        self.history.steps += 1
        self.broker.alter_topic(name, {"retention.ms": retention_ms})
        topic.settings = {str(retention_ms)}
        self.history.steps += 1

    def delete(self, name: str) -> None:
        self._between(name, [self.topic(name), None])
        self.broker.delete_topic(name)
        self._between(name, [None])

    def append(self, name: str, partition: int, *, wait: bool = True) -> None:
        self._count += 1
        sent = Sent(b"k", b"record %d of %s" % (self._count, name.encode()), START_MS + self._count)
        history = self.topic(name).partitions[partition]
        history.sending([sent])
        target = self.broker.partition(name, partition)
        assert isinstance(target, Partition)
        next_offset = target.append(pack([(sent.timestamp_ms, sent.key, sent.value, ())])).next_offset
        if wait:
            target.wait_acknowledged(next_offset)
            history.acknowledged(next_offset)

    def commit(self, group: str, name: str, partition: int, offset: int) -> None:
        place = group, name, partition
        self.history.committed[place] = [*self.history.committed.get(place, [-1])[-1:], offset]
        self.history.steps += 1
        self.broker.commit_offsets(group, {(name, partition): OffsetAndMetadata(offset)})
        self.history.committed[place] = [offset]
        self.history.steps += 1

    def topic(self, name: str) -> TopicHistory:
        (only,) = self.history.topics[name]
        assert only is not None
        return only

    def _between(self, name: str, choices: list[TopicHistory | None]) -> None:
        self.history.topics[name] = choices
        self.history.steps += 1


def judge_directory(image: DiskImage, history: DirectoryHistory) -> None:
    broker = Broker.open("data", files=image.files(), clock=SimClock(START_MS), background=False)
    present = set(broker.topics())
    for name, choices in history.topics.items():
        topics = [one for one in choices if one is not None]
        if name in present:
            if not topics:
                raise Violation(f"topic {name!r} was deleted and is there")
            judge_topic(broker, name, topics)
        elif None not in choices:
            raise Violation(f"topic {name!r} was created and is not there")
    unknown = present - set(history.topics)
    if unknown:
        raise Violation(f"topics {unknown} were never created")
    for (group, name, partition), offsets in history.committed.items():
        if name not in present:
            continue
        found = broker.committed(group).get((name, partition))
        if (found.offset if found else -1) not in offsets:
            raise Violation(f"group {group!r} committed one of {offsets} in {name}-{partition}, and {found} is there")
    broker.create_topic("probe", 2)
    probe = broker.partition("probe", 1)
    assert isinstance(probe, Partition)
    if probe.append(pack([(START_MS, None, b"probe", ())])).base_offset != 0:
        raise Violation("a new topic does not begin at offset 0")
    probe.wait_acknowledged(1)


def judge_topic(broker: Broker, name: str, choices: list[TopicHistory]) -> None:
    topic = broker.topic(name)
    complaints = []
    for choice in choices:
        try:
            if topic.partition_count not in choice.counts:
                raise Violation(f"topic {name!r} has {topic.partition_count} partitions, not one of {choice.counts}")
            if topic.config.effective()["retention.ms"] not in choice.settings:
                raise Violation(f"topic {name!r} has other settings than any it was given")
            for number in range(topic.partition_count):
                judge_partition(broker, name, number, choice.partitions[number])
        except Violation as complaint:
            complaints.append(complaint)
        else:
            return
    raise complaints[-1]


def judge_partition(broker: Broker, name: str, number: int, history: PartitionHistory) -> None:
    partition = broker.partition(name, number)
    found: list[Found] = []
    offset = partition.log_start_offset
    while offset < partition.high_watermark:
        piece = partition.read(offset)
        records, _ = decode(piece.data, name, number, start_offset=offset)
        found += [Found(one.offset, one.key, one.value, one.timestamp_ms) for one in records]
        offset = piece.next_offset
    history.judge(found, partition.log_start_offset, partition.high_watermark)


def first_topics(directory: Directory) -> None:
    """From nothing: the directory, its catalog, its first topics."""
    directory.create("orders", 2)
    directory.append("orders", 1)
    directory.create("payments", 1, segment_bytes=1024)
    directory.append("payments", 0)
    directory.broker.close()


def growth(directory: Directory) -> None:
    directory.create("orders", 1)
    directory.append("orders", 0)
    directory.append("orders", 0, wait=False)
    directory.grow("orders", 3)
    directory.append("orders", 2)
    directory.alter("orders", 1000)
    directory.grow("orders", 4)
    directory.append("orders", 3)
    directory.broker.close()


def deletion(directory: Directory) -> None:
    """Delete, and make again under the same name; twice, with records in it each time."""
    directory.create("keep", 1)
    directory.append("keep", 0)
    for count in (2, 1):
        directory.create("orders", count)
        directory.append("orders", 0)
        directory.append("orders", count - 1)
        directory.append("keep", 0)
        directory.delete("orders")
    directory.create("orders", 1)
    directory.append("orders", 0)
    directory.broker.close()


def offset_commits(directory: Directory) -> None:
    directory.create("orders", 2)
    for number in range(4):
        directory.append("orders", number % 2)
    for number in range(3):
        directory.commit("fraud", "orders", 0, number)
        directory.commit("billing", "orders", 1, number)
    directory.broker.compact("__consumer_offsets")
    directory.commit("fraud", "orders", 0, 2)
    directory.broker.close()
    directory.open()
    directory.commit("fraud", "orders", 1, 1)
    directory.broker.close()


WORKLOADS: dict[str, Callable[[Directory], None]] = {
    "first_topics": first_topics,
    "growth": growth,
    "deletion": deletion,
    "offset_commits": offset_commits,
}

IMAGES = {"first_topics": 150, "growth": 450, "deletion": 750, "offset_commits": 700}
"""At least this many each: what they reached when written, less a margin for changes of the layout."""


def run_with_cuts(
    name: str, seed: int, *, mixes: int = 4, every: int = SHORT, only: tuple[int, int] | None = None
) -> int:
    files = PowerLossFiles()
    directory = Directory(files)
    cuts = PowerCuts(
        lambda image: judge_directory(image, directory.history),
        seed=seed,
        mixes=mixes,
        promises=directory.history.version,
        recover=open_everything,
        recover_every=100,
        every=every,
        only=only,
    )
    cuts.attach(files)
    try:
        WORKLOADS[name](directory)
    finally:
        # The first broken promise, if there was one, rather than what the workload made of it later.
        images = cuts.finish()
    return images


def open_everything(files: Files) -> None:
    """What runs on a disk whose power is cut again."""
    broker = Broker.open("data", files=files, clock=SimClock(START_MS), background=False)
    for name in broker.topics(include_internal=True):
        for number in range(broker.topic(name).partition_count):
            broker.partition(name, number)
    broker.close()


@pytest.mark.parametrize("every", BUDGETS)
@pytest.mark.parametrize("name", WORKLOADS)
def test_topics_and_committed_offsets_survive_a_power_cut_after_every_operation(name: str, every: int) -> None:
    assert run_with_cuts(name, seed=11, every=every) >= IMAGES[name] // every


def test_the_very_first_open_survives_a_power_cut_after_every_operation() -> None:
    """Before anything was promised any state will do, but it has to open."""
    files = PowerLossFiles()
    cuts = PowerCuts(lambda image: judge_directory(image, DirectoryHistory()), seed=3)
    cuts.attach(files)
    Broker.open("data", files=files, clock=SimClock(START_MS), background=False).close()
    assert cuts.finish() >= 10
