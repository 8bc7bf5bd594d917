"""Replays where something else goes on meanwhile: a topic that is written all the time, that has grown, that was cut,
compacted or made anew; a rewind that has not been caught up with; a second rebuild of the same fold.

What needs no rows to be read is tested without Spark. The view is the smallest there is (`FileView`).
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import accumulators
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import foldlog
import foldlog.spark as fl
from file_view import FileView
from foldlog.errors import (
    BrokerUnreachable,
    FoldError,
    InvalidArgument,
    MissingDependency,
    StaleBookmark,
    ViewInUse,
    ViewUnavailable,
)
from foldlog.spark.folds.bulletin import Bulletin
from foldlog.spark.folds.declaration import Fold
from foldlog.spark.folds.feed import Feed, State, is_for_good, starting_bookmark
from foldlog.spark.folds.replay import rebuild_feeds
from foldlog.spark.folds.runner import RANGES_AHEAD_MAX, Runner
from foldlog.spark.origins.ledger import open_ledger
from foldlog.spark.origins.origin import open_origin, origin_spec
from foldlog.views.bookmark import Bookmark, Position
from foldlog.views.contract import Delta, Shape
from folds_model import SCHEMA, fill, mirror_of, payment


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("payments", partitions=2)
    return tmp_path / "data"


@pytest.fixture
def view(tmp_path: Path) -> FileView:
    return FileView(tmp_path / "mirror.json")


def mirror_into(view: FileView, schema: str = SCHEMA) -> Fold:
    return fl.fold(fl.topic("payments", key="tx_id", schema=schema), into=view, name="mirror")(lambda rows: rows)


def append(directory: Path, *records: tuple[str | None, bytes | None]) -> None:
    with foldlog.open(directory) as log:
        fill(log, "payments", list(records))


def test_the_group_of_a_stopped_fold_is_where_a_rewind_has_put_its_view(directory: Path, view: FileView) -> None:
    """Nobody runs it, so nobody else would say so before the next runner starts."""
    append(directory, *[(f"tx{n}", payment()) for n in range(40)])
    with foldlog.open(directory) as log:
        topic_id, ends = log.topic("payments").topic_id, {n: end for n, (_, end) in log.offsets("payments").items()}
        log.reset_group("fold.mirror", {("payments", number): end for number, end in ends.items()})
        assert sum(log.lag("fold.mirror").values()) == 0
    start = Bookmark("payments", topic_id, {n: Position(0) for n in ends}, dict.fromkeys(ends, 0))
    view.prepare(Shape(pa.schema([("tx_id", pa.string())]), "tx_id", ("tx_id",)), start)
    view.apply(
        Delta(pa.table({"tx_id": pa.array([], pa.string())}), {n: (0, end) for n, end in ends.items()}),
        start,
        start.advanced({n: Position(end) for n, end in ends.items()}),
    )
    fl.rewind(mirror_into(view), directory, "start")
    with foldlog.open(directory) as log:
        assert {place.partition: lag for place, lag in log.lag("fold.mirror").items()} == ends


class Producer:
    """Writes one record whenever a fold gets somewhere: such a topic has no end to wait for. Gives up after a while."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.written = 0

    def __call__(self, feed: Feed) -> None:
        if self.written < 15 and feed.state is State.RUNNING:
            self.written += 1
            append(self._directory, (f"new{self.written}", payment(amount_paise=self.written)))


# --- a topic that is written all the time ---------------------------------------------------------------------------


def test_once_reads_what_there_was_at_its_start_of_a_topic_that_is_written_all_the_time(
    directory: Path, view: FileView, spark: SparkSession
) -> None:
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(10)))
    producer = Producer(directory)
    (feed,) = fl.run([mirror_into(view)], directory, once=True, spark=spark, on_progress=producer)
    assert producer.written < 3
    assert set(view.rows()) >= {f"tx{n}" for n in range(10)}
    assert feed.lag == producer.written


def test_a_rebuild_of_a_topic_that_is_written_all_the_time_comes_to_its_swap(
    directory: Path, view: FileView, spark: SparkSession
) -> None:
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(10)))
    fold = mirror_into(view)
    fl.run([fold], directory, once=True, spark=spark)
    producer = Producer(directory)
    assert fl.rebuild(fold, directory, spark=spark, on_progress=producer).state is State.DONE
    assert producer.written < 8
    bookmark = view.bookmark()
    assert bookmark is not None
    assert bookmark.epoch == 1
    fl.run([fold], directory, once=True, spark=spark)
    assert view.rows() == mirror_of(directory, "payments")


# --- a topic that has changed ---------------------------------------------------------------------------------------


def test_a_rewind_to_before_a_growth_takes_along_what_was_written_after_it(
    directory: Path, view: FileView, spark: SparkSession
) -> None:
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(20)))
    with foldlog.open(directory) as log:
        log.grow_topic("payments", 5)
    append(directory, *((f"tx{n}", payment(amount_paise=100 + n)) for n in range(20)))
    fold = mirror_into(view)
    fl.run([fold], directory, once=True, spark=spark)
    newest = {f"tx{n}": 100 + n for n in range(20)}
    assert {key: row["amount_paise"] for key, row in view.rows().items()} == newest
    rewound = fl.rewind(fold, directory, "0=0")
    assert all(rewound.now.offset(number) == 0 for number in (0, 2, 3, 4))
    fl.run([fold], directory, once=True, spark=spark)
    assert {key: row["amount_paise"] for key, row in view.rows().items()} == newest


def test_what_was_lost_of_a_partition_that_a_stopped_fold_has_never_met_is_no_silent_skip(
    directory: Path, view: FileView, spark: SparkSession
) -> None:
    fold = mirror_into(view)
    append(directory, ("a", payment()))
    fl.run([fold], directory, once=True, spark=spark)
    with foldlog.open(directory) as log:
        log.grow_topic("payments", 3)
        with log.producer() as producer:
            for n in range(5):
                producer.send("payments", value=payment(amount_paise=n), key=f"new{n}", partition=2)
        log.delete_records("payments", {2: 3})
    with pytest.raises(FoldError, match=r"payments-2 cannot be read: .*--skip-missing"):
        fl.run([fold], directory, once=True, spark=spark)
    (feed,) = fl.run([fold], directory, once=True, spark=spark, skip_missing=True)
    assert set(view.rows()) == {"a", "new3", "new4"}
    assert feed.bookmark is not None
    assert feed.bookmark.skipped == 3


def test_a_runner_goes_on_with_a_recreated_topic_once_its_view_was_rebuilt(
    directory: Path, view: FileView, spark: SparkSession
) -> None:
    fold = mirror_into(view)
    append(directory, ("a", payment()))
    origin = open_origin(origin_spec(directory))
    ledger = open_ledger(origin.spec)
    feed = Feed(fold, view)
    with Runner(spark, origin, ledger, [feed]) as runner:
        runner.drain()
        with foldlog.open(directory) as log:
            log.delete_topic("payments")
            log.create_topic("payments", partitions=2)
        append(directory, ("b", payment()))
        runner.drain()
        assert feed.state is State.FAILED
        fl.rebuild(fold, directory, spark=spark, accept_loss=True)
        append(directory, ("c", payment()))
        feed.state, feed.bookmark = State.RUNNING, None
        runner.step()
        assert feed.error is None
        assert set(view.rows()) == {"b", "c"}
    ledger.close()
    origin.close()


def test_a_view_that_has_read_more_than_the_log_holds_is_not_provable_and_not_rebuilt_without_a_word(
    directory: Path, view: FileView
) -> None:
    append(directory, ("a", payment()))
    origin = open_origin(origin_spec(directory))
    ahead = Bookmark("payments", origin.topic("payments").topic_id, {0: Position(0), 1: Position(99, 0)}, {0: 0, 1: 0})
    origin.close()
    view.prepare(Shape(None, "tx_id", ("tx_id",)), ahead)
    fold = mirror_into(view)
    verdict = fl.verify(fold, directory)
    assert verdict.answer == "not provable"
    assert "the log was cut" in verdict.missing
    with pytest.raises(FoldError, match=r"the log was cut.*--accept-loss"):
        fl.rebuild(fold, directory)


@pytest.mark.faults
def test_a_view_of_a_compacted_topic_that_has_not_caught_up_is_never_called_different(
    tmp_path: Path, view: FileView, spark: SparkSession
) -> None:
    directory = tmp_path / "data"
    with foldlog.open(directory) as log:
        log.create_topic("payments", config={"cleanup.policy": "compact", "foldlog.segment.records": 10})
        fill(log, "payments", [(f"tx{n % 6}", payment(amount_paise=n)) for n in range(12)])
    fold = mirror_into(view)
    fl.run([fold], directory, once=True, spark=spark)
    with foldlog.open(directory) as log:
        fill(log, "payments", [(f"tx{n % 6}", payment(amount_paise=n)) for n in range(12, 40)])
        log.compact("payments")
    verdict = fl.verify(fold, directory, spark=spark)
    assert (verdict.answer, verdict.view is not None) == ("not provable", True)
    assert "compacted" in verdict.missing
    fl.run([fold], directory, once=True, spark=spark)
    assert fl.verify(fold, directory, spark=spark).answer == "equal"


def test_a_rewound_view_is_provable_again_once_it_has_read_up_to_where_it_was(
    directory: Path, view: FileView, spark: SparkSession
) -> None:
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(10)))
    fold = mirror_into(view)
    fl.run([fold], directory, once=True, spark=spark)
    fl.rewind(fold, directory, "start")
    verdict = fl.verify(fold, directory)
    assert verdict.answer == "not provable"
    assert "rewound" in verdict.missing
    fl.run([fold], directory, once=True, spark=spark)
    assert fl.verify(fold, directory, spark=spark).answer == "equal"


# --- a long run -----------------------------------------------------------------------------------------------------


@pytest.mark.faults
def test_what_a_runner_keeps_grows_neither_with_its_ranges_nor_with_folds_at_places_of_their_own(
    directory: Path, tmp_path: Path, spark: SparkSession
) -> None:
    payments = fl.topic("payments", key="tx_id", schema=SCHEMA)
    folds = [
        fl.fold(payments, into=FileView(tmp_path / f"{n}.json"), name=f"f{n}")(lambda rows: rows) for n in range(4)
    ]
    for last in range(4):
        append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(10)))
        fl.run(folds[: 4 - last], directory, once=True, spark=spark)
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(40)))
    origin = open_origin(origin_spec(directory))
    ledger = open_ledger(origin.spec)
    ahead: list[int] = []
    with Runner(spark, origin, ledger, [Feed(fold, fold.view) for fold in folds], range_bytes=1000) as runner:
        runner.step()
        counts = len(accumulators._accumulatorRegistry)
        while runner.step():
            ahead.append(len(runner._ahead))
        assert all(feed.lag == 0 for feed in runner.feeds)
    assert 0 < max(ahead) <= RANGES_AHEAD_MAX
    assert len(accumulators._accumulatorRegistry) == counts
    ledger.close()
    origin.close()


# --- two at once, and failures --------------------------------------------------------------------------------------


def test_a_rebuild_does_not_swap_in_a_shadow_that_another_rebuild_has_begun_anew(
    directory: Path, view: FileView
) -> None:
    append(directory, ("a", payment()))
    origin = open_origin(origin_spec(directory))
    facts = origin.topic("payments")
    start = Bookmark("payments", facts.topic_id, {0: Position(0), 1: Position(0)}, {0: 0, 1: 0})
    shape = Shape(None, "tx_id", ("tx_id",))
    view.prepare(shape, start)
    (feed,) = rebuild_feeds(mirror_into(view), origin, on_swapped=lambda: None)
    assert feed.start is not None
    assert feed.on_caught_up is not None
    feed.bookmark = feed.start.advanced(
        {number: Position(bound.end) for number, bound in origin.bounds("payments").items()}
    )
    feed.view.prepare(shape, feed.start)
    with pytest.raises(StaleBookmark):
        feed.on_caught_up()
    assert view.bookmark() == start
    origin.close()


def test_a_rebuild_that_will_be_refused_is_refused_before_the_replay_and_leaves_no_shadow(
    directory: Path, tmp_path: Path
) -> None:
    view = fl.table(str(tmp_path / "shop.db"), "payments")
    fold = fl.fold(fl.topic("payments", key="tx_id", schema=SCHEMA), into=view, name="mirror")(lambda rows: rows)
    with closing(open_origin(origin_spec(directory))) as origin:
        start = starting_bookmark(origin.topic("payments"), origin.bounds("payments"))
        view.prepare(Shape(pa.schema([("tx_id", pa.string())]), "tx_id", ("tx_id",)), start)
        with closing(sqlite3.connect(tmp_path / "shop.db")) as user:
            user.execute("CREATE VIEW totals AS SELECT count(*) FROM payments")
            with pytest.raises(ViewInUse, match="view totals"):
                rebuild_feeds(fold, origin, on_swapped=lambda: None)
            names = {name for (name,) in user.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert not any("rebuild" in name for name in names)
    view.close()


def test_a_bulletin_that_cannot_be_read_costs_a_pipeline_no_more_than_its_commands(
    directory: Path, view: FileView, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(bulletin: Bulletin) -> list[object]:
        raise BrokerUnreachable(["127.0.0.1:1"], "it is being restarted")

    monkeypatch.setattr(Bulletin, "news", unreachable)
    append(directory, ("a", payment()))
    fl.run([mirror_into(view)], directory, once=True, spark=spark)
    assert set(view.rows()) == {"a"}


def test_a_rebuild_with_another_schema_sets_aside_what_no_longer_parses(
    directory: Path, view: FileView, spark: SparkSession
) -> None:
    append(directory, ("a", payment(note="tea")), ("b", payment()))
    fl.run([mirror_into(view)], directory, once=True, spark=spark)
    feed = fl.rebuild(mirror_into(view, "merchant STRING, note BIGINT"), directory, spark=spark)
    assert set(view.rows()) == {"b"}
    assert feed.dead == 1
    with foldlog.open(directory, mode="r") as log:
        assert len(list(log.read("mirror.dead"))) == 1


def test_poison_that_is_larger_than_a_usual_record_is_set_aside_as_well(
    tmp_path: Path, view: FileView, spark: SparkSession
) -> None:
    directory = tmp_path / "data"
    with foldlog.open(directory) as log:
        log.create_topic("payments", config={"max.message.bytes": 4 << 20})
    append(directory, ("a", b"{" * (2 << 20)), ("b", payment()))
    (feed,) = fl.run([mirror_into(view)], directory, once=True, spark=spark)
    assert (set(view.rows()), feed.dead) == ({"b"}, 1)


def test_a_tombstone_that_a_fold_lets_go_counts_beside_one_that_it_doubles(
    directory: Path, view: FileView, spark: SparkSession
) -> None:
    append(directory, *((key, payment()) for key in "abc"), ("a", None), ("b", None))

    @fl.fold(fl.topic("payments", key="tx_id", schema=SCHEMA), into=view)
    def doubled(rows: DataFrame) -> DataFrame:
        twice = rows.withColumn("copy", F.explode(F.array(F.lit(1), F.lit(2)))).drop("copy")
        return twice.filter("NOT (_deleted AND tx_id = 'a')")

    fl.run([doubled], directory, once=True, spark=spark)
    assert set(view.rows()) == {"c"}


def test_what_only_a_person_can_mend_is_not_tried_again() -> None:
    assert is_for_good(MissingDependency("a view", "tantivy", "views"))
    assert is_for_good(InvalidArgument("a row without 'tx_id' has no place in it"))
    assert not is_for_good(ViewUnavailable("table payments", "PostgreSQL says: it is starting up"))
