"""A scrape tells where every partition and group stands, without opening or changing anything.

Brokers in memory and in directories, looked at through the page that Prometheus gets, read with its own parser.
"""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import foldlog
from foldlog.broker.broker import Broker
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.broker.groups.messages import JoinRequest
from foldlog.cli.group.facts import FoldRunsOf, facts_of
from foldlog.client.backends.directory import broker_of
from foldlog.client.fold_bulletin import FOLDS_CONFIG, FOLDS_TOPIC, Status, encode
from foldlog.client.groups import CHECK_GROUP, COPY_GROUP
from foldlog.clock import SystemClock
from foldlog.errors import CorruptLog, PartitionPoisoned
from foldlog.exposition import render
from foldlog.files.memory import MemoryFiles
from foldlog.log.partition import Partition
from foldlog.records.loops import BatchBuilder
from foldlog.server.console.groups import bounds_in, group_details, group_overviews
from foldlog.server.folds_reader import ServedFoldRuns
from foldlog.server.http.status_pages import problem_of
from foldlog.server.metrics.collectors import build_family, log_families, process_families
from foldlog.testing.faulty_files import Fault, FaultyFiles, Kind

Series = dict[tuple[str, ...], float]


def scrape(broker: Broker, *, per_partition: bool = True) -> dict[str, Series]:
    """Every metric: its values by the values of its labels."""
    page = render(log_families(broker, ServedFoldRuns(broker), per_partition=per_partition)).decode()
    found: dict[str, Series] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def append(broker: Broker, topic: str, number: int, count: int) -> None:
    builder = BatchBuilder(1 << 20)
    for _ in range(count):
        builder.append(1_700_000_000_000, None, b"value")
    partition = broker.partition(topic, number)
    assert isinstance(partition, Partition)
    partition.wait_acknowledged(partition.append(builder.build()).next_offset)


def test_a_fold_that_runs_is_no_empty_group_to_anybody(tmp_path: Path) -> None:
    """It reads without joining; a scrape, the console and the command line say what its runner publishes."""
    clock = SystemClock()
    with foldlog.open(tmp_path / "data") as log:
        broker = broker_of(log)
        log.create_topic("orders")
        append(broker, "orders", 0, 10)
        log.create_topic(FOLDS_TOPIC, 1, FOLDS_CONFIG)
        for group in ("fold.mirror", "fold.unheard", "readers"):
            log.reset_group(group, {("orders", 0): 4})
        runs = ServedFoldRuns(broker)

        def publish(runner: str, updated_ms: int, state: str, *, stopped: bool = False) -> None:
            told = Status(
                "mirror", "orders", "v", "table", state, {}, {}, 0, 0, 0, 0.0, 0, 0, "", None, runner, updated_ms
            )
            name, value = encode(replace(told, stopped=stopped))
            log.append(FOLDS_TOPIC, value, key=name)

        def is_told(state: str, count: int) -> None:
            page = render(log_families(broker, runs)).decode()
            states = {
                line for line in page.splitlines() if line.startswith(("foldlog_group_state", "foldlog_group_mem"))
            }
            assert states == {
                f'foldlog_group_state{{group="fold.mirror",state="{state}"}} 1',
                'foldlog_group_state{group="fold.unheard",state="Empty"} 1',
                'foldlog_group_state{group="readers",state="Empty"} 1',
                f'foldlog_group_members{{group="fold.mirror"}} {count}',
                'foldlog_group_members{group="fold.unheard"} 0',
                'foldlog_group_members{group="readers"} 0',
            }
            shown = {
                one["group"]: (one["state"], one["members"]) for one in group_overviews(broker, bounds_in(broker), runs)
            }
            unread = ("Empty", 0)
            assert shown == {"fold.mirror": (state, count), "fold.unheard": unread, "readers": unread}
            details = group_details(broker, "fold.mirror", bounds_in(broker), runs)
            assert (details["state"], details["members"]) == (state, [])
            facts = facts_of(log, "fold.mirror", FoldRunsOf(log))
            assert (facts.state, facts.reader_count) == (state, count)

        publish("h:1", clock.now_ms() + 60_000, "running")
        is_told("fold running", 1)
        publish("h:2", clock.now_ms() + 60_000, "caught up")
        is_told("fold caught up", 2)
        publish("h:1", clock.now_ms() + 60_000, "stopped", stopped=True)
        is_told("fold caught up", 1)
        publish("h:2", clock.now_ms() - 60_000, "caught up")
        is_told("fold not running", 0)
        log.append(FOLDS_TOPIC, None, key=b"status/mirror")
        is_told("Empty", 0)  # dropped: what is left is a group


def test_what_a_member_has_and_nobody_committed_counts_from_the_logs_start() -> None:
    """In a scrape, and in the console, which both count as everybody does."""
    with foldlog.open(":memory:") as log:
        log.create_topic("orders", 3)
        for number in range(3):
            append(broker_of(log), "orders", number, 10 * (number + 1))
        log.delete_records("orders", {2: 4})
        with log.consumer(["orders"], group="fraud", auto_commit=False, auto_offset_reset="earliest") as member:
            member.poll(timeout_ms=20_000)
            member.commit({foldlog.TopicPartition("orders", 0): 7})
            found = scrape(broker_of(log))
            (group,) = group_overviews(broker_of(log), bounds_in(broker_of(log)), ServedFoldRuns(broker_of(log)))
    assert found["foldlog_group_lag"] == {("fraud", "orders"): 3 + 20 + 26}
    assert found["foldlog_group_uncommitted_partitions"] == {("fraud", "orders"): 2}
    assert found["foldlog_group_partition_committed_offset"] == {("fraud", "orders", "0"): 7}
    lags = {("fraud", "orders", "0"): 3, ("fraud", "orders", "1"): 20, ("fraud", "orders", "2"): 26}
    assert found["foldlog_group_partition_lag"] == lags
    assert [(one["offset"], one["lag"], one["is_committed"]) for one in group["cursors"]] == [
        (7, 3, True),
        (0, 20, False),
        (4, 26, False),
    ]


def test_partitions_are_told_with_their_offsets_and_sizes() -> None:
    with Broker.open(":memory:", background=False) as broker:
        broker.create_topic("orders", 2)
        append(broker, "orders", 0, 5)
        found = scrape(broker)
        assert found["foldlog_topics"] == {(): 1}
        assert found["foldlog_partitions"] == {("open",): 1, ("resting",): 1, ("poisoned",): 0, ("refused",): 0}
        assert found["foldlog_partition_log_start_offset"] == {("orders", "0"): 0, ("orders", "1"): 0}
        assert found["foldlog_partition_high_watermark"] == {("orders", "0"): 5, ("orders", "1"): 0}
        assert found["foldlog_partition_log_end_offset"] == {("orders", "0"): 5, ("orders", "1"): 0}
        size = broker.partition("orders", 0).size_bytes
        assert found["foldlog_partition_size_bytes"] == {("orders", "0"): size}
        assert found["foldlog_partition_segments"] == {("orders", "0"): 1}
        assert found["foldlog_topic_size_bytes"] == {("orders",): size}
        assert found["foldlog_warnings"] == {(): 0}
        assert "foldlog_disk_free_bytes" not in found


def test_lag_counts_from_the_commit_to_the_high_watermark() -> None:
    with Broker.open(":memory:", background=False) as broker:
        broker.create_topic("orders", 2)
        append(broker, "orders", 0, 5)
        append(broker, "orders", 1, 7)
        offsets = {("orders", 0): OffsetAndMetadata(2), ("orders", 1): OffsetAndMetadata(7)}
        broker.commit_offsets("fraud", offsets)
        found = scrape(broker)
        assert found["foldlog_group_partition_lag"] == {("fraud", "orders", "0"): 3, ("fraud", "orders", "1"): 0}
        assert found["foldlog_group_partition_committed_offset"] == {
            ("fraud", "orders", "0"): 2,
            ("fraud", "orders", "1"): 7,
        }
        assert found["foldlog_group_lag"] == {("fraud", "orders"): 3}
        assert found["foldlog_group_state"] == {("fraud", "Empty"): 1}
        assert found["foldlog_group_members"] == {("fraud",): 0}


def test_the_notes_of_a_copy_are_no_groups_lag() -> None:
    with Broker.open(":memory:", background=False) as broker:
        broker.create_topic("orders", 1)
        append(broker, "orders", 0, 5)
        for group in (COPY_GROUP, CHECK_GROUP, "fraud"):
            broker.commit_offsets(group, {("orders", 0): OffsetAndMetadata(2)})
        assert scrape(broker)["foldlog_group_lag"] == {("fraud", "orders"): 3}


def test_a_commit_beyond_the_end_is_no_negative_lag() -> None:
    with Broker.open(":memory:", background=False) as broker:
        broker.create_topic("orders", 1)
        broker.commit_offsets("fraud", {("orders", 0): OffsetAndMetadata(9)})
        assert scrape(broker)["foldlog_group_lag"] == {("fraud", "orders"): 0}


def test_the_lag_of_a_group_that_nobody_reads_for_is_known_right_after_a_restart(tmp_path: Path) -> None:
    with Broker.open(str(tmp_path), background=False) as broker:
        broker.create_topic("orders", 1)
        append(broker, "orders", 0, 5)
        broker.commit_offsets("fraud", {("orders", 0): OffsetAndMetadata(1)})
    with Broker.open(str(tmp_path), background=False) as broker:
        found = scrape(broker)
        assert found["foldlog_group_partition_lag"] == {("fraud", "orders", "0"): 4}
        assert broker.opened_partition("orders", 0) is None
        assert ("orders", "0") not in found["foldlog_partition_size_bytes"]
        assert 0 < found["foldlog_disk_free_bytes"][()] <= found["foldlog_disk_size_bytes"][()]


def test_members_and_the_state_of_a_group_are_told() -> None:
    with Broker.open(":memory:", background=False) as broker:
        with broker.coordinator() as coordinator:
            coordinator.join(
                JoinRequest(
                    group="fraud",
                    member_id="",
                    session_timeout_ms=10_000,
                    rebalance_timeout_ms=10_000,
                    protocol_type="consumer",
                    protocols=(("range", b""),),
                    client_id="test",
                ),
                lambda _: None,
            )
        found = scrape(broker)
        assert found["foldlog_group_members"] == {("fraud",): 1}
        assert found["foldlog_group_state"] in (
            {("fraud", "PreparingRebalance"): 1},
            {("fraud", "CompletingRebalance"): 1},
        )


def test_a_group_may_have_any_name() -> None:
    name = 'a"b\\c\nd{e="f"} 1'
    with Broker.open(":memory:", background=False) as broker:
        broker.create_topic("orders", 1)
        broker.commit_offsets(name, {("orders", 0): OffsetAndMetadata(0)})
        assert scrape(broker)["foldlog_group_lag"] == {(name, "orders"): 0}


def test_what_is_told_of_single_partitions_can_be_left_out() -> None:
    with Broker.open(":memory:", background=False) as broker:
        broker.create_topic("orders", 2)
        append(broker, "orders", 0, 5)
        broker.commit_offsets("fraud", {("orders", 0): OffsetAndMetadata(2)})
        names = set(scrape(broker))
        left = scrape(broker, per_partition=False)
        assert names - set(left) == {name for name in names if "_partition_" in name}
        assert left["foldlog_group_lag"] == {("fraud", "orders"): 3}


def test_a_damaged_partition_is_counted_and_the_health_is_not_its_business(tmp_path: Path) -> None:
    with Broker.open(str(tmp_path), background=False) as broker:
        broker.create_topic("orders", 2)
        append(broker, "orders", 0, 5)
    next((tmp_path / "orders-0").glob("*.log")).unlink()
    with Broker.open(str(tmp_path), background=False) as broker:
        with pytest.raises(CorruptLog):
            broker.partition("orders", 0)
        found = scrape(broker)
        assert found["foldlog_partitions"] == {("open",): 0, ("resting",): 1, ("poisoned",): 0, ("refused",): 1}
        assert found["foldlog_warnings"] == {(): len(broker.warnings())}
        assert found["foldlog_warnings"][()] >= 1
        assert problem_of(broker) is None


def test_damaged_committed_offsets_cost_the_lag_and_nothing_else(tmp_path: Path) -> None:
    with Broker.open(str(tmp_path), background=False) as broker:
        broker.create_topic("orders", 1)
        broker.commit_offsets("fraud", {("orders", 0): OffsetAndMetadata(0)})
    next((tmp_path / "__consumer_offsets-0").glob("*.log")).unlink()
    with Broker.open(str(tmp_path), background=False) as broker:
        append(broker, "orders", 0, 5)
        found = scrape(broker)
        assert "foldlog_group_lag" not in found
        assert found["foldlog_partitions"][("refused",)] == 1
        assert found["foldlog_partition_high_watermark"][("orders", "0")] == 5


def test_a_poisoned_partition_is_counted_and_makes_the_broker_unhealthy() -> None:
    files = FaultyFiles(MemoryFiles())
    with Broker.open("data", files=files, background=False) as broker:
        broker.create_topic("orders", 3)
        assert problem_of(broker) is None
        for number in (2, 1):
            append(broker, "orders", number, 1)
            files.fault = Fault(lambda operation: errno.EIO if operation.kind is Kind.SYNC else 0)
            with pytest.raises(PartitionPoisoned):
                append(broker, "orders", number, 1)
            files.fault = Fault(lambda _: 0)
        assert scrape(broker)["foldlog_partitions"][("poisoned",)] == 2
        assert problem_of(broker) == (
            "orders-1 and 1 more cannot be written since a sync failed; restart the broker to recover"
        )


def test_a_closed_log_is_a_problem() -> None:
    broker = Broker.open(":memory:", background=False)
    broker.close()
    assert problem_of(broker) == "the log in :memory: is closed; open it again"


def test_the_process_tells_its_memory_and_time_under_the_usual_names() -> None:
    page = render([build_family(), *process_families()]).decode()
    found = {sample.name: sample for family in text_string_to_metric_families(page) for sample in family.samples}
    assert found["process_cpu_seconds_total"].value > 0
    assert 1 << 20 < found["process_resident_memory_bytes"].value < 1 << 40
    assert 0 < found["process_open_fds"].value <= found["process_max_fds"].value
    assert set(found["foldlog_build_info"].labels) == {"version", "python"}
