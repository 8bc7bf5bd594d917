"""One partition in a share group, one thing at a time: what is locked, released, archived, and what is stored of it."""

from __future__ import annotations

import pytest

from foldlog.broker.share.messages import (
    AcknowledgedBatch,
    AcknowledgeType,
    AcquiredRange,
    RecordState,
    ShareLimits,
    StateBatch,
)
from foldlog.broker.share.partition import ReadBatches, SharePartition

LIMITS = ShareLimits(record_lock_duration_ms=1000, delivery_count_limit=3, record_locks_max=20)
ACCEPT, RELEASE, REJECT, RENEW, GAP = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.RENEW,
    AcknowledgeType.GAP,
)


def take(
    share: SharePartition,
    member: str = "ann",
    *spans: tuple[int, int],
    records_max: int = 100,
    now_ms: float = 0.0,
    whole_batches: bool = False,
) -> list[AcquiredRange]:
    """Acquire from what is available on; by default there is one batch of ten records."""
    first = share.next_fetch_offset()
    batches = spans or ((0, 9),)
    found = ReadBatches(first, batches[-1][1] + 1, batches)
    return share.acquire(member, found, LIMITS, now_ms, records_max=records_max, whole_batches=whole_batches)


def say(share: SharePartition, first: int, last: int, *types: AcknowledgeType, member: str = "ann") -> bool:
    return share.acknowledge(member, [AcknowledgedBatch(first, last, types)], LIMITS, 0.0)


def test_records_are_acquired_in_order_up_to_the_limit_that_was_asked_for() -> None:
    share = SharePartition(0)
    assert take(share, records_max=4) == [(0, 3, 1)]
    assert take(share, "ben", records_max=4) == [(4, 7, 1)]
    assert (share.start_offset, share.end_offset) == (0, 8)


def test_a_batch_is_taken_to_its_end_where_batches_are_wanted() -> None:
    assert take(SharePartition(0), records_max=4, whole_batches=True) == [(0, 9, 1)]
    assert take(SharePartition(0), "ann", (0, 9), (10, 19), records_max=10, whole_batches=True) == [(0, 9, 1)]


def test_there_are_no_more_records_in_flight_than_locks() -> None:
    share = SharePartition(0)
    assert take(share, "ann", (0, 49), whole_batches=True) == [(0, 19, 1)]
    assert not share.may_acquire(LIMITS)
    assert say(share, 0, 4, ACCEPT)
    assert take(share, "ben", (0, 49)) == [(20, 24, 1)]


def test_the_start_goes_to_the_first_record_that_is_not_done() -> None:
    share = SharePartition(0)
    take(share)
    assert say(share, 3, 5, ACCEPT)
    assert (share.start_offset, share.done_count(), share.done_count(4)) == (0, 3, 2)
    assert say(share, 0, 2, REJECT)
    assert (share.start_offset, share.done_count()) == (6, 0)
    assert say(share, 6, 9, ACCEPT, GAP, RELEASE, ACCEPT)
    assert (share.start_offset, share.next_fetch_offset()) == (8, 8)


def test_a_released_record_is_delivered_again_until_the_count_is_reached() -> None:
    share = SharePartition(0)
    for count in (1, 2, 3):
        assert take(share, "ann", (0, 0)) == [(0, 0, count)]
        assert say(share, 0, 0, RELEASE)
    assert (share.start_offset, share.end_offset) == (1, 1)


@pytest.mark.parametrize(
    ("first", "last", "types", "member"),
    [
        (0, 9, (ACCEPT,), "ben"),
        (5, 10, (ACCEPT,), "ann"),
        (12, 12, (ACCEPT,), "ann"),
        (5, 3, (ACCEPT,), "ann"),
        (0, 3, (ACCEPT, ACCEPT), "ann"),
    ],
)
def test_what_is_not_the_members_is_refused_and_nothing_is_changed(
    first: int, last: int, types: tuple[AcknowledgeType, ...], member: str
) -> None:
    share = SharePartition(0)
    take(share)
    assert not say(share, first, last, *types, member=member)
    assert share.acquired_count("ann") == 10


def test_of_several_batches_all_count_or_none() -> None:
    share = SharePartition(0)
    take(share)
    batches = [AcknowledgedBatch(0, 1, (ACCEPT,)), AcknowledgedBatch(1, 2, (ACCEPT,))]
    assert not share.acknowledge("ann", batches, LIMITS, 0.0), "they overlap"
    assert share.acquired_count() == 10


def test_a_lock_times_out_and_one_that_is_renewed_later() -> None:
    share = SharePartition(0)
    take(share)
    assert share.acknowledge("ann", [AcknowledgedBatch(2, 3, (RENEW,))], LIMITS, 600.0)
    assert share.next_deadline_ms() == 1000.0
    assert share.expire(LIMITS, 1000.0)
    assert share.next_fetch_offset() == 0
    assert share.acquired_count("ann") == 2
    assert share.next_deadline_ms() == 1600.0
    assert not say(share, 0, 0, ACCEPT)
    assert say(share, 2, 3, ACCEPT)


def test_who_goes_gives_back_what_it_had_and_nothing_else() -> None:
    share = SharePartition(0)
    take(share, "ann", records_max=5)
    take(share, "ben", records_max=5)
    assert share.release("ann", LIMITS)
    assert not share.release("ann", LIMITS)
    assert share.acquired_count("ben") == 5
    assert take(share, "cleo") == [(0, 4, 2)]


def test_offsets_without_a_record_are_done() -> None:
    share = SharePartition(0)
    assert take(share, "ann", (3, 4), (8, 9)) == [(3, 4, 1), (8, 9, 1)]
    assert share.start_offset == 3
    assert say(share, 3, 4, ACCEPT)
    assert share.start_offset == 8


def test_records_that_are_deleted_are_given_to_nobody() -> None:
    share = SharePartition(0)
    take(share, records_max=4)
    share.release("ann", LIMITS)
    share.move_log_start(7)
    assert (share.start_offset, share.next_fetch_offset()) == (7, 7)
    assert take(share) == [(7, 9, 1)]


def test_a_late_read_archives_nothing_that_was_released_meanwhile() -> None:
    """The log is read without a lock: what was found from offset 5 on says nothing of those before."""
    share = SharePartition(0)
    take(share, records_max=5)
    found = ReadBatches(share.next_fetch_offset(), 10, [(5, 9)])
    share.release("ann", LIMITS)
    assert share.acquire("ben", found, LIMITS, 0.0, records_max=100) == [(5, 9, 1)]
    assert share.next_fetch_offset() == 0


def test_what_has_changed_is_stored_and_brings_the_same_state_back() -> None:
    share = SharePartition(0)
    take(share)
    assert share.take_changes() == [StateBatch(0, 9, RecordState.AVAILABLE, 1)]
    say(share, 2, 3, ACCEPT)
    say(share, 5, 5, REJECT)
    assert share.take_changes() == [
        StateBatch(2, 3, RecordState.ACKNOWLEDGED, 1),
        StateBatch(5, 5, RecordState.ARCHIVED, 1),
    ]
    assert share.take_changes() == []
    again = SharePartition(share.start_offset, share.state_batches())
    assert again.state_batches() == share.state_batches()
    assert take(again, "ben") == [(0, 1, 2), (4, 4, 2), (6, 9, 2)]
