"""Java's serializers and Confluent's own Java client at our registry, unchanged: `clusters/RegistryClient.java`.

Confluent keeps its jars in a repository of its own. Maven Central has Flink's format for registries, whose jar carries
Confluent's client 7.5.3, under other package names: what `KafkaAvroSerializer` asks the registry is asked here.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters.flink import FLINK
from clusters.maven import JarsUnavailable, class_path, fetch
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from foldlog.testing import Broker

JARS = (*FLINK, "org.apache.flink:flink-sql-avro-confluent-registry:2.2.0")
PROGRAM = Path(__file__).resolve().parents[2] / "clusters" / "RegistryClient.java"
TIMEOUT_S = 120

ANSWERS = """\
unknown-subject refused 404 40401
register 1
unknown-schema refused 404 40403
compatible true
incompatible false
reasons true
register-normalized 2
register-broken refused 409 409
id 2
version 1
by-id true
by-subject-and-id true
no-such-id refused 404 40403
latest 2
schema-of-1 true
versions [1, 2]
subjects-by-id [java]
versions-by-id [{subject=java,version=2}]
schemas 1
register-using 3
using true
referenced refused 422 42206
in-a-context 1
of-the-context true
level FULL_TRANSITIVE
level-of FULL_TRANSITIVE
level-of-all FORWARD
level-gone refused 404 40408
mode READONLY
read-only refused 422 42205
mode-of-all READWRITE
subjects [:.eu:java, java, using]
delete-using [1]
delete-version 1
versions-left [2]
versions-ever [1, 2]
delete-for-good 1
subjects-ever [:.eu:java, java, using]
"""


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(registry=True) as broker:
        yield broker


def run(broker: Broker, *words: str) -> str:
    try:
        classes = class_path(fetch(JARS))
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    java = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512M", "-Dlog4j2.level=ERROR", "-cp", classes]
    done = subprocess.run(
        [*java, str(PROGRAM), broker.schema_registry_url, *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_java_serializer_and_deserializer_and_python_read_each_other(broker: Broker) -> None:
    """The topic takes only what names a schema of its own subject."""
    broker.create_topic("orders", 1, {"foldlog.value.schema.validation": "true"})
    read = run(broker, "serialize", str(broker), "orders")
    assert read.splitlines() == ['{"id": "o1", "paise": 7}', '{"id": "o2", "paise": 250}']
    client = SchemaRegistryClient({"url": broker.schema_registry_url})
    assert client.get_versions("orders-value") == [1, 2]
    deserialize, context = AvroDeserializer(client), SerializationContext("orders", MessageField.VALUE)
    values = [deserialize(one.value or b"", context) for one in broker.log.read("orders")]
    assert values == [{"id": "o1"}, {"id": "o2", "paise": 250}]


def test_confluents_java_client_gets_the_answers_that_it_expects(broker: Broker) -> None:
    assert run(broker, "client") == ANSWERS
