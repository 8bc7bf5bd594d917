"""Whether all is well, and how it was in the last hours: found by the broker itself, so true of dead readers, too."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from foldlog.broker.broker import Broker
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.broker.groups.consumer.messages import MemberHeartbeat
from foldlog.client.fold_bulletin import FOLDS_CONFIG, FOLDS_TOPIC, Status, encode
from foldlog.client.fold_proof import FoldsKey
from foldlog.files.paths import DiskSpace
from foldlog.limits import (
    CONSOLE_HISTORY_SAMPLES,
    CONSOLE_HISTORY_SERIES_MAX,
    CONSOLE_HISTORY_STEP_MS,
    CONSOLE_RECENT_LINES_MAX,
)
from foldlog.log.partition import Partition
from foldlog.records.loops import pack
from foldlog.server import problems as problems_module
from foldlog.server.console import history as history_module
from foldlog.server.console.history import History
from foldlog.server.folds_reader import ServedFoldRuns
from foldlog.server.metrics.collectors import log_families
from foldlog.testing.sim_clock import SimClock
from server.console.console_site import ConsoleSite, console

STATUS = Status("mirror", "orders", "v", "table", "running", {"0": 2}, {"0": 5}, 3, 2, 2, 0, 0, 0, "", None, "h:1", 0)


def append(broker: Broker, topic: str, *values: bytes) -> None:
    partition = broker.partition(topic, 0)
    assert isinstance(partition, Partition)
    appended = partition.append(pack([(1000, b"k", value, ()) for value in values]))
    partition.wait_acknowledged(appended.next_offset)


def publish(site: ConsoleSite, status: Status, folds_key: FoldsKey | None = None) -> None:
    if site.broker.find_topic(FOLDS_TOPIC) is None:
        site.broker.create_topic(FOLDS_TOPIC, 1, FOLDS_CONFIG)
    site.append(FOLDS_TOPIC, 0, encode(status), folds_key=folds_key)


def problems_told(broker: Broker) -> set[tuple[str, ...]]:
    """As a scrape tells them."""
    for family in log_families(broker, ServedFoldRuns(broker)):
        if family.name == "foldlog_problems":
            return {tuple(value for _, value in sample.labels) for sample in family.samples}
    raise LookupError("foldlog_problems")


def problems(site: ConsoleSite) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["kind"], one["name"]): one for one in site.get("/api/health")["problems"]}


# --- problems ---------------------------------------------------------------------------------------------------------


def test_a_fold_whose_runner_is_gone_is_a_problem_and_one_that_was_stopped_is_not() -> None:
    with console() as site:
        now_ms = site.broker.clock.now_ms()
        site.broker.create_topic("orders")
        publish(site, replace(STATUS, updated_ms=now_ms))
        publish(site, replace(STATUS, fold="calm", state="stopped", stopped=True, updated_ms=now_ms - 600_000))
        assert problems(site) == {}
        publish(site, replace(STATUS, updated_ms=now_ms - 600_000))
        (found,) = problems(site).values()
        assert (found["kind"], found["resource"], found["name"]) == ("fold_lost", "fold", "mirror")
        assert found["since_ms"] == now_ms - 600_000
        assert "h:1 fell silent" in found["sentence"]
        assert found["command"] == f"foldlog fold run folds.py -b {site.server.bootstrap}"
        assert problems_told(site.broker) == {("fold_lost", "mirror")}


def test_a_fold_that_fails_is_a_problem_with_its_own_sentence() -> None:
    with console() as site:
        site.broker.create_topic("orders")
        publish(site, replace(STATUS, state="failed", error="no such column", updated_ms=site.broker.clock.now_ms()))
        (found,) = problems(site).values()
        assert (found["kind"], found["sentence"]) == ("fold_failing", "no such column")


@pytest.mark.parametrize("is_proven", [True, False])
def test_a_command_names_the_file_of_a_runner_that_has_proven_itself_alone(is_proven: bool) -> None:
    """Anybody who may write to the topic could otherwise have an operator run a program."""
    with console() as site:
        site.broker.create_topic("orders")
        assert site.server._node is not None
        key = site.server._node.fold_guard.key() if is_proven else None
        publish(site, replace(STATUS, file="/srv/shop.py", updated_ms=1), key)
        (found,) = problems(site).values()
        assert ("/srv/shop.py" in found["command"]) is is_proven


def test_a_group_whose_last_member_died_is_a_problem_while_it_is_behind() -> None:
    with Broker.open(":memory:", background=False, clock=(clock := SimClock())) as broker, console(broker) as site:
        topic = broker.create_topic("orders")
        append(broker, "orders", b"1", b"2", b"3")
        member = MemberHeartbeat("fraud", "m", 0, rebalance_timeout_ms=60_000, topics=("orders",), owned=frozenset())
        with broker.coordinator() as coordinator:
            epoch = coordinator.consumer_heartbeat(member).member_epoch
        broker.commit_offsets("fraud", {("orders", 0): OffsetAndMetadata(1)}, member_id="m", generation=epoch)
        assert topic is not None
        assert problems(site) == {}
        clock.advance(120_000)
        (found,) = problems(site).values()
        assert (found["kind"], found["name"], found["lag"]) == ("group_died", "fraud", 2)
        assert found["command"] == f"foldlog group describe fraud -b {site.server.bootstrap}"
        assert problems_told(broker) == {("group_died", "fraud")}
        broker.commit_offsets("fraud", {("orders", 0): OffsetAndMetadata(3)})
        assert problems(site) == {}
        assert problems_told(broker) == set()


def test_a_poisoned_partition_and_a_full_disk_are_problems(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr(problems_module, "disk_space", lambda _: DiskSpace(1000, 49))
    with Broker.open(str(tmp_path_factory.mktemp("log") / "data")) as broker, console(broker) as site:
        broker.create_topic("orders")
        append(broker, "orders", b"1")
        monkeypatch.setattr(Partition, "is_poisoned", property(lambda self: self.label[0] == "orders"))
        health = site.get("/api/health")
        assert [one["kind"] for one in health["problems"]] == ["partition_poisoned", "disk_low"]
        assert "4.9 %" in health["problems"][1]["sentence"]
        assert (health["disk"]["free_bytes"], health["disk"]["size_bytes"]) == (49, 1000)


def test_problems_are_told_as_events_and_their_end_too() -> None:
    with console() as site, site.events() as events:
        told = (event.data for event in events if event.name == "problems")
        assert next(told) == []
        site.broker.create_topic("orders")
        publish(site, replace(STATUS, updated_ms=1))
        assert [one["name"] for one in next(told)] == ["mirror"]
        site.append(FOLDS_TOPIC, 0, (b"status/mirror", None))
        assert next(told) == []


def test_recent_warnings_are_shown_newest_first_and_are_bounded() -> None:
    logger = logging.getLogger("foldlog.server")
    with console() as site:
        logger.info("not this")
        for number in range(CONSOLE_RECENT_LINES_MAX + 5):
            logger.warning("line %d\x1b[2J", number)
        logger.error("worse")
        lines = site.get("/api/health")["errors"]
    assert len(lines) == CONSOLE_RECENT_LINES_MAX
    assert [(line["level"], line["text"]) for line in lines[:2]] == [
        ("error", "worse"),
        ("warning", f"line {CONSOLE_RECENT_LINES_MAX + 4}\\x1b[2J"),
    ]


# --- the last hours ---------------------------------------------------------------------------------------------------


@contextmanager
def remembered() -> Iterator[tuple[Broker, SimClock, History]]:
    with Broker.open(":memory:", background=False, clock=(clock := SimClock())) as broker:
        yield broker, clock, History(broker, ServedFoldRuns(broker))


def test_lag_grows_though_nobody_reads_and_rates_are_those_of_the_log() -> None:
    with remembered() as (broker, clock, history):
        broker.create_topic("orders")
        append(broker, "orders", b"1", b"2")
        broker.commit_offsets("fraud", {("orders", 0): OffsetAndMetadata(1)})
        history.sample()
        for _ in range(3):
            clock.advance(CONSOLE_HISTORY_STEP_MS)
            append(broker, "orders", *[b"x"] * 30)
            history.sample()
        found = history.read(60, 100)
        assert found["groups"] == {"fraud": {"orders": [1, 31, 61, 91]}}
        assert found["topics"]["orders"]["records_per_s"] == [None, 2, 2, 2]
        assert found["topics"]["orders"]["bytes_per_s"][1] > 0
        assert [at - found["at"][0] for at in found["at"]] == [n * CONSOLE_HISTORY_STEP_MS for n in range(4)]
        fewer = history.read(60, 2)
        assert fewer["groups"] == {"fraud": {"orders": [31, 91]}}, "a point is the highest of its time"
        clock.advance(CONSOLE_HISTORY_STEP_MS)
        history.sample()
        for points in range(2, 6):
            assert len(history.read(60, points)["at"]) <= points
        clock.advance(10 * 60_000)
        assert history.read(5, 100)["at"] == []


def test_a_time_without_samples_is_no_zero() -> None:
    with remembered() as (broker, clock, history):
        broker.create_topic("orders")
        history.sample()
        clock.advance(CONSOLE_HISTORY_STEP_MS)
        history.sample()
        broker.delete_topic("orders")
        clock.advance(CONSOLE_HISTORY_STEP_MS)
        history.sample()
        assert history.read(60, 100)["topics"]["orders"]["records_per_s"] == [None, 0, None]


def test_memory_is_bounded_and_the_quiet_make_room() -> None:
    with remembered() as (broker, clock, history):
        for number in range(CONSOLE_HISTORY_SERIES_MAX + 1):
            broker.create_topic(f"t{number:03d}")
        history.sample()
        clock.advance(CONSOLE_HISTORY_STEP_MS)
        history.sample()
        last = f"t{CONSOLE_HISTORY_SERIES_MAX:03d}"
        topics = history.read(60, 10)["topics"]
        assert len(topics) == CONSOLE_HISTORY_SERIES_MAX
        assert last not in topics
        append(broker, last, b"1")
        clock.advance(CONSOLE_HISTORY_STEP_MS)
        history.sample()
        topics = history.read(60, 10)["topics"]
        assert len(topics) == CONSOLE_HISTORY_SERIES_MAX
        assert topics[last]["records_per_s"] == [None, None, 0.1]


def test_the_ring_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "CONSOLE_HISTORY_SAMPLES", 4)
    with remembered() as (broker, clock, history):
        broker.create_topic("orders")
        broker.commit_offsets("fraud", {("orders", 0): OffsetAndMetadata(0)})
        for number in range(10):
            append(broker, "orders", b"x")
            history.sample()
            clock.advance(CONSOLE_HISTORY_STEP_MS)
            assert history.read(360, 100)["groups"]["fraud"]["orders"] == list(range(max(1, number - 2), number + 2))


def test_the_disk_lasts_as_long_as_it_did_in_the_last_hour(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    free = [100_000_000]
    monkeypatch.setattr(problems_module, "disk_space", lambda _: DiskSpace(200_000_000, free[0]))
    path = str(tmp_path_factory.mktemp("log") / "data")
    with Broker.open(path, background=False, clock=(clock := SimClock())) as broker:
        history = History(broker, ServedFoldRuns(broker))
        history.sample()
        for _ in range(39):
            clock.advance(CONSOLE_HISTORY_STEP_MS)
            free[0] -= 15_000
            history.sample()
        early = history.disk()
        assert early is not None
        assert early.full_in_ms is None, "in less than ten minutes nobody knows"
        clock.advance(CONSOLE_HISTORY_STEP_MS)
        free[0] -= 15_000
        history.sample()
        found = history.disk()
        assert found is not None
        assert found.falls_bytes_per_s == 1000
        assert found.full_in_ms == free[0]
        free[0] += 10_000_000
        history.sample()
        grown = history.disk()
        assert grown is not None
        assert grown.full_in_ms is None
    assert CONSOLE_HISTORY_SAMPLES * CONSOLE_HISTORY_STEP_MS == 6 * 3_600_000


@pytest.mark.parametrize("query", ["minutes=0", "minutes=361", "points=1", "points=9999", "minutes=x"])
def test_a_history_of_no_length_is_refused(query: str) -> None:
    with console() as site:
        assert site.ask("GET", f"/api/history?{query}").status == 400


def test_the_console_remembers_from_its_start() -> None:
    with console() as site:
        site.broker.create_topic("orders")
        site.broker.commit_offsets("fraud", {("orders", 0): OffsetAndMetadata(0)})
        found = site.get("/api/history")
        assert found["step_ms"] == CONSOLE_HISTORY_STEP_MS
        assert len(found["at"]) <= 1
