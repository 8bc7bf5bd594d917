"""The page of docs/reference/metrics.md and the page of a broker name the same metrics, with the same types and labels.

A broker in a directory is used by a Kafka client until everything it can tell has something to tell, and is scraped
over its own HTTP listener. The numbers are those of what the client did.
"""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from foldlog.broker.access.quotas import entity
from foldlog.broker.broker import Broker
from foldlog.client.fold_bulletin import FOLDS_CONFIG, FOLDS_TOPIC, Status, encode
from foldlog.records.loops import pack
from foldlog.server.config.settings import ServerSettings
from foldlog.server.server import Server
from monitoring_files import OF_RUNNERS, alert_expressions, dashboard_expressions, metric_names

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "metrics.md"
ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<type>\w+) \|(?P<labels>[^|]*)\| (?P<text>[^|]+) \|$", re.MULTILINE)
WAIT_S = 30


class Described(NamedTuple):
    """What is said of a metric."""

    type: str
    labels: frozenset[str]


def documented() -> dict[str, Described]:
    rows = ROW.finditer(PAGE.read_text(encoding="utf-8"))
    return {row["name"]: Described(row["type"], frozenset(re.findall(r"`(\w+)`", row["labels"]))) for row in rows}


def get(address: tuple[str, int], path: str) -> str:
    with closing(http.client.HTTPConnection(*address, timeout=WAIT_S)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        assert response.status == 200
        return response.read().decode()


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Metric]:
    """What a broker tells after a client has written five records, read and committed three of them, and pushed its own
    metrics."""
    settings = ServerSettings.parse(
        {
            "listeners": "127.0.0.1:0",
            "foldlog.metrics": "127.0.0.1:0",
            "foldlog.client.telemetry": True,
            "quota.window.num": 1,
        }
    )
    store = f"file://{tmp_path_factory.mktemp('store')}"
    with Broker.open(str(tmp_path_factory.mktemp("data")), tier=store) as broker:
        broker.create_topic("orders", partitions=2)
        broker.create_topic("history", 1, {"remote.storage.enable": "true"})
        broker.enforce_retention()
        publish_lost_fold(broker)
        broker.dynamic_settings.change("client-metrics", "all", lambda _: {"metrics": "*", "interval.ms": "100"})
        slow = entity({"client-id": "slow"})
        broker.access.change(
            lambda access: replace(access, quotas=access.quotas.changed(slow, {"consumer_byte_rate": 1_000_000}))
        )
        with Server.start(broker, settings) as server:
            produce(server.bootstrap)
            consume(server.bootstrap)
            with closing(http.client.HTTPConnection(*server.addresses[0], timeout=WAIT_S)) as wrong:
                wrong.request("GET", "/metrics")  # HTTP on the port of Kafka's protocol
                with pytest.raises((http.client.HTTPException, ConnectionError)):
                    wrong.getresponse()
            assert server.metrics_address is not None
            page = page_with_pushed(server.bootstrap, server.metrics_address)
            assert get(server.metrics_address, "/healthz") == "ok\n"
    # Counters are found under the name without its ending, and are called what the page calls them.
    return {
        metric.name + ("_total" if metric.type == "counter" else ""): metric
        for metric in text_string_to_metric_families(page)
    }


def publish_lost_fold(broker: Broker) -> None:
    """Its last report is of long ago, and did not say that it stops."""
    lost = Status("mirror", "orders", "v", "table", "running", {}, {}, 0, 0, 0, 0, 0, 0, "", None, "h:1", 1)
    broker.create_topic(FOLDS_TOPIC, 1, FOLDS_CONFIG)
    partition = broker.writable_partition(FOLDS_TOPIC, 0)
    partition.wait_acknowledged(partition.append(pack([(1, *encode(lost), ())])).next_offset)


def page_with_pushed(bootstrap: str, metrics: tuple[str, int]) -> str:
    """The page once a client has pushed something; librdkafka does so by itself."""
    client = Producer({"bootstrap.servers": bootstrap, "client.id": "pusher"})
    until = time.monotonic() + WAIT_S
    while True:
        client.poll(0.05)
        page = get(metrics, "/metrics")
        if 'client_id="pusher"' in page:
            return page
        assert time.monotonic() < until, "nothing was pushed"


def produce(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number in range(5):
        producer.produce("orders", str(number).encode(), partition=0)
    assert producer.flush(WAIT_S) == 0


def consume(bootstrap: str) -> None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "fraud", "enable.auto.commit": False, "client.id": "slow"}
    )
    try:
        consumer.assign([TopicPartition("orders", 0, 0)])
        messages = consumer.consume(5, timeout=WAIT_S)
        assert [message.error() for message in messages] == [None] * 5
        consumer.commit(offsets=[TopicPartition("orders", 0, 3)], asynchronous=False)
    finally:
        consumer.close()


def value(scraped: dict[str, Metric], name: str, **labels: str) -> float:
    (found,) = [sample.value for sample in scraped[name].samples if sample.name == name and sample.labels == labels]
    return found


def test_every_metric_is_on_the_page_and_the_page_has_no_other(scraped: dict[str, Metric]) -> None:
    told = {
        name: Described(metric.type, frozenset(label for sample in metric.samples for label in sample.labels) - {"le"})
        for name, metric in scraped.items()
    }
    assert told == documented()


def test_the_alert_rules_and_the_dashboard_use_metrics_that_exist(scraped: dict[str, Metric]) -> None:
    """Those of runners are checked where a runner is scraped."""
    expressions = alert_expressions("foldlog broker")
    samples = {sample.name for metric in scraped.values() for sample in metric.samples}
    assert len(expressions) >= 10
    assert metric_names(expressions)
    assert metric_names(expressions) <= samples
    on_the_dashboard = {name for name in metric_names(dashboard_expressions()) if not OF_RUNNERS.match(name)}
    assert on_the_dashboard
    assert on_the_dashboard <= samples


def test_the_numbers_are_those_of_what_the_client_did(scraped: dict[str, Metric]) -> None:
    assert value(scraped, "foldlog_produced_records_total") == 5
    assert value(scraped, "foldlog_fetched_records_total") == 5
    assert 0 < value(scraped, "foldlog_produced_bytes_total") < value(scraped, "foldlog_received_bytes_total")
    assert 0 < value(scraped, "foldlog_fetched_bytes_total") < value(scraped, "foldlog_sent_bytes_total")
    assert value(scraped, "foldlog_partition_high_watermark", topic="orders", partition="0") == 5
    assert value(scraped, "foldlog_group_lag", group="fraud", topic="orders") == 2
    assert value(scraped, "foldlog_connections_refused_total", reason="bad request") == 1
    synced = {sample.name: sample.value for sample in scraped["foldlog_sync_records"].samples}
    assert synced["foldlog_sync_records_sum"] >= 5
    asked = {sample.labels["api"] for sample in scraped["foldlog_request_seconds"].samples}
    assert {"Produce", "Fetch", "Metadata", "ApiVersions", "OffsetCommit"} <= asked
    assert value(scraped, "foldlog_request_errors_total", api="Produce") == 0
    pushed = {sample.labels["metric"] for sample in scraped["foldlog_client_metric"].samples}
    assert any(name.startswith("org.apache.kafka.producer.") for name in pushed)
    assert value(scraped, "foldlog_telemetry_clients") >= 1


def test_a_broker_without_metrics_does_not_import_what_serves_them() -> None:
    code = (
        "import sys\n"
        "from foldlog.broker.broker import Broker\n"
        "from foldlog.server.server import Server\n"
        "from foldlog.server.config.settings import ServerSettings\n"
        "with Broker.open(':memory:') as broker:\n"
        "    with Server.start(broker, ServerSettings.parse({'listeners': '127.0.0.1:0'})):\n"
        "        late = {'h11', 'foldlog.server.http.http', 'foldlog.server.http.status_pages'}\n"
        "        print(sorted(late & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
