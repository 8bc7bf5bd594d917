"""`log.queue`, wherever the log is: records are taken by one worker at a time, accepted for good, given back, rejected,
and held for longer.

Every test runs in every place of `log_places.PLACES`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

import foldlog
from client.log_places import IN_A_HURRY, PLACES, WAIT_MS
from foldlog import errors
from foldlog.client.backends.directory import broker_of
from foldlog.testing import KafkaBroker
from foldlog.testing.sim_clock import SimClock


@pytest.fixture(params=PLACES)
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[foldlog.Log]:
    with PLACES[request.param](tmp_path / "data") as opened:
        opened.create_topic("jobs")
        yield opened


def values(records: list[foldlog.Record]) -> list[str]:
    return [record.text() or "" for record in records]


def test_two_workers_of_one_partition_share_its_records(log: foldlog.Log) -> None:
    for number in range(2):
        log.append("jobs", str(number))
    with log.queue("jobs", group="workers", auto_offset_reset="earliest") as first:
        mine = first.take(max_records=1, timeout_ms=WAIT_MS)
        assert len(mine) == 1
        mine += first.take(max_records=1, timeout_ms=WAIT_MS)
        first.ack(*mine)
        for number in range(2, 6):  # not before: of a cluster, the first would hold them until their locks time out
            log.append("jobs", str(number))
        with log.queue("jobs", group="workers") as second:
            theirs: list[foldlog.Record] = []
            while len(theirs) < 4:
                taken = second.take(max_records=10, timeout_ms=WAIT_MS)
                second.ack(*taken)
                theirs += taken
                if not taken:
                    break
        assert values(mine) + values(theirs) == ["0", "1", "2", "3", "4", "5"]
    assert sum(log.lag("workers").values()) == 0


def test_a_released_record_is_taken_again_and_counted_a_rejected_one_is_not(log: foldlog.Log) -> None:
    log.append("jobs", "once more")
    with log.queue("jobs", group="workers", auto_offset_reset="earliest") as queue:
        (record,) = queue.take(timeout_ms=WAIT_MS)
        assert queue.deliveries(record) == 1
        queue.release(record)
        (record,) = queue.take(timeout_ms=WAIT_MS)
        assert queue.deliveries(record) == 2
        queue.reject(record)
        log.append("jobs", "the next")
        assert values(queue.take(timeout_ms=WAIT_MS)) == ["the next"]


def test_what_a_worker_held_when_it_closed_goes_to_another(log: foldlog.Log) -> None:
    log.append("jobs", "held")
    with log.queue("jobs", group="workers", auto_offset_reset="earliest") as queue:
        assert values(queue.take(timeout_ms=WAIT_MS)) == ["held"]
    with log.queue("jobs", group="workers") as queue:
        (record,) = queue.take(timeout_ms=WAIT_MS)
        queue.ack(record)


def test_a_queue_waits_for_a_record_and_gives_up_in_time(log: foldlog.Log) -> None:
    with log.queue("jobs", group="workers", auto_offset_reset="earliest") as queue:
        assert queue.take(timeout_ms=1) == []
        writer = Thread(target=log.append, args=("jobs", "late"))
        writer.start()
        taken = queue.take(timeout_ms=WAIT_MS)
        writer.join()
        assert values(taken) == ["late"]
        queue.ack(*taken)


def test_the_records_stay_in_the_log_for_other_readers(log: foldlog.Log) -> None:
    log.append("jobs", "both")
    for group in ("workers", "others"):
        with log.queue("jobs", group=group, auto_offset_reset="earliest") as queue:
            (record,) = queue.take(timeout_ms=WAIT_MS)
            queue.ack(record)
    assert values(list(log.read("jobs", 0))) == ["both"]
    assert sorted(log.groups()) == ["others", "workers"]
    assert log.describe_group("workers").group_type == "share"


def test_a_group_that_is_moved_is_given_its_records_anew(log: foldlog.Log) -> None:
    log.append("jobs", "again")
    with log.queue("jobs", group="workers", auto_offset_reset="earliest") as queue:
        queue.ack(*queue.take(timeout_ms=WAIT_MS))
        with pytest.raises(errors.GroupNotEmpty):
            log.reset_group("workers", {("jobs", 0): "start"})
    log.reset_group("workers", {("jobs", 0): "start"})
    assert log.lag("workers") == {foldlog.TopicPartition("jobs", 0): 1}
    with log.queue("jobs", group="workers") as queue:
        (record,) = queue.take(timeout_ms=WAIT_MS)
        assert queue.deliveries(record) == 1
        queue.ack(record)


def test_only_what_is_held_can_be_acknowledged_and_only_once(log: foldlog.Log) -> None:
    log.append("jobs", "once")
    with log.queue("jobs", group="workers", auto_offset_reset="earliest") as queue:
        (record,) = queue.take(timeout_ms=WAIT_MS)
        queue.ack(record)
        with pytest.raises(errors.InvalidRecordState, match="holds"):
            queue.ack(record)
        with pytest.raises(errors.InvalidRecordState, match="holds"):
            queue.deliveries(record)
    with pytest.raises(errors.LogClosed, match="closed"):
        queue.take()


def test_what_no_queue_can_be_is_refused(log: foldlog.Log) -> None:
    with pytest.raises(errors.UnknownTopic):
        log.queue("nowhere", group="workers")
    with pytest.raises(errors.InvalidArgument):
        log.queue([], group="workers")
    with pytest.raises(errors.InvalidArgument):
        log.queue("jobs", group="")
    with pytest.raises((errors.InvalidArgument, errors.InvalidConfig), match=r"share\.auto\.offset\.reset"):
        log.queue("jobs", group="workers", auto_offset_reset="somewhere")
    with log.queue("jobs", group="workers") as queue, pytest.raises(errors.InvalidArgument):
        queue.take(max_records=0)


def test_a_group_of_consumers_is_no_group_of_a_queue_with_members_or_without(log: foldlog.Log) -> None:
    log.append("jobs", "read")
    log.reset_group("commits-only", {("jobs", 0): 1})
    refused = r"group '[a-z-]+' is a group of consumers, not of a queue; choose another name"
    with log.consumer(["jobs"], group="readers", auto_offset_reset="earliest", auto_commit=False) as consumer:
        assert values(consumer.poll(timeout_ms=WAIT_MS)) == ["read"]
        consumer.commit()
        with pytest.raises(errors.InconsistentProtocol, match=refused):
            log.queue("jobs", group="readers")
    for group in ("readers", "commits-only"):
        with pytest.raises(errors.InconsistentProtocol, match=refused):
            log.queue("jobs", group=group)
        assert log.describe_group(group).group_type == "classic"
        assert log.committed(group)[foldlog.TopicPartition("jobs", 0)].offset == 1


def test_a_group_of_a_queue_is_no_group_of_consumers(log: foldlog.Log) -> None:
    log.append("jobs", "taken")
    with log.queue("jobs", group="workers", auto_offset_reset="earliest") as queue:
        queue.ack(*queue.take(timeout_ms=WAIT_MS))
    with pytest.raises(errors.InconsistentProtocol, match="group 'workers' is a queue's, not a group of consumers"):
        log.consumer(["jobs"], group="workers").poll(timeout_ms=WAIT_MS)


def test_who_reads_the_directory_sees_the_group_of_a_queue_and_who_has_left_it(tmp_path: Path) -> None:
    with foldlog.open(tmp_path / "data") as log, foldlog.open(tmp_path / "data", mode="r") as reader:
        log.create_topic("jobs")
        queue = log.queue("jobs", group="workers")
        assert reader.groups() == ["workers"], "durable before anything can be taken"
        assert reader.describe_group("workers").state == "Stable"
        queue.close()
        deadline_s, pause = time.monotonic() + WAIT_MS / 1000, Event()
        while reader.describe_group("workers").state != "Empty":
            assert time.monotonic() < deadline_s, "nobody has synced that the member left"
            pause.wait(0.01)


def test_a_queue_that_is_dropped_leaves_when_the_next_is_opened(log: foldlog.Log) -> None:
    log.append("jobs", "held")
    dropped = log.queue("jobs", group="workers", auto_offset_reset="earliest")
    assert values(dropped.take(timeout_ms=WAIT_MS)) == ["held"]
    del dropped
    gc.collect()
    with log.queue("jobs", group="workers") as queue:
        (record,) = queue.take(timeout_ms=WAIT_MS)
        assert queue.deliveries(record) == 2
        assert len(log.describe_group("workers").members) == 1, "not only its lock has timed out"
        queue.ack(record)


@pytest.mark.parametrize("place", ["embedded", "beside"])
@pytest.mark.parametrize("is_dropped", [False, True])
def test_closing_the_log_makes_its_queues_leave(place: str, is_dropped: bool, tmp_path: Path) -> None:
    path = tmp_path / "data"
    with ExitStack() as until_end:
        if place == "beside":
            until_end.enter_context(foldlog.open(path, listen=True))
        log = foldlog.open(path)
        log.create_topic("jobs")
        log.append("jobs", "held")
        queue: foldlog.Queue | None = log.queue("jobs", group="workers", auto_offset_reset="earliest")
        assert queue is not None
        assert values(queue.take(timeout_ms=WAIT_MS)) == ["held"]
        if is_dropped:
            queue = None
            gc.collect()
        log.close()
        with foldlog.open(path) as again:
            assert again.describe_group("workers").members == ()
            with again.queue("jobs", group="workers") as other:
                assert values(other.take(timeout_ms=WAIT_MS)) == ["held"]


def test_a_list_of_records_is_not_a_record() -> None:
    with foldlog.open(":memory:") as log:
        log.create_topic("jobs")
        log.append("jobs", "held")
        with log.queue("jobs", group="workers", auto_offset_reset="earliest") as queue:
            taken = queue.take()
            for say in (queue.ack, queue.release, queue.reject, queue.renew, queue.deliveries):
                with pytest.raises(errors.InvalidArgument, match=r"one record at a time.*\*records"):
                    say(taken)  # type: ignore[arg-type]
            queue.ack(*taken)


@contextmanager
def committed_log(place: str, path: Path) -> Iterator[foldlog.Log]:
    """A log that was opened to read committed records only."""
    if place == "cluster":
        with KafkaBroker.launch(path=path) as broker:
            url = f"kafka://{broker}?isolation.level=read_committed"
            with foldlog.connect(url, properties=IN_A_HURRY) as log:
                yield log
    elif place == "beside":
        with (
            foldlog.open(path, listen=True),
            foldlog.open(path, isolation_level="read_committed") as log,
        ):
            assert log.is_remote
            yield log
    else:
        with foldlog.open(path, isolation_level="read_committed") as log:
            yield log


@pytest.mark.parametrize("place", PLACES)
def test_the_isolation_of_the_log_holds_for_its_queues(place: str, tmp_path: Path) -> None:
    with committed_log(place, tmp_path / "data") as log:
        log.create_topic("jobs")
        log.append("jobs", "plain")
        with log.queue("jobs", group="workers", auto_offset_reset="earliest") as queue:
            with log.transaction("etl") as tx:
                tx.send("jobs", "undecided").result()
                taken = queue.take(timeout_ms=WAIT_MS)
                assert values(taken) == ["plain"]
                queue.ack(*taken)
                assert queue.take(timeout_ms=1) == []
            assert values(queue.take(timeout_ms=WAIT_MS)) == ["undecided"]


def test_a_queue_sets_the_isolation_of_its_group_if_told(tmp_path: Path) -> None:
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("jobs")
        own = broker_of(log).group_configs.own
        with log.queue("jobs", group="workers", isolation="read_committed"):
            assert own("workers")["share.isolation.level"] == "read_committed"
        with log.queue("jobs", group="workers"):
            assert own("workers")["share.isolation.level"] == "read_committed", "nothing was said of it"
        with log.queue("jobs", group="workers", isolation="read_uncommitted"):
            assert own("workers")["share.isolation.level"] == "read_uncommitted"
        with pytest.raises(errors.InvalidArgument, match="isolation='dirty'"):
            log.queue("jobs", group="workers", isolation="dirty")


def test_without_a_share_consumer_a_cluster_says_which_version_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import confluent_kafka

    with PLACES["cluster"](tmp_path / "data") as log:
        log.create_topic("jobs")
        monkeypatch.delattr(confluent_kafka, "ShareConsumer")
        with pytest.raises(errors.InvalidArgument, match=r"confluent-kafka 2\.16 or newer"):
            log.queue("jobs", group="workers")


def test_a_served_queue_goes_on_when_the_writer_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "data"
    writer = foldlog.open(path, listen=True)
    writer.create_topic("jobs")
    with foldlog.open(path) as log, log.queue("jobs", group="workers", auto_offset_reset="earliest") as queue:
        writer.append("jobs", "before")
        held = queue.take(timeout_ms=WAIT_MS)
        writer.close()
        writer = foldlog.open(path, listen=True)
        again = queue.take(timeout_ms=WAIT_MS)
        assert values(again) == values(held) == ["before"]
        assert queue.deliveries(again[0]) == 2
        queue.ack(*again)
        assert sum(log.lag("workers").values()) == 0
    writer.close()


def test_a_renewed_lock_holds_for_as_long_as_a_new_one_and_so_does_the_membership(tmp_path: Path) -> None:
    clock = SimClock()
    with foldlog.open(tmp_path / "data", clock=clock) as log:
        log.create_topic("jobs")
        log.append("jobs", "slow")
        log.append("jobs", "forgotten")
        with log.queue("jobs", group="workers", auto_offset_reset="earliest") as queue:
            slow, forgotten = queue.take()
            for _ in range(4):  # 116 s: more than the session's 45, too
                clock.advance(29_000)
                queue.renew(slow)
            assert queue.deliveries(slow) == 1
            with log.queue("jobs", group="workers") as other:
                assert values(other.take()) == ["forgotten"]
            with pytest.raises(errors.InvalidRecordState):
                queue.renew(forgotten)
            queue.ack(slow)
            with pytest.raises(errors.InvalidRecordState, match="holds"):
                queue.renew(slow)


@pytest.mark.parametrize("place", ["embedded", "beside"])
def test_a_group_can_be_set_not_to_renew(place: str, tmp_path: Path) -> None:
    with PLACES[place](tmp_path / "data") as log:
        log.create_topic("jobs")
        log.append("jobs", "slow")
        with log.queue("jobs", group="workers", auto_offset_reset="earliest") as queue:
            (record,) = queue.take(timeout_ms=WAIT_MS)
            queue.renew(record)
            forbid_renewal(log)
            with pytest.raises(errors.InvalidArgument, match=r"share\.renew\.acknowledge\.enable is false"):
                queue.renew(record)
            queue.ack(record)
        assert sum(log.lag("workers").values()) == 0


def forbid_renewal(log: foldlog.Log) -> None:
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

    setting = ("share.renew.acknowledge.enable", "false")
    if not log.is_remote:
        broker_of(log).group_configs.change("workers", lambda own: {**own, setting[0]: setting[1]})
        return
    entry = ConfigEntry(*setting, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.GROUP, "workers", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": log.bootstrap or ""})
    admin.incremental_alter_configs([resource])[resource].result(WAIT_MS / 1000)


def test_what_is_not_given_to_anybody_is_passed_over_in_one_take_however_long_it_is(tmp_path: Path) -> None:
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("jobs")
        with log.transaction("etl") as aborted:
            for _ in range(40):
                aborted.send("jobs", "x" * 10_000).result()
            aborted.abort()
        log.append("jobs", "behind")
        broker_of(log).group_configs.change("careful", lambda own: {"share.isolation.level": "read_committed"})
        with log.queue("jobs", group="careful", auto_offset_reset="earliest") as queue:
            assert values(queue.take(max_records=1, timeout_ms=0)) == ["behind"]


def test_a_group_that_reads_committed_records_is_given_no_aborted_and_no_undecided_one(tmp_path: Path) -> None:
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("jobs")
        with log.transaction("etl") as aborted:
            aborted.send("jobs", "aborted").result()
            aborted.abort()
        log.append("jobs", "plain")
        with log.transaction("etl") as tx:
            tx.send("jobs", "committed")
        undecided = log.transaction("other")
        undecided.send("jobs", "undecided").result()
        broker_of(log).group_configs.change("careful", lambda own: {**own, "share.isolation.level": "read_committed"})
        for group, wanted in (
            ("careful", ["plain", "committed"]),
            ("careless", ["aborted", "plain", "committed", "undecided"]),
        ):
            found: list[str] = []
            with log.queue("jobs", group=group, auto_offset_reset="earliest") as queue:
                while taken := queue.take(max_records=10, timeout_ms=0):
                    queue.ack(*taken)
                    found += values(taken)
            assert found == wanted
