"""`log.append` in compiled code is compared with the way in Python: what is returned or raised, every operation of the
file system in its order, and every byte of the files, also where the disk fails and where the settings change.
"""

from __future__ import annotations

import errno
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldlog
from foldlog.broker.broker import Broker
from foldlog.client import accumulator, handles_py
from foldlog.client.backends import directory
from foldlog.client.backends.directory import broker_of, directory_of
from foldlog.client.backends.local import LocalBackend
from foldlog.errors import FoldlogError, LogClosed, PartitionPoisoned
from foldlog.files.base import read_file
from foldlog.files.memory import MemoryFiles
from foldlog.files.posix import PosixFiles
from foldlog.log.checkpoint import SlotState, StartReason, _encode
from foldlog.log.journal.journal import JournalSettings
from foldlog.records.loops import COMPILED
from foldlog.testing.faulty_files import NO_FAULT, Fault, FaultyFiles, Kind, Operation
from foldlog.testing.sim_clock import SimClock

pytestmark = pytest.mark.skipif(not COMPILED, reason="the compiled way was not built")

DIRECTORY = "log"
TOPIC = "orders"
PARTITIONS = 2


@contextmanager
def in_python() -> Iterator[None]:
    """`log.append` goes the way that it goes without a compiler."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(accumulator, "_SingleAppends", None)
        patched.setattr(directory, "queue_for", handles_py.queue_for)
        yield


class World:
    """A log in memory whose disk fails on request, and whose clock stands still."""

    def __init__(self) -> None:
        self.memory = MemoryFiles()
        self.files = FaultyFiles(self.memory)
        self.clock = SimClock()
        self.log = foldlog.open(DIRECTORY, files=self.files, clock=self.clock, background=False)
        self.log.create_topic(TOPIC, PARTITIONS)

    def try_to(self, act: Callable[[], Any]) -> object:
        try:
            return act()
        except FoldlogError as error:
            return type(error), str(error)

    def fail_next(self, kind: Kind, error: int, part: float) -> None:
        """The next operation of the kind on a segment fails, and no other."""
        spent: list[Operation] = []

        def decide(operation: Operation) -> int:
            if spent or operation.kind is not kind or not operation.path.endswith(".log"):
                return 0
            spent.append(operation)
            return error

        self.files.fault = Fault(decide, part=part)

    def contents(self) -> dict[str, bytes]:
        """Every file of the partitions but the one with the topic's id, and the checkpoint."""
        paths = [f"{DIRECTORY}/checkpoint"]
        for number in range(PARTITIONS):
            held = f"{DIRECTORY}/{TOPIC}-{number}"
            paths += [f"{held}/{one.name}" for one in self.memory.entries(held) if one.name != "partition.metadata"]
        return {path: read_file(self.memory, path) for path in paths}

    @property
    def operations(self) -> list[tuple[Kind, str]]:
        return [(one.kind, one.path) for one in self.files.operations if f"/{TOPIC}-" in one.path]


APPENDS = st.tuples(
    st.just("append"),
    st.sampled_from([b"", b"v", b"v" * 120, b"v" * 900, None]),
    st.sampled_from([None, b"", b"k", b"key-2"]),
    st.sampled_from([(), (("name", b"h"), ("none", None))]),
    st.sampled_from([None, 0, 1, 2]),
    st.sampled_from([None, 0, 1_700_000_000_000, 1_700_000_000_005, 1_800_000_000_000]),
)
SETTINGS = st.tuples(
    st.just("alter"),
    st.sampled_from(
        [
            {"segment.bytes": 1024},
            {"foldlog.segment.records": 3},
            {"segment.ms": 50},
            {"max.message.bytes": 300},
            {"message.timestamp.type": "LogAppendTime"},
            {"message.timestamp.type": "CreateTime"},
            {"message.timestamp.before.max.ms": 1000},
            {"retention.ms": 10},
            {"cleanup.policy": "compact"},
            {"cleanup.policy": "delete"},
            {"compression.type": "gzip"},
            {"flush.messages": 4},
            {"flush.messages": 1},
        ]
    ),
)
OTHERS = st.one_of(
    st.tuples(st.just("advance"), st.sampled_from([1, 40, 60])),
    st.tuples(st.just("retain")),
    st.tuples(
        st.just("fail"),
        st.sampled_from([(Kind.WRITE, errno.ENOSPC, 0.5), (Kind.WRITE, errno.EIO, 0.0), (Kind.SYNC, errno.EIO, 0.0)]),
    ),
)
STEPS = st.lists(st.one_of(APPENDS, APPENDS, APPENDS, APPENDS, SETTINGS, OTHERS), min_size=1, max_size=30)


def take(world: World, step: tuple[Any, ...]) -> object:
    kind, *given_ = step
    if kind == "append":
        value, key, headers, partition, timestamp_ms = given_
        return world.try_to(
            lambda: world.log.append(TOPIC, value, key, headers=headers, partition=partition, timestamp_ms=timestamp_ms)
        )
    if kind == "alter":
        return world.try_to(lambda: world.log.alter_topic(TOPIC, given_[0]).config)
    if kind == "retain":
        return world.try_to(lambda: world.log.enforce_retention(TOPIC))
    if kind == "advance":
        world.clock.advance(given_[0])
    else:
        world.fail_next(*given_[0])
    return None


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_both_ways_do_the_same(steps: list[tuple[Any, ...]]) -> None:
    ours, plain = World(), World()
    for step in steps:
        done = take(ours, step)
        with in_python():
            expected = take(plain, step)
        assert done == expected, step
        assert ours.operations == plain.operations, step
        assert ours.contents() == plain.contents(), step
    ours.files.fault = plain.files.fault = NO_FAULT
    assert ours.try_to(ours.log.close) == plain.try_to(plain.log.close)
    assert ours.contents() == plain.contents()


STATES = st.builds(
    SlotState,
    **{
        name: st.integers(0, 2**62)
        for name in SlotState._fields
        if name not in ("segment_count", "leader_epoch", "start_reason", "clean", "poisoned")
        and not name.startswith("has_")
    },
    segment_count=st.integers(0, 2**32 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1),
    start_reason=st.sampled_from(StartReason),
    clean=st.booleans(),
    poisoned=st.booleans(),
    has_producers=st.booleans(),
    has_transactions=st.booleans(),
)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**63 - 1), STATES)
def test_a_slot_has_the_same_bytes(number: int, state: SlotState) -> None:
    from foldlog.log.single_appends import encode_slot

    assert encode_slot(number, state) == _encode(number, state)


def calls_of(act: Callable[[], object]) -> list[str]:
    """The Python functions of ours that it calls."""
    source = str(Path(foldlog.__file__).parent)
    called: list[str] = []

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(source):
            called.append(frame.f_code.co_name)

    sys.setprofile(profile)
    try:
        act()
    finally:
        sys.setprofile(None)
    return called


def test_an_append_has_few_python_calls(tmp_path: Path) -> None:
    """In Python it is about a hundred; each takes a quarter of a microsecond, and more."""
    with foldlog.open(tmp_path / "log") as log:
        log.create_topic(TOPIC)
        for _ in range(3):
            log.append(TOPIC, b"before")
        fewest = min((calls_of(lambda: log.append(TOPIC, b"value")) for _ in range(5)), key=len)
        with in_python():
            directory_of(log)._accumulator.of(TOPIC).queues[0].single = None
            most = calls_of(lambda: log.append(TOPIC, b"value"))
    assert len(fewest) <= 24, fewest
    assert len(most) > 2 * len(fewest), most


def test_a_failed_sync_reaches_all_who_wait_and_is_never_tried_again() -> None:
    world = World()
    world.log.append(TOPIC, b"durable", partition=0)
    world.fail_next(Kind.SYNC, errno.EIO, 0.0)
    told: list[object] = []

    def append() -> None:
        told.append(world.try_to(lambda: world.log.append(TOPIC, b"lost", partition=0)))

    threads = [threading.Thread(target=append) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one[0] for one in told if isinstance(one, tuple)] == [PartitionPoisoned] * 8
    syncs = len([1 for kind, _ in world.operations if kind is Kind.SYNC])
    with pytest.raises(PartitionPoisoned):
        world.log.append(TOPIC, b"refused", partition=0)
    assert syncs == len([1 for kind, _ in world.operations if kind is Kind.SYNC])
    assert [record.value for record in world.log.read(TOPIC, partition=0)] == [b"durable"]
    world.log.close()


def test_a_topic_that_is_deleted_and_made_again_gets_what_is_appended_then() -> None:
    with foldlog.open(":memory:") as log:
        for value in (b"old", b"new"):
            log.create_topic(TOPIC)
            for _ in range(3):
                log.append(TOPIC, value)
            assert {record.value for record in log.read(TOPIC)} == {value}
            log.delete_topic(TOPIC)
        with pytest.raises(foldlog.errors.UnknownTopic):
            log.append(TOPIC, b"gone")
    with pytest.raises(LogClosed):
        log.append(TOPIC, b"closed")


def test_two_partitions_share_the_journal(tmp_path: Path) -> None:
    files = PosixFiles()
    small = JournalSettings(begin_syncs=1, first_bytes=1 << 16)
    broker = Broker.open(str(tmp_path / "log"), files=files, journal=small)
    with foldlog.Log(LocalBackend(broker, files)) as log:
        log.create_topic(TOPIC, PARTITIONS)
        offsets = [log.append(TOPIC, b"%d" % number, partition=number % 2).offset for number in range(4)]
        while not broker.journal_counts().files:
            offsets.append(log.append(TOPIC, b"%d" % len(offsets), partition=len(offsets) % 2).offset)
        for _ in range(20):
            offsets.append(log.append(TOPIC, b"%d" % len(offsets), partition=len(offsets) % 2).offset)
        assert broker.journal_counts().commits
        assert offsets == [number // 2 for number in range(len(offsets))]
    with foldlog.open(tmp_path / "log") as log:
        found = [[record.value for record in log.read(TOPIC, partition=number)] for number in range(2)]
        assert found == [[b"%d" % one for one in range(number, len(offsets), 2)] for number in range(2)]


def test_threads_share_syncs_and_a_reader_that_waits_is_woken(tmp_path: Path) -> None:
    with foldlog.open(tmp_path / "log") as log:
        log.create_topic(TOPIC)
        log.append(TOPIC, b"first")
        follower = log.read(TOPIC, start=1, follow=True, timeout_ms=60_000)
        threads = [threading.Thread(target=log.append, args=(TOPIC, b"later")) for _ in range(20)]
        for thread in threads:
            thread.start()
        assert [next(follower).offset for _ in range(20)] == list(range(1, 21))
        for thread in threads:
            thread.join()
        assert broker_of(log).writable_partition(TOPIC, 0).durable_offset == 21
