"""Thousands of random schedules of producers, zombies, time and crashes, against the coordinator on a simulated clock.

The world around the coordinator is a model: a log of its records, of which a crash keeps any prefix that holds what was
acknowledged, and partitions that know of each producer its epoch and whether its transaction is open. A request is
taken apart into the steps of the store (record, markers, Complete), and other requests, crashes and time come in
between. Checked at each step:

- a transaction is committed in all its partitions or in none, and never ends both ways;
- Prepare goes only to the Complete of its kind;
- an acknowledged commit is committed, and nothing else is;
- of all producers of an id, at most one can still write in a transaction, the newest;
- the epoch of a producer id never falls, and none is given to two producers;
- a request that is repeated is answered as the first time;
- an id with an open or undecided transaction never expires.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from foldlog.broker.transactions.coordinator import EPOCH_MAX, TransactionCoordinator, complete_of
from foldlog.broker.transactions.state_format import (
    TransactionMetadata,
    TransactionState,
    encode_key,
    encode_value,
)
from foldlog.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    ProducerFenced,
    UnknownTransactionalId,
)
from foldlog.testing.sim_clock import SimClock

NAMES = ("a", "b")
KEYS = (("orders", 0), ("orders", 1), ("refunds", 0))
TIMEOUT_MS = 1_000
WEEK_MS = 7 * 24 * 3_600_000
ONWARD = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}
Step = Callable[[], None]


@dataclass
class Written:
    """A batch in a partition: which transaction of which client wrote it, and how it ended, if it has."""

    producer_id: int
    epoch: int
    transaction: object
    committed: bool | None = None


@dataclass
class ModelPartition:
    """What a log does with transactional batches and markers."""

    epochs: dict[int, int] = field(default_factory=dict)
    batches: list[Written] = field(default_factory=list)

    def opened(self, producer_id: int) -> list[Written]:
        return [one for one in self.batches if one.producer_id == producer_id and one.committed is None]

    def append(self, batch: Written) -> None:
        assert batch.epoch >= self.epochs.get(batch.producer_id, -1)
        self.epochs[batch.producer_id] = batch.epoch
        self.batches.append(batch)

    def mark(self, metadata: TransactionMetadata) -> None:
        known = self.epochs.get(metadata.producer_id, -1)
        assert metadata.producer_epoch >= known, "a marker comes with an older epoch"
        for batch in self.opened(metadata.producer_id):
            if metadata.client_version == 2:
                assert metadata.producer_epoch > batch.epoch, "a late batch could follow the marker"
            batch.committed = metadata.is_committing
        self.epochs[metadata.producer_id] = metadata.producer_epoch


@dataclass
class Client:
    """A producer as its own process sees it: it may be a zombie without knowing."""

    name: str
    version: int
    number: int
    producer: tuple[int, int] | None = None
    transaction: object | None = None
    is_over: bool = False
    last_end: tuple[tuple[int, int], bool, tuple[int, int]] | None = None


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = SimClock()
        self.next_id = 0
        self.records: list[tuple[str, TransactionMetadata | None]] = []
        self.durable = 0
        self.coordinator = self._new()
        self.partitions = {key: ModelPartition() for key in KEYS}
        self.clients: list[Client] = []
        self.newest: dict[str, Client] = {}
        self.identities: set[tuple[int, int]] = set()
        self.asked: dict[object, str] = {}
        self.steps: list[Step] = []
        self.crashes = self.commits = self.fenced = 0
        if seed % 2:  # the epochs are used up soon
            for name in NAMES:
                self.records.append(
                    (
                        name,
                        TransactionMetadata(
                            name, self._new_id(), EPOCH_MAX - 6, TIMEOUT_MS, updated_ms=self.clock.now_ms()
                        ),
                    )
                )
            self.crashes_and_opens(len(self.records))

    # --- the driver -------------------------------------------------------------------------------------------------

    def _new(self) -> TransactionCoordinator:
        return TransactionCoordinator(self.clock, self._new_id)

    def _new_id(self) -> int:
        self.next_id += 1
        return self.next_id

    def store(self, metadata: TransactionMetadata) -> int:
        """Append, unless the disk is full; then nothing has happened."""
        before = self.coordinator.get(metadata.transactional_id)
        if before is metadata:
            return len(self.records)
        if self.random.random() < 0.05:
            assert self.coordinator.get(metadata.transactional_id) is before
            raise DiskFull
        if before is not None:
            if before.state in ONWARD:
                assert metadata.state is ONWARD[before.state], f"{before.state} became {metadata.state}"
            if before.producer_id == metadata.producer_id:
                assert metadata.producer_epoch >= before.producer_epoch
        self.records.append((metadata.transactional_id, metadata))
        self.coordinator.apply(metadata)
        return len(self.records)

    def sync(self, upto: int | None = None) -> None:
        self.durable = max(self.durable, len(self.records) if upto is None else upto)

    def finish(self, name: str) -> None:
        """Markers, and then Complete; a crash may come between any two of these."""
        metadata = self.coordinator.get(name)
        if metadata is None or not metadata.state.is_prepared:
            return
        self.sync()
        left = self.random.sample(sorted(metadata.partitions), len(metadata.partitions))

        def mark() -> None:
            if self.coordinator.get(name) is not metadata:
                return
            if left:
                self.partitions[left.pop()].mark(metadata)
                self.steps.append(mark)
            else:
                self.store(self.coordinator.complete(name))

        self.steps.append(mark)

    def run_steps(self, wanted: int | None = None) -> None:
        """Carry on with what is under way, all of it or some, in any order."""
        tries = 0
        while self.steps and (wanted is None or tries < wanted):
            tries += 1
            step = self.steps.pop(self.random.randrange(len(self.steps)))
            try:
                step()
            except DiskFull:
                self.steps.append(step)

    # --- what happens -----------------------------------------------------------------------------------------------

    def starts(self) -> None:
        name = self.random.choice(NAMES)
        client = Client(name, self.random.choice((1, 2)), len(self.clients))
        self.clients.append(client)
        self.init(client)

    def init(self, client: Client) -> None:
        continues = client.producer is not None and self.random.random() < 0.5
        producer_id, epoch = client.producer if continues and client.producer else (-1, -1)
        is_known = self.coordinator.get(client.name) is not None
        found = self.coordinator.init(client.name, TIMEOUT_MS, producer_id, epoch, client.version)
        if continues and is_known:  # once the id has expired, nobody knows who was the newest
            assert client is self.newest[client.name], "a zombie may continue"
        at = self.store(found)
        if found.state.is_prepared:
            self.finish(client.name)
            return
        self.sync(at)
        if self.random.random() < 0.2:
            again = self.coordinator.init(client.name, TIMEOUT_MS, producer_id, epoch, client.version)
            if continues:
                assert _identity(again) == _identity(found), "a repeated request got another answer"
        self._became(client, _identity(found))
        client.transaction, client.is_over, client.last_end = None, False, None

    def _became(self, client: Client, producer: tuple[int, int]) -> None:
        assert producer[1] < EPOCH_MAX
        if producer != client.producer:
            assert producer not in self.identities or self.newest.get(client.name) is client, (
                "an epoch of two producers"
            )
        self.identities.add(producer)
        client.producer = producer
        self.newest[client.name] = client

    def writes(self) -> None:
        client = self._client()
        if client is None or client.producer is None or client.is_over:
            return
        key = self.random.choice(KEYS)
        at = self.store(self.coordinator.add(client.name, *client.producer, [key], client.version))
        assert client is self.newest[client.name], "a zombie may write"
        self.sync(at)
        client.transaction = client.transaction or object()
        self.partitions[key].append(Written(*client.producer, client.transaction))

    def ends(self) -> None:
        client = self._client()
        if client is None or client.producer is None:
            return
        if client.last_end is not None and client.transaction is None and self.random.random() < 0.5:
            asked, commit, answered = client.last_end
            again = self.coordinator.end(client.name, *asked, commit=commit, client_version=client.version)
            assert self.coordinator.get(client.name) is again, "a repeated end ends something"
            assert _identity(complete_of(again)) == answered
            return
        if client.transaction is None and client.version == 1:
            return
        commit, asked = self.random.random() < 0.6, client.producer
        found = self.coordinator.end(client.name, *asked, commit=commit, client_version=client.version)
        repeats = found is self.coordinator.get(client.name)
        at = self.store(found)
        transaction, answer = client.transaction, _identity(complete_of(found))
        if commit:
            assert transaction is not None, "nothing was committed"
            assert not repeats, "a transaction that was ended is committed"
            self.asked[transaction] = "asked"

        def acknowledged() -> None:
            self.sync(at)
            if commit:
                self.asked[transaction] = "acknowledged"
                self.commits += 1
            client.transaction, client.is_over = None, False
            client.last_end = (asked, commit, answer)
            # It may have been replaced while the answer was on its way.
            if self.newest.get(client.name) is client:
                client.producer = answer
                self.identities.add(answer)
            else:
                client.producer = answer

        acknowledged()
        self.finish(client.name)

    def time_passes(self) -> None:
        self.clock.advance(self.random.choice((1, TIMEOUT_MS // 2, TIMEOUT_MS, WEEK_MS)))

    def upkeep(self) -> None:
        for name in self.coordinator.due():
            self.store(self.coordinator.fence(name))
        for name in self.coordinator.prepared():
            self.finish(name)
        for name in self.coordinator.expired():
            state = self.coordinator.describe(name).state
            assert state not in (TransactionState.ONGOING, *ONWARD)
            self.records.append((name, None))
            self.coordinator.forget(name)

    def an_operator_aborts(self) -> None:
        self.store(self.coordinator.fence(self.random.choice(NAMES)))

    def crashes_and_opens(self, durable: int = 0) -> None:
        """Any prefix of the records that holds what was waited for; batches and markers stay, as none is lost alone."""
        self.crashes += 1
        kept = self.random.randint(max(self.durable, durable), len(self.records))
        del self.records[kept:]
        self.durable = kept
        self.steps.clear()
        self.coordinator = self._new()
        for name, metadata in self.records:
            self.coordinator.restore(encode_key(name), None if metadata is None else encode_value(metadata))
        for name in self.coordinator.prepared():
            self.finish(name)
        if self.random.random() < 0.7:
            self.run_steps()

    def _client(self) -> Client | None:
        return self.random.choice(self.clients) if self.clients else None

    # --- what must hold ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        outcomes: dict[object, set[bool]] = {}
        undecided: dict[object, int] = {}
        for partition in self.partitions.values():
            for batch in partition.batches:
                if batch.committed is None:
                    undecided[batch.transaction] = batch.producer_id
                else:
                    outcomes.setdefault(batch.transaction, set()).add(batch.committed)
        for transaction, found in outcomes.items():
            assert len(found) == 1, "a transaction is committed in one partition and aborted in another"
            if found == {True}:
                assert transaction in self.asked, "a transaction is committed that nobody wanted to commit"
                if transaction in undecided:
                    holder = self.coordinator.id_of_producer(undecided[transaction])
                    assert holder is not None
                    assert self.coordinator.describe(holder).state is TransactionState.PREPARE_COMMIT
            else:
                assert self.asked.get(transaction) != "acknowledged", "an acknowledged commit was aborted"

    def settle(self) -> None:
        """In the end nothing is left undecided."""
        for _ in range(3):
            self.clock.advance(TIMEOUT_MS)
            for _ in range(50):
                try:
                    self.upkeep()
                    break
                except DiskFull:
                    continue
            self.run_steps()
        self.check()
        for partition in self.partitions.values():
            assert all(batch.committed is not None for batch in partition.batches), "a transaction hangs"
            for batch in partition.batches:
                if self.asked.get(batch.transaction) == "acknowledged":
                    assert batch.committed


class DiskFull(Exception):
    pass


def _identity(metadata: TransactionMetadata) -> tuple[int, int]:
    return metadata.producer_id, metadata.producer_epoch


REFUSED = (
    DiskFull,
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    UnknownTransactionalId,
)


def run(seed: int, events: int = 60) -> World:
    world = World(seed)
    actions = [
        (world.starts, 4),
        (world.writes, 20),
        (world.ends, 10),
        (lambda: world.init(world._client() or Client("a", 2, 0)), 3),
        (world.time_passes, 3),
        (world.upkeep, 4),
        (world.an_operator_aborts, 1),
        (world.crashes_and_opens, 2),
        (lambda: world.run_steps(1), 10),
        (world.run_steps, 10),
    ]
    choices = [action for action, weight in actions for _ in range(weight)]
    for _ in range(events):
        try:
            world.random.choice(choices)()
        except ProducerFenced:
            world.fenced += 1
        except REFUSED:
            pass
        world.check()
    world.settle()
    return world


@pytest.mark.parametrize(
    "block", [*range(3), *(pytest.param(number, marks=pytest.mark.faults) for number in range(3, 8))]
)
def test_whatever_happens_a_transaction_ends_one_way(block: int) -> None:
    worlds = [run(seed) for seed in range(block * 500, (block + 1) * 500)]
    assert sum(world.commits for world in worlds) > 300
    assert sum(world.fenced for world in worlds) > 100
    assert sum(world.crashes for world in worlds) > 300
