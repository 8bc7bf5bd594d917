"""Folds that run: what they read, what they skip, what they refuse, against a recompute of the log in plain Python.

The view is the smallest there is (`FileView`); the engines have tests of their own.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import foldlog
import foldlog.spark as fl
from file_view import FileView
from foldlog.errors import FoldError
from foldlog.limits import FOLD_TRIAL_YOUNG_OFFSETS
from foldlog.spark.folds.declaration import Fold
from foldlog.spark.folds.feed import Feed, State
from foldlog.spark.folds.ranges import beyond
from foldlog.spark.folds.reading import Seen, TopicFrames
from foldlog.spark.origins.origin import OffsetRange, open_origin, origin_spec
from foldlog.testing import KafkaBroker
from folds_model import SCHEMA, fill, mirror_of, payment


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("payments", partitions=2)
    return tmp_path / "data"


@pytest.fixture
def view(tmp_path: Path) -> FileView:
    return FileView(tmp_path / "mirror.json")


def mirror_into(view: FileView, **options: str) -> Fold:
    payments = fl.topic("payments", key="tx_id", schema=options.get("schema", SCHEMA))

    @fl.fold(payments, into=view)
    def mirror(rows: DataFrame) -> DataFrame:
        return rows

    return mirror


def run(fold: Fold, directory: Path, spark: SparkSession, **settings: object) -> Feed:
    return fl.run([fold], directory, once=True, spark=spark, **settings)[0]  # type: ignore[arg-type]


def append(directory: Path, *records: tuple[str | None, bytes | None], topic: str = "payments") -> None:
    with foldlog.open(directory) as log:
        fill(log, topic, list(records))


def test_updates_duplicates_and_tombstones_give_the_newest_row_of_each_key(
    directory: Path, view: FileView, spark: SparkSession
) -> None:
    append(directory, *((f"tx{n % 7}", payment(amount_paise=n)) for n in range(40)))
    append(directory, ("tx1", None), ("tx2", payment("coffee")), ("tx2", payment("coffee")), ("never", None))
    fold = mirror_into(view)
    run(fold, directory, spark)
    assert view.rows() == mirror_of(directory, "payments")
    assert "tx1" not in view.rows()
    append(directory, ("tx1", payment("back")), ("tx3", None))
    run(fold, directory, spark)
    assert view.rows() == mirror_of(directory, "payments")


def test_small_ranges_give_the_same_view_as_one_range(directory: Path, view: FileView, spark: SparkSession) -> None:
    append(directory, *((f"tx{n % 5}", None if n % 11 == 0 else payment(amount_paise=n)) for n in range(60)))
    run(mirror_into(view), directory, spark, range_bytes=1000)
    assert len(view.deltas) > 3
    assert view.rows() == mirror_of(directory, "payments")
    read = [one for delta in view.deltas for one in delta.ranges.items()]
    for number in (0, 1):
        edges = [span for partition, span in read if partition == number]
        assert [start for start, _ in edges][1:] == [stop for _, stop in edges][:-1]


def test_an_empty_topic_makes_an_empty_view_with_a_bookmark(
    directory: Path, view: FileView, spark: SparkSession
) -> None:
    feed = run(mirror_into(view), directory, spark)
    assert feed.state is State.CAUGHT_UP
    assert view.rows() == {}
    assert view.bookmark() is not None


def test_a_tombstone_deletes_although_the_fold_filters_it_out(
    directory: Path, view: FileView, spark: SparkSession
) -> None:
    append(directory, ("a", payment(amount_paise=5)), ("b", payment(amount_paise=-5)), ("c", payment(amount_paise=7)))
    append(directory, ("a", None))
    payments = fl.topic("payments", key="tx_id", schema=SCHEMA)

    @fl.fold(payments, into=view)
    def positive(rows: DataFrame) -> DataFrame:
        return rows.filter("amount_paise > 0")

    run(positive, directory, spark)
    assert view.rows() == mirror_of(directory, "payments", lambda row: row["amount_paise"] > 0)
    assert set(view.rows()) == {"c"}


def test_a_row_that_no_longer_passes_the_filter_is_gone_whatever_the_split(
    directory: Path, view: FileView, spark: SparkSession
) -> None:
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(20)))
    append(directory, *((f"tx{n}", payment(amount_paise=-n)) for n in range(0, 20, 3)))
    append(directory, ("tx3", payment(amount_paise=3)))
    payments = fl.topic("payments", key="tx_id", schema=SCHEMA)

    @fl.fold(payments, into=view)
    def positive(rows: DataFrame) -> DataFrame:
        return rows.filter("amount_paise > 0")

    run(positive, directory, spark)
    assert view.rows() == mirror_of(directory, "payments", lambda row: row["amount_paise"] > 0)
    assert {"tx3", "tx1"} <= set(view.rows())
    assert "tx6" not in view.rows()
    told: list[int] = []
    verdict = fl.verify(
        positive, directory, spark=spark, range_bytes=700, on_progress=lambda feed: told.append(feed.records)
    )
    assert verdict.answer == "equal"
    assert (len(told) > 1, told[-1]) == (True, 28), "the progress of a verification counts what it has read"


def test_a_fold_whose_filter_lets_nothing_through_empties_its_view(
    directory: Path, view: FileView, spark: SparkSession
) -> None:
    payments = fl.topic("payments", key="tx_id", schema=SCHEMA)
    append(directory, ("a", payment()), ("b", payment()))
    run(fl.fold(payments, into=view, name="all")(lambda rows: rows), directory, spark)
    append(directory, ("a", payment()), ("b", b"{"))
    none = fl.fold(payments, into=view, name="none")(lambda rows: rows.filter("false"))
    run(none, directory, spark, accept_change=True)
    assert set(view.rows()) == {"b"}  # what does not parse changes nothing


def test_a_tombstone_deletes_whatever_the_fold_says_of_it(directory: Path, view: FileView, spark: SparkSession) -> None:
    append(directory, ("a", payment()), ("b", payment()), ("a", None))
    payments = fl.topic("payments", key="tx_id", schema=SCHEMA)

    @fl.fold(payments, into=view)
    def kept(rows: DataFrame) -> DataFrame:
        return rows.withColumn("gone", F.col("_deleted")).withColumn("_deleted", F.lit(False))

    run(kept, directory, spark)
    assert {key: row["gone"] for key, row in view.rows().items()} == {"b": False}


def test_poison_is_set_aside_with_its_reason_and_the_rest_goes_on(
    directory: Path, view: FileView, spark: SparkSession
) -> None:
    append(
        directory,
        ("a", payment()),
        ("b", b"{"),
        (None, payment()),
        ("c", b""),
        ("d", b'{"amount_paise": "x"}'),
        ("e", payment()),
    )
    feed = run(mirror_into(view), directory, spark)
    assert set(view.rows()) == {"a", "e"}
    assert feed.dead == 4
    with foldlog.open(directory, mode="r") as log:
        letters = {(record.key or b"").decode(): record for record in log.read("mirror.dead")}
    assert len(letters) == 4
    headers = [{name: value or b"" for name, value in one.headers} for one in letters.values()]
    places = {b"/".join(one[name] for name in ("topic", "partition", "offset")).decode() for one in headers}
    assert places == set(letters)
    found = {
        one.get("key"): (one["reason"], letter.value) for one, letter in zip(headers, letters.values(), strict=True)
    }
    assert found[b"b"][1] == b"{"
    assert found[b"c"][1] == b""
    assert b"no key" in found[None][0]
    assert b"amount_paise" in found[b"d"][0]


def test_strict_stops_at_the_first_record_that_does_not_parse_and_names_it(
    directory: Path, view: FileView, spark: SparkSession
) -> None:
    append(directory, ("a", payment()), ("b", b"{"))
    with pytest.raises(FoldError, match=r"stops at offset \d of payments-\d: .*without --strict"):
        run(mirror_into(view), directory, spark, strict=True)
    assert view.rows() == {}


def test_folds_at_the_same_place_share_one_read_and_one_that_lags_runs_alone(
    directory: Path, view: FileView, tmp_path: Path, spark: SparkSession
) -> None:
    other_view = FileView(tmp_path / "other.json")
    payments = fl.topic("payments", key="tx_id", schema=SCHEMA)
    mirror = fl.fold(payments, into=view, name="mirror")(lambda rows: rows)
    cheap = fl.fold(payments, into=other_view, name="cheap")(lambda rows: rows.filter("amount_paise < 20"))
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(10)))
    fl.run([mirror], directory, once=True, spark=spark)
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(10, 30)))
    fl.run([mirror, cheap], directory, once=True, spark=spark)
    append(directory, *((f"tx{n}", payment(amount_paise=n - 10)) for n in range(20, 25)))
    fl.run([mirror, cheap], directory, once=True, spark=spark)
    assert view.rows() == mirror_of(directory, "payments")
    assert other_view.rows() == mirror_of(directory, "payments", lambda row: row["amount_paise"] < 20)
    assert view.deltas[-1].ranges == other_view.deltas[-1].ranges


def test_a_fold_that_fails_leaves_the_others_alone_and_says_why(
    directory: Path, view: FileView, tmp_path: Path, spark: SparkSession
) -> None:
    append(directory, ("a", payment()))
    payments = fl.topic("payments", key="tx_id", schema=SCHEMA)
    mirror = fl.fold(payments, into=view, name="mirror")(lambda rows: rows)
    broken = fl.fold(payments, into=FileView(tmp_path / "x.json"), name="broken")(lambda rows: rows.filter("nope > 1"))
    with pytest.raises(FoldError, match=r"'broken' cannot be planned: .*nope"):
        fl.run([broken, mirror], directory, once=True, spark=spark)
    assert set(view.rows()) == {"a"}


def test_a_topic_that_grew_is_read_in_the_order_of_its_keys(
    directory: Path, view: FileView, spark: SparkSession
) -> None:
    append(directory, *((f"tx{n % 20}", payment(amount_paise=n)) for n in range(100)))
    with foldlog.open(directory) as log:
        log.grow_topic("payments", 5)
    append(directory, *((f"tx{n % 20}", None if n % 13 == 0 else payment(amount_paise=n)) for n in range(100, 200)))
    run(mirror_into(view), directory, spark, range_bytes=2000)
    newest = {f"tx{n % 20}": n for n in range(200)}
    assert {key: row["amount_paise"] for key, row in view.rows().items()} == {
        key: n for key, n in newest.items() if n % 13 or n < 100
    }


def test_a_recreated_topic_is_an_error_that_names_the_way_out(
    directory: Path, view: FileView, spark: SparkSession
) -> None:
    append(directory, ("a", payment()))
    fold = mirror_into(view)
    run(fold, directory, spark)
    with foldlog.open(directory) as log:
        log.delete_topic("payments")
        log.create_topic("payments", partitions=2)
    append(directory, ("b", payment()))
    with pytest.raises(FoldError, match=r"deleted and created again.*foldlog fold rebuild mirror --accept-loss"):
        run(fold, directory, spark)
    assert set(view.rows()) == {"a"}
    with foldlog.open(directory) as log:
        assert log.committed(fold.group) == {}, "nothing is committed in a topic that the view has not read"
    with pytest.raises(FoldError, match="another topic"):
        fl.rebuild(fold, directory, spark=spark)
    fl.rebuild(fold, directory, spark=spark, accept_loss=True)
    assert set(view.rows()) == {"b"}


def test_another_broker_with_topics_of_the_same_names_is_not_gone_on_with(view: FileView, spark: SparkSession) -> None:
    """It has more records, and partitions that reach beyond the bookmark: only whose they are tells them apart."""
    fold = mirror_into(view)
    with KafkaBroker.launch() as first, KafkaBroker.launch() as second:
        for broker, count in ((first, 4), (second, 40)):
            broker.log.create_topic("payments", partitions=2)
            fill(broker.log, "payments", [(f"{broker.port}.{n}", payment(amount_paise=n)) for n in range(count)])
        fl.run([fold], f"kafka://{first}", once=True, spark=spark)
        with pytest.raises(
            FoldError, match=r"this is another log, or the topic was deleted.*foldlog copy --folds FILE"
        ):
            fl.run([fold], f"kafka://{second}", once=True, spark=spark)
        assert set(view.rows()) == {f"{first.port}.{n}" for n in range(4)}
        assert second.log.committed(fold.group) == {}
        fill(first.log, "payments", [("later", payment())])
        fl.run([fold], f"kafka://{first}", once=True, spark=spark)
        assert set(view.rows()) == {"later", *(f"{first.port}.{n}" for n in range(4))}


def test_what_retention_took_is_an_error_or_a_counted_skip(
    directory: Path, view: FileView, spark: SparkSession
) -> None:
    fold = mirror_into(view)
    append(directory, ("a", payment()))
    run(fold, directory, spark)
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(20)))
    with foldlog.open(directory) as log:
        ends = {number: end for number, (_, end) in log.offsets("payments").items()}
        log.delete_records("payments", {number: end - 1 for number, end in ends.items() if end > 1})
        kept = mirror_of(directory, "payments")
    with pytest.raises(FoldError, match=r"payments-\d cannot be read: .*--skip-missing"):
        run(fold, directory, spark)
    feed = run(fold, directory, spark, skip_missing=True)
    assert feed.state is State.CAUGHT_UP
    assert view.rows() == {**kept, "a": view.rows()["a"]}
    bookmark = view.bookmark()
    assert bookmark is not None
    assert bookmark.skipped == 20 - len([key for key in kept if key != "a"])
    verdict = fl.verify(fold, directory, spark=spark)
    assert verdict.answer == "not provable"


def test_a_rewound_fold_reads_again_and_ends_the_same(directory: Path, view: FileView, spark: SparkSession) -> None:
    append(directory, *((f"tx{n % 9}", None if n % 10 == 0 else payment(amount_paise=n)) for n in range(50)))
    fold = mirror_into(view)
    run(fold, directory, spark)
    before = view.rows()
    rewound = fl.rewind(fold, directory, "0=3,1=4")
    assert {number: at.offset for number, at in rewound.now.positions.items()} == {0: 3, 1: 4}
    assert rewound.again == 50 - 7
    run(fold, directory, spark)
    assert view.rows() == before
    with pytest.raises(ValueError, match="a rewind goes back only"):
        fl.rewind(fold, directory, "10000")


@pytest.mark.faults
def test_a_compacted_topic_reseeds_a_view_that_was_deleted(tmp_path: Path, view: FileView, spark: SparkSession) -> None:
    directory = tmp_path / "data"
    with foldlog.open(directory) as log:
        log.create_topic("payments", config={"cleanup.policy": "compact", "foldlog.segment.records": 10})
        fill(log, "payments", [(f"tx{n % 6}", None if n % 17 == 3 else payment(amount_paise=n)) for n in range(80)])
    fold = mirror_into(view)
    run(fold, directory, spark)
    before = view.rows()
    with foldlog.open(directory) as log:
        log.compact("payments")
    view.drop()
    run(fold, directory, spark)
    assert view.rows() == before
    assert fl.verify(fold, directory, spark=spark).answer == "equal"


def test_verify_finds_a_view_that_was_changed_by_hand_and_shows_where(
    directory: Path, view: FileView, spark: SparkSession
) -> None:
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(10)))
    fold = mirror_into(view)
    run(fold, directory, spark)
    assert fl.verify(fold, directory, spark=spark).answer == "equal"
    content = json.loads(view.path.read_text())
    content["rows"]["tx3"]["amount_paise"] = 4
    view.path.write_text(json.dumps(content))
    verdict = fl.verify(fold, directory, spark=spark)
    assert verdict.answer == "different"
    assert verdict.comparison is not None
    assert (verdict.comparison.only_left, verdict.comparison.only_right) == (1, 1)
    assert verdict.comparison.examples_right[0]["amount_paise"] == 3


def test_verify_finds_a_fold_whose_result_depends_on_the_split(
    directory: Path, view: FileView, spark: SparkSession
) -> None:
    """It depends on it only from some record on, so that no trial of the first ones can see it."""
    append(directory, *((f"early{n}", payment(amount_paise=n)) for n in range(FOLD_TRIAL_YOUNG_OFFSETS)))
    payments = fl.topic("payments", key="tx_id", schema=SCHEMA)

    @fl.fold(payments, into=view)
    def numbered(rows: DataFrame) -> DataFrame:
        def number(batches: object) -> object:
            for batch in batches:  # type: ignore[attr-defined]
                table = batch.to_pydict()
                for n, paise in enumerate(table["amount_paise"]):
                    if paise is not None and paise >= 1000:
                        table["note"][n] = str(n)
                yield type(batch).from_pydict(table, schema=batch.schema)

        return rows.mapInArrow(number, rows.schema)  # type: ignore[arg-type]

    run(numbered, directory, spark)
    append(directory, *((f"tx{n}", payment(amount_paise=1000 + n)) for n in range(40)))
    run(numbered, directory, spark)
    assert fl.verify(numbered, directory, spark=spark, range_bytes=500).answer == "different"


def test_the_groups_committed_offsets_show_where_a_fold_is(
    directory: Path, view: FileView, spark: SparkSession
) -> None:
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(10)))
    run(mirror_into(view), directory, spark)
    with foldlog.open(directory, mode="r") as log:
        assert sum(log.lag("fold.mirror").values()) == 0
        assert {place.offset for place in log.committed("fold.mirror").values()} == {
            end for _, end in log.offsets("payments").values()
        }


def test_a_log_that_lost_its_end_stops_the_fold_where_it_is(
    directory: Path, view: FileView, spark: SparkSession
) -> None:
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(20)))
    run(mirror_into(view), directory, spark)
    bookmark, rows = view.bookmark(), view.rows()
    append(directory, *((f"tx{n}", payment(amount_paise=-n)) for n in range(20)))
    for file in directory.glob("payments-*/*.log"):
        os.truncate(file, 0)
    with pytest.raises(FoldError, match=r"\.log is damaged at byte 0: it ends at offset 0, and the log at \d+"):
        run(mirror_into(view), directory, spark)
    assert (view.bookmark(), view.rows()) == (bookmark, rows)
    assert bookmark is not None


def test_poison_is_found_in_the_one_pass_over_its_range(
    directory: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No second look at the range, and no job more than without poison; whether Spark sees the rows or not."""
    monkeypatch.setattr("foldlog.spark.folds.runner.FOLD_NEAR_OFFSETS", 0)  # what the driver reads needs none anyway
    context = spark.sparkContext._jsc
    assert context is not None

    def jobs(fold: Fold) -> int:
        before = int(context.sc().dagScheduler().numTotalJobs())
        fl.run([fold], directory, once=True, spark=spark)
        return int(context.sc().dagScheduler().numTotalJobs()) - before

    looked: list[Sequence[OffsetRange]] = []
    monkeypatch.setattr(TopicFrames, "dead", lambda _, ranges, *, needs_key: looked.append(ranges))
    payments = fl.topic("payments", key="tx_id", schema=SCHEMA)
    views = [FileView(tmp_path / "plain.json"), FileView(tmp_path / "sorted.json")]
    folds = [
        fl.fold(payments, into=views[0], name="plain")(lambda rows: rows),
        fl.fold(payments, into=views[1], name="sorted")(lambda rows: rows.withColumn("note", F.upper("note"))),
    ]
    append(directory, *((f"first{number}", payment()) for number in range(FOLD_TRIAL_YOUNG_OFFSETS)))
    fl.run(folds, directory, once=True, spark=spark)  # and are tried, which takes jobs of its own
    append(directory, *((f"tx{number}", payment()) for number in range(40)))
    clean = [jobs(fold) for fold in folds]
    append(directory, *((f"tx{number}", b"{" if number % 9 == 0 else payment()) for number in range(40)))
    assert [jobs(fold) for fold in folds] == clean
    assert not looked
    with foldlog.open(directory, mode="r") as log:
        for fold in folds:
            keys = [dict(record.headers)["key"] for record in log.read(fold.dead_letters)]
            assert sorted(map(str, keys)) == sorted(str(f"tx{number}".encode()) for number in range(0, 40, 9))


def test_what_tasks_told_of_twice_too_late_or_not_at_all_is_a_letter_once(
    directory: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(directory, *((f"tx{number}", b"{" if number % 3 == 0 else payment()) for number in range(30)))
    payments = fl.topic("payments", key="tx_id", schema=SCHEMA)
    origin = open_origin(origin_spec(directory))
    frames = TopicFrames(spark, payments, origin.spec, origin.topic("payments").topic_id)
    ranges = [OffsetRange("payments", number, 0, end.end) for number, end in origin.bounds("payments").items()]
    origin.close()
    seen = frames.count()
    frames.table(ranges, seen, needs_key=True)
    met = seen.value
    whole = frames.dead(ranges, needs_key=True).to_pylist()
    assert len(whole) == met.dead == 10
    assert list(beyond(ranges, met.looked)) == []

    def told(met: Seen, ranges: Sequence[OffsetRange] = ranges) -> list[dict[str, Any]]:
        found = frames.met_dead(ranges, met, needs_key=True)
        assert found is not None
        rows: list[dict[str, Any]] = found.to_pylist()
        return rows

    assert told(met) == whole
    assert told(met.with_more(met)) == whole
    assert told(met._replace(letters=(), looked=())) == whole
    assert told(met._replace(letters=(), looked=tuple(ranges[:1]))) == [row for row in whole if row["_partition"] != 0]
    later = [one._replace(start=one.stop // 2) for one in ranges]
    starts = {one.partition: one.start for one in later}
    assert told(met, later) == [row for row in whole if row["_offset"] >= starts[row["_partition"]]]
    assert frames.met_dead(ranges, Seen(records=30), needs_key=True) is None


@pytest.mark.parametrize("kind", ["CHAR(3)", "TIME(6)", "INTERVAL", "INTERVAL DAY TO SECOND", "ARRAY<VARCHAR(5)>"])
def test_a_type_that_no_format_fills_is_told_as_it_was_written(
    directory: Path, tmp_path: Path, spark: SparkSession, kind: str
) -> None:
    topic = fl.topic("payments", key="tx_id", schema=f"odd {kind}, note STRING")
    fold = fl.fold(topic, into=FileView(tmp_path / "view.json"), name="odd")(lambda rows: rows)
    told = kind.removeprefix("ARRAY<").removesuffix(">")
    sentence = rf"column 'odd' of topic 'payments' is {re.escape(told)}, which no format fills; declare it as STRING"
    with pytest.raises(FoldError, match=sentence):
        fl.run([fold], directory, once=True, spark=spark)
