"""Values in Confluent's wire format, written by its own serializers, read as documents: by the log's own schemas."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.timestamp_pb2 import Timestamp

from foldlog.client.schemas.lookups import SchemaRegistry
from foldlog.client.schemas.values import TopicSchemas, ValueDecoder
from foldlog.testing import Broker

AVRO = """{"type": "record", "name": "shop.Order", "fields": [
  {"name": "id", "type": "string"}, {"name": "raw", "type": "bytes"},
  {"name": "day", "type": {"type": "int", "logicalType": "date"}},
  {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}]}"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"foldlog.console": "127.0.0.1:0"}, registry=True) as broker:
        yield broker


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def written(broker: Broker) -> dict[str, tuple[bytes | None, Any]]:
    """Values by their topic, and what they say."""
    client = SchemaRegistryClient({"url": broker.schema_registry_url})
    order = {"id": "o1", "raw": b"\xff", "day": date(2026, 11, 18), "price": Decimal("2.50")}
    told = {"id": "o1", "raw": "0xff", "day": "2026-11-18", "price": "2.50"}
    schema = '{"title": "T", "type": "object", "properties": {"n": {"type": "integer"}}}'
    return {
        "avro": (AvroSerializer(client, AVRO)(order, context("avro")), told),
        "json": (JSONSerializer(schema, client)({"n": 3}, context("json")), {"n": 3}),
        "proto": (
            ProtobufSerializer(Timestamp, client, {"skip.known.types": False})(Timestamp(seconds=7), context("proto")),
            "1970-01-01T00:00:07Z",
        ),
    }


def asked(broker: Broker, path: str) -> Any:
    server: Any = broker._running._server
    host, port = server._server.console_address
    with urllib.request.urlopen(f"http://{host}:{port}/api/topics/{path}", timeout=30) as response:
        return json.load(response)


def test_all_three_kinds_are_read_by_the_topic_and_by_the_url(broker: Broker) -> None:
    for lookup in (TopicSchemas(broker.log).schema, SchemaRegistry(broker.schema_registry_url).schema):
        decoder = ValueDecoder(lookup)
        for value, told in written(broker).values():
            assert value is not None
            assert decoder(value) == told
            with pytest.raises(ValueError, match="schema"):
                decoder(value[:4] + b"\xee" + value[5:])
        for bad in (b"", b"plain", b"\0\0\0\0"):
            with pytest.raises(ValueError, match="byte"):
                decoder(bad)
    value, _ = written(broker)["avro"]
    assert value is not None
    with pytest.raises(ValueError, match="left over"):
        ValueDecoder(TopicSchemas(broker.log).schema)(value + b"x")


def test_the_console_shows_a_value_by_its_schema(broker: Broker) -> None:
    value, told = written(broker)["avro"]
    broker.create_topic("shown")
    broker.log.append("shown", value)
    for path in ("shown/0/records/0?decoder=registry", "shown/search?decoder=registry", "shown/search?path=$.id"):
        found = asked(broker, path)
        record = found if "value" in found else found["records"][0]
        assert json.loads(record["value"]["decoded"]) == told


def test_the_console_shows_and_finds_a_key_by_its_schema(broker: Broker) -> None:
    key, told = written(broker)["json"]
    broker.create_topic("keyed")
    broker.log.append("keyed", "first", key=key)
    broker.log.append("keyed", "second", key="plain")
    for how in ("registry", "auto"):
        record = asked(broker, f"keyed/0/records/0?decoder={how}")
        assert json.loads(record["key"]["decoded"]) == told
    assert "decoded" not in asked(broker, "keyed/0/records/0?decoder=json")["key"]
    assert "decoded" not in asked(broker, "keyed/0/records/1?decoder=registry")["key"]
    for wanted in ('{"n": 3}', '{"n":3}'):
        found = asked(broker, f"keyed/search?decoder=registry&key={quote(wanted)}")["records"]
        assert [row["value"]["text"] for row in found] == ["first"]
    assert [row["value"]["text"] for row in asked(broker, "keyed/search?decoder=registry&key=plain")["records"]] == [
        "second"
    ]
    assert asked(broker, f"keyed/search?decoder=text&key={quote(json.dumps(told))}")["records"] == []
