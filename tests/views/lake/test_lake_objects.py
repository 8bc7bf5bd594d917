"""Lake tables in an object store, against a real S3 server: the contracts, what is left in the bucket, and the secrets.

What is in a bucket is listed with boto3; what a table names, with deltalake and pyiceberg as a stranger uses them.
"""

from __future__ import annotations

import io
import json
import logging
import os
import pickle
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import Catalog, load_catalog

from foldlog.errors import SchemaChanged, ViewUnavailable
from foldlog.views.contract import View
from foldlog.views.lake.compaction import CompactionGoal
from foldlog.views.lake.lake import lake
from foldlog.views.lake.storage import ObjectStorage
from object_store import KEY_ID, SECRET, Bucket, bucket, s3_server
from views.lake.lake_cases import HistoryCase
from views.staged_contract import Died, StagedCase, StagedContract, dying, stage
from views.view_contract import START, ViewCase, ViewContract, at, held, in_order, opened, play, some_events

__all__ = ["bucket", "s3_server"]

EVENTS = some_events(60)


def delta(bucket: Bucket, **more: Any) -> View:
    return lake(bucket.url("lake/payments"), storage_options=bucket.options, **more)


def catalog_of(bucket: Bucket, scratch: Path) -> dict[str, str]:
    uri = f"sqlite:///{scratch}/catalog.db"
    return {"type": "sql", "uri": uri, "warehouse": bucket.url("warehouse"), **bucket.properties}


def iceberg(bucket: Bucket, scratch: Path, **more: Any) -> View:
    return lake("shop.payments", "iceberg", catalog=catalog_of(bucket, scratch), **more)


def places_in(bucket: Bucket) -> list[str]:
    return [key for key in bucket.objects() if "/_foldlog_staged/" in key and not key.endswith("/")]


def loose_delta(bucket: Bucket) -> list[str]:
    """Files that no version of the table names."""
    newest = DeltaTable(bucket.url("lake/payments"), storage_options=bucket.options)
    named: set[str] = set()
    for version in range(newest.version() + 1):
        newest.load_as_version(version)
        named.update(newest.file_uris())
    return [key for key in bucket.objects("lake/") if key.endswith(".parquet") and bucket.url(key) not in named]


def loose_iceberg(bucket: Bucket, scratch: Path) -> list[str]:
    with closing(load_catalog("foldlog", **catalog_of(bucket, scratch))) as catalog:
        named = set(catalog.load_table("shop.payments").inspect.all_files()["file_path"].to_pylist())
    return [key for key in bucket.objects("warehouse/") if key.endswith(".parquet") and bucket.url(key) not in named]


# The contract takes half a minute for each: the tests after it are run with all others.


@pytest.mark.faults
class TestDeltaFromExecutorsInS3(StagedContract):
    """Rows that executors have written, and partitions."""

    @pytest.fixture
    def case(self, bucket: Bucket) -> StagedCase:
        inner = HistoryCase(lambda: delta(bucket, partition_by="merchant"))
        steps = [f"foldlog.views.lake.delta.{name}" for name in ("adopt", "finish", "sweep")]
        return StagedCase(inner, lambda: places_in(bucket), steps=steps, loose=lambda: loose_delta(bucket))


@pytest.mark.faults
class TestDeltaLoadInS3(StagedContract):
    """A bulk load, partitioned."""

    @pytest.fixture
    def case(self, bucket: Bucket) -> StagedCase:
        inner = ViewCase(lambda: delta(bucket, mode="merge", partition_by="merchant"))
        return StagedCase(inner, lambda: places_in(bucket), loading=True, steps=["foldlog.views.lake.delta.adopt"])


@pytest.mark.faults
class TestIcebergFromExecutorsInS3(StagedContract):
    """Rows that executors have written, and partitions."""

    @pytest.fixture
    def case(self, bucket: Bucket, tmp_path: Path) -> StagedCase:
        inner = HistoryCase(lambda: iceberg(bucket, tmp_path, partition_by="merchant"))
        steps = [f"foldlog.views.lake.iceberg.{name}" for name in ("adopt", "finish", "sweep")]
        return StagedCase(inner, lambda: places_in(bucket), steps=steps, loose=lambda: loose_iceberg(bucket, tmp_path))


def parquet(bucket: Bucket, **more: Any) -> View:
    return lake(bucket.url("lake/payments"), "parquet", storage_options=bucket.options, **more)


def manifest_of(bucket: Bucket) -> dict[str, Any]:
    return json.loads(bucket.read("lake/payments/_foldlog.json"))  # type: ignore[no-any-return]


def loose_parquet(bucket: Bucket) -> list[str]:
    """Files that the manifest does not name."""
    manifest = manifest_of(bucket)
    named = {f"lake/payments/{one['path']}" for one in manifest["files"]}
    return [key for key in bucket.objects("lake/") if key.endswith(".parquet") and key not in named]


@pytest.mark.faults
class TestParquetInS3(ViewContract):
    """format="parquet": the manifest is the commit."""

    @pytest.fixture
    def case(self, bucket: Bucket) -> ViewCase:
        return HistoryCase(lambda: parquet(bucket))


@pytest.mark.faults
class TestParquetFromExecutorsInS3(StagedContract):
    """Rows that executors have written, and partitions."""

    @pytest.fixture
    def case(self, bucket: Bucket) -> StagedCase:
        inner = HistoryCase(lambda: parquet(bucket, partition_by="merchant"))
        steps = [f"foldlog.views.lake.parquet_objects.{name}" for name in ("adopt", "finish")]
        steps += [f"foldlog.views.lake.parquet_objects.ParquetObjects.{name}" for name in ("_replaced", "_sweep")]
        return StagedCase(inner, lambda: places_in(bucket), steps=steps, loose=lambda: loose_parquet(bucket))


def view_of(kind: str, bucket: Bucket, scratch: Path) -> View:
    return {"delta": delta, "parquet": parquet}[kind](bucket) if kind != "iceberg" else iceberg(bucket, scratch)


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_rows_of_the_driver_and_of_executors_and_a_rebuild(kind: str, bucket: Bucket, tmp_path: Path) -> None:
    case = HistoryCase(lambda: view_of(kind, bucket, tmp_path))
    with opened(case) as view:
        assert view.bookmark() is None
        view.prepare(case.shape, START)
        play(view, case, EVENTS, [20])
        lost = stage(view, case, EVENTS, 20, 40)  # its runner dies
        assert len(places_in(bucket)) == 1
        staged = stage(view, case, EVENTS, 20, 50)
        assert view.bookmark() == at(20)
        assert held(view) == in_order(case.content(EVENTS, 20)), "what is staged is not read"
        view.apply_staged(staged, at(20), at(50))
        assert held(view) == in_order(case.content(EVENTS, 50))
        assert places_in(bucket) == []
        assert not [key for key in bucket.objects() if lost.stage.name in key], "garbage is left"  # type: ignore[attr-defined]
        with closing(view.shadow("rebuild")) as shadow:
            shadow.prepare(case.shape, at(0, epoch=1))
            shadow.apply_staged(stage(shadow, case, EVENTS, 0, 60, epoch=1), at(0, epoch=1), at(60, epoch=1))
            view.swap(shadow)
        assert held(view) == in_order(case.content(EVENTS, 60))
        assert view.drop_old()
        assert held(view) == in_order(case.content(EVENTS, 60))
        view.drop()
        assert view.bookmark() is None
    assert [key for key in bucket.objects() if key.endswith(".parquet")] == []


@pytest.mark.parametrize(
    "kind", ["delta", *(pytest.param(one, marks=pytest.mark.faults) for one in ("iceberg", "parquet"))]
)
def test_secrets_are_nowhere_but_in_the_requests(
    kind: str, bucket: Bucket, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    case = HistoryCase(lambda: view_of(kind, bucket, tmp_path))
    with opened(case) as view, caplog.at_level(logging.DEBUG, "foldlog"):
        view.prepare(case.shape, START)
        place = view.stage({0: (0, 20)}, START)
        staged = stage(view, case, EVENTS, 0, 20)
        view.apply_staged(staged, START, at(20))
        # The executors need them.
        assert SECRET.encode() in pickle.dumps(place)
        said = [repr(view), view.place, str(view.description()), repr(place), repr(staged), str(view.bookmark())]
        said += [repr(vars(view)), caplog.text, *capfd.readouterr()]
        for text in said:
            assert SECRET not in text
            assert KEY_ID not in text
    for key in bucket.objects():
        assert SECRET.encode() not in bucket.read(key), key
    assert SECRET.encode() not in b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


@pytest.mark.parametrize(
    "settings",
    [{"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, {"AWS_ENDPOINT_URL": f"http://me:{SECRET}@127.0.0.1:1"}],
    ids=["gone", "password"],
)
def test_a_store_that_is_not_there_is_one_sentence_without_secrets(bucket: Bucket, settings: dict[str, str]) -> None:
    options = {**bucket.options, "max_retries": "1", **settings}
    view = lake(bucket.url("lake/payments"), storage_options=options)
    with pytest.raises(ViewUnavailable, match=r"^delta:s3://.*/lake/payments cannot be used: ") as refused:
        view.bookmark()
    assert "\n" not in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_bucket_that_is_not_there_is_one_sentence(bucket: Bucket) -> None:
    view = lake("s3://no-such-bucket/payments", storage_options=bucket.options)
    with pytest.raises(ViewUnavailable, match=r"^delta:s3://no-such-bucket/payments cannot be used: ") as refused:
        view.prepare(HistoryCase.shape, START)
    assert "\n" not in str(refused.value)


def test_a_directory_with_something_else_is_left_alone(bucket: Bucket) -> None:
    other = lake(bucket.url("lake"), storage_options=bucket.options)
    delta(bucket).prepare(HistoryCase.shape, START)
    with pytest.raises(ViewUnavailable, match="holds other files"):
        other.prepare(HistoryCase.shape, START)


def test_a_stranger_reads_parquet_by_its_manifest_and_finds_what_is_committed(bucket: Bucket) -> None:
    case = HistoryCase(lambda: parquet(bucket, partition_by="merchant"))
    with opened(case) as view:
        view.prepare(case.shape, START)
        play(view, case, EVENTS, [20])
        stage(view, case, EVENTS, 20, 40)  # its runner dies
        files = manifest_of(bucket)["files"]
        rows = [
            row
            for one in files
            for row in pq.read_table(io.BytesIO(bucket.read(f"lake/payments/{one['path']}"))).to_pylist()
        ]
        assert in_order(rows) == in_order(case.content(EVENTS, 20))
        assert sum(one["rows"] for one in files) == 20
        assert {one["values"]["merchant"] for one in files} == {"Chai Point", "Café", None}
        assert view.size_bytes() == sum(one["bytes"] for one in files)
        with pytest.raises(SchemaChanged, match="it is partitioned by merchant and not by nothing"):
            parquet(bucket).prepare(case.shape, START)


def test_small_objects_are_joined_and_readers_of_an_older_manifest_have_their_time(bucket: Bucket) -> None:
    case = HistoryCase(lambda: parquet(bucket, partition_by="merchant"))
    with opened(case) as view:
        view.prepare(case.shape, START)
        play(view, case, EVENTS, [10, 20, 30])
        old = manifest_of(bucket)["files"]
        done = view.compact(CompactionGoal(1 << 20, 3_600_000))
        assert (done.joined, done.written, done.removed) == (len(old), 3, 0)
        assert len(manifest_of(bucket)["files"]) == done.files == 3
        assert all(f"lake/payments/{one['path']}" in bucket.objects() for one in old), "a reader may be at them"
        assert held(view) == in_order(case.content(EVENTS, 30))
        assert view.bookmark() == at(30)
        assert view.compact(CompactionGoal(10, 0)).removed == len(old)
        assert loose_parquet(bucket) == []
        view.apply(case.delta(EVENTS, 30, 60), at(30), at(60))
        assert held(view) == in_order(case.content(EVENTS, 60))


def test_a_swap_that_died_after_its_commit_is_done(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    case = HistoryCase(lambda: parquet(bucket))
    with opened(case) as view, closing(view.shadow("rebuild")) as shadow:
        view.prepare(case.shape, START)
        play(view, case, EVENTS, [20])
        shadow.prepare(case.shape, at(0, epoch=1))
        play(shadow, case, EVENTS, [40], epoch=1)
        with monkeypatch.context() as patched:
            patched.setattr(ObjectStorage, "remove", dying("foldlog.views.lake.storage.ObjectStorage.remove", "before"))
            with pytest.raises(Died):
                view.swap(shadow)
        assert view.bookmark() == at(40, epoch=1)
        assert shadow.bookmark() is None, "the next rebuild would write into the table"
        shadow.drop()
        assert held(view) == in_order(case.content(EVENTS, 40))
        assert view.drop_old()
        assert loose_parquet(bucket) == []


def test_a_manifest_that_nobody_understands_is_one_sentence(bucket: Bucket) -> None:
    view = parquet(bucket)
    view.prepare(HistoryCase.shape, START)
    bucket.put("lake/payments/_foldlog.json", b'{"foldlog_parquet": 2}')
    with pytest.raises(ViewUnavailable, match="a newer version of foldlog wrote it") as refused:
        view.bookmark()
    assert "\n" not in str(refused.value)


def catalog_tables(catalog: Catalog) -> list[tuple[str, ...]]:
    return [table for namespace in catalog.list_namespaces() for table in catalog.list_tables(namespace)]


@pytest.mark.faults
def test_a_catalog_of_sql_names_the_table_for_everybody(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL as the catalog, with its password in the settings; and the catalog by its name."""
    properties = {
        "type": "sql",
        "uri": postgres_url.replace("postgresql://", "postgresql+psycopg://"),
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    case = HistoryCase(lambda: lake("shop.payments", "iceberg", catalog=properties))
    with opened(case) as view:
        view.prepare(case.shape, START)
        view.apply_staged(stage(view, case, EVENTS, 0, 30), START, at(30))
        with closing(view.shadow("rebuild")) as shadow:
            shadow.prepare(case.shape, at(0, epoch=1))
            play(shadow, case, EVENTS, [40], epoch=1)
            view.swap(shadow)
        assert held(view) == in_order(case.content(EVENTS, 40))
    with closing(load_catalog("any", **properties)) as catalog:
        assert catalog_tables(catalog) == []  # SQL catalogs tell tables of catalogs of other names apart
    with closing(load_catalog("foldlog", **properties)) as catalog:
        assert catalog_tables(catalog) == [("shop", "payments")]
        assert catalog.load_table("shop.payments").scan().to_arrow().num_rows == 40
    for name, value in properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__FOLDLOG__{name.upper()}", value)
    from pyiceberg import catalog as pyiceberg_catalog
    from pyiceberg.utils.config import Config

    monkeypatch.setattr(pyiceberg_catalog, "_ENV_CONFIG", Config())
    with opened(HistoryCase(lambda: lake("shop.payments", "iceberg", catalog="foldlog"))) as view:
        assert view.bookmark() == at(40, epoch=1)
        assert view.place == "iceberg:foldlog/shop.payments"
        view.drop()
    assert not [name for _, _, names in os.walk(tmp_path) for name in names]
