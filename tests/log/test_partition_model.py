"""One partition against a plain list: hypothesis appends, reads, seeks, rolls, retains, compacts, reopens, cuts power.

The model is the list of records sent and what was promised about them (foldlog.testing.history). After every step the
partition and the model agree about its start, its end and everything in between. A power cut replaces the disk by one
of the images that could be left of it; from then on the model holds what was found, as any user would have to.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from faults.one_partition import START_MS, OnePartition, make_directory
from foldlog.errors import OffsetOutOfRange
from foldlog.log.config import LogConfig
from foldlog.testing.history import Found, Sent
from foldlog.testing.power_loss import Fate, PowerLossFiles
from foldlog.testing.sim_clock import SimClock

KEYS = st.sampled_from([b"a", b"b", b"c"])
VALUES = st.one_of(st.none(), st.binary(max_size=40), st.integers(200, 900).map(lambda size: b"v" * size))
JITTER_MS = st.integers(-40, 40)


class PartitionMachine(RuleBasedStateMachine):
    """Owns the disk, the clock and the open log; the history in `log` is the model."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = SimClock(START_MS)
        self.files = PowerLossFiles()

    @initialize(
        compact=st.booleans(),
        segment_bytes=st.sampled_from([1024, 4096]),
        segment_records=st.sampled_from([0, 3]),
        retention_bytes=st.sampled_from([-1, 3000]),
    )
    def open(self, compact: bool, segment_bytes: int, segment_records: int, retention_bytes: int) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            segment_records=segment_records,
            index_interval_bytes=200,
            retention_bytes=retention_bytes,
            retention_ms=60_000,
            compact=compact,
            delete_retention_ms=1000,
        )
        make_directory(self.files)
        self.log = OnePartition(self.files, self.config, clock=self.clock)
        self.files.sync_directory("data")

    @rule(records=st.lists(st.tuples(KEYS, VALUES, JITTER_MS), min_size=1, max_size=4), wait=st.booleans())
    def append(self, records: list[tuple[bytes, bytes | None, int]], wait: bool) -> None:
        sent = [Sent(key, value, self.clock.now_ms() + jitter) for key, value, jitter in records]
        self.log.append(sent, wait=wait)

    @rule()
    def sync(self) -> None:
        self.log.wait(self.log.partition.log_end_offset)

    @rule()
    def roll(self) -> None:
        self.log.partition.roll()
        self.log.history.acknowledged(self.log.partition.durable_offset)

    @rule(by_ms=st.sampled_from([10, 500, 30_000]))
    def time_passes(self, by_ms: int) -> None:
        self.clock.advance(by_ms)

    @rule()
    def enforce_retention(self) -> None:
        self.log.enforce_retention()
        self.log.history.acknowledged(self.log.partition.durable_offset)

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        start, end = self.log.partition.log_start_offset, self.log.partition.high_watermark
        self.log.delete_records(start + int(part * (end - start)))
        self.log.history.acknowledged(self.log.partition.durable_offset)

    @precondition(lambda self: self.config.compact)
    @rule()
    def compact(self) -> None:
        self.log.compact(tombstones_may_go=True)
        self.log.history.acknowledged(self.log.partition.durable_offset)

    @rule(cleanly=st.booleans())
    def reopen(self, cleanly: bool) -> None:
        self.log.reopen(cleanly=cleanly)

    @rule(seed=st.integers(0, 2**32))
    def power_cut(self, seed: int) -> None:
        rng = random.Random(seed)
        image = self.files.image(rng.choices(list(Fate), k=len(self.files.unsynced())), rng)
        self.files = PowerLossFiles(image)
        self.log = OnePartition(self.files, self.config, clock=self.clock, history=self.log.history)
        partition = self.log.partition
        self.log.history.judge(self.log.read_all(), partition.log_start_offset, partition.log_end_offset)
        self.log.history.forget_unwritten(partition.log_end_offset)

    @rule(part=st.floats(0, 1))
    def read_anywhere(self, part: float) -> None:
        """A read at any offset begins with the first record at or after it."""
        partition = self.log.partition
        start, end = partition.log_start_offset, partition.high_watermark
        offset = start + int(part * (end - start))
        expected = [record for record in self.log.read_all() if record.offset >= offset]
        found, next_offset = self.log.read_at(offset)
        assert found == expected[: len(found)]
        assert bool(found) == bool(expected) or next_offset > offset
        with pytest.raises(OffsetOutOfRange):
            partition.read(end + 1)
        if start > 0:
            with pytest.raises(OffsetOutOfRange):
                partition.read(start - 1)

    @rule(part=st.floats(0, 1))
    def seek_by_time(self, part: float) -> None:
        records = self.log.read_all()
        wanted = START_MS - 50 + int(part * (self.clock.now_ms() - START_MS + 100))
        first = next((record for record in records if record.timestamp_ms >= wanted), None)
        expected = (first.offset, first.timestamp_ms) if first is not None else None
        assert self.log.partition.offset_at_time(wanted) == expected

    @invariant()
    def log_and_model_agree(self) -> None:
        if not hasattr(self, "log"):
            return
        log, partition = self.log, self.log.partition
        assert partition.log_end_offset == len(log.history.sent)
        assert partition.high_watermark == partition.durable_offset >= log.history.acknowledged_end
        assert log.history.start_at_least == partition.log_start_offset
        found: list[Found] = log.read_all()
        log.history.judge(found, partition.log_start_offset, partition.high_watermark)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()


PartitionMachine.TestCase.settings = settings(
    max_examples=3 * settings().max_examples, stateful_step_count=40, deadline=None
)
test_a_partition_behaves_like_a_list_through_restarts_and_power_cuts = PartitionMachine.TestCase
