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

import foldlog
import foldlog.spark as fl
from file_view import FileView
from foldlog import Log
from foldlog.spark.folds.bulletin import Command, Status, decode, encode, latest
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
def running(fold: Fold, log: Log, spark: SparkSession) -> Iterator[None]:
    """A pipeline in a thread of its own, until the block ends. What it raises is raised here."""
    stop = Event()
    raised: list[BaseException] = []

    def run() -> None:
        try:
            fl.run([fold], log.path, interval_s=0.02, spark=spark, stop=stop)
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
        refused = fl.ask("mirror", log.path, "rewind", to="tomorrow")
        wait_until(answered(log, refused, "is not a place to rewind to"), "nonsense is answered, too")
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
    fl.run([fold], log.path, once=True, spark=spark)
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


def test_records_of_the_bulletin_that_are_not_ours_are_passed_over() -> None:
    command = Command.ask("mirror", "rewind", 5, to="-6h")
    entry = encode(command)
    assert decode(entry.key, entry.value) == command
    for key, value in (
        (b"status/x", b"{}"),
        (b"command/x", b"[]"),
        (b"other/x", entry.value),
        (None, b"x"),
        (entry.key, None),
    ):
        assert decode(key, value) is None
    with pytest.raises(ValueError, match="there are pause, resume"):
        Command.ask("mirror", "explode", 5)
