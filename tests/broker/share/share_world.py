"""A broker whose share group is driven by a test, and a plain model of every record: whose it is, until when, how often
it was delivered, and whether it is done. What the broker gives is compared with the model, record by record."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.small_broker import die, open_broker, write
from foldlog.broker.broker import Broker
from foldlog.broker.share.messages import AcknowledgedBatch, AcknowledgeType, AcquiredRange
from foldlog.errors import InvalidRecordState
from foldlog.files.memory import MemoryFiles
from foldlog.testing.sim_clock import SimClock

GROUP = "workers"
TOPIC = "jobs"
PARTITIONS = 2
LOCK_MS = 30_000
DELIVERIES_MAX = 5
LOCKS_MAX = 100


@dataclass
class ModelRecord:
    """One record in the group, as it should be."""

    count: int = 0
    member: str | None = None
    deadline_ms: float = 0.0
    is_done: bool = False

    def release(self) -> None:
        self.member = None
        self.is_done = self.count >= DELIVERIES_MAX


@dataclass
class ShareWorld:
    """The broker and the model. Members are names: whoever takes is one."""

    clock: SimClock = field(default_factory=SimClock)
    files: MemoryFiles = field(default_factory=MemoryFiles)
    records: dict[tuple[int, int], ModelRecord] = field(default_factory=dict)
    accepted: set[tuple[int, int]] = field(default_factory=set)
    broker: Broker = field(init=False)

    def __post_init__(self) -> None:
        self.broker = open_broker(self.files, self.clock)
        self.broker.create_topic(TOPIC, PARTITIONS)
        self.broker.group_configs.change(
            GROUP,
            lambda own: {"share.auto.offset.reset": "earliest", "share.partition.max.record.locks": str(LOCKS_MAX)},
        )

    # --- what happens -------------------------------------------------------------------------------------------------

    def produce(self, number: int, count: int) -> None:
        end = write(self.broker, TOPIC, number, *[b"job"] * count)
        self.records.update({(number, offset): ModelRecord() for offset in range(end - count, end)})

    def take(self, member: str, number: int, records_max: int, *, whole_batches: bool = False) -> list[AcquiredRange]:
        taken = self.broker.shares.take(
            GROUP,
            member,
            TOPIC,
            number,
            max_bytes=1 << 16,
            records_max=records_max,
            whole_batches=whole_batches,
        )
        if taken.saved is not None:
            taken.saved.wait()
        self._time_out()
        for first, last, count in taken.acquired:
            for offset in range(first, last + 1):
                record = self.records[number, offset]
                assert not record.is_done, f"{number}-{offset} is done, and was given again"
                assert record.member is None, f"{number}-{offset} is {record.member}'s, and was given to {member}"
                record.count += 1
                record.member, record.deadline_ms = member, self.clock.monotonic_ms() + LOCK_MS
                assert count == record.count <= DELIVERIES_MAX
        if not whole_batches:
            assert taken.record_count <= records_max
        assert len(self.held(number)) <= LOCKS_MAX
        return taken.acquired

    def acknowledge(self, member: str, number: int, first: int, last: int, *types: AcknowledgeType) -> bool:
        self._time_out()
        wanted = [(number, offset) for offset in range(first, last + 1)]
        # What lies below the start of the group is done: nobody minds what is said of it.
        start = self.start(number)
        mine = [one for one in wanted if one[1] >= start]
        is_allowed = all(one in self.records and self.records[one].member == member for one in mine)
        try:
            batch = AcknowledgedBatch(first, last, types)
            saved = self.broker.shares.acknowledge(GROUP, member, TOPIC, number, [batch])
        except InvalidRecordState:
            assert not is_allowed
            return False
        assert is_allowed
        if saved is not None:
            saved.wait()
        for one in mine:
            self._apply(one, types[0] if len(types) == 1 else types[one[1] - first])
        return True

    def _apply(self, one: tuple[int, int], kind: AcknowledgeType) -> None:
        record = self.records[one]
        if kind is AcknowledgeType.RENEW:
            record.deadline_ms = self.clock.monotonic_ms() + LOCK_MS
        elif kind is AcknowledgeType.RELEASE:
            record.release()
        else:
            record.member, record.is_done = None, True
            if kind is AcknowledgeType.ACCEPT:
                self.accepted.add(one)

    def leave(self, member: str) -> None:
        self._time_out()
        self.broker.shares.member_gone(GROUP, member)
        for record in self.records.values():
            if record.member == member:
                record.release()

    def advance(self, by_ms: int) -> None:
        self.clock.advance(by_ms)
        self.broker.run_due()
        self._time_out()

    def crash(self) -> None:
        """The broker is killed, and starts again: what was written stays, who has locked what is forgotten."""
        die(self.files)
        self._start_again()

    def restart(self) -> None:
        self.broker.close()
        self._start_again()

    def _start_again(self) -> None:
        self.broker = open_broker(self.files, self.clock)
        for record in self.records.values():
            if record.member is not None:
                # Unlike a release, this does not end the last delivery; the next take finds the count at its limit.
                record.member = None
                record.is_done = record.count >= DELIVERIES_MAX

    def delete_records(self, number: int, before: int) -> None:
        self.broker.partition(TOPIC, number).delete_records(before)  # type: ignore[union-attr]
        for (other, offset), record in self.records.items():
            if other == number and offset < before:
                record.member, record.is_done = None, True

    def _time_out(self) -> None:
        for record in self.records.values():
            if record.member is not None and record.deadline_ms <= self.clock.monotonic_ms():
                record.release()

    # --- what is there ------------------------------------------------------------------------------------------------

    def held(self, number: int, member: str | None = None) -> list[int]:
        """Offsets that are acquired, by one member or by any."""
        return sorted(
            offset
            for (other, offset), record in self.records.items()
            if other == number and record.member is not None and member in (None, record.member)
        )

    def start(self, number: int) -> int:
        found = {one.partition: one.start_offset for one in self.broker.shares.describe(GROUP)}
        return found.get(number, 0)

    def check(self) -> None:
        """Where the group is, as the broker says, is where the model is."""
        for one in self.broker.shares.describe(GROUP):
            open_offsets = [
                offset
                for (number, offset), record in self.records.items()
                if number == one.partition and not record.is_done
            ]
            # A record whose last delivery was under way in a crash counts until somebody looks at it.
            assert one.start_offset <= min(open_offsets, default=one.start_offset)
            assert one.lag >= len(open_offsets)

    def drain(self) -> None:
        """Everything that is not done is delivered, accepted, and then nothing is left."""
        self.advance(2 * LOCK_MS)
        for number in range(PARTITIONS):
            while acquired := self.take("last", number, 50):
                for first, last, _ in acquired:
                    assert self.acknowledge("last", number, first, last, AcknowledgeType.ACCEPT)
        left = [one for one, record in self.records.items() if not record.is_done]
        assert not left, f"never given to anybody: {left}"
        for one in self.broker.shares.describe(GROUP):
            assert one.lag == 0
