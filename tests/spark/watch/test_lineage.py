"""OpenLineage events of a run: what a real HTTP receiver gets of them, and what its client writes to a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import foldlog
import foldlog.spark as fl
from foldlog.errors import FoldError, InvalidArgument
from foldlog.spark.folds.declaration import Fold
from foldlog.spark.origins.origin import OriginSpec
from foldlog.spark.watch.lineage import lineage_watch, parent_of, topic_name, view_name
from folds_model import SCHEMA, payment

Event = dict[str, Any]
RUN_ID = "01941f29-7c00-7087-8940-40e502bdb6e9"


class Receiver:
    """Keeps what is posted to it, as a lineage server would."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        events = self.events

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                events.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(201 if self.path == "/api/v1/lineage" else 404)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 as the base class calls it
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.close()


@pytest.fixture
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of OpenLineage, but those that a test makes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE_NAMESPACE", "OPENLINEAGE_PARENT_ID"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("payments")
        for number in range(5):
            log.append("payments", payment(), key=f"tx{number % 3}")
    return tmp_path


def mirror_into(shop: Path, *, is_lawful: bool = True) -> Fold:
    @fl.fold(fl.topic("payments", key="tx_id", schema=SCHEMA), into=fl.table(f"{shop}/shop.db", "payments"))
    def mirror(rows: DataFrame) -> DataFrame:
        return rows.drop("note") if is_lawful else rows.groupBy("tx_id").count()

    return mirror


@pytest.mark.usefixtures("_elsewhere")
def test_a_receiver_gets_runs_inputs_and_outputs(
    shop: Path, spark: SparkSession, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"etl/nightly.fold/{RUN_ID}")
    fl.run([mirror_into(shop)], shop / "data", once=True, spark=spark, lineage=True)
    start, complete = receiver.events
    assert [start["eventType"], complete["eventType"]] == ["START", "COMPLETE"]
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert (complete["job"]["namespace"], complete["job"]["name"]) == ("foldlog", "mirror")
    assert complete["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    parent = complete["run"]["facets"]["parent"]
    assert (parent["job"]["namespace"], parent["job"]["name"], parent["run"]["runId"]) == (
        "etl",
        "nightly.fold",
        RUN_ID,
    )
    (given,), (made,) = complete["inputs"], complete["outputs"]
    assert (given["namespace"], given["name"]) == ("file", f"{shop}/data/payments")
    assert [one["name"] for one in given["facets"]["schema"]["fields"]] == ["tx_id", "merchant", "amount_paise", "note"]
    assert given["inputFacets"]["inputStatistics"]["rowCount"] == 5
    assert (made["namespace"], made["name"]) == ("file", f"{shop}/shop.db/payments")
    assert [one["name"] for one in made["facets"]["schema"]["fields"]] == ["tx_id", "merchant", "amount_paise"]
    assert made["outputFacets"]["outputStatistics"]["rowCount"] >= 3


@pytest.mark.usefixtures("_elsewhere")
def test_a_failure_is_an_event_with_its_error_and_goes_to_a_file_if_so_configured(
    shop: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = f"{{type: file, log_file_path: {shop}/events.json, append: true}}"
    (shop / "openlineage.yml").write_text(f"transport: {transport}\n")
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(shop / "openlineage.yml"))
    with pytest.raises(FoldError, match="it aggregates"):
        fl.run([mirror_into(shop, is_lawful=False)], shop / "data", once=True, spark=spark, lineage=True)
    start, failed = [json.loads(line) for line in (shop / "events.json").read_text().splitlines()]
    assert [start["eventType"], failed["eventType"]] == ["START", "FAIL"]
    assert "it aggregates" in failed["run"]["facets"]["errorMessage"]["message"]


@pytest.mark.usefixtures("_elsewhere")
def test_a_receiver_that_is_away_is_told_and_does_not_stop_the_fold(
    shop: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    away = Receiver()
    away.close()
    (shop / "openlineage.yml").write_text(f"transport: {{type: http, url: '{away.url}', retry: {{total: 0}}}}\n")
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(shop / "openlineage.yml"))
    (feed,) = fl.run([mirror_into(shop)], shop / "data", once=True, spark=spark, lineage=True)
    assert feed.records == 5
    told = [one.getMessage() for one in caplog.records if "OpenLineage" in one.getMessage()]
    assert len(told) == 1
    assert told[0].startswith("OpenLineage events cannot be sent, the folds go on without: ")


@pytest.mark.usefixtures("_elsewhere")
def test_nobody_to_send_to_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="say where OpenLineage events go: OPENLINEAGE_URL="):
        lineage_watch(streams=False)


@pytest.mark.parametrize("text", ["nightly", "a/b", "/a/b", "a//b", "a/b/"])
def test_a_parent_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is not NAMESPACE/JOB/RUN_ID"):
        parent_of(text)


def test_views_are_named_as_lineage_servers_know_them() -> None:
    spec = OriginSpec(bootstrap="one:9092,two:9092")
    assert view_name(fl.table("postgresql://ann:secret@db/shop", "payments"), spec) == (
        "postgres://db:5432",
        "shop.public.payments",
    )
    assert view_name(fl.lake("/srv/lake/payments"), spec) == ("file", "/srv/lake/payments")


def test_a_topic_is_one_dataset_for_who_writes_and_who_reads_it() -> None:
    for spec in (OriginSpec(bootstrap="one:9092,two:9092"), OriginSpec(path="/srv/data")):
        assert view_name(fl.changes("large"), spec) == topic_name(spec, "large")
        for side in fl.changes("large").joined((True, True)):
            assert view_name(side, spec) == topic_name(spec, "large")
