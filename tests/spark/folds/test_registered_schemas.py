"""Topics whose columns come from the schema registry: three kinds, what a new version does, bad declarations."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import DataFrame, SparkSession

import foldlog.spark as fl
from foldlog.errors import InvalidArgument, RegistryUnavailable
from foldlog.spark.decoders.decoder import decoder_for
from foldlog.spark.decoders.registered import followed_schema
from foldlog.testing import Broker

ORDER_1: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "paise", "type": "long"}]}
ORDER_2 = {
    **ORDER_1,
    "fields": [*ORDER_1["fields"], {"name": "city", "type": ["null", "string"], "default": None}],
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(registry=True, path=tmp_path_factory.mktemp("registry")) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": broker.schema_registry_url})


def avro_value(client: SchemaRegistryClient, topic: str, schema: Any, value: dict[str, Any]) -> bytes:
    made = AvroSerializer(client, json.dumps(schema))(value, SerializationContext(topic, MessageField.VALUE))
    assert isinstance(made, bytes)
    return made


def test_a_new_version_adds_its_column_to_the_view_and_the_fold_says_so(
    broker: Broker, client: SchemaRegistryClient, spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = broker.log.path
    broker.create_topic("orders", 1)
    broker.log.append("orders", avro_value(client, "orders", ORDER_1, {"paise": 1}), key="o1")

    def fold() -> fl.Fold:
        orders = fl.topic("orders", key="id", schema="registry", registry=broker.schema_registry_url)

        @fl.fold(orders, into=fl.table(tmp_path / "shop.db", "orders"))
        def mirror(rows: DataFrame) -> DataFrame:
            return rows

        return mirror

    def rows() -> list[dict[str, Any]]:
        with sqlite3.connect(tmp_path / "shop.db") as connected:
            connected.row_factory = sqlite3.Row
            return [dict(row) for row in connected.execute("select * from orders order by id")]

    with caplog.at_level(logging.INFO, "foldlog.folds"):
        first = fold()
        fl.run([first], directory, spark=spark, once=True)
        assert [(row["id"], row["paise"]) for row in rows()] == [("o1", 1)]
        broker.log.append("orders", avro_value(client, "orders", ORDER_2, {"paise": 2, "city": "Pune"}), key="o2")
        fl.run([first], directory, spark=spark, once=True)
        assert "city" not in rows()[1], "a fold keeps the version that it was declared with"
        assert (
            "version 2 of orders-value is registered; topic 'orders' is read with version 1 until its folds start"
            " again: its column 'city' is left out until then"
        ) in [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
        assert "is new" not in caplog.text
        broker.log.append("orders", avro_value(client, "orders", ORDER_2, {"paise": 3, "city": "Delhi"}), key="o3")
        fl.run([fold()], directory, spark=spark, once=True)
    assert [(row["paise"], row["city"]) for row in rows()] == [(1, None), (2, None), (3, "Delhi")]
    assert "version 2 of orders-value: column 'city' is new: null in rows of before" in caplog.text


def test_json_and_protobuf_have_columns_too(broker: Broker, client: SchemaRegistryClient) -> None:
    schema = {
        "type": "object",
        "properties": {
            "n": {"type": ["integer", "null"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "at": {"$ref": "#/definitions/at"},
            "counts": {"type": "object", "additionalProperties": {"type": "number"}},
        },
        "definitions": {"at": {"type": "object", "properties": {"x y": {"type": "boolean"}}}},
    }
    context = SerializationContext("docs", MessageField.VALUE)
    value = JSONSerializer(json.dumps({"title": "T", **schema}), client)({"n": 3, "tags": ["a"]}, context)
    taken = fl.topic("docs", schema="registry", registry=broker.schema_registry_url)
    assert taken.schema == (
        "`n` BIGINT,\n`tags` ARRAY<STRING>,\n`at` STRUCT<`x y`: BOOLEAN>,\n`counts` MAP<STRING, DOUBLE>"
    )
    decoder = decoder_for(taken.format, pa.schema([("n", pa.int64())]), **taken.options)
    columns, reasons = decoder.decode(pa.array([value, None, b'{"n": 1}', b"\0\0\0\0\x01{"], pa.binary()))
    assert columns[0].to_pylist() == [3, None, None, None]
    assert reasons is not None
    assert [reason is None for reason in reasons.to_pylist()] == [True, True, False, False]

    text = 'syntax = "proto3"; package shop; message Money { int64 paise = 1; } message Other { string a = 1; }'
    client.register_schema("money-value", Schema(text, "PROTOBUF"))
    money = fl.topic("money", schema="registry", registry=broker.schema_registry_url)
    decoder = decoder_for(money.format, None, **money.options)
    assert decoder.schema.names == ["paise"]
    columns, reasons = decoder.decode(pa.array([b"\0\0\0\0\x01\0\x08\x05"], pa.binary()))
    assert (columns[0].to_pylist(), reasons) == ([5], None)


def test_what_a_newer_version_does_is_told_once(broker: Broker, client: SchemaRegistryClient) -> None:
    url = broker.schema_registry_url
    client.set_compatibility("told-value", "NONE")
    client.register_schema("told-value", Schema(json.dumps(ORDER_2)))
    fl.topic("told", schema="registry", registry=url)
    followed = followed_schema("told")
    assert followed is not None
    assert followed.news() is None
    fields = [{"name": "paise", "type": "string"}]
    client.register_schema("told-value", Schema(json.dumps({**ORDER_1, "fields": fields})))
    told = followed.news()
    assert told is not None
    assert told.startswith("version 2 of told-value is registered; topic 'told' is read with version 1")
    assert "its values have no column 'city'" in told
    assert "its column 'paise' is string, here int64" in told
    assert followed.news() is None
    fl.topic("told", schema="registry", registry=url, version=1)
    assert followed_schema("told") is None, "a version that is kept on purpose is not followed"


def test_a_version_can_be_kept(broker: Broker, client: SchemaRegistryClient) -> None:
    for schema in (ORDER_1, ORDER_2):
        client.register_schema("kept", Schema(json.dumps(schema)))
    for version, names in ((1, ["paise"]), (2, ["paise", "city"]), (None, ["paise", "city"])):
        more: dict[str, Any] = {} if version is None else {"version": version}
        taken = fl.topic("any", schema="registry", registry=broker.schema_registry_url, subject="kept", **more)
        assert decoder_for(taken.format, None, **taken.options).schema.names == names


def test_what_cannot_be_taken_is_refused_in_a_sentence(broker: Broker, client: SchemaRegistryClient) -> None:
    url = broker.schema_registry_url
    client.register_schema("odd-value", Schema('{"type": "object", "properties": {"x": {}}}', "JSON"))
    for options, match in (
        ({}, "say where the schema"),
        ({"registry": url}, "has no subject 'nothing-value'"),
        ({"registry": url, "subject": "odd-value", "version": 9}, "no version 9 of"),
        ({"registry": url, "version": "x"}, "is not a version"),
        ({"registry": url, "reader_schema": {}}, "no option 'reader_schema'"),
        ({"registry": url, "subject": "odd-value"}, "property 'x'"),
    ):
        with pytest.raises(InvalidArgument, match=match):
            fl.topic("nothing", schema="registry", **options)
    with pytest.raises(RegistryUnavailable):
        fl.topic("nothing", schema="registry", registry="http://127.0.0.1:1")
