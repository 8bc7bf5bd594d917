"""What each micro-batch reads, planned against real logs: a writer appends, the planner looks at the same files.

The planner is asked as Spark asks it: an initial offset, then again and again the latest offset and the ranges, with
crashes in between, where a new planner is handed the offsets that were stored. No Spark is started.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldlog
from foldlog.client.log import Log
from foldlog.errors import InvalidArgument, RecordsMissing, UnknownPartition, UnknownTopic
from foldlog.spark.origins.origin import open_origin
from foldlog.spark.source.options import stream_options
from foldlog.spark.source.stream_offset import OURS
from foldlog.spark.source.stream_planner import Json, StreamPlanner
from foldlog.testing.plugin import KafkaBrokerFactory
from foldlog.testing.sim_clock import SimClock

Ranges = dict[tuple[str, int], tuple[int, int]]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with foldlog.open(tmp_path / "log") as opened:
        yield opened


def planner(log: Log, clock: SimClock | None = None, **options: object) -> StreamPlanner:
    """`subscribe` is "orders" unless topics are chosen otherwise; `startingOffsets` is "earliest"."""
    given = {"path": log.path, "startingOffsets": "earliest", **{name: str(value) for name, value in options.items()}}
    if not {"subscribe", "subscribePattern", "assign"} & given.keys():
        given["subscribe"] = "orders"
    checked = stream_options(given)
    return StreamPlanner(open_origin(checked.origin), checked, clock or SimClock())


def append(log: Log, topic: str, partition: int, count: int) -> None:
    for number in range(count):
        log.append(topic, str(number), partition=partition)


def ranges(plan: StreamPlanner, start: Json, end: Json) -> Ranges:
    return {
        (one.wanted.topic, one.wanted.partition): (one.wanted.start, one.wanted.stop) for one in plan.ranges(start, end)
    }


def positions(offset: Json) -> dict[str, dict[str, int]]:
    return {topic: found for topic, found in offset.items() if topic != OURS}


def stored(offset: Json) -> Json:
    """As it comes back from a checkpoint."""
    back: Json = json.loads(json.dumps(offset))
    return back


def test_a_new_query_begins_where_it_is_told(log: Log) -> None:
    log.create_topic("orders", 2)
    append(log, "orders", 0, 3)
    assert positions(planner(log).initial()) == {"orders": {"0": 0, "1": 0}}
    assert positions(planner(log, startingOffsets="latest").initial()) == {"orders": {"0": 3, "1": 0}}
    some = planner(log, startingOffsets='{"orders": {"0": 2, "1": -1}}')
    assert positions(some.initial()) == {"orders": {"0": 2, "1": 0}}


def test_a_starting_offset_that_is_not_in_the_log_says_so_or_is_moved_and_counted(log: Log) -> None:
    log.create_topic("orders")
    append(log, "orders", 0, 5)
    log.delete_records("orders", {0: 2})
    for wanted, cause in ((0, "deleted"), (9, "unwritten")):
        where = json.dumps({"orders": {"0": wanted}})
        with pytest.raises(RecordsMissing) as caught:
            planner(log, startingOffsets=where).initial()
        assert caught.value.cause == cause
        moved = planner(log, startingOffsets=where, failOnDataLoss="false").initial()
        assert positions(moved) == {"orders": {"0": 2 if wanted == 0 else 5}}
        assert moved[OURS]["skipped"] == (2 if wanted == 0 else 0)


def test_a_topic_that_does_not_exist_is_a_mistake_and_not_a_loss(log: Log) -> None:
    log.create_topic("orders")
    with pytest.raises(UnknownTopic, match="ordres"):
        planner(log, subscribe="ordres", failOnDataLoss="false").initial()
    with pytest.raises(UnknownPartition):
        planner(log, assign='{"orders": [4]}', failOnDataLoss="false").initial()
    with pytest.raises(InvalidArgument, match="endingOffsets"):
        planner(log, endingOffsets="latest")


def test_a_batch_goes_from_where_the_last_one_ended_to_the_end(log: Log) -> None:
    log.create_topic("orders", 2)
    plan = planner(log)
    start = plan.initial()
    assert plan.latest(start, unlimited=True) is start
    assert plan.ranges(start, start) == []
    append(log, "orders", 1, 3)
    end = plan.latest(start, unlimited=True)
    assert ranges(plan, start, end) == {("orders", 1): (0, 3)}
    append(log, "orders", 0, 2)
    after = plan.latest(end, unlimited=True)
    assert ranges(plan, end, after) == {("orders", 0): (0, 2)}
    assert plan.report() == {"orders": {"0": 2, "1": 3}}
    assert plan.latest(after, unlimited=True) is after


def test_an_idle_stream_is_the_same_text_after_a_restart(log: Log) -> None:
    log.create_topic("orders", 2)
    append(log, "orders", 0, 3)
    plan = planner(log)
    end = stored(plan.latest(plan.initial(), unlimited=True))
    assert planner(log).latest(end, unlimited=True) is end
    # Nor does the text change where the log has learned, or forgotten, under which leader an offset was written.
    for epochs in ({}, {"0": 7}):
        end[OURS]["topics"]["orders"]["epochs"] = epochs
        assert planner(log).latest(end, unlimited=True) is end


def test_a_new_leader_is_asked_about_once(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.create_topic("orders", 2)
    append(log, "orders", 0, 3)
    plan = planner(log)
    end = stored(plan.latest(plan.initial(), unlimited=True))
    end[OURS]["topics"]["orders"]["epochs"] = {"0": 7, "1": 7}
    asked: list[tuple[object, ...]] = []
    missing = plan.origin.missing

    def counted(*question: Any) -> str | None:
        asked.append(question)
        return missing(*question)

    monkeypatch.setattr(plan.origin, "missing", counted)
    for _ in range(3):
        assert plan.latest(end, unlimited=True) is end
    assert len(asked) == 2


def test_a_batch_that_a_crash_left_unfinished_is_the_same_again(log: Log) -> None:
    log.create_topic("orders", 2)
    append(log, "orders", 0, 5)
    plan = planner(log, maxOffsetsPerTrigger=4)
    start = plan.initial()
    end = plan.latest(start, unlimited=False)
    before = ranges(plan, start, end)
    append(log, "orders", 1, 5)
    log.grow_topic("orders", 3)
    append(log, "orders", 2, 5)
    log.delete_records("orders", {2: 3})
    assert ranges(planner(log), stored(start), stored(end)) == before == {("orders", 0): (0, 4)}


def test_partitions_and_topics_that_are_added_are_read_from_their_beginning(log: Log) -> None:
    log.create_topic("orders-a")
    append(log, "orders-a", 0, 2)
    plan = planner(log, subscribePattern="orders-.*", startingOffsets="latest")
    start = plan.initial()
    log.grow_topic("orders-a", 2)
    append(log, "orders-a", 1, 3)
    log.create_topic("orders-b")
    append(log, "orders-b", 0, 1)
    log.create_topic("payments")
    end = plan.latest(start, unlimited=True)
    assert ranges(plan, start, end) == {("orders-a", 1): (0, 3), ("orders-b", 0): (0, 1)}
    assert ranges(planner(log, subscribePattern="orders-.*"), stored(start), stored(end)) == ranges(plan, start, end)


def test_a_pattern_that_matches_nothing_yet_waits(log: Log) -> None:
    plan = planner(log, subscribePattern="orders-.*")
    start = plan.initial()
    assert positions(start) == {}
    assert plan.latest(start, unlimited=True) is start
    assert plan.report() is None


def test_a_run_with_a_fixed_end_reads_what_was_there_and_nothing_that_came(log: Log) -> None:
    log.create_topic("orders")
    append(log, "orders", 0, 5)
    plan = planner(log, subscribePattern="orders.*", maxOffsetsPerTrigger=2, minOffsetsPerTrigger=2)
    plan.fix_end()
    append(log, "orders", 0, 50)
    log.grow_topic("orders", 2)
    append(log, "orders", 1, 50)
    log.create_topic("orders-later")
    append(log, "orders-later", 0, 1)
    offset = plan.initial()
    batches: list[Ranges] = []
    # The partition that came between was met by `initial`, at its beginning: nothing of it is read in this run.
    while (end := plan.latest(offset, unlimited=False)) != offset and len(batches) < 10:
        batches.append(ranges(plan, offset, end))
        offset = end
        log.grow_topic("orders", 2 + len(batches))
    assert batches == [{("orders", 0): (0, 2)}, {("orders", 0): (2, 4)}, {("orders", 0): (4, 5)}]
    assert positions(offset)["orders"] == {"0": 5, "1": 0}


def test_a_run_with_a_fixed_end_that_begins_at_the_end_has_nothing_to_do(log: Log) -> None:
    log.create_topic("orders")
    plan = planner(log, startingOffsets="latest")
    plan.fix_end()
    append(log, "orders", 0, 3)
    start = plan.initial()
    assert positions(start) == {"orders": {"0": 3}}
    assert plan.latest(start, unlimited=False) is start


def test_a_batch_waits_for_enough_offsets_or_for_the_delay(log: Log) -> None:
    log.create_topic("orders")
    clock = SimClock()
    plan = planner(log, clock, minOffsetsPerTrigger=5, maxTriggerDelay="1m")
    start = plan.initial()
    append(log, "orders", 0, 1)
    offset = plan.latest(start, unlimited=False)
    assert positions(offset) == {"orders": {"0": 1}}
    append(log, "orders", 0, 4)
    assert plan.latest(offset, unlimited=False) is offset
    assert positions(plan.latest(offset, unlimited=True)) == {"orders": {"0": 5}}
    clock.advance(60_000)
    assert positions(plan.latest(offset, unlimited=False)) == {"orders": {"0": 5}}


def test_the_limit_is_split_in_proportion(log: Log) -> None:
    log.create_topic("orders", 3)
    append(log, "orders", 0, 30)
    append(log, "orders", 1, 10)
    append(log, "orders", 2, 1)
    plan = planner(log, maxOffsetsPerTrigger=8)
    start = plan.initial()
    end = plan.latest(start, unlimited=False)
    assert ranges(plan, start, end) == {("orders", 0): (0, 5), ("orders", 1): (0, 1), ("orders", 2): (0, 1)}


def test_records_that_were_deleted_under_a_stopped_query(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    log.create_topic("orders")
    append(log, "orders", 0, 10)
    plan = planner(log, maxOffsetsPerTrigger=3)
    offset = stored(plan.latest(plan.initial(), unlimited=False))
    log.delete_records("orders", {0: 7})
    with pytest.raises(RecordsMissing, match="new checkpointLocation") as caught:
        planner(log).latest(offset, unlimited=True)
    assert (caught.value.cause, caught.value.wanted) == ("deleted", (3, 7))

    lenient = planner(log, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "foldlog"):
        end = lenient.latest(offset, unlimited=True)
        assert lenient.latest(offset, unlimited=True) == end
    assert ranges(lenient, offset, end) == {("orders", 0): (7, 10)}
    assert end[OURS]["skipped"] == 4
    (told,) = [record.message for record in caplog.records]
    assert told == (
        "orders-0 at offset 3: the records before offset 7 were deleted; the stream goes on from offset 7,"
        " 4 offsets are skipped (failOnDataLoss=false)"
    )
    append(log, "orders", 0, 1)
    assert lenient.latest(end, unlimited=True)[OURS]["skipped"] == 4


def test_a_planned_batch_whose_records_are_gone_is_a_loss_too(log: Log) -> None:
    log.create_topic("orders")
    append(log, "orders", 0, 10)
    plan = planner(log)
    start = plan.initial()
    end = plan.latest(start, unlimited=True)
    log.delete_records("orders", {0: 4})
    with pytest.raises(RecordsMissing, match="offsets 0 to 4 of orders-0"):
        planner(log).ranges(stored(start), stored(end))
    lenient = planner(log, failOnDataLoss="false")
    assert ranges(lenient, stored(start), stored(end)) == {("orders", 0): (4, 10)}


def test_a_gap_that_compaction_left_is_no_loss(log: Log) -> None:
    log.create_topic("orders", config={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.0, "segment.ms": 1})
    for _ in range(20):
        log.append("orders", "v", key="k")
    plan = planner(log, maxOffsetsPerTrigger=5)
    offset = stored(plan.latest(plan.initial(), unlimited=False))
    log.compact("orders")
    again = planner(log)
    assert ranges(again, offset, again.latest(offset, unlimited=True)) == {("orders", 0): (5, 20)}


def test_a_recreated_topic_is_noticed_and_names_the_way_out(log: Log) -> None:
    log.create_topic("orders")
    append(log, "orders", 0, 3)
    plan = planner(log)
    start = plan.initial()
    offset = stored(plan.latest(start, unlimited=True))
    log.delete_topic("orders")
    log.create_topic("orders")
    append(log, "orders", 0, 8)
    for ask in (
        lambda: plan.latest(offset, unlimited=True),
        lambda: planner(log).latest(offset, unlimited=True),
        lambda: planner(log).ranges(stored(start), offset),
    ):
        with pytest.raises(RecordsMissing, match=r"made again.*new checkpointLocation") as caught:
            ask()
        assert caught.value.cause == "recreated"

    lenient = planner(log, failOnDataLoss="false")
    assert ranges(lenient, stored(start), offset) == {}
    offset["orders"]["0"], offset[OURS]["topics"]["orders"]["epochs"] = 8, {"0": 7}  # by chance as long as the new one
    end = lenient.latest(offset, unlimited=True)
    assert ranges(lenient, offset, end) == {("orders", 0): (0, 8)}
    assert end[OURS]["topics"]["orders"]["epochs"] == {"0": 0}
    assert lenient.latest(end, unlimited=True) is end


def test_a_topic_recreated_during_a_run_with_a_fixed_end_is_left_for_the_next_run(log: Log) -> None:
    log.create_topic("orders")
    append(log, "orders", 0, 3)
    plan = planner(log, failOnDataLoss="false")
    plan.fix_end()
    start = plan.initial()
    log.delete_topic("orders")
    log.create_topic("orders")
    append(log, "orders", 0, 8)
    offset = plan.latest(start, unlimited=False)
    assert ranges(plan, start, offset) == {}
    assert plan.latest(offset, unlimited=False) is offset
    following = planner(log, failOnDataLoss="false")
    end = following.latest(offset, unlimited=True)
    assert ranges(following, offset, end) == {("orders", 0): (0, 8)}


@pytest.mark.parametrize("choice", [{"subscribe": "orders,payments"}, {"subscribePattern": ".*"}])
def test_a_deleted_topic_is_a_loss_or_is_left_out(log: Log, choice: dict[str, Any]) -> None:
    log.create_topic("orders")
    log.create_topic("payments")
    append(log, "orders", 0, 3)
    plan = planner(log, **choice)
    offset = stored(plan.latest(plan.initial(), unlimited=True))
    log.delete_topic("orders")
    append(log, "payments", 0, 2)
    with pytest.raises(RecordsMissing, match="the topic was deleted"):
        planner(log, **choice).latest(offset, unlimited=True)
    lenient = planner(log, failOnDataLoss="false", **choice)
    end = lenient.latest(offset, unlimited=True)
    assert ranges(lenient, offset, end) == {("payments", 0): (0, 2)}
    assert positions(end) == {"payments": {"0": 2}}
    assert lenient.latest(stored(end), unlimited=True) == end
    # Who repeats the batch need not accept the loss again: it was accepted when the batch was planned.
    assert ranges(planner(log, **choice), offset, stored(end)) == {("payments", 0): (0, 2)}


def test_a_topic_that_is_no_longer_subscribed_says_so(log: Log) -> None:
    log.create_topic("orders")
    log.create_topic("payments")
    offset = stored(planner(log, subscribe="orders,payments").initial())
    with pytest.raises(RecordsMissing, match="the query read this topic before, and does not any more"):
        planner(log, subscribe="payments").latest(offset, unlimited=True)


def test_a_query_that_read_the_files_can_go_on_over_the_network(
    kafka_broker_factory: KafkaBrokerFactory, tmp_path: Path
) -> None:
    """The place is the same text either way, so that a log can move behind a broker without a new checkpoint."""
    broker = kafka_broker_factory(path=tmp_path / "served")
    broker.log.create_topic("orders", 2)
    append(broker.log, "orders", 1, 5)
    by_path = planner(broker.log, maxOffsetsPerTrigger=3)
    checked = stream_options({"kafka.bootstrap.servers": str(broker), "subscribe": "orders"})
    by_wire = StreamPlanner(open_origin(checked.origin), checked, SimClock())
    start = by_path.initial()
    offset = stored(by_path.latest(start, unlimited=False))
    assert ranges(by_wire, start, offset) == ranges(by_path, start, offset) == {("orders", 1): (0, 3)}
    end = by_wire.latest(offset, unlimited=True)
    assert end == planner(broker.log).latest(offset, unlimited=True)
    assert ranges(by_wire, offset, end) == {("orders", 1): (3, 5)}
    assert by_wire.latest(end, unlimited=True) is end
    broker.log.delete_topic("orders")
    broker.log.create_topic("orders", 2)
    for plan in (by_path, by_wire):
        with pytest.raises(RecordsMissing) as caught:
            plan.latest(end, unlimited=True)
        assert caught.value.cause == "recreated"
    by_wire.close()


def test_a_checkpoint_of_sparks_kafka_source_is_gone_on_with(log: Log) -> None:
    log.create_topic("orders", 2)
    append(log, "orders", 0, 5)
    plan = planner(log)
    start = {"orders": {"0": 2, "1": 0}}
    end = plan.latest(start, unlimited=True)
    assert ranges(plan, start, end) == {("orders", 0): (2, 5)}
    assert plan.latest(end, unlimited=True) is end


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 3), st.integers(1, 5)),
        st.tuples(st.just("trigger"), st.booleans(), st.booleans()),
        st.tuples(st.just("grow"), st.just(0), st.just(0)),
    ),
    max_size=15,
)


@settings(max_examples=25, deadline=None)
@given(EVENTS, st.one_of(st.none(), st.integers(1, 6)))
def test_every_offset_is_in_exactly_one_batch_whatever_happens(
    events: list[tuple[str, Any, Any]], limit: int | None
) -> None:
    """A trigger may crash after the batch was stored and before it was read, or after it: a new planner repeats it."""
    options: dict[str, Any] = {} if limit is None else {"maxOffsetsPerTrigger": limit}
    with TemporaryDirectory() as directory, foldlog.open(directory) as log:
        log.create_topic("orders")
        plan = planner(log, **options)
        offset = stored(plan.initial())
        read: list[tuple[int, int]] = []
        for event, first, second in [*events, *[("trigger", False, False)] * 100]:
            partitions = log.topic("orders").partition_count
            if event == "append":
                append(log, "orders", first % partitions, second)
            elif event == "grow":
                log.grow_topic("orders", partitions + 1)
            else:
                end = stored(plan.latest(offset, unlimited=limit is None))
                if first:
                    plan.close()
                    plan = planner(log, **options)
                planned = ranges(plan, offset, end)
                if second:
                    plan.close()
                    plan = planner(log, **options)
                    assert ranges(plan, offset, end) == planned
                read += [
                    (place[1], number) for place, (start, stop) in planned.items() for number in range(start, stop)
                ]
                offset = end
        plan.close()
        written = [(number, at) for number, (_, end) in log.offsets("orders").items() for at in range(end)]
        assert sorted(read) == sorted(written)
