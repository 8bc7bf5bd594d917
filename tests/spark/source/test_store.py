"""Spark reads a log straight from its store of segments."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import foldlog
from foldlog.broker.broker import Broker
from foldlog.log.partition import Partition
from foldlog.records.loops import pack

pytestmark = pytest.mark.faults


def test_a_query_reads_segments_from_the_store(spark: SparkSession, tmp_path: Path) -> None:
    settings = {"remote.storage.enable": "true", "local.retention.ms": "0", "foldlog.segment.records": "50"}
    with Broker.open(str(tmp_path / "data"), background=False, tier=f"file://{tmp_path}/store") as broker:
        broker.create_topic("orders", 2, settings)
        for number in range(2):
            partition = broker.partition("orders", number)
            assert isinstance(partition, Partition)
            for first in range(0, 500, 50):
                rows = [(1000 + at, b"k", b"%d" % at, ()) for at in range(first, first + 50)]
                partition.append(pack(rows))
            partition.sync()
            partition.roll()
        broker.enforce_retention()
    (tmp_path / "data").rename(tmp_path / "gone")
    frame = spark.read.format("foldlog").option("subscribe", "orders").load(f"file://{tmp_path}/store")
    found = frame.selectExpr("partition", "offset", "cast(value as string) value").orderBy("partition", "offset")
    assert [tuple(row) for row in found.collect()] == [(part, at, str(at)) for part in range(2) for at in range(500)]
    with foldlog.open(f"file://{tmp_path}/store", mode="r") as log:
        assert log.read_arrow("orders").num_rows == 1000
