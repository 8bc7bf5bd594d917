"""Transactions against a model of what a read_committed reader of Kafka sees: several producers, plain batches, markers
of both versions, restarts clean and unclean, rolls, compaction. The writer and a reading process are asked the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from foldlog.errors import InvalidProducerEpoch, TransactionNotOpen
from foldlog.log.follower import FollowedPartition
from foldlog.log.partition import Appended, Partition
from foldlog.log.reading import without_aborted
from foldlog.log.transactions import ToldAborted, spans_without
from foldlog.records.loops import decode, pack, walk
from log.small_partition import SmallPartition

PRODUCERS = [1, 2, 3]
KEYS = [b"a", b"b", b"c"]
Place = tuple[int, bytes | None, bytes | None]
"""Offset, key and value of a record."""


@dataclass
class Transaction:
    """One transaction as the model has it; `marker` is the offset of its end."""

    records: list[Place] = field(default_factory=list)
    marker: int | None = None
    is_committed: bool = False


@dataclass
class Sender:
    """What a producer knows of itself."""

    epoch: int = 0
    sequence: int = 0
    open: Transaction | None = None
    last: tuple[bytes, Appended] | None = None


class TransactionsMachine(RuleBasedStateMachine):
    """Does the same to a partition and to the model, and compares after each step."""

    @initialize(segment_records=st.integers(2, 12), compact=st.booleans())
    def begin(self, segment_records: int, compact: bool) -> None:
        self.config: dict[str, Any] = {
            "segment_records": segment_records,
            "compact": compact,
            "delete": not compact,
            "delete_retention_ms": 50,
        }
        self.small = SmallPartition(**self.config)
        self.follower = self.small.reader()
        self.senders = {number: Sender() for number in PRODUCERS}
        self.plain: list[Place] = []
        self.transactions: list[Transaction] = []
        self.end = 0
        self.is_compacted = False

    @property
    def partition(self) -> Partition:
        return self.small.partition

    def took(self, appended: Appended, *, sync: bool) -> None:
        assert appended.base_offset == self.end
        self.end = appended.next_offset
        if sync:
            self.partition.wait_acknowledged(appended.next_offset)

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=3), sync=st.booleans())
    def write_plain(self, keys: list[bytes], sync: bool) -> None:
        records = self.numbered(keys)
        self.plain += records
        self.took(self.partition.append(packed(self.small, records)), sync=sync)

    def numbered(self, keys: list[bytes]) -> list[Place]:
        return [(self.end + at, key, b"%d" % (self.end + at)) for at, key in enumerate(keys)]

    @rule(
        number=st.sampled_from(PRODUCERS),
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=3),
        sync=st.booleans(),
    )
    def send(self, number: int, keys: list[bytes], sync: bool) -> None:
        sender, records = self.senders[number], self.numbered(keys)
        batch = packed(
            self.small,
            records,
            producer_id=number,
            producer_epoch=sender.epoch,
            base_sequence=sender.sequence,
            transactional=True,
        )
        sent = bytes(batch)
        if sender.open is None:
            try:
                self.partition.append(batch)
                raise AssertionError("a transaction began by itself")
            except TransactionNotOpen:
                pass
            sender.open = Transaction()
            self.transactions.append(sender.open)
            appended = self.partition.append(bytearray(sent), begins_transaction=True)
        else:
            appended = self.partition.append(batch)
        sender.open.records += records
        sender.sequence += len(records)
        sender.last = (sent, appended)
        self.took(appended, sync=sync)

    @rule(number=st.sampled_from(PRODUCERS))
    def send_again(self, number: int) -> None:
        last = self.senders[number].last
        if last is not None:
            again = self.partition.append(bytearray(last[0]))
            assert (again.is_duplicate, again.base_offset) == (True, last[1].base_offset)

    @rule(number=st.sampled_from(PRODUCERS), commit=st.booleans(), version=st.sampled_from([1, 2]), sync=st.booleans())
    def end_transaction(self, number: int, commit: bool, version: int, sync: bool) -> None:
        sender = self.senders[number]
        if version == 2:
            sender.epoch, sender.sequence, sender.last = sender.epoch + 1, 0, None
        appended = self.partition.append_marker(number, sender.epoch, 0, commit=commit, transaction_version=version)
        if sender.open is not None:
            sender.open.marker, sender.open.is_committed = appended.base_offset, commit
            sender.open = None
        self.took(appended, sync=sync)

    @precondition(lambda self: any(sender.epoch for sender in self.senders.values()))
    @rule()
    def zombies_are_refused(self) -> None:
        for number, sender in self.senders.items():
            if sender.epoch:
                batch = packed(
                    self.small,
                    [(0, b"a", b"zombie")],
                    producer_id=number,
                    producer_epoch=sender.epoch - 1,
                    base_sequence=0,
                    transactional=True,
                )
                try:
                    self.partition.append(batch, begins_transaction=True)
                    raise AssertionError("a zombie wrote")
                except InvalidProducerEpoch:
                    pass

    @rule()
    def sync(self) -> None:
        self.partition.sync()

    @rule()
    def roll(self) -> None:
        self.partition.roll()

    @rule(clean=st.booleans(), loses_snapshots=st.booleans())
    def reopen(self, clean: bool, loses_snapshots: bool) -> None:
        if clean:
            self.small.close()
        if loses_snapshots:
            for name in self.small.names(".snapshot"):
                self.small.files.unlink(f"{self.partition.path}/{name}")
        self.small.reopen(**self.config)
        for sender in self.senders.values():
            sender.last = None

    @precondition(lambda self: self.config["compact"])
    @rule(times=st.integers(1, 3), waits_ms=st.sampled_from([0, 100]))
    def compact(self, times: int, waits_ms: int) -> None:
        for _ in range(times):
            self.partition.compact(force=True)
            self.small.clock.advance(waits_ms)
        self.is_compacted = True
        for sender in self.senders.values():
            sender.last = None

    # What has to be seen

    def undecided(self) -> list[int]:
        return [
            one.records[0][0]
            for one in self.transactions
            if one.marker is None or one.marker >= self.partition.high_watermark
        ]

    def stable(self) -> int:
        return min([self.partition.high_watermark, *self.undecided()])

    @invariant()
    def the_last_stable_offset_is_the_models(self) -> None:
        if hasattr(self, "small"):
            assert self.partition.last_stable_offset == self.stable()
            assert self.follower.last_stable_offset == self.stable()
            found = {(one.producer_id, one.first_offset) for one in self.partition.open_transactions()}
            assert found == {
                (number, sender.open.records[0][0])
                for number, sender in self.senders.items()
                if sender.open is not None
            }

    @invariant()
    def readers_see_what_is_committed(self) -> None:
        if not hasattr(self, "small"):
            return
        stable = self.stable()
        records = self.plain + [place for one in self.transactions if one.is_committed for place in one.records]
        expected = sorted(place for place in records if place[0] < stable)
        for log in (self.partition, self.follower):
            for max_bytes in (1, 1 << 20):
                seen = committed(log, stable, max_bytes, as_client=False)
                assert seen == committed(log, stable, max_bytes, as_client=True)
                if not self.is_compacted:
                    assert seen == expected
                else:
                    assert set(seen) <= set(expected)
                    assert {key: place for place in seen for key in place[1:2]} == {
                        key: place for place in expected for key in place[1:2]
                    }


def packed(small: SmallPartition, records: list[Place], **fields: Any) -> bytearray:
    now_ms = small.clock.now_ms()
    return pack([(now_ms, key, value, ()) for _, key, value in records], **fields)


def committed(log: Partition | FollowedPartition, stable: int, max_bytes: int, *, as_client: bool) -> list[Place]:
    """All committed records; `as_client`: left out as a client of Kafka does it, by what the answer names."""
    seen: list[Place] = []
    offset = log.log_start_offset
    while offset < stable:
        found = log.read(offset, max_bytes, committed=True)
        assert found.next_offset > offset
        data = without_aborted(found).data
        if as_client:
            told = ToldAborted((one.first_offset, one.producer_id) for one in found.aborted)
            spans = spans_without(told, walk(found.data).headers)
            data = memoryview(b"".join(found.data[start:stop] for start, stop in spans))
        seen += [(one.offset, one.key, one.value) for one in decode(data, "events", 0, start_offset=offset)[0]]
        offset = found.next_offset
    return seen


TestTransactions = TransactionsMachine.TestCase
TestTransactions.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
