"""The pipeline of docs/lakes.md, as it stands on the page, into a real S3 server: by the driver, and by executors."""

from __future__ import annotations

import io
import json
import runpy
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg import catalog as pyiceberg_catalog
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config
from pyspark.sql import SparkSession

import foldlog
from foldlog.spark.folds import runner
from object_store import KEY_ID, SECRET, Bucket, bucket, s3_server
from spark.folds.test_docs_folds import follow
from test_docs import DOCS, blocks_of, page

__all__ = ["bucket", "s3_server"]

HERE = "tests/spark/folds/test_docs_lakes.py"
RECORDS = 300


@pytest.mark.faults  # with the other long runs
@pytest.mark.parametrize("writer", ["driver", "executors"])
def test_the_page_about_lakes_is_true(
    writer: str,
    bucket: Bucket,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "FOLD_STAGED_OFFSETS_MIN", 1 if writer == "executors" else 10**9)
    monkeypatch.setenv("BUCKET", f"s3://{bucket.name}")
    for name, value in bucket.options.items():
        monkeypatch.setenv(name, value)
    prod = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": bucket.url("warehouse")}
    for name, value in {**prod, **bucket.properties}.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__PROD__{name.replace('.', '__').replace('-', '_').upper()}", value)
    monkeypatch.setattr(pyiceberg_catalog, "_ENV_CONFIG", Config())
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("payments", partitions=2)
        with log.producer() as producer:
            for number in range(RECORDS):
                payment = {"merchant": f"m{number % 7}", "amount_paise": number}
                producer.send("payments", value=json.dumps(payment).encode(), key=f"tx{number}")
    path = DOCS / "lakes.md"
    wanted = [block for block in blocks_of(page(path)) if block.language == "sh" or HERE in (block.not_run or "")]
    run = follow(path, wanted, tmp_path)
    assert [command[1] for command in run][:2] == ["run", "status"]
    history = DeltaTable(bucket.url("payments"), storage_options=bucket.options)
    assert history.count() == RECORDS
    assert history.metadata().partition_columns == ["day"]
    catalog = load_catalog("prod", **prod, **bucket.properties)
    facts = catalog.load_table("shop.payments").scan().to_arrow()
    assert sorted(facts["amount_paise"].to_pylist()) == list(range(RECORDS))
    found: list[int] = []
    read: dict[str, Any] = runpy.run_path(str(tmp_path / "read.py"))
    for one in read["paths"]:
        content = io.BytesIO(bucket.read(one.removeprefix(f"s3://{bucket.name}/")))
        found += pq.read_table(content)["amount_paise"].to_pylist()
    assert sorted(found) == list(range(RECORDS))
    files = [*history.file_uris(), *catalog.load_table("shop.payments").inspect.files()["file_path"].to_pylist()]
    assert any("/e0-p00000-" in one for one in files) == (writer == "executors")
    assert not [key for key in bucket.objects() if "/_foldlog_staged/e" in key]
    said = "".join(capfd.readouterr())
    assert SECRET not in said
    assert KEY_ID not in said
