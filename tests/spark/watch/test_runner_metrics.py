"""Metrics of a runner, scraped over HTTP from a pipeline that runs, and read by Prometheus' own parser."""

from __future__ import annotations

import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import DataFrame, SparkSession

import foldlog
import foldlog.spark as fl
from foldlog.errors import FoldError, FoldPaused, FoldTimeout, InvalidArgument
from foldlog.spark.folds.declaration import Fold
from foldlog.spark.folds.feed import Feed
from foldlog.spark.folds.pipeline import Pipeline
from foldlog.spark.origins.origin import open_origin, origin_spec
from foldlog.spark.watch.metrics import MetricsPage, RunnerMetrics, metrics_watch, oldest_unread_ms
from foldlog.testing.sim_clock import SimClock
from foldlog.views.bookmark import Bookmark, Position
from folds_model import SCHEMA, payment
from monitoring_files import OF_RUNNERS, alert_expressions, dashboard_expressions, metric_names

PAGE = Path(__file__).resolve().parents[3] / "docs" / "orchestration.md"
ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<type>\w+) \|(?P<labels>[^|]*)\| (?P<text>[^|]+) \|$", re.MULTILINE)
HOUR_MS = 3_600_000


class Scraped(NamedTuple):
    """What a runner has told while a range was stored, and once it had caught up."""

    metrics: dict[str, Metric]
    after: dict[str, Metric]


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as response:
        found: bytes = response.read()
        return found.decode()


def parsed(page: str) -> dict[str, Metric]:
    return {
        metric.name + ("_total" if metric.type == "counter" else ""): metric
        for metric in text_string_to_metric_families(page)
    }


def value(metrics: dict[str, Metric], name: str, **labels: str) -> float:
    (found,) = [one.value for one in metrics[name].samples if one.name == name and one.labels == labels]
    return found


def folds_into(directory: Path) -> list[Fold]:
    payments = fl.topic("payments", key="tx_id", schema=SCHEMA)

    @fl.fold(payments, into=fl.table(str(directory / "shop.db"), "payments"))
    def mirror(rows: DataFrame) -> DataFrame:
        return rows

    @fl.fold(payments, into=fl.table(str(directory / "shop.db"), "grouped"))
    def grouped(rows: DataFrame) -> DataFrame:
        return rows.groupBy("tx_id").count()

    return [mirror, grouped]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of five payments, the first of which is two hours old, and of one record that is none."""
    path = tmp_path_factory.mktemp("metrics")
    with foldlog.open(path / "data") as log:
        log.create_topic("payments")
        now_ms = round(time.time() * 1000)
        for number in range(5):
            log.append(
                "payments", payment(), key=f"tx{number}", timestamp_ms=now_ms - (2 * HOUR_MS if not number else 0)
            )
        log.append("payments", b"no payment", key="tx5")
    return path


@pytest.fixture(scope="module")
def scraped(directory: Path, spark: SparkSession) -> Scraped:
    page = MetricsPage("127.0.0.1", 0)
    first: list[str] = []

    def look(feed: Feed) -> None:
        if not first:
            first.append(get(page.url))

    try:
        folds = folds_into(directory)
        spec = origin_spec(str(directory / "data"))
        with Pipeline(folds, spec, spark, on_progress=look, watches=[page]) as pipeline:
            with pytest.raises(FoldError, match="breaks the law of folds: it aggregates"):
                pipeline.run(once=True, interval_s=0.01)
            after = get(page.url)
        assert get(page.url.replace("/metrics", "/healthz")) == "ok\n"
        with pytest.raises(urllib.error.HTTPError):
            get(page.url.replace("/metrics", "/etc/passwd"))
    finally:
        page.close()
    return Scraped(parsed(first[0]), parsed(after))


def test_every_metric_is_on_the_page_and_the_page_has_no_other(scraped: Scraped) -> None:
    told = {
        name: (metric.type, frozenset(label for sample in metric.samples for label in sample.labels) - {"le"})
        for name, metric in scraped.after.items()
    }
    rows = ROW.finditer(PAGE.read_text(encoding="utf-8"))
    assert told == {row["name"]: (row["type"], frozenset(re.findall(r"`(\w+)`", row["labels"]))) for row in rows}


def test_the_alert_rules_and_the_dashboard_use_metrics_that_exist(scraped: Scraped) -> None:
    samples = {sample.name for metric in scraped.after.values() for sample in metric.samples}
    rules = metric_names(alert_expressions("foldlog folds"))
    shown = {name for name in metric_names(dashboard_expressions()) if OF_RUNNERS.match(name)}
    assert len(rules) >= 7
    assert len(shown) >= 9
    assert rules <= samples
    assert shown <= samples


def test_the_numbers_are_those_of_what_the_folds_did(scraped: Scraped, directory: Path) -> None:
    before, after = scraped
    assert value(before, "foldlog_fold_lag_records", fold="grouped") == 6
    assert value(before, "foldlog_fold_lag_seconds", fold="grouped") >= 7200
    assert value(after, "foldlog_fold_records_total", fold="mirror") == 6
    assert value(after, "foldlog_fold_rows_total", fold="mirror") == 5
    assert value(after, "foldlog_fold_dead_letters_total", fold="mirror") == 1
    assert value(after, "foldlog_fold_lag_records", fold="mirror") == 0
    assert value(after, "foldlog_fold_lag_seconds", fold="mirror") == 0
    assert value(after, "foldlog_fold_state", fold="mirror", state="caught up") == 1
    assert value(after, "foldlog_fold_failures_total", fold="mirror") == 0
    assert value(after, "foldlog_fold_failures_total", fold="grouped") == 1
    assert value(after, "foldlog_fold_state", fold="grouped", state="failed") == 1
    counted = {
        one.name: one.value for one in after["foldlog_fold_range_seconds"].samples if one.labels["fold"] == "mirror"
    }
    assert counted["foldlog_fold_range_seconds_count"] >= 1
    assert counted["foldlog_fold_range_seconds_sum"] > 0


def test_the_size_of_a_view_is_that_of_its_files(scraped: Scraped, directory: Path) -> None:
    (mirror, _) = folds_into(directory)
    assert mirror.view.size_bytes() == (directory / "shop.db").stat().st_size > 0


def test_the_lag_in_seconds_is_the_age_of_the_oldest_record_that_is_next(directory: Path) -> None:
    origin = open_origin(origin_spec(str(directory / "data")))
    try:
        bounds, facts = origin.bounds("payments"), origin.topic("payments")
        at = Bookmark("payments", facts.topic_id, {0: Position(1)}, {0: 0})
        first, second = (oldest_unread_ms("payments", one, bounds, origin) for one in (None, at))
        assert first is not None
        assert second is not None
        assert second - first == 2 * HOUR_MS
        end = Bookmark("payments", facts.topic_id, {0: Position(6)}, {0: 0})
        assert oldest_unread_ms("payments", end, bounds, origin) is None
    finally:
        origin.close()


def test_a_runner_that_does_not_look_any_more_is_not_healthy() -> None:
    clock = SimClock()
    metrics = RunnerMetrics(clock)
    clock.advance(59_000)
    assert metrics.is_healthy
    clock.advance(2_000)
    assert not metrics.is_healthy


@pytest.mark.parametrize("place", ["9309", "127.0.0.1:port", "127.0.0.1:70000", "metrics.txt"])
def test_a_place_that_is_none_is_refused(place: str) -> None:
    with pytest.raises(InvalidArgument, match="is neither an address, such as"):
        metrics_watch(place)


def test_an_address_that_is_taken_is_told_with_the_way_out() -> None:
    page = MetricsPage("127.0.0.1", 0)
    try:
        port = page.url.rpartition(":")[2].partition("/")[0]
        with pytest.raises(InvalidArgument, match=f":{port}: Address already in use; choose another port"):
            metrics_watch(f"127.0.0.1:{port}")
    finally:
        page.close()


def one_more(directory: Path) -> Callable[[Feed], None]:
    """Appends one more record, once, while the first range is told."""
    done: list[Feed] = []

    def append(feed: Feed) -> None:
        if not done:
            done.append(feed)
            with foldlog.open(directory) as log:
                log.append("payments", payment(), key="later")

    return append


@pytest.mark.parametrize(("until_caught_up", "read"), [(False, 1), (True, 2)])
def test_a_run_until_it_has_caught_up_reads_what_comes_meanwhile_and_one_run_does_not(
    tmp_path: Path, spark: SparkSession, until_caught_up: bool, read: int
) -> None:
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("payments")
        log.append("payments", payment(), key="first")
    (mirror, _) = folds_into(tmp_path)
    (feed,) = fl.run(
        [mirror],
        tmp_path / "data",
        once=not until_caught_up,
        until_caught_up=until_caught_up,
        timeout_s=600,
        spark=spark,
        on_progress=one_more(tmp_path / "data"),
    )
    assert feed.records == read


def test_a_run_that_has_no_time_or_is_paused_is_not_a_run_that_caught_up(directory: Path, spark: SparkSession) -> None:
    @fl.fold(fl.topic("payments", key="tx_id", schema=SCHEMA), into=fl.table(str(directory / "late.db"), "payments"))
    def late(rows: DataFrame) -> DataFrame:
        return rows

    with pytest.raises(
        FoldTimeout, match="the time is over, and not everything was read by late; what was read is stored"
    ):
        fl.run([late], directory / "data", until_caught_up=True, timeout_s=0, spark=spark)
    fl.ask("late", directory / "data", "pause")
    with pytest.raises(FoldPaused, match="fold 'late' is paused, and so not up to date: foldlog fold resume late"):
        fl.run([late], directory / "data", once=True, spark=spark)
