"""The numbers of batches on their way to another process, against a log that refuses what is out of order.

The log of the test keeps Kafka's rule: in an epoch the next batch carries the next number, and a newer epoch begins at
0. Batches are settled in the order they were sent, some of them refused; what a hole in the numbers takes with it is
sent again. In the end every batch that was not refused for itself is there, once, in order.
"""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from foldlog.client.backends.served.partition import NumberedBatch, RemotePartition
from foldlog.client.wire.batches import EPOCH_MAX, UNNUMBERED
from foldlog.errors import FoldlogError, OutOfOrderSequence
from foldlog.limits import PRODUCE_IN_FLIGHT_MAX
from foldlog.log.partition import Appended
from foldlog.records.batch import MAX_INT32
from foldlog.records.loops import pack


class Reader:
    label = ("orders", 0)


class Home:
    """Keeps what is submitted, and gives out producer ids."""

    def __init__(self) -> None:
        self.submitted: list[NumberedBatch] = []
        self.next_id = 100

    def submit(self, batches: Iterable[NumberedBatch]) -> None:
        for batch in batches:
            batch.partition.waiting.append(batch)
            self.submitted.append(batch)

    def allocate_producer_id(self) -> int:
        self.next_id += 1
        return self.next_id

    def delete_records(self, topic: str, number: int, before_offset: int) -> int:
        return before_offset


class OrderedLog:
    """What the writer's log would answer."""

    def __init__(self) -> None:
        self.kept: list[NumberedBatch] = []
        self._expected: dict[int, tuple[int, int]] = {}

    def append(self, batch: NumberedBatch, *, is_refused: bool) -> FoldlogError | None:
        if is_refused:
            return FoldlogError("refused for itself")
        producer_id, epoch, sequence = batch.numbers
        known = self._expected.get(producer_id)
        if known is not None and batch.numbers != UNNUMBERED:
            expected = known[1] if epoch == known[0] else 0
            if epoch < known[0] or sequence != expected:
                return OutOfOrderSequence("a batch before it was refused")
        self._expected[producer_id] = (epoch, (sequence + batch.offset_count) & MAX_INT32)
        self.kept.append(batch)
        return None


def make() -> tuple[Home, RemotePartition]:
    home = Home()
    return home, RemotePartition(home, Reader(), bytes(16))  # type: ignore[arg-type]


def ignore(appended: Appended | None, error: FoldlogError | None) -> None:
    pass


def batch_of(count: int) -> bytearray:
    return bytearray(pack([(1000, None, b"x", ())] * count))


@given(
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=30),
    refused=st.sets(st.integers(0, 29)),
    first_epoch=st.sampled_from([0, EPOCH_MAX - 1]),
    first_sequence=st.sampled_from([0, MAX_INT32 - 3]),
    sends=st.lists(st.integers(1, PRODUCE_IN_FLIGHT_MAX), min_size=1),
)
def test_refused_batches_leave_the_others_in_order(
    counts: list[int], refused: set[int], first_epoch: int, first_sequence: int, sends: list[int]
) -> None:
    home, partition = make()
    partition._numbering.epoch, partition._numbering.next_sequence = first_epoch, first_sequence
    for count in counts:
        partition.begin_append(batch_of(count), ignore)
    place = {id(batch): number for number, batch in enumerate(home.submitted)}
    log = OrderedLog()
    on_way: list[tuple[NumberedBatch, FoldlogError | None]] = []
    settled: set[int] = set()
    turn = 0
    while len(settled) < len(counts):
        while partition.may_send and len(on_way) < sends[turn % len(sends)]:
            batch = partition.number_next()
            batch.stamp()
            on_way.append((batch, log.append(batch, is_refused=place[id(batch)] in refused)))
        turn += 1
        batch, error = on_way.pop(0)
        again = isinstance(error, OutOfOrderSequence)
        partition.settled(batch, succeeded=error is None, again=again)
        if not again:
            settled.add(place[id(batch)])
    assert [place[id(batch)] for batch in log.kept] == [
        number for number in range(len(counts)) if number not in refused
    ]


def test_an_id_whose_epochs_are_used_up_is_replaced() -> None:
    _, partition = make()
    partition._numbering.epoch = EPOCH_MAX
    partition.begin_append(batch_of(1), ignore)
    refused = partition.number_next()
    assert refused.numbers == (101, EPOCH_MAX, 0)
    partition.settled(refused, succeeded=False, again=False)
    partition.begin_append(batch_of(1), ignore)
    assert partition.number_next().numbers == (102, 0, 0)


def test_no_more_are_on_their_way_than_the_log_can_tell_apart() -> None:
    _, partition = make()
    for _ in range(8):
        partition.begin_append(batch_of(1), ignore)
    sent = []
    while partition.may_send:
        sent.append(partition.number_next())
    assert len(sent) == PRODUCE_IN_FLIGHT_MAX
    partition.settled(sent[0], succeeded=True, again=False)
    assert partition.may_send


def test_giving_up_hands_back_what_waits_and_begins_a_new_epoch() -> None:
    home, partition = make()
    for _ in range(3):
        partition.begin_append(batch_of(1), ignore)
    sent = partition.number_next()
    assert partition.give_up() == home.submitted[1:]
    partition.begin_append(batch_of(1), ignore)
    assert partition.number_next().numbers == (sent.numbers[0], sent.numbers[1] + 1, 0)
