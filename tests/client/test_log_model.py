"""The library against a model of plain lists: whatever is done to it, in whatever order, they agree.

The model keeps, for each partition, the records in a list and the log start. Retention and compaction may choose how
much they remove; what they may remove is checked, and the model then follows. Everything else has to match exactly,
also after a power cut.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import foldlog
from foldlog.testing.power_loss import Fate, PowerLossFiles
from foldlog.testing.sim_clock import SimClock

PARTITIONS = 2
RETENTION_MS = 10_000
HORIZON_MS = 5_000
TOPICS: dict[str, dict[str, object]] = {
    "plain": {"foldlog.segment.records": 4, "retention.ms": RETENTION_MS, "index.interval.bytes": 100},
    "keyed": {
        "segment.bytes": 1024,
        "cleanup.policy": "compact",
        "delete.retention.ms": HORIZON_MS,
        "index.interval.bytes": 100,
    },
}
GROUPS = ("fraud", "analytics")

topics = st.sampled_from(sorted(TOPICS))
partitions = st.integers(0, PARTITIONS - 1)
keys = st.sampled_from([b"a", b"b", b"c", b"d"])
values = st.one_of(st.none(), st.binary(max_size=300))
places = st.floats(0, 1)


@dataclass(frozen=True, slots=True)
class Kept:
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(slots=True)
class Model:
    """One partition."""

    start: int = 0
    end: int = 0
    records: list[Kept] = field(default_factory=list)

    def add(self, timestamp_ms: int, key: bytes | None, value: bytes | None) -> int:
        offset = self.end
        self.records.append(Kept(offset, timestamp_ms, key, value))
        self.end += 1
        return offset

    def readable_from(self, offset: int) -> list[Kept]:
        return [record for record in self.records if record.offset >= offset]


def kept(record: foldlog.Record) -> Kept:
    return Kept(record.offset, record.timestamp_ms, record.key, record.value)


class LogMachine(RuleBasedStateMachine):
    @initialize()
    def open_it(self) -> None:
        self.clock = SimClock()
        self.files = PowerLossFiles()
        self.model = {(topic, number): Model() for topic in TOPICS for number in range(PARTITIONS)}
        self.committed: dict[tuple[str, str, int], int] = {}
        self.open()
        for topic, config in TOPICS.items():
            self.log.create_topic(topic, PARTITIONS, config)

    def open(self) -> None:
        self.log = self.writer = foldlog.open("data", clock=self.clock, files=self.files, background=False)
        self.producer = self.log.producer(linger_ms=1e12, batch_records=5, compression="lz4")

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()

    # --- writing ------------------------------------------------------------------------------------------------------

    @rule(topic=topics, number=partitions, key=keys, value=values)
    def append(self, topic: str, number: int, key: bytes, value: bytes | None) -> None:
        expected = self.model[topic, number].add(self.clock.now_ms(), key, value)
        placed = self.log.append(topic, value, key=key, partition=number)
        assert placed == foldlog.RecordMetadata(topic, number, expected, self.clock.now_ms())

    @rule(key=keys, value=values)
    def append_by_key(self, key: bytes, value: bytes | None) -> None:
        placed = self.log.append("plain", value, key=key)
        assert placed.offset == self.model["plain", placed.partition].add(self.clock.now_ms(), key, value)

    @rule(topic=topics, number=partitions, batch=st.lists(st.tuples(keys, values), min_size=1, max_size=12))
    def send_and_flush(self, topic: str, number: int, batch: list[tuple[bytes, bytes | None]]) -> None:
        sent = [self.producer.send(topic, value, key=key, partition=number) for key, value in batch]
        self.producer.flush()
        expected = [self.model[topic, number].add(self.clock.now_ms(), key, value) for key, value in batch]
        assert [future.result(0).offset for future in sent] == expected

    @rule(batch=st.lists(values, min_size=1, max_size=12))
    def send_keyless(self, batch: list[bytes | None]) -> None:
        for future, value in [(self.producer.send("plain", value), value) for value in batch]:
            self.producer.flush()
            placed = future.result(0)
            assert placed.offset == self.model["plain", placed.partition].add(self.clock.now_ms(), None, value)

    # --- reading ------------------------------------------------------------------------------------------------------

    @rule(topic=topics, number=partitions, place=places, max_records=st.one_of(st.none(), st.integers(1, 10)))
    def read_anywhere(self, topic: str, number: int, place: float, max_records: int | None) -> None:
        model = self.model[topic, number]
        start = model.start + round(place * (model.end - model.start))
        found = [kept(one) for one in self.log.read(topic, number, start=start, max_records=max_records)]
        assert found == model.readable_from(start)[:max_records]

    @rule(topic=topics, number=partitions, place=places)
    def seek_by_time(self, topic: str, number: int, place: float) -> None:
        begun_ms = SimClock().now_ms()
        wanted_ms = begun_ms + round(place * (self.clock.now_ms() - begun_ms + 1))
        model = self.model[topic, number]
        expected = next((one.offset for one in model.records if one.timestamp_ms >= wanted_ms), None)
        assert self.log.offsets_at(topic, wanted_ms)[number] == expected

    @rule(topic=topics)
    def read_as_a_table(self, topic: str) -> None:
        table = self.log.read_arrow(topic, columns=["partition", "offset", "key", "value"])
        expected = [
            {"partition": number, "offset": one.offset, "key": one.key, "value": one.value}
            for number in range(PARTITIONS)
            for one in self.model[topic, number].records
        ]
        assert table.to_pylist() == expected

    @rule(group=st.sampled_from(GROUPS), topic=topics, count=st.integers(1, 20), members=st.integers(1, 3))
    def consume_and_commit(self, group: str, topic: str, count: int, members: int) -> None:
        consumers = [
            self.log.consumer([topic], group=group, auto_offset_reset="earliest", auto_commit=False)
            for _ in range(members)
        ]
        for consumer in consumers:
            self.consume(consumer, group, topic, count)
            consumer.commit()
        for consumer in consumers:
            consumer.close()

    def consume(self, consumer: foldlog.Consumer, group: str, topic: str, count: int) -> None:
        positions: dict[int, int] = {}
        for _, number in consumer.assignment():
            committed = self.committed.get((group, topic, number), 0)
            positions[number] = max(committed, self.model[topic, number].start)
        records = consumer.poll(max_records=count)
        seen: dict[int, list[Kept]] = {number: [] for number in positions}
        for record in records:
            seen[record.partition].append(kept(record))
        for number, found in seen.items():
            left = self.model[topic, number].readable_from(positions[number])
            assert found == left[: len(found)]
            # Where all was handed out, the place is the end; compaction may have left a gap before it.
            place = consumer.position(topic, number)
            assert (found[-1].offset + 1 if found else positions[number]) <= max(place, positions[number])
            assert not [one for one in left[len(found) :] if one.offset < place]
            self.committed[group, topic, number] = place
        available = sum(
            len(self.model[topic, number].readable_from(position)) for number, position in positions.items()
        )
        assert len(records) == min(count, available)

    # --- time, cleaning up, restarts ----------------------------------------------------------------------------------

    @rule(by_ms=st.integers(1, RETENTION_MS))
    def time_passes(self, by_ms: int) -> None:
        self.clock.advance(by_ms)

    @rule()
    def enforce_retention(self) -> None:
        self.writer.enforce_retention()
        for (topic, number), model in self.model.items():
            start, end = self.log.offsets(topic)[number]
            assert model.start <= start <= end == model.end
            gone = [one for one in model.records if one.offset < start]
            if topic == "keyed":
                assert not gone
            assert all(one.timestamp_ms < self.clock.now_ms() - RETENTION_MS for one in gone)
            model.start = start
            model.records = model.readable_from(start)

    @rule()
    def compact(self) -> None:
        self.writer.compact("keyed")
        for number in range(PARTITIONS):
            model = self.model["keyed", number]
            left = [kept(one) for one in self.log.read("keyed", number)]
            newest = {one.key: one for one in model.records}
            assert [one for one in model.records if one in left] == left, "nothing invented, nothing reordered"
            for one in model.records:
                if newest[one.key] == one and one.value is not None:
                    assert one in left, "the newest of its key stays"
            model.start = self.log.offsets("keyed")[number][0]
            model.records = left

    @rule(seed=st.integers(0, 2**32 - 1))
    def power_cut(self, seed: int) -> None:
        """Everything the model holds was acknowledged, so everything is still there, whatever became of the rest."""
        rng = random.Random(seed)
        image = self.files.image([rng.choice(list(Fate)) for _ in self.files.unsynced()], rng)
        self.log.close()  # what the dead process would have done to the old disk
        self.files = PowerLossFiles(image)
        self.open()

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.open()

    @rule()
    @precondition(lambda self: self.committed)
    def look_at_commits(self) -> None:
        for group in GROUPS:
            expected = {
                (topic, number): offset for (name, topic, number), offset in self.committed.items() if name == group
            }
            assert {place: found.offset for place, found in self.log.committed(group).items()} == expected

    @invariant()
    def bounds_agree(self) -> None:
        for topic in TOPICS:
            expected = {
                number: (self.model[topic, number].start, self.model[topic, number].end) for number in range(PARTITIONS)
            }
            found: dict[int, Any] = dict(self.log.offsets(topic))
            assert found == expected


LogMachine.TestCase.settings = settings(stateful_step_count=40)
TestTheLogAgreesWithItsModel = LogMachine.TestCase
