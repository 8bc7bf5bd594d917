"""A pipeline that outgrows its directory: its folds stop in the middle, `foldlog copy` brings the topic and the
bookmarks to Apache Kafka, and they go on there; and the way back. The views are those of a recompute, all the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from clusters.apache_kafka import ApacheKafka
from pyspark.sql import SparkSession

import foldlog
import foldlog.spark as fl
from foldlog import Record
from foldlog.cli.main import main
from folds_model import NUMBER
from folds_shop import check_as_shown, loaded, write_pipeline

NAMES = ("table_sqlite", "counters_sqlite")
SMALL_RANGES = 4000
"""Bytes: several ranges for what is read at a time."""


class Shop:
    """A pipeline, whatever log it reads, and every record there ever was, with its place when it was written."""

    def __init__(self, base: Path, spark: SparkSession) -> None:
        self.base = base
        self.file = write_pipeline(base / "folds.py", base / "views", None, NAMES)
        self.spark = spark
        self.written: list[Record] = []

    def append(self, log: foldlog.Log, count: int) -> None:
        """Updates of few keys, tombstones among them: doubled or missed ones would show in the sums."""
        before = {number: end for number, (_, end) in log.offsets("payments").items()}
        with log.producer(linger_ms=20, compression="lz4") as producer:
            for number in range(len(self.written), len(self.written) + count):
                sale = {"merchant": f"shop {number % 3}", "amount_paise": number, "at": "2026-01-15T10:00:00+00:00"}
                value = None if number % 9 == 4 else json.dumps(sale).encode()
                producer.send("payments", value, f"tx{number % 14}", [(NUMBER, str(number).encode())])
        for number, start in before.items():
            self.written += log.read("payments", number, start=start)

    def run(self, source: str) -> None:
        """To the end, as `foldlog fold run --once --source`: then the views hold all that was ever written."""
        folds = loaded(self.file)
        fl.run(list(folds.values()), source, once=True, spark=self.spark, range_bytes=SMALL_RANGES)
        for name in NAMES:
            check_as_shown(name, self.written, self.base / "views", None)

    def copy(self, capsys: pytest.CaptureFixture[str], source: str, target: str) -> Any:
        words = ["copy", "payments", "--from", source, "--to", target, "--folds", str(self.file), "--format", "json"]
        code = main(words)
        printed = capsys.readouterr()
        assert code == 0, printed.err
        told = json.loads(printed.out)
        assert {one["outcome"] for one in told["folds"]} == {"moved"}
        assert {one["result"] for one in told["partitions"]} == {"same"}
        return told


def test_a_pipeline_goes_on_at_kafka_where_it_stopped_and_back_again(
    apache_kafka: ApacheKafka, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = Shop(tmp_path, spark)
    here, back = str(tmp_path / "data"), str(tmp_path / "back")
    with foldlog.open(here) as log:
        log.create_topic("payments", partitions=3, config={"retention.ms": -1})
        shop.append(log, 200)
    shop.run(here)
    with foldlog.open(here) as log:
        log.delete_records("payments", {0: 20, 1: 30})  # the offsets of the copy are others
        shop.append(log, 150)  # nobody has folded these yet
    told = shop.copy(capsys, here, apache_kafka.url)
    assert [one["offsets"] for one in told["partitions"]] == ["mapped", "mapped", "kept"]
    assert all(one["before"] != one["after"] for one in told["folds"])
    assert {one["group"] for one in told["groups"]} == {f"fold.{name}" for name in NAMES}
    with foldlog.connect(apache_kafka.url) as kafka:
        shop.append(kafka, 100)
        shop.run(apache_kafka.url)
        shop.append(kafka, 100)
        told = shop.copy(capsys, apache_kafka.url, back)
    assert [one["offsets"] for one in told["partitions"]] == ["kept", "kept", "kept"]
    with foldlog.open(back) as log:
        shop.append(log, 50)
    shop.run(back)
    verdict = fl.verify(loaded(shop.file)["counters_sqlite"], back, spark=spark)
    assert verdict.answer == "not provable", "what was trimmed before the first copy cannot be read again"
    assert "no longer holds 20 of partition 0, 30 of partition 1" in verdict.missing
