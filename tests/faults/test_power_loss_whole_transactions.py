"""Cut the power after every file operation of a transaction's life: every image opens to all of it or to nothing.

The harness of test_power_loss_topics, with producers that write in transactions: begin, records in several partitions,
offsets of a group, Prepare, markers, Complete, zombies, timeouts, compaction of what the log itself keeps. On every
image, once the broker is open:

- no transaction is between its decision and its end, and nothing that counts now is gone later;
- one that was answered as committed is there, in every partition and in the group's offsets; one that was being
  committed is there everywhere or nowhere; no other has left anything that counts;
- once each id has a new producer, the one before it is fenced, no partition holds records back, and the new producer's
  transaction counts, also after one more restart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

import pytest

from broker.small_broker import die, open_broker, writable, write
from broker.transactions.transactional_broker import TIMEOUT_MS, Producer, read_committed
from budgets import SHORT, WHOLE
from foldlog.broker.broker import Broker
from foldlog.broker.topics.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from foldlog.broker.transactions import store
from foldlog.errors import FoldlogError
from foldlog.files.base import Files
from foldlog.testing.disk_image import DiskImage
from foldlog.testing.power_cuts import PowerCuts, Violation
from foldlog.testing.power_loss import PowerLossFiles
from foldlog.testing.sim_clock import SimClock

GROUP = "g"
RESTART_EVERY = 5
VERSIONS = (1, 2)
PARTITIONS = (("orders", 0), ("orders", 1), ("refunds", 0))

Place = tuple[str, int]


@dataclass(eq=False)
class Told:
    """One transaction: what it wrote, and what may have become of it."""

    may_count: bool = False
    must_count: bool = False
    values: dict[Place, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    offset: int | None = None


class TransactionsHistory:
    """What was promised about transactions and plain records. A value is written once in all, so it names its place."""

    def __init__(self) -> None:
        self.transactions: list[Told] = []
        self.plain: dict[Place, list[bytes]] = defaultdict(list)
        self.producers: dict[str, list[Producer]] = defaultdict(list)
        self.steps = 0

    def version(self) -> int:
        return self.steps


class Transacting:
    """A broker and its producers, driven step by step; the history is told before and after each."""

    def __init__(self, files: PowerLossFiles, version: int) -> None:
        self.files = files
        self.version = version
        self.clock = SimClock()
        self.history = TransactionsHistory()
        self._count = 0
        self.open()
        self.broker.create_topic("orders", 2, {"segment.bytes": 1024})
        self.broker.create_topic("refunds", 1, {"cleanup.policy": "compact"})

    def open(self) -> None:
        self.broker = open_broker(self.files, self.clock)
        for producers in self.history.producers.values():
            for producer in producers:
                producer.broker = self.broker

    def restart(self) -> None:
        self.broker.close()
        self.open()

    def kill(self) -> None:
        """As kill -9: what was written is in the files, and not all of it is synced."""
        die(self.files._live)
        self.open()

    def producer(self, name: str = "t") -> Producer:
        """A new producer of the id: the one before it is fenced."""
        producer = Producer(self.broker, name, version=self.version)
        self.history.producers[name].append(producer)
        self.history.steps += 1
        return producer

    def begin(self) -> Told:
        told = Told()
        self.history.transactions.append(told)
        return told

    def send(self, producer: Producer, told: Told, *places: Place) -> None:
        for place in places:
            self._count += 1
            value = b"%d of %s" % (self._count, producer.name.encode())
            producer.send(*place, value)
            told.values[place].append(value)
            self.history.steps += 1

    def offsets(self, producer: Producer, told: Told) -> None:
        self._count += 1
        producer.commit_offsets(GROUP, self._count)
        told.offset = self._count
        self.history.steps += 1

    def end(self, producer: Producer, told: Told, *, commit: bool = True) -> None:
        told.may_count = commit
        self.history.steps += 1
        producer.end(commit=commit)
        told.must_count = commit
        self.history.steps += 1

    def whole(self, producer: Producer, *places: Place, commit: bool = True) -> None:
        """A transaction with offsets, from its beginning to its end."""
        told = self.begin()
        self.send(producer, told, *places)
        self.offsets(producer, told)
        self.end(producer, told, commit=commit)

    def plain(self, place: Place) -> None:
        self._count += 1
        value = b"%d" % self._count
        write(self.broker, *place, value, key=value)
        self.history.plain[place].append(value)
        self.history.steps += 1


def judge_transactions(image: DiskImage, history: TransactionsHistory, now_ms: int, *, restarts: bool) -> None:
    files = image.files()
    broker = open_broker(files, SimClock(now_ms))
    if broker.transactions.list(states=["PrepareCommit", "PrepareAbort"]):
        raise Violation("a transaction is decided and not ended")
    present = [place for place in PARTITIONS if place[0] in broker.topics()]
    before = {place: read_committed(broker, *place) for place in present}
    offset_before = committed_offset(broker)
    heirs = [Producer(broker, name) for name in history.producers]
    for name, producers in history.producers.items():
        for zombie in producers:
            judge_fenced(broker, name, zombie, present)
    after = {place: read_committed(broker, *place) for place in present}
    for place in present:
        if after[place][: len(before[place])] != before[place]:
            raise Violation(f"{place}: {before[place]} counted, and after the aborts {after[place]}")
    if committed_offset(broker) != offset_before:
        raise Violation("an abort has changed what the group committed")
    judge_told(history, after, offset_before)
    for number, heir in enumerate(heirs):
        for place in present:
            value = b"heir %d" % number
            heir.send(*place, value)
            after[place].append(value)
        heir.commit_offsets(GROUP, 1_000_000 + number)
        heir.commit()
        judge_all_counts(broker, after, 1_000_000 + number)
    if not restarts:
        return
    last = 1_000_000 + len(heirs) - 1 if heirs else offset_before
    broker.close()
    broker = open_broker(files, SimClock(now_ms))
    judge_all_counts(broker, after, last)
    broker.close()


def judge_fenced(broker: Broker, name: str, zombie: Producer, present: list[Place]) -> None:
    """Nothing that a producer of before the cut can still send has any effect."""
    before = zombie.broker
    zombie.broker = broker
    sequences = dict(zombie.sequences)
    end, identity = broker.transactions.end, zombie.identity
    calls: list[Callable[[], object]] = [lambda: zombie.commit_offsets(GROUP, 666)]
    calls += [lambda place=place: zombie.produce(*place, b"zombie") for place in present]  # type: ignore[misc]
    calls.append(lambda: end(name, *identity, commit=True, client_version=zombie.version))
    for number, call in enumerate(calls):
        try:
            call()
        except FoldlogError:
            continue
        raise Violation(f"a producer of {name!r} with {identity} was not fenced in call {number}")
    zombie.broker = before
    zombie.sequences = sequences


def judge_told(history: TransactionsHistory, found: dict[Place, list[bytes]], offset: int | None) -> None:
    expected_offsets: set[int | None] = {None}
    written = {(place, value) for place, values in found.items() for value in values}
    for number, told in enumerate(history.transactions):
        wanted = {(place, value) for place, values in told.values.items() for value in values}
        there = wanted & written
        if there and there != wanted:
            raise Violation(f"transaction {number} is there in part: {there} of {wanted}")
        counts = bool(there)
        if counts and not told.may_count:
            raise Violation(f"transaction {number} was never to be committed, and is there")
        if told.must_count and not counts:
            raise Violation(f"transaction {number} was committed, and is not there")
        if counts and told.offset is not None:
            expected_offsets = {told.offset}
        written -= there
    if offset not in expected_offsets:
        raise Violation(f"the group is at {offset}, and its transactions committed {expected_offsets}")
    for place, values in history.plain.items():
        if not set(values) <= set(found[place]):
            raise Violation(f"{place}: of {values}, acknowledged, {found[place]} are there")
    for place, values in found.items():
        numbers = [int(value.split()[0]) for value in values]
        if numbers != sorted(set(numbers)):
            raise Violation(f"{place}: records are out of order or twice: {values}")


def judge_all_counts(broker: Broker, expected: dict[Place, list[bytes]], offset: int | None) -> None:
    for place, values in expected.items():
        if read_committed(broker, *place) != values:
            raise Violation(f"{place}: {values} were committed, and {read_committed(broker, *place)} are there")
        partition = writable(broker, *place)
        if partition.last_stable_offset != partition.high_watermark:
            raise Violation(f"{place}: records are held back from {partition.last_stable_offset} on")
    if committed_offset(broker) != offset or broker.unstable_offsets(GROUP):
        raise Violation(f"the group is at {committed_offset(broker)}, not {offset}")


def committed_offset(broker: Broker) -> int | None:
    found = broker.committed(GROUP).get(("orders", 0))
    return None if found is None else found.offset


def one_transaction(log: Transacting) -> None:
    """The very first one."""
    log.whole(log.producer(), ("orders", 0), ("refunds", 0))


def one_life(log: Transacting) -> None:
    """From the very first transaction on: committed, aborted, committed again."""
    producer = log.producer()
    log.whole(producer, *PARTITIONS)
    log.whole(producer, *PARTITIONS, commit=False)
    log.plain(("orders", 0))
    log.whole(producer, *PARTITIONS, *PARTITIONS)
    log.broker.close()


def two_producers(log: Transacting) -> None:
    """Each open while the other ends, with plain records between."""
    one, two = log.producer("one"), log.producer("two")
    first, second = log.begin(), log.begin()
    log.send(one, first, ("orders", 0), ("refunds", 0))
    log.send(two, second, ("orders", 0), ("orders", 1))
    log.plain(("orders", 0))
    log.end(one, first)
    third = log.begin()
    log.send(one, third, ("orders", 1))
    log.end(two, second, commit=False)
    log.plain(("orders", 1))
    log.end(one, third)
    log.broker.close()


def restarts(log: Transacting) -> None:
    """Closed and killed in the middle: the transaction goes on."""
    producer = log.producer()
    told = log.begin()
    log.send(producer, told, ("orders", 0))
    log.restart()
    log.send(producer, told, ("orders", 0), ("orders", 1))
    log.offsets(producer, told)
    log.kill()
    log.send(producer, told, ("refunds", 0))
    log.end(producer, told)
    log.kill()
    log.whole(producer, ("orders", 0), commit=False)
    log.kill()
    log.whole(producer, ("orders", 0), ("refunds", 0))
    log.restart()
    log.whole(producer, ("orders", 1))


def takeovers(log: Transacting) -> None:
    """A producer comes while the one before it has a transaction open, and again; then time aborts one."""
    for _ in range(2):
        told = log.begin()
        producer = log.producer()
        log.send(producer, told, ("orders", 0), ("refunds", 0))
        log.offsets(producer, told)
    heir = log.producer()
    log.whole(heir, ("orders", 0), ("orders", 1))
    late = log.begin()
    log.send(heir, late, ("orders", 1), ("refunds", 0))
    log.clock.advance(TIMEOUT_MS)
    log.broker.run_due()
    log.whole(log.producer(), ("orders", 1))
    log.broker.close()


def compactions(log: Transacting) -> None:
    """Of the log's own topics, and of a topic with records, between transactions and in the middle of one."""
    producer, other = log.producer(), log.producer("other")
    for number in range(4):
        log.whole(producer, ("orders", number % 2), ("refunds", 0), commit=number % 3 != 1)
    held = log.begin()
    log.send(other, held, ("refunds", 0))
    told = log.begin()
    log.send(producer, told, ("refunds", 0))
    log.offsets(producer, told)
    for topic in (TRANSACTIONS_TOPIC, OFFSETS_TOPIC, "refunds"):
        writable(log.broker, topic).roll()
        log.broker.compact(topic)
    log.end(producer, told)
    log.restart()
    log.whole(producer, ("refunds", 0))
    writable(log.broker, TRANSACTIONS_TOPIC).roll()
    log.broker.compact(TRANSACTIONS_TOPIC)
    log.end(other, held)
    log.kill()
    log.whole(producer, ("orders", 0))
    log.broker.close()


WORKLOADS: dict[str, Callable[[Transacting], None]] = {
    "one_transaction": one_transaction,
    "one_life": one_life,
    "two_producers": two_producers,
    "restarts": restarts,
    "takeovers": takeovers,
    "compactions": compactions,
}

IMAGES = {
    "one_transaction": 280,
    "one_life": 2200,
    "two_producers": 1000,
    "restarts": 3600,
    "takeovers": 2600,
    "compactions": 4600,
}
"""At least this many each: what they reached when written, less a margin for changes of the layout."""


def wait_for_each(written: Mapping[Hashable, store._Written]) -> dict[Hashable, FoldlogError]:
    """Markers are synced in many partitions at once, by threads; here by one, so that a cut can be repeated. Which of
    them reached the disk is any choice all the same: they are appended before the first is synced."""
    for one in written.values():
        one.wait()
    return {}


def run_with_cuts(
    name: str, version: int, seed: int = 11, *, every: int = SHORT, only: tuple[int, int] | None = None
) -> int:
    files = PowerLossFiles()
    log = Transacting(files, version)
    judged = 0

    def judge(image: DiskImage) -> None:
        nonlocal judged
        judged += 1
        # A restart more takes as long as all else, and most images differ little.
        judge_transactions(image, log.history, log.clock.now_ms(), restarts=judged % RESTART_EVERY == 0)

    cuts = PowerCuts(
        judge,
        seed=seed,
        mixes=4,
        promises=log.history.version,
        recover=open_everything,
        recover_every=1000,
        every=every,
        only=only,
    )
    cuts.attach(files)
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(store, "_wait_for_all", wait_for_each)
            WORKLOADS[name](log)
    finally:
        # The first broken promise, if there was one, rather than what the workload made of it later.
        images = cuts.finish()
    return images


def open_everything(files: Files) -> None:
    """What runs on a disk whose power is cut again."""
    broker = open_broker(files)
    for name in broker.topics(include_internal=True):
        for number in range(broker.topic(name).partition_count):
            broker.partition(name, number)
    broker.close()


def test_the_first_transaction_survives_a_power_cut_after_every_operation_whole_or_not_at_all() -> None:
    assert run_with_cuts("one_transaction", 2) >= IMAGES["one_transaction"] // SHORT


@pytest.mark.faults
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_transaction_survives_a_power_cut_after_every_operation_whole_or_not_at_all(name: str, version: int) -> None:
    assert run_with_cuts(name, version, every=WHOLE) >= IMAGES[name]
