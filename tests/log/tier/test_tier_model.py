"""A tiered partition against a plain list: hypothesis appends, rolls, copies, expires, deletes, reopens, cuts power.

Disk and store are one simulated disk, so a cut hits both at any operation. The model is that of every other partition:
where a record is makes no difference to what is read. Besides, after each round: what the manifest names is there, byte
for byte, and nothing else is.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from faults.one_partition import START_MS, make_directory
from foldlog.errors import OffsetOutOfRange
from foldlog.log.tier.verification import verify_object
from foldlog.testing.history import Found, Sent
from foldlog.testing.power_loss import Fate, PowerLossFiles
from foldlog.testing.sim_clock import SimClock
from log.tier.tiered_log import STORE, TieredLog, tier_config

VALUES = st.one_of(st.binary(max_size=40), st.integers(200, 900).map(lambda size: b"v" * size))
JITTER_MS = st.integers(-40, 40)


class TierMachine(RuleBasedStateMachine):
    """Owns the disk, the clock and the open log; the history in `log` is the model."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = SimClock(START_MS)
        self.files = PowerLossFiles()

    @initialize(
        segment_records=st.sampled_from([1, 3]),
        retention_bytes=st.sampled_from([-1, 3000]),
        retention_ms=st.sampled_from([-1, 60_000]),
        local_retention_ms=st.sampled_from([-2, 0, 100]),
        local_retention_bytes=st.sampled_from([-2, 1000]),
    )
    def open(self, **given: Any) -> None:
        make_directory(self.files)
        self.files.make_directory(STORE)
        self.files.sync_directory("/")
        self.config = tier_config(**given)
        self.log = TieredLog(self.files, self.config, clock=self.clock)
        self.files.sync_directory("data")

    @rule(records=st.lists(st.tuples(VALUES, JITTER_MS), min_size=1, max_size=4), wait=st.booleans())
    def append(self, records: list[tuple[bytes, int]], wait: bool) -> None:
        self.log.append([Sent(b"k", value, self.clock.now_ms() + jitter) for value, jitter in records], wait=wait)

    @rule()
    def sync(self) -> None:
        self.log.wait(self.log.partition.log_end_offset)

    @rule(by_ms=st.sampled_from([1, 200, 70_000]))
    def time_passes(self, by_ms: int) -> None:
        self.clock.advance(by_ms)

    @rule()
    def roll(self) -> None:
        self.log.partition.roll()

    @rule()
    def work(self) -> None:
        self.log.work()
        self._compare_store()

    @rule()
    def retain(self) -> None:
        self.log.enforce_retention()

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        partition = self.log.partition
        self.log.delete_records(data.draw(st.integers(partition.log_start_offset, partition.high_watermark)))

    @rule(cleanly=st.booleans())
    def reopen(self, cleanly: bool) -> None:
        self.log.reopen(cleanly=cleanly)

    @rule(seed=st.integers(0, 1 << 16), fates=st.sampled_from([(Fate.DROPPED,), (Fate.KEPT,), tuple(Fate)]))
    def power_cut(self, seed: int, fates: tuple[Fate, ...]) -> None:
        rng = random.Random(seed)
        image = self.files.image(rng.choices(fates, k=len(self.files.unsynced())), rng)
        self.files = PowerLossFiles(image)
        self.log.files = self.files
        self.log = TieredLog(self.files, self.config, clock=self.clock, history=self.log.history)
        self.log.history.forget_unwritten(self.log.partition.log_end_offset)

    def _compare_store(self) -> None:
        log = self.log
        entries = list(log.tier.entries(log.partition.log_start_offset))
        for entry in entries:
            verify_object(log.tier, entry)
        assert log.objects() == sorted(entry.name.removeprefix("segments/") for entry in entries)
        assert len(log.objects("manifests/")) <= 2
        if entries:
            assert entries[0].base_offset <= log.partition.log_start_offset
            assert log.tier.manifest().end_offset >= log.partition.local_start_offset

    @invariant()
    def agrees_with_the_list(self) -> None:
        if not hasattr(self, "log"):
            return
        log, partition = self.log, self.log.partition
        start, end = partition.log_start_offset, partition.high_watermark
        assert start <= partition.local_start_offset <= end
        found = log.read_all()
        sent = log.history.sent
        assert found == [
            Found(offset, sent[offset].key, sent[offset].value, sent[offset].timestamp_ms)
            for offset in range(start, end)
        ]
        if start:
            with pytest.raises(OffsetOutOfRange):
                partition.read(start - 1)
        self._times_agree(found)

    def _times_agree(self, found: list[Found]) -> None:
        partition = self.log.partition
        if not found:
            return
        middle = found[len(found) // 2]
        first = next(one for one in found if one.timestamp_ms >= middle.timestamp_ms)
        assert partition.offset_at_time(middle.timestamp_ms) == (first.offset, first.timestamp_ms)
        latest = max(found, key=lambda one: (one.timestamp_ms, -one.offset))
        assert partition.max_timestamp_offset() == (latest.offset, latest.timestamp_ms)


TestTierModel = TierMachine.TestCase
TestTierModel.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)


class LongTierMachine(TierMachine):
    """More of it."""


TestTierModelAtLength = pytest.mark.faults(LongTierMachine.TestCase)
TestTierModelAtLength.settings = settings(max_examples=250, stateful_step_count=50, deadline=None)
