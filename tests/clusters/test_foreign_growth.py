"""A topic of Apache Kafka gains partitions under a fold that keeps the newest of each key: the fold stops and offers a
rebuild, and the rebuild gives the right view, although keys have moved and the brokers do not remember when.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from clusters.apache_kafka import ApacheKafka
from pyspark.sql import SparkSession

import foldlog
import foldlog.spark as fl
from file_view import FileView
from foldlog.spark.folds.feed import Feed, State
from foldlog.spark.folds.replay import rebuild_feeds
from foldlog.spark.folds.runner import Runner
from foldlog.spark.origins.ledger import open_ledger
from foldlog.spark.origins.origin import open_origin, origin_spec
from folds_model import SCHEMA, payment

KEYS = 20
SMALL_RANGE_BYTES = 3000
"""Many ranges, each with some of every partition."""


def write(log: foldlog.Log, topic: str, numbers: range) -> None:
    """Payments of a rising amount, one key after the other; every seventh deletes its key."""
    with log.producer() as producer:
        for number in numbers:
            value = None if number % 7 == 0 else payment(amount_paise=number)
            producer.send(topic, value, key=f"tx{number % KEYS}")


def newest(count: int) -> dict[str, int]:
    last = {f"tx{number % KEYS}": number for number in range(count)}
    return {key: number for key, number in last.items() if number % 7}


@pytest.mark.timeout(600)  # half a minute on a quiet machine
def test_a_keyed_fold_stops_when_a_foreign_topic_grows_and_its_rebuild_is_right(
    apache_kafka: ApacheKafka, spark: SparkSession, tmp_path: Path
) -> None:
    topic = "foreign_growth"
    view = FileView(tmp_path / "mirror.json")
    fold = fl.fold(fl.topic(topic, key="tx_id", schema=SCHEMA), into=view, name="mirror")(lambda rows: rows)

    def amounts() -> dict[str, object]:
        return {key: row["amount_paise"] for key, row in view.rows().items()}

    with (
        foldlog.connect(apache_kafka.url) as log,
        closing(open_origin(origin_spec(apache_kafka.url))) as origin,
        closing(open_ledger(origin.spec)) as ledger,
    ):
        log.create_topic(topic, partitions=2)
        write(log, topic, range(150))
        feed = Feed(fold, view)
        with Runner(spark, origin, ledger, [feed], range_bytes=SMALL_RANGE_BYTES) as runner:
            runner.drain()
            assert amounts() == newest(150)
            assert len(view.deltas) > 2
            log.grow_topic(topic, 5)
            write(log, topic, range(150, 190))
            runner.drain()
            assert feed.state is State.FAILED
            assert feed.error is not None
            assert "gained partitions (2 before, 5 now)" in feed.error
            assert feed.error.endswith("foldlog fold rebuild mirror")
            assert amounts() == newest(150)
        (rebuilt,) = rebuild_feeds(fold, origin, on_swapped=lambda: None)
        with Runner(spark, origin, ledger, [rebuilt], range_bytes=SMALL_RANGE_BYTES) as runner:
            runner.drain()
        assert rebuilt.state is State.DONE, rebuilt.error
        assert amounts() == newest(190)
        write(log, topic, range(190, 230))
        with Runner(spark, origin, ledger, [Feed(fold, view)], range_bytes=SMALL_RANGE_BYTES) as runner:
            runner.drain()
        assert amounts() == newest(230)
        fresh = FileView(tmp_path / "fresh.json")
        again = fl.fold(fl.topic(topic, key="tx_id", schema=SCHEMA), into=fresh, name="fresh")(lambda rows: rows)
        with Runner(spark, origin, ledger, [Feed(again, fresh)], range_bytes=SMALL_RANGE_BYTES) as runner:
            runner.drain()
        assert {key: row["amount_paise"] for key, row in fresh.rows().items()} == newest(230)
