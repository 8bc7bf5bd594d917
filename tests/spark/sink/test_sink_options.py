"""Options and columns of the sinks: what is allowed, what it means, and one sentence for each thing that is not."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest
from pyspark.sql.types import StructType

from foldlog.errors import InvalidArgument, InvalidConfig
from foldlog.spark.sink.options import SinkOptions, sink_options

PLACE = {"path": "/data/log"}
WIRE = {"kafka.bootstrap.servers": "localhost:9092"}
BOTH = "topic string, value binary"

pytestmark = pytest.mark.usefixtures("spark")  # which alone can read a schema's text


def parsed(schema: str) -> StructType:
    found = StructType.fromDDL(schema)
    assert isinstance(found, StructType)
    return found


def told(schema: str = BOTH, given: Mapping[str, str] | None = None, **names: str) -> SinkOptions:
    return sink_options({**PLACE, **(given or {}), **names}, parsed(schema), overwrite=False, is_stream=False)


@pytest.mark.parametrize(
    "schema",
    [
        "value string, topic string",
        "value binary, key string, topic string",
        "key binary, value string, headers array<struct<key:string,value:binary>>, topic string, partition int",
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int",
        "value varchar(5), topic char(3), partition smallint",
        "value void, key void, headers void, partition void, timestamp void, topic string",
    ],
)
def test_the_columns_of_sparks_kafka_sink_and_of_what_was_read_are_taken(schema: str) -> None:
    assert told(schema).topic is None


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("key string, topic string", "there is no column 'value' to write; there are key, topic"),
        ("value string", "no topic was given: set the option 'topic', or have a column 'topic'"),
        ("value int, topic string", "column 'value' is int; it has to be string or binary; cast it first"),
        ("value struct<a:int>, topic string", "column 'value' is struct<a:int>; it has to be string or binary"),
        ("value string, key bigint, topic string", "column 'key' is bigint; it has to be string or binary"),
        ("value string, topic binary", "column 'topic' is binary; it has to be string"),
        ("value string, topic string, partition bigint", "column 'partition' is bigint; it has to be int"),
        ("value string, topic string, timestamp bigint", "column 'timestamp' is bigint; it has to be timestamp"),
        ("value string, topic string, timestamp timestamp_ntz", "has to be timestamp"),
        (
            "value string, topic string, headers map<string,binary>",
            "column 'headers' is map<string,binary>; it has to be array<struct<key:string,value:binary>>",
        ),
        (
            "value string, topic string, headers array<struct<key:string,value:string>>",
            "it has to be array<struct<key:",
        ),
        (
            "value string, topic string, headers array<struct<value:binary,key:string>>",
            "it has to be array<struct<key:",
        ),
        ("value string, topic string, amount int", "column 'amount' would be lost: a record has key, value, headers,"),
        ("value string, topic string, Key string", "column 'Key' would be lost"),
        ("value string, topic string, value binary", "there are 2 columns 'value'; drop all but one"),
    ],
)
def test_a_column_that_cannot_be_is_told_in_a_sentence(schema: str, sentence: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        told(schema)
    assert sentence in str(caught.value)


def test_the_option_topic_is_enough() -> None:
    assert told("value string", topic=" orders ").topic == "orders"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"topic": " "}, "topic is empty; give it a value, or leave it out"),
        ({"compression": "brotli"}, "there is no compression 'brotli'; use one of none, gzip, snappy, lz4, zstd"),
        ({"createTopic": "many"}, "createTopic='many' is not a number of partitions; it is a whole number from 1 to"),
        ({"createTopic": "0"}, "createTopic='0' is not a number of partitions"),
        ({"createTopic": "٣"}, "createTopic='٣' is not a number of partitions"),
        ({"txnAppId": "nightly"}, "txnAppId and txnVersion go together"),
        ({"txnVersion": "1"}, "txnAppId and txnVersion go together"),
        ({"txnAppId": "nightly", "txnVersion": "-1"}, "txnVersion='-1' is not a whole number from 0 on"),
        ({"kafka.bootstrap.servers": "localhost:9092"}, "give either path or kafka.bootstrap.servers, not both"),
        ({"exactlyOnce": "perhaps"}, "exactlyOnce='perhaps' is neither true nor false"),
        ({"exactlyOnce": "false"}, "exactlyOnce=false is for kafka.bootstrap.servers; by path rows are always written"),
    ],
)
def test_an_option_that_cannot_be_is_told_in_a_sentence(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        told(given=given)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"exactlyOnce": "false", "txnAppId": "a", "txnVersion": "1"}, "txnAppId and txnVersion need exactlyOnce=true"),
        ({"kafka.transaction.timeout.ms": "1 h"}, "kafka.transaction.timeout.ms='1 h' is not a whole number from 1 to"),
        ({"kafka.transaction.timeout.ms": "0"}, "kafka.transaction.timeout.ms='0' is not a whole number from 1 to"),
    ],
)
def test_an_option_that_cannot_be_by_wire_is_told_in_a_sentence(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        sink_options({**WIRE, **given}, parsed(BOTH), overwrite=False, is_stream=False)
    assert sentence in str(caught.value)


def test_by_wire_rows_are_written_once_unless_that_is_not_wanted() -> None:
    plain = sink_options(WIRE, parsed(BOTH), overwrite=False, is_stream=True)
    assert (plain.exactly_once, plain.transaction_timeout_ms) == (True, 300_000)
    given = {**WIRE, "ExactlyOnce": "FALSE", "kafka.transaction.timeout.ms": "60000"}
    other = sink_options(given, parsed(BOTH), overwrite=False, is_stream=True)
    assert (other.exactly_once, other.transaction_timeout_ms) == (False, 60_000)


def test_a_misspelled_kafka_property_is_refused_with_the_name_that_was_meant() -> None:
    given = {"kafka.bootstrap.servers": "localhost:9092", "kafka.sasl.user.name": "ann"}
    with pytest.raises(InvalidConfig, match=r"'sasl\.user\.name'; did you mean sasl\.username\?$"):
        sink_options(given, parsed(BOTH), overwrite=False, is_stream=False)


def test_somewhere_to_write_is_needed() -> None:
    with pytest.raises(InvalidArgument, match="say where the log is"):
        sink_options({}, parsed(BOTH), overwrite=False, is_stream=False)


def test_names_are_case_insensitive_and_unknown_options_ignored() -> None:
    options = told("value string", TOPIC="orders", Compression="ZSTD", CREATETOPIC="3", whatever="x")
    assert (options.topic, options.compression, options.partitions_of_new_topics) == ("orders", 4, 3)


def test_the_path_is_made_absolute() -> None:
    options = sink_options({"path": "data"}, parsed(BOTH), overwrite=False, is_stream=False)
    assert options.origin.path == os.path.abspath("data")


def test_kafkas_name_for_compression_counts_where_ours_is_not_given() -> None:
    assert told(given={"kafka.compression.type": "lz4"}).compression == 3
    assert told(given={"kafka.compression.type": "lz4", "compression": "none"}).compression == 0
    assert told().compression == 0


def test_overwriting_is_refused_and_a_complete_result_is_appended_each_time() -> None:
    with pytest.raises(InvalidArgument, match=r"a log is only appended to: use mode\('append'\)"):
        sink_options(PLACE, parsed(BOTH), overwrite=True, is_stream=False)
    sink_options(PLACE, parsed(BOTH), overwrite=True, is_stream=True)


def test_a_stream_has_its_own_versions() -> None:
    assert told(txnAppId="nightly", txnVersion="7").version == 7
    with pytest.raises(InvalidArgument, match="for batch writes; a stream has its query and batch ids"):
        sink_options({**PLACE, "txnAppId": "nightly", "txnVersion": "7"}, parsed(BOTH), overwrite=False, is_stream=True)
