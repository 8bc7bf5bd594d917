"""A transaction that a cluster has aborted: whether its time was over or a newer holder came is told apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

import foldlog
from foldlog import errors
from foldlog.client.backends.cluster.transactions import WhyEnded, why_ended
from foldlog.client.descriptions import TransactionDescription
from foldlog.testing.plugin import KafkaBrokerFactory

BEFORE = TransactionDescription("etl", "Empty", 7, 4, 1000, None, ())
ABORTED = replace(BEFORE, state="CompleteAbort", producer_epoch=5)


@pytest.mark.parametrize(
    ("open_ms", "now", "why"),
    [
        (999, ABORTED, WhyEnded.NEWER_HOLDER),
        (999, None, WhyEnded.NEWER_HOLDER),
        (1000, ABORTED, WhyEnded.TIMED_OUT),
        (1000, replace(ABORTED, state="PrepareAbort"), WhyEnded.TIMED_OUT),
        (1000, replace(ABORTED, state="Empty", producer_epoch=6), WhyEnded.NEWER_HOLDER),
        (1000, replace(ABORTED, state="Ongoing", producer_epoch=6), WhyEnded.NEWER_HOLDER),
        (1000, replace(ABORTED, producer_id=8, producer_epoch=0), WhyEnded.NEWER_HOLDER),
        (1000, replace(ABORTED, producer_epoch=6), WhyEnded.ONE_OF_BOTH),
        (1000, None, WhyEnded.ONE_OF_BOTH),
    ],
)
def test_the_clock_the_state_and_the_epoch_tell_it(
    open_ms: float, now: TransactionDescription | None, why: WhyEnded
) -> None:
    assert why_ended(open_ms, 1000, BEFORE, now) is why
    if open_ms >= 1000:
        assert why_ended(open_ms, 1000, None, now) is WhyEnded.ONE_OF_BOTH


def begin_and_wait_for_its_end(log: foldlog.Log, name: str) -> foldlog.Transaction:
    """A transaction that has taken longer than it may; the shortest that librdkafka allows."""
    tx = log.transaction(name, timeout_ms=1000)
    tx.send("orders", "too slow").result(60)
    while any(one.transactional_id == name and one.partitions for one in log._backend.list_transactions()):
        pass
    return tx


def test_who_was_too_slow_is_told_so_and_goes_on_and_who_was_followed_is_not(
    kafka_broker_factory: KafkaBrokerFactory,
) -> None:
    broker = kafka_broker_factory()
    broker.create_topic("orders", 1)
    with foldlog.connect(f"kafka://{broker}") as log, foldlog.connect(f"kafka://{broker}") as other:
        late = r"^the transaction of 'etl' was open for longer than timeout_ms=1000: the cluster has aborted it"
        with pytest.raises(errors.ProducerFenced, match=late):
            begin_and_wait_for_its_end(log, "etl").commit()
        with log.transaction("etl", timeout_ms=1000) as tx:
            tx.send("orders", "quick")
        followed = begin_and_wait_for_its_end(log, "etl")
        with other.transaction("etl") as tx:
            tx.send("orders", "newer")
        for call in (followed.commit, lambda: log.transaction("etl")):
            with pytest.raises(errors.ProducerFenced, match=r"^transactional id 'etl' has a newer holder: "):
                call()
        assert [record.value for record in other.read("orders", isolation="read_committed")] == [b"quick", b"newer"]
