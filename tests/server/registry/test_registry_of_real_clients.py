"""The stock serializers and deserializers of confluent-kafka, unchanged, through a broker and its registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool

from foldlog.testing import Broker

AVRO = json.dumps(
    {
        "type": "record",
        "name": "shop.Order",
        "fields": [{"name": "id", "type": "string"}, {"name": "paise", "type": ["null", "long"], "default": None}],
    }
)
JSON = json.dumps({"title": "Order", "type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]})


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(registry=True) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": broker.schema_registry_url})


def _order_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="shop/order.proto", package="shop", syntax="proto3", dependency=["shop/money.proto"]
    )
    money = descriptor_pb2.FileDescriptorProto(name="shop/money.proto", package="shop", syntax="proto3")
    money.message_type.add(name="Money").field.add(name="paise", number=1, type=3, label=1)
    message = file.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=9, label=1)
    message.field.add(name="price", number=2, type=11, label=1, type_name=".shop.Money")
    pool = DescriptorPool()
    pool.Add(money)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def through(broker: Broker, topic: str, value: bytes) -> bytes:
    """Produce and consume it with librdkafka."""
    producer = Producer({"bootstrap.servers": broker})
    producer.produce(topic, value)
    assert producer.flush(30) == 0
    settings = {"bootstrap.servers": broker, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    try:
        consumer.subscribe([topic])
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        found = message.value()
        assert isinstance(found, bytes)
        return found
    finally:
        consumer.close()


def test_avro(broker: Broker, client: SchemaRegistryClient) -> None:
    broker.create_topic("avro")
    context = SerializationContext("avro", MessageField.VALUE)
    value = AvroSerializer(client, AVRO)({"id": "o1", "paise": 250}, context)
    assert value is not None
    fresh = SchemaRegistryClient({"url": broker.schema_registry_url})
    assert AvroDeserializer(fresh)(through(broker, "avro", value), context) == {"id": "o1", "paise": 250}
    assert client.get_subjects() == ["avro-value"]


def test_json_schema(broker: Broker, client: SchemaRegistryClient) -> None:
    broker.create_topic("json")
    context = SerializationContext("json", MessageField.VALUE)
    value = JSONSerializer(JSON, client)({"id": "o1"}, context)
    assert value is not None
    fresh = SchemaRegistryClient({"url": broker.schema_registry_url})
    read = JSONDeserializer(None, schema_registry_client=fresh)(through(broker, "json", value), context)
    assert read == {"id": "o1"}


def test_protobuf_with_an_import(broker: Broker, client: SchemaRegistryClient) -> None:
    broker.create_topic("proto")
    context = SerializationContext("proto", MessageField.VALUE)
    order = _order_class()
    value = ProtobufSerializer(order, client)(order(id="o1", price={"paise": 3}), context)
    assert value is not None
    again = ProtobufSerializer(order, SchemaRegistryClient({"url": broker.schema_registry_url}))
    assert again(order(id="o1", price={"paise": 3}), context) == value, "the same id"
    fresh = SchemaRegistryClient({"url": broker.schema_registry_url})
    read = ProtobufDeserializer(order, {}, fresh)(through(broker, "proto", value), context)
    assert (read.id, read.price.paise) == ("o1", 3)
    kept = client.get_latest_version("proto-value").schema
    assert "message Order {" in (kept.schema_str or "")
    assert [one.name for one in kept.references or ()] == ["shop/money.proto"]


def test_the_client_sees_every_part_of_the_api(client: SchemaRegistryClient) -> None:
    number = client.register_schema("every", Schema(AVRO))
    assert client.get_schema(number).schema_str == json.dumps(json.loads(AVRO), separators=(",", ":")).replace(
        '"name":"shop.Order"', '"name":"Order","namespace":"shop"'
    )
    assert client.lookup_schema("every", Schema(AVRO)).version == 1
    assert client.test_compatibility("every", Schema('"string"')) is False
    client.set_compatibility("every", "NONE")
    assert client.get_compatibility("every") == "NONE"
    assert client.test_compatibility("every", Schema('"string"')) is True
    assert client.get_versions("every") == [1]
    assert client.get_version("every", 1).schema_id == number
    assert client.update_mode("every", "READONLY") == "READONLY"
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema("every", Schema('"string"'))
    assert refused.value.error_code == 42205
    assert client.delete_mode("every") == "READONLY"
    reference = SchemaReference("shop.Order", "every", 1)
    using = Schema('{"type":"array","items":"shop.Order"}', references=[reference])
    assert client.register_schema("using", using) > number
    assert client.delete_subject("using") == [1]
    assert client.delete_subject("using", permanent=True) == [1]
    assert client.delete_version("every", 1) == 1
    with pytest.raises(SchemaRegistryError) as gone:
        client.get_latest_version("every")
    assert gone.value.error_code == 40401


def framed(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + b"\x04ab"


def errors_of(
    broker: Broker, topic: str, records: list[tuple[bytes | None, bytes | None]], **settings: str
) -> list[str | None]:
    """What a producer hears of each key and value, sent one by one."""
    reports: list[str | None] = []
    producer = Producer({"bootstrap.servers": broker, "linger.ms": 0, **settings})
    for key, value in records:
        producer.produce(
            topic, value, key, on_delivery=lambda error, _: reports.append(None if error is None else error.name())
        )
        assert producer.flush(30) == 0
    return reports


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_a_record_without_a_schema_of_its_topic_is_refused_where_the_topic_asks(
    broker: Broker, client: SchemaRegistryClient, compression: str
) -> None:
    topic = f"checked-{compression}"
    broker.create_topic(topic, 1, {"foldlog.value.schema.validation": "true", "foldlog.key.schema.validation": "true"})
    good, key, elsewhere = (
        framed(client.register_schema(subject, Schema(f'"{kind}"')))
        for subject, kind in ((f"{topic}-value", "string"), (f"{topic}-key", "bytes"), ("elsewhere-value", "long"))
    )
    unknown = framed(9999)
    taken = [(None, good), (key, None), (key, good)]
    refused = [(None, unknown), (None, b"plain"), (b"plain", good), (None, elsewhere), (elsewhere, good), (good, good)]
    found = errors_of(broker, topic, [*taken, *refused], **{"compression.type": compression})
    assert found == [*3 * [None], *6 * ["INVALID_RECORD"]]
    assert [(one.key, one.value) for one in broker.log.read(topic)] == taken
    client.delete_subject(f"{topic}-value")
    assert errors_of(broker, topic, [(None, good)]) == [None], "what is deleted, but not for good, can still be read"


RECORD = '{"type": "record", "name": "Order", "namespace": "shop", "fields": []}'
PROTO = 'syntax = "proto3"; package shop; message Money { message Part {} }'


@pytest.mark.parametrize(
    ("strategy", "subject", "schema", "is_taken"),
    [
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", "shop.Order", Schema(RECORD), True),
        ("RecordNameStrategy", "TOPIC-value", Schema(RECORD), False),
        ("RecordNameStrategy", "shop.Money.Part", Schema(PROTO, "PROTOBUF"), True),
        ("RecordNameStrategy", "Order", Schema('{"title": "Order", "type": "object"}', "JSON"), True),
        ("RecordNameStrategy", "untitled", Schema('{"type": "object"}', "JSON"), False),
        ("TopicRecordNameStrategy", "TOPIC-shop.Order", Schema(RECORD), True),
        ("TopicRecordNameStrategy", "TOPIC-value", Schema(RECORD), False),
        ("any", "whichever", Schema('"double"'), True),
    ],
)
def test_the_subject_is_that_of_the_topics_strategy(
    strategy: str, subject: str, schema: Schema, is_taken: bool
) -> None:
    with Broker(registry=True) as broker:
        settings = {"foldlog.value.schema.validation": "true", "foldlog.value.subject.name.strategy": strategy}
        broker.create_topic("orders", 1, settings)
        client = SchemaRegistryClient({"url": broker.schema_registry_url})
        schema_id = client.register_schema(subject.replace("TOPIC", "orders"), schema)
        assert errors_of(broker, "orders", [(None, framed(schema_id))]) == [None if is_taken else "INVALID_RECORD"]


def test_nobody_else_writes_or_deletes_the_topic_of_the_schemas(broker: Broker, client: SchemaRegistryClient) -> None:
    client.register_schema("kept", Schema('"int"'))
    errors: list[str] = []
    producer = Producer({"bootstrap.servers": broker})
    producer.produce(
        "_schemas", b"{}", b"{}", on_delivery=lambda error, _: errors.append("" if error is None else error.name())
    )
    assert producer.flush(30) == 0
    assert errors == ["TOPIC_EXCEPTION"]
    admin = AdminClient({"bootstrap.servers": broker})
    with pytest.raises(KafkaException, match="TOPIC_EXCEPTION"):
        admin.delete_topics(["_schemas"])["_schemas"].result()
