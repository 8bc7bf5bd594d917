"""Cut the power after every file operation of transactions over several partitions, with offsets of a group.

On every disk a cut could leave: it opens; what is decided is decided everywhere, so that each transaction's records and
offsets all count or none does; one whose commit was acknowledged counts, one whose abort was acknowledged, or which was
never ended, does not; no reader of committed records waits for a transaction that is decided; and the producer goes on.
Every 800th image is recovered on a disk that is cut in turn. Planted bugs show that the cuts find what they are there
to find.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from broker.small_broker import open_broker, writable
from broker.transactions.transactional_broker import TIMEOUT_MS, Producer, read_committed
from budgets import BUDGETS, SHORT
from foldlog.broker.broker import Broker
from foldlog.broker.topics.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from foldlog.broker.transactions import store
from foldlog.broker.transactions.state_format import TransactionMetadata, TransactionState
from foldlog.broker.transactions.store import TransactionStore
from foldlog.errors import FoldlogError
from foldlog.files.base import Files
from foldlog.testing.disk_image import DiskImage
from foldlog.testing.power_cuts import PowerCuts, Violation
from foldlog.testing.power_loss import PowerLossFiles
from foldlog.testing.sim_clock import SimClock

PARTITIONS = (("orders", 0), ("refunds", 0))


def one_after_the_other(written: Mapping[object, store._Written]) -> dict[object, FoldlogError]:
    """The disk that is cut is for one thread."""
    failed: dict[object, FoldlogError] = {}
    for name, one in written.items():
        try:
            one.wait()
        except FoldlogError as error:
            failed[name] = error
    return failed


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_wait_for_all", one_after_the_other)


@dataclass
class Promises:
    """What the workload was told. Transactions are numbered: the values and the offsets that they write are numbers."""

    committed: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)
    ending: tuple[int, bool] | None = None
    version: int = 0

    def check(self, image: DiskImage) -> None:
        clock = SimClock()
        with open_broker(image.files(), clock) as broker:
            topics = broker.topics()
            found = {key: self._numbers(broker, key) for key in PARTITIONS if key[0] in topics}
            offsets = {key: one.offset for key, one in broker.committed("g").items()}
            counted = {number for numbers in found.values() for number in numbers}
            self._check_decided(counted)
            for key, numbers in found.items():
                assert numbers == sorted(numbers), f"{key} holds {numbers}"
                assert set(numbers) == counted, f"{key} holds {numbers}, and others {sorted(counted)}"
            if found:
                expected = {("orders", 0): max(counted)} if counted else {}
                assert offsets == expected, f"offsets are {offsets}, and records {sorted(counted)} count"
            self._check_stable(broker)
            assert not [text for text in broker.warnings() if "failed" in text or "refused" in text]
            if len(found) == len(PARTITIONS):
                self._go_on(broker, counted)

    def _numbers(self, broker: Broker, key: tuple[str, int]) -> list[int]:
        return [int(value) for value in read_committed(broker, *key)]

    def _check_decided(self, counted: set[int]) -> None:
        missing = self.committed - counted
        assert not missing, f"transactions {missing} were acknowledged as committed, and do not count"
        allowed = self.committed | ({self.ending[0]} if self.ending is not None and self.ending[1] else set())
        wrong = counted - allowed
        assert not wrong, f"transactions {wrong} count, and were not committed"

    def _check_stable(self, broker: Broker) -> None:
        """What is decided is resolved at the open; what is still open says so."""
        is_open = False
        for found in broker.transactions.list():
            assert not found.state.is_prepared, f"{found.transactional_id} is left in {found.state.title}"
            is_open |= found.state is TransactionState.ONGOING
        for key in PARTITIONS:
            if key[0] in broker.topics() and not is_open:
                partition = writable(broker, *key)
                assert partition.last_stable_offset == partition.high_watermark, f"{key} hangs"
        assert is_open or not broker.unstable_offsets("g")

    def _go_on(self, broker: Broker, counted: set[int]) -> None:
        """A new producer of the id aborts what is open, and commits another transaction."""
        producer = Producer(broker)
        write_everywhere(producer, 1000)
        producer.commit()
        for key in PARTITIONS:
            assert set(self._numbers(broker, key)) == counted | {1000}
        assert broker.committed("g", require_stable=True)["orders", 0].offset == 1000


def write_everywhere(producer: Producer, number: int) -> None:
    for key in PARTITIONS:
        producer.send(*key, str(number).encode())
    producer.commit_offsets("g", number)


class Workload:
    """Runs transactions one after the other; each is promised once its end has returned."""

    def __init__(self, files: Files, promises: Promises, version: int) -> None:
        self.clock = SimClock()
        self.broker = open_broker(files, self.clock)
        self.promises = promises
        self.broker.create_topic("orders", 1)
        # Acknowledged before it is synced: a commit promises the same there.
        self.broker.create_topic("refunds", 1, {"flush.messages": "1000"})
        self.producer = Producer(self.broker, version=version)
        self.number = 0

    def begin(self) -> None:
        self.number += 1
        write_everywhere(self.producer, self.number)

    def end(self, *, commit: bool) -> None:
        promises = self.promises
        promises.ending = (self.number, commit)
        promises.version += 1
        self.producer.end(commit=commit)
        (promises.committed if commit else promises.aborted).add(self.number)
        promises.ending = None
        promises.version += 1


def ends_both_ways(run: Workload) -> None:
    for commit in (False, True):
        run.begin()
        run.end(commit=commit)


def is_taken_over(run: Workload) -> None:
    run.begin()
    run.producer.init()
    run.begin()
    run.end(commit=True)


def takes_too_long(run: Workload) -> None:
    run.begin()
    run.clock.advance(TIMEOUT_MS)
    run.broker.run_due()
    run.producer.init()
    run.begin()
    run.end(commit=True)


def is_compacted(run: Workload) -> None:
    for commit in (False, True):
        run.begin()
        run.end(commit=commit)
    for topic in (TRANSACTIONS_TOPIC, OFFSETS_TOPIC):
        writable(run.broker, topic).roll()
        run.broker.compact(topic)
    run.begin()


@pytest.mark.parametrize("every", BUDGETS)
@pytest.mark.parametrize(
    ("workload", "version"),
    [
        pytest.param(ends_both_ways, 1, marks=pytest.mark.faults),
        (ends_both_ways, 2),
        (is_taken_over, 1),
        (takes_too_long, 2),
        pytest.param(is_compacted, 2, marks=pytest.mark.faults),
    ],
)
def test_a_cut_leaves_all_of_a_transaction_or_nothing(
    workload: Callable[[Workload], None], version: int, every: int
) -> None:
    promises = Promises()
    cuts = PowerCuts(
        promises.check,
        seed=1,
        mixes=1,
        promises=lambda: promises.version,
        recover=lambda files: open_broker(files).close(),
        recover_every=800,
        every=every,
    )
    files = cuts.attach(PowerLossFiles())
    run = Workload(files, promises, version)
    workload(run)
    run.broker.close()
    assert cuts.finish() > 100


def without_waiting(self: store._Written) -> None:
    return


def no_sync_of_relaxed_topics(self: TransactionStore, transactional_id: str) -> None:
    return


def complete_before_the_markers(self: TransactionStore, metadata: TransactionMetadata) -> bool:
    with self.lock:
        if self._coordinator.get(metadata.transactional_id) is metadata:
            self._store(self._coordinator.complete(metadata.transactional_id)).wait()
            self._append_markers(metadata)
    return True


def no_recovery(self: TransactionStore) -> None:
    with self.lock:
        self._ready()


def one_marker_less(self: TransactionStore, metadata: TransactionMetadata) -> bool:
    self._markers[metadata.transactional_id] = {("refunds", 0): None}
    return original_append_markers(self, metadata)


original_append_markers = TransactionStore._append_markers


@pytest.mark.parametrize(
    ("owner", "name", "bug", "is_in_the_next_open"),
    [
        (store._Written, "wait", without_waiting, False),
        (TransactionStore, "_sync_relaxed", no_sync_of_relaxed_topics, False),
        (TransactionStore, "_complete", complete_before_the_markers, False),
        (TransactionStore, "recover", no_recovery, True),
        (TransactionStore, "_append_markers", one_marker_less, False),
    ],
)
def test_the_cuts_find_a_planted_bug(
    owner: object, name: str, bug: object, is_in_the_next_open: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    promises, right = Promises(), getattr(owner, name)

    def check(image: DiskImage) -> None:
        with pytest.MonkeyPatch.context() as other:
            other.setattr(owner, name, bug if is_in_the_next_open else right)
            promises.check(image)

    cuts = PowerCuts(check, seed=1, mixes=2, every=SHORT, promises=lambda: promises.version)
    files = cuts.attach(PowerLossFiles())
    monkeypatch.setattr(owner, name, bug)
    ends_both_ways(Workload(files, promises, 2))
    with pytest.raises(Violation):
        cuts.finish()
