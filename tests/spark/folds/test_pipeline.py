"""A running pipeline: two of them at once, and one that is paused, rewound, rebuilt and verified while it runs.

The pipelines run in threads, over one Spark session. Commands go through the topic `__folds`, as a console sends them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import foldlog
import foldlog.spark as fl
from file_view import FileView
from foldlog import Log
from foldlog.client.fold_bulletin import Command, Status, decode
from foldlog.errors import FoldPaused, InvalidArgument
from foldlog.spark.folds.bulletin import latest
from foldlog.spark.folds.declaration import Fold
from foldlog.spark.origins.origin import open_origin, origin_spec
from folds_model import SCHEMA, fill, mirror_of, payment


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """A writer that listens: runners in the same process reach it like any other."""
    with foldlog.open(tmp_path / "data", listen=True) as opened:
        opened.create_topic("payments", partitions=2)
        yield opened


def mirror_into(view: FileView) -> Fold:
    @fl.fold(fl.topic("payments", key="tx_id", schema=SCHEMA), into=view)
    def mirror(rows: DataFrame) -> DataFrame:
        return rows

    return mirror


@contextmanager
def running(folds: Fold | list[Fold], log: Log, spark: SparkSession) -> Iterator[None]:
    """A pipeline in a thread of its own, until the block ends. What it raises is raised here."""
    stop = Event()
    raised: list[BaseException] = []

    def run() -> None:
        try:
            fl.run(folds if isinstance(folds, list) else [folds], log.path, interval_s=0.02, spark=spark, stop=stop)
        except BaseException as error:  # noqa: BLE001 for the test's own thread
            raised.append(error)

    thread = Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if raised:
        raise raised[0]


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    """Look again and again, for a minute at most."""
    pause = Event()
    for _ in range(1200):
        if is_so():
            return
        pause.wait(0.05)
    raise AssertionError(f"not within a minute: {what}")


def status_of(log: Log, fold: str = "mirror") -> Status | None:
    origin = open_origin(origin_spec(log.path))
    try:
        return latest(origin)[0].get(fold)
    finally:
        origin.close()


def answered(log: Log, command: Command, result: str) -> Callable[[], bool]:
    def is_so() -> bool:
        status = status_of(log)
        return status is not None and status.last_command == command.id and result in (status.result or "")

    return is_so


def is_mirrored(log: Log, view: FileView) -> Callable[[], bool]:
    return lambda: view.path.exists() and view.rows() == mirror_of(Path(log.path), "payments")


def test_two_runners_of_one_fold_double_nothing_and_lose_nothing(log: Log, tmp_path: Path, spark: SparkSession) -> None:
    views = [FileView(tmp_path / "mirror.json"), FileView(tmp_path / "mirror.json")]
    with running(mirror_into(views[0]), log, spark), running(mirror_into(views[1]), log, spark):
        for batch in range(5):
            fill(log, "payments", [(f"tx{n % 8}", payment(amount_paise=100 * batch + n)) for n in range(40)])
            wait_until(is_mirrored(log, views[0]), "the view holds what the log does")
    spans = sorted((number, span) for view in views for delta in view.deltas for number, span in delta.ranges.items())
    for number in (0, 1):
        edges = [span for partition, span in spans if partition == number]
        assert [start for start, _ in edges] == [0, *(stop for _, stop in edges[:-1])]


def test_a_running_fold_is_paused_resumed_rewound_rebuilt_and_verified_through_the_log(
    log: Log, tmp_path: Path, spark: SparkSession
) -> None:
    view = FileView(tmp_path / "mirror.json")
    fold = mirror_into(view)
    fill(log, "payments", [(f"tx{n % 8}", payment(amount_paise=n)) for n in range(40)])
    with running(fold, log, spark):
        wait_until(is_mirrored(log, view), "the view holds what the log does")
        paused = fl.ask("mirror", log.path, "pause")
        wait_until(answered(log, paused, "paused"), "it is paused")
        fill(log, "payments", [("new", payment())])
        resumed = fl.ask("mirror", log.path, "resume")
        wait_until(is_mirrored(log, view), "it went on")
        wait_until(answered(log, resumed, "resumed"), "it said so")
        rewound = fl.ask("mirror", log.path, "rewind", to="start")
        wait_until(answered(log, rewound, "41 to read again"), "it was rewound")
        rebuilt = fl.ask("mirror", log.path, "rebuild")
        wait_until(answered(log, rebuilt, "rebuilt"), "it was rebuilt")
        verified = fl.ask("mirror", log.path, "verify")
        wait_until(answered(log, verified, "equal: 9 rows"), "it was verified")
        refused = fl.ask("mirror", log.path, "rewind", to="10000")
        wait_until(answered(log, refused, "a rewind goes back only"), "a refusal is answered, too")
        with pytest.raises(InvalidArgument, match="'tomorrow' is not a place in a topic"):
            fl.ask("mirror", log.path, "rewind", to="tomorrow")
    status = status_of(log)
    assert status is not None
    assert (status.state, status.lag) == ("stopped", 0)
    bookmark = view.bookmark()
    assert bookmark is not None
    assert bookmark.epoch == 2


def test_a_pause_outlives_its_runner_and_a_command_is_done_once(log: Log, tmp_path: Path, spark: SparkSession) -> None:
    view = FileView(tmp_path / "mirror.json")
    fold = mirror_into(view)
    fill(log, "payments", [("a", payment())])
    fl.run([fold], log.path, once=True, spark=spark)
    fl.ask("mirror", log.path, "rewind", to="start")
    fl.run([fold], log.path, once=True, spark=spark)
    fl.run([fold], log.path, once=True, spark=spark)
    bookmark = view.bookmark()
    assert bookmark is not None
    assert bookmark.epoch == 1
    fl.ask("mirror", log.path, "pause")
    fill(log, "payments", [("b", payment())])
    for _ in range(2):
        with pytest.raises(FoldPaused):
            fl.run([fold], log.path, once=True, spark=spark)
    assert set(view.rows()) == {"a"}
    fl.ask("mirror", log.path, "resume")
    fl.run([fold], log.path, once=True, spark=spark)
    assert set(view.rows()) == {"a", "b"}


def test_a_paused_fold_that_is_rebuilt_stays_paused(log: Log, tmp_path: Path, spark: SparkSession) -> None:
    view = FileView(tmp_path / "mirror.json")
    fold = mirror_into(view)
    fill(log, "payments", [("a", payment())])
    fl.run([fold], log.path, once=True, spark=spark)
    with running(fold, log, spark):
        paused = fl.ask("mirror", log.path, "pause")
        wait_until(answered(log, paused, "paused"), "it is paused")
        rebuilt = fl.ask("mirror", log.path, "rebuild")
        wait_until(answered(log, rebuilt, "rebuilt"), "it was rebuilt")
        status = status_of(log)
        assert status is not None
        assert status.state == "paused"


@pytest.mark.faults
def test_a_writer_that_does_not_listen_costs_only_the_published_status(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    view = FileView(tmp_path / "mirror.json")
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("payments")
        fill(log, "payments", [("a", payment())])
        fl.run([mirror_into(view)], log.path, once=True, spark=spark)
        assert "__folds" not in log.topics(include_internal=True)
    assert set(view.rows()) == {"a"}
    assert len([one for one in caplog.records if "cannot be published" in one.message]) == 1


def published(log: Log) -> list[Status]:
    """Every status there was, also those that newer ones have replaced."""
    items = (decode(record.key, record.value) for record in log.read("__folds"))
    return [item for item in items if isinstance(item, Status)]


def test_of_two_runners_one_rebuilds_and_says_how_far_it_is(log: Log, tmp_path: Path, spark: SparkSession) -> None:
    views = [FileView(tmp_path / "mirror.json"), FileView(tmp_path / "mirror.json")]
    fill(log, "payments", [(f"tx{n % 8}", payment(amount_paise=n)) for n in range(40)])
    with running(mirror_into(views[0]), log, spark), running(mirror_into(views[1]), log, spark):
        wait_until(is_mirrored(log, views[0]), "the view holds what the log does")
        asked = fl.ask("mirror", log.path, "rebuild")
        wait_until(answered(log, asked, "rebuilt"), "it was rebuilt")
    bookmark = views[0].bookmark()
    assert bookmark is not None
    assert bookmark.epoch == 1
    doing = [status.doing for status in published(log) if status.doing is not None]
    assert {"verb": "rebuild", "done": 0, "total": 40} in doing


@pytest.mark.faults
def test_a_function_that_fails_for_ever_stands_as_failed_and_is_tried_again_when_it_is_resumed(
    log: Log, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foldlog.spark.folds.feed.SAME_FAILURES_MAX", 2)
    payments = fl.topic("payments", key="tx_id", schema=SCHEMA)
    good, bad = FileView(tmp_path / "good.json"), FileView(tmp_path / "bad.json")
    is_mended = Event()

    def ask_elsewhere(tx_id: str) -> str:
        raise ConnectionError(f"nobody answers about {tx_id}")  # no record's fault, so none is a dead letter

    @fl.fold(payments, into=bad)
    def stubborn(rows: DataFrame) -> DataFrame:
        return rows if is_mended.is_set() else rows.withColumn("note", F.udf(ask_elsewhere, "string")("tx_id"))

    @fl.fold(payments, into=good)
    def mirror(rows: DataFrame) -> DataFrame:
        return rows

    def has_failed() -> bool:
        status = status_of(log, "stubborn")
        return status is not None and status.state == "failed" and "the same 2 times" in (status.error or "")

    fill(log, "payments", [("a", payment())])
    with running([stubborn, mirror], log, spark):
        wait_until(has_failed, "it has given up")
        fill(log, "payments", [("b", payment())])
        wait_until(is_mirrored(log, good), "the other one goes on")
        is_mended.set()
        fl.ask("stubborn", log.path, "resume")
        wait_until(is_mirrored(log, bad), "it went on, too")
