"""The lag of a group that has committed nothing counts from where its members begin, where that is known: of consumers
of this process. Who shows it says so."""

from __future__ import annotations

from pathlib import Path

import pytest

import foldlog
from foldlog.client.backends.directory import broker_of
from foldlog.client.positions import TopicPartition
from foldlog.server.folds_reader import ServedFoldRuns
from foldlog.server.metrics.collectors import log_families
from server.console.console_site import console

PLACE = TopicPartition("orders", 0)


@pytest.mark.parametrize("is_served", [False, True])
@pytest.mark.parametrize(("reset", "lag"), [("latest", 0), ("earliest", 10), ("none", 10)])
def test_lag_counts_from_where_a_member_of_this_process_begins(
    tmp_path: Path, is_served: bool, reset: str, lag: int
) -> None:
    with foldlog.open(tmp_path, listen=is_served) as writer, foldlog.open(tmp_path) if is_served else writer as log:
        log.create_topic("orders")
        for number in range(10):
            log.append("orders", str(number))
        with log.consumer(["orders"], group="late", auto_offset_reset=reset, auto_commit=False) as consumer:
            assert log.lag("late") == {PLACE: lag}
            log.append("orders", "new")
            assert log.lag("late") == {PLACE: lag + 1}
            if reset == "latest":
                assert [record.text() for record in consumer.poll(timeout_ms=10_000)] == ["new"]
                consumer.commit()
                assert log.lag("late") == {PLACE: 0}


def test_the_console_and_metrics_count_the_same_and_say_from_where() -> None:
    log = foldlog.open(":memory:")
    log.create_topic("orders")
    log.append("orders", "old")
    with (
        console(broker_of(log)) as site,
        log.consumer(["orders"], group="late", auto_offset_reset="latest"),
        log.consumer(["orders"], group="early", auto_offset_reset="earliest"),
    ):
        groups = {one["group"]: one["cursors"][0] for one in site.get("/api/overview")["groups"]}
        found = {one.name: one for one in log_families(broker_of(log), ServedFoldRuns(broker_of(log)))}[
            "foldlog_group_partition_lag"
        ]
        lags = sorted((dict(one.labels)["group"], one.value) for one in found.samples)
    assert lags == [("early", 1), ("late", 0)]
    assert [(groups[name]["offset"], groups[name]["lag"]) for name in ("late", "early")] == [(1, 0), (0, 1)]
    assert groups["late"]["counted_from"] == "log end (auto_offset_reset=latest)"
    assert groups["early"]["counted_from"] == "log start"
    log.close()
