"""What became of the records a stream was to read next, decided against a model of a log.

The model is a list of distinct records that grows, is cut back under a new leader epoch, loses its beginning, or is
made anew. A stream that stood somewhere in it resumes: nothing is a loss unless the model says so, and where it resumes
is where what it read and what is there now part. No Spark is started.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.errors import MISSING_CAUSES
from foldlog.spark.origins.origin import Bounds, TopicFacts
from foldlog.spark.source.offsets import Assigned
from foldlog.spark.source.stream_losses import Loss, lost_of_batch, resume
from foldlog.spark.source.stream_offset import StreamOffset
from foldlog.views.bookmark import Position


@dataclass
class ModelLog:
    """One partition."""

    topic_id: str = "first"
    records: list[int] = field(default_factory=list)
    start: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    counter: int = 0

    def append(self, count: int) -> None:
        self.records += range(self.counter, self.counter + count)
        self.counter += count

    def cut_back(self, by: int) -> None:
        end = max(self.start, len(self.records) - by)
        del self.records[end:]
        epoch = self.epochs[-1][0] + 1
        self.epochs = [one for one in self.epochs if one[1] < end] + [(epoch, end)]

    def expire(self, by: int) -> None:
        self.start = min(self.start + by, len(self.records))

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.start, len(self.records), self.epochs[-1][0])

    def missing(self, topic: str, topic_id: str | None, partition: int, offset: int, leader_epoch: int) -> str | None:
        """`Origin.missing`, by the book."""
        if topic_id is not None and topic_id != self.topic_id:
            return "recreated"
        later = [first for epoch, first in self.epochs if epoch > leader_epoch]
        if leader_epoch >= 0 and (later[0] if later else len(self.records)) < offset:
            return "truncated"
        if offset < self.start:
            return "expired"
        return "unwritten" if offset > len(self.records) else None

    def now(self) -> Assigned:
        return assigned_now({0: self.bounds}, self.topic_id)


def assigned_now(bounds: dict[int, Bounds], topic_id: str = "first") -> Assigned:
    """As if the query read one topic with these partitions."""
    facts = TopicFacts("orders", topic_id, len(bounds), False)
    return Assigned({"orders": facts}, {("orders", number): bound for number, bound in bounds.items()})


NOTHING = Assigned({}, {})


def standing(offset: int, epoch: int = -1, topic_id: str | None = "first") -> StreamOffset:
    return StreamOffset({("orders", 0): Position(offset, epoch)}, {} if topic_id is None else {"orders": topic_id})


def only_loss(start: StreamOffset, log: ModelLog) -> Loss:
    resumed = resume(start, log.now(), log.missing, lambda: ["orders"])
    assert len(resumed.losses) == 1
    return resumed.losses[0]


STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "cut_back", "expire"]), st.integers(1, 8)), min_size=1, max_size=12
)


def take(log: ModelLog, steps: list[tuple[str, int]]) -> None:
    for step, count in steps:
        getattr(log, step)(count)


@given(STEPS, STEPS, st.integers(0, 8))
def test_a_stream_loses_what_the_log_lost_and_nothing_else(
    before: list[tuple[str, int]], after: list[tuple[str, int]], behind: int
) -> None:
    log = ModelLog()
    take(log, before)
    at = max(log.start, len(log.records) - behind)
    seen, epoch = log.records[:at], log.bounds.leader_epoch
    take(log, after)

    resumed = resume(standing(at, epoch), log.now(), log.missing, lambda: ["orders"])
    place = resumed.positions["orders", 0].offset

    common = next((n for n, (old, new) in enumerate(zip(seen, log.records, strict=False)) if old != new), None)
    common = min(len(seen), len(log.records)) if common is None else common
    if at < log.start:
        assert [(one.cause, one.skipped) for one in resumed.losses] == [("expired", log.start - at)]
        assert place == log.start
    elif common < at:
        assert [(one.cause, one.skipped) for one in resumed.losses] == [("truncated", 0)]
        assert place == max(common, log.start)
    else:
        assert resumed.losses == []
        assert place == at
    assert log.start <= place <= len(log.records)


def test_nothing_is_asked_of_the_log_where_nothing_can_have_happened() -> None:
    log = ModelLog()
    log.append(10)

    def never(*_: object) -> str | None:
        raise AssertionError("a request for every partition and trigger is not free")

    for epoch in (0, -1):
        assert resume(standing(10, epoch), log.now(), never, lambda: ["orders"]).losses == []


def test_a_recreated_topic_is_told_by_its_id_even_if_it_is_longer() -> None:
    log = ModelLog(topic_id="second")
    log.append(50)
    loss = only_loss(standing(10, 0), log)
    assert (loss.cause, loss.resume, loss.skipped) == ("recreated", 0, 0)
    assert "made again: its id was first and is second" in str(loss.error())


def test_a_checkpoint_without_ids_trusts_the_name() -> None:
    log = ModelLog(topic_id="second")
    log.append(50)
    assert resume(standing(10, topic_id=None), log.now(), log.missing, lambda: ["orders"]).losses == []


def test_beyond_the_end_is_cut_off_since_the_stream_has_been_there() -> None:
    log = ModelLog()
    log.append(5)
    loss = only_loss(standing(9, -1), log)
    assert (loss.cause, loss.resume, loss.skipped) == ("truncated", 5, 0)


def test_deleted_on_request_is_told_from_expired() -> None:
    log = ModelLog()
    log.append(10)
    log.expire(4)
    start = standing(1)
    deleted = resume(start, log.now(), lambda *_: "deleted", lambda: ["orders"]).losses[0]
    assert (deleted.cause, deleted.resume, deleted.skipped) == ("deleted", 4, 3)
    assert "were deleted" in deleted.why
    assert "offsets 1 to 4 of orders-0" in str(deleted.error())


@pytest.mark.parametrize(
    ("known", "now", "why"),
    [
        ([], NOTHING, "the topic was deleted"),
        (["orders"], NOTHING, "the query read this topic before, and does not any more"),
        (["orders"], assigned_now({}), "no longer has this partition"),
    ],
)
def test_a_partition_that_is_gone_is_dropped_and_says_why(known: list[str], now: Assigned, why: str) -> None:
    resumed = resume(standing(7, 0), now, lambda *_: None, lambda: known)
    assert resumed.positions == {}
    assert [(one.cause, one.resume) for one in resumed.losses] == [("deleted", None)]
    assert why in str(resumed.losses[0].error())
    assert "go on without it" in str(resumed.losses[0].error())


def test_a_new_partition_is_read_from_its_first_record() -> None:
    now = assigned_now({0: Bounds(0, 9, 0), 1: Bounds(0, 4, 0)})
    resumed = resume(standing(9, 0), now, lambda *_: None, lambda: ["orders"])
    assert resumed.positions["orders", 1] == Position(0, 0)
    assert resumed.losses == []


def test_a_new_partition_that_lost_its_first_records_says_so() -> None:
    now = assigned_now({0: Bounds(0, 9, 0), 1: Bounds(3, 4, 0)})
    resumed = resume(standing(9, 0), now, lambda *_: None, lambda: ["orders"])
    assert resumed.positions["orders", 1] == Position(3, 0)
    assert [(one.partition, one.cause, one.skipped) for one in resumed.losses] == [(1, "expired", 3)]


def test_every_loss_names_both_ways_out_and_how_many_others_there_are() -> None:
    log = ModelLog()
    log.append(10)
    log.expire(4)
    loss = only_loss(standing(1, 0), log)
    told = str(loss.error(others=3))
    assert loss.cause in MISSING_CAUSES
    assert "new checkpointLocation" in told
    assert "failOnDataLoss=false to go on from offset 4" in told
    assert "have lost something too: 3" in told
    assert "goes on from offset 4" in str(loss)


def test_a_batch_that_is_read_again_is_whole_while_the_log_is() -> None:
    log = ModelLog()
    log.append(10)
    begin = resume(standing(2, 0), log.now(), log.missing, lambda: ["orders"])
    assert list(lost_of_batch(begin, standing(8, 0), log.now())) == []


def test_a_batch_that_is_read_again_says_what_was_cut_off_since() -> None:
    log = ModelLog()
    log.append(5)
    begin = resume(standing(2, 0), log.now(), log.missing, lambda: ["orders"])
    (loss,) = lost_of_batch(begin, standing(8, 0), log.now())
    assert (loss.cause, loss.resume, loss.skipped) == ("truncated", 5, 3)


def test_a_batch_of_a_topic_that_was_made_again_reads_nothing_of_the_new_one() -> None:
    log = ModelLog(topic_id="second")
    log.append(20)
    begin = resume(standing(2, 0), log.now(), log.missing, lambda: ["orders"])
    (loss,) = lost_of_batch(begin, standing(8, 0), log.now())
    assert (loss.cause, loss.resume) == ("recreated", begin.positions["orders", 0].offset)
