"""The options of Spark's Kafka source, with its defaults and precedence: what each means, and one sentence for what is
wrong. Pure: no Spark, no log.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.errors import InvalidArgument, InvalidConfig
from foldlog.spark.origins.origin import for_folds
from foldlog.spark.source.options import (
    Assign,
    AtOffsets,
    AtTime,
    AtTimes,
    Earliest,
    Latest,
    Subscribe,
    SubscribePattern,
    batch_options,
    includes_headers,
    origin_spec,
    stream_options,
)

READ = {"path": "/logs/shop", "subscribe": "orders"}


def refusal(given: dict[str, str], *, stream: bool = False) -> str:
    with pytest.raises(InvalidArgument) as caught:
        (stream_options if stream else batch_options)({**READ, **given})
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def test_a_batch_reads_everything_and_fails_on_loss_unless_told_otherwise() -> None:
    options = batch_options(READ)
    assert options.origin.path == "/logs/shop"
    assert options.topics == Subscribe(("orders",))
    assert options.starting == Earliest()
    assert options.ending == Latest()
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert not options.latest_per_key
    assert options.min_partitions is options.max_records_per_partition is None
    assert options.ignored == ()


def test_a_stream_begins_at_the_end_unless_told_otherwise() -> None:
    options = stream_options(READ)
    assert options.starting == Latest()
    assert options.max_offsets_per_trigger is options.min_offsets_per_trigger is None
    assert options.max_trigger_delay_ms == 15 * 60 * 1000


@given(st.sampled_from(["startingOffsets", "subscribe", "failOnDataLoss", "minPartitions"]), st.data())
def test_names_are_case_insensitive(name: str, data: st.DataObject) -> None:
    spelled = "".join(data.draw(st.sampled_from([letter.lower(), letter.upper()])) for letter in name)
    value = {"startingOffsets": "earliest", "subscribe": "orders", "failOnDataLoss": "FALSE", "minPartitions": "7"}
    plain = {**READ, name: value[name]}
    other = {key: text for key, text in plain.items() if key != name} | {spelled: value[name]}
    assert batch_options(other) == batch_options(plain)


def test_one_place_is_needed_and_no_more() -> None:
    assert "not both" in refusal({"kafka.bootstrap.servers": "localhost:9092"})
    with pytest.raises(InvalidArgument, match="say where the log is"):
        batch_options({"subscribe": "orders"})
    with pytest.raises(InvalidArgument, match="path is empty"):
        batch_options({"subscribe": "orders", "path": " "})


def test_a_path_is_made_absolute_and_may_be_a_file_address() -> None:
    assert origin_spec({"path": "shop"}).path == os.path.join(os.getcwd(), "shop")
    assert origin_spec({"path": "file:///logs/my%20shop"}).path == "/logs/my shop"
    assert origin_spec({"path": "file:/logs/shop"}).path == "/logs/shop"
    assert origin_spec({"path": "s3://bucket/logs"}).path == "s3://bucket/logs"  # a store of segments
    for elsewhere in ("hdfs://nn/logs", "file://other/logs"):
        with pytest.raises(InvalidArgument, match=r"kafka\.bootstrap\.servers"):
            origin_spec({"path": elsewhere})


def test_kafka_properties_lose_their_prefix_and_the_group_has_no_effect() -> None:
    spec = origin_spec(
        {
            "kafka.bootstrap.servers": "a:9092,b:9092",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.group.id": "g",
            "groupIdPrefix": "p",
        }
    )
    assert spec.bootstrap == "a:9092,b:9092"
    assert spec.properties == {"security.protocol": "SASL_SSL"}


def test_a_misspelled_kafka_property_is_refused_with_the_name_that_was_meant() -> None:
    """Passed over, it would connect in the clear."""
    with pytest.raises(InvalidConfig) as caught:
        origin_spec({"kafka.bootstrap.servers": "a:9092", "kafka.Security.Protocl": "SASL_SSL"})
    expected = "there is no Kafka client property 'security.protocl'; did you mean security.protocol?"
    assert str(caught.value) == expected


def test_what_spark_accepts_without_effect_is_accepted() -> None:
    batch_options(
        {
            **READ,
            "fetchOffset.numRetries": "3",
            "fetchOffset.retryIntervalMs": "10",
            "kafkaConsumer.pollTimeoutMs": "512",
            "groupIdPrefix": "p",
            "nobodyKnowsThis": "x",
        }
    )


@pytest.mark.parametrize(
    "name",
    ["auto.offset.reset", "key.deserializer", "value.deserializer", "enable.auto.commit", "interceptor.classes"],
)
def test_properties_that_spark_refuses_are_refused(name: str) -> None:
    assert f"kafka.{name} is not for this source" in refusal({f"kafka.{name}": "x"})


def test_exactly_one_choice_of_topics() -> None:
    with pytest.raises(InvalidArgument, match="none was given"):
        batch_options({"path": "/logs"})
    assert "subscribe and assign were given" in refusal({"assign": '{"orders": [0]}'})


def test_topics_are_a_list_a_pattern_or_partitions() -> None:
    place = {"path": "/logs"}
    assert batch_options({**place, "subscribe": " b, a ,b,"}).topics == Subscribe(("b", "a"))
    assert batch_options({**place, "subscribePattern": "shop-.*"}).topics == SubscribePattern("shop-.*")
    chosen = batch_options({**place, "assign": '{"b": [1, 0], "a": [2]}'}).topics
    assert chosen == Assign((("b", 1), ("b", 0), ("a", 2)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("subscribe", ",, ,"),
        ("subscribePattern", "("),
        ("assign", "orders"),
        ("assign", "[0]"),
        ("assign", '{"orders": 0}'),
        ("assign", '{"orders": ["0"]}'),
        ("assign", '{"orders": [-1]}'),
        ("assign", '{"orders": []}'),
        ("assign", "[" * 100_000),
    ],
)
def test_a_choice_of_nothing_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidArgument, match=name):
        batch_options({"path": "/logs", name: value})


def test_a_time_for_all_goes_before_times_and_those_before_offsets() -> None:
    offsets = {"startingOffsets": '{"orders": {"0": 5, "1": -2}}', "endingOffsets": '{"orders": {"0": 9, "1": -1}}'}
    times = {
        "startingOffsetsByTimestamp": '{"orders": {"0": 1000, "1": 2000}}',
        "endingOffsetsByTimestamp": '{"orders": {"0": 3000, "1": 4000}}',
    }
    moments = {"startingTimestamp": "10", "endingTimestamp": " 20 "}
    options = batch_options({**READ, **offsets})
    assert options.starting == AtOffsets({("orders", 0): 5, ("orders", 1): -2})
    assert options.ending == AtOffsets({("orders", 0): 9, ("orders", 1): -1})
    options = batch_options({**READ, **offsets, **times})
    assert options.starting == AtTimes({("orders", 0): 1000, ("orders", 1): 2000})
    assert options.ending == AtTimes({("orders", 0): 3000, ("orders", 1): 4000})
    options = batch_options({**READ, **offsets, **times, **moments})
    assert options.starting == AtTime(10)
    assert options.ending == AtTime(20)


def test_what_is_overruled_need_not_fit_a_batch() -> None:
    assert batch_options({**READ, "startingOffsets": "latest", "startingTimestamp": "1"}).starting == AtTime(1)


def test_a_batch_cannot_begin_at_the_end_nor_end_at_the_start() -> None:
    assert "'latest'" in refusal({"startingOffsets": "LATEST"})
    assert "orders-0 cannot be -1" in refusal({"startingOffsets": '{"orders": {"0": -1}}'})
    assert "'earliest'" in refusal({"endingOffsets": "earliest"})
    assert "orders-0 cannot be -2" in refusal({"endingOffsets": '{"orders": {"0": -2}}'})


def test_a_stream_can_begin_at_either_end_and_has_none() -> None:
    assert stream_options({**READ, "startingOffsets": "earliest"}).starting == Earliest()
    mixed = stream_options({**READ, "startingOffsets": '{"orders": {"0": -1, "1": -2}}'}).starting
    assert mixed == AtOffsets({("orders", 0): -1, ("orders", 1): -2})
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        assert f"{name} cannot be used in a stream" in refusal({name: "latest"}, stream=True)


@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets"])
@pytest.mark.parametrize(
    "text",
    [
        "newest",
        "5",
        "[]",
        '{"orders": 5}',
        '{"orders": {"x": 1}}',
        '{"orders": {"0": "1"}}',
        '{"orders": {"0": -3}}',
        '{"orders": {"0": 1.5}}',
        '{"orders": {"0": true}}',
        '{"orders": {"-1": 1}}',
        '{"orders": {"0": 9223372036854775808}}',
    ],
)
def test_offsets_that_are_none_are_refused_with_an_example(name: str, text: str) -> None:
    assert '{"topicA": {"0": 23, "1": -1}' in refusal({name: text})


def test_times_that_are_none_are_refused() -> None:
    assert "milliseconds since 1970" in refusal({"startingTimestamp": "yesterday"})
    assert "milliseconds since 1970" in refusal({"endingTimestamp": "1.5"})
    assert "1700000000000" in refusal({"startingOffsetsByTimestamp": "1"})


def test_what_to_do_where_no_record_is_late_enough() -> None:
    name = "startingOffsetsByTimestampStrategy"
    assert batch_options(READ).on_no_match == "error"
    assert batch_options({**READ, name: "Latest"}).on_no_match == "latest"
    assert "neither 'error' nor 'latest'" in refusal({name: "skip"})


@pytest.mark.parametrize("name", ["minPartitions", "maxRecordsPerPartition", "maxOffsetsPerTrigger"])
@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5", "٣", ""])
def test_counts_are_positive_whole_numbers(name: str, text: str) -> None:
    assert name in refusal({name: text})


def test_flags_are_true_or_false() -> None:
    assert includes_headers({"includeheaders": "TRUE"})
    assert batch_options({**READ, "latestPerKey": "true"}).latest_per_key
    assert "neither true nor false" in refusal({"failOnDataLoss": "yes"})


def test_options_of_streams_are_named_as_ignored_in_a_batch_but_have_to_make_sense() -> None:
    options = batch_options({**READ, "maxOffsetsPerTrigger": "5", "maxTriggerDelay": "1m"})
    assert options.ignored == ("maxOffsetsPerTrigger", "maxTriggerDelay")
    assert "is more than" in refusal({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"})


@pytest.mark.parametrize(
    ("text", "delay_ms"),
    [("15m", 900_000), ("2 min", 120_000), ("10s", 10_000), ("250", 250), ("250ms", 250), ("1h30m", 5_400_000)],
)
def test_a_delay_is_a_number_with_a_unit(text: str, delay_ms: int) -> None:
    assert stream_options({**READ, "maxTriggerDelay": text}).max_trigger_delay_ms == delay_ms


def test_a_delay_in_other_units_is_refused() -> None:
    assert "15m" in refusal({"maxTriggerDelay": "1 fortnight"}, stream=True)


@pytest.mark.parametrize("name", ["isolation.level", "kafka.isolation.level", "Isolation.Level"])
@pytest.mark.parametrize("where", [{"path": "/data"}, {"kafka.bootstrap.servers": "h:9092"}])
def test_an_isolation_level_is_for_both_ways_to_a_log(name: str, where: dict[str, str]) -> None:
    assert not origin_spec(where).reads_committed
    spec = origin_spec({**where, name: "READ_COMMITTED"})
    assert spec.reads_committed
    assert spec.properties == {"isolation.level": "read_committed"}
    with pytest.raises(InvalidArgument, match=r"isolation.level='serializable' is not known"):
        origin_spec({**where, name: "serializable"})


def test_folds_read_committed_records_unless_told_otherwise() -> None:
    for where in ({"path": "/data"}, {"kafka.bootstrap.servers": "h:9092"}):
        assert for_folds(origin_spec(where)).reads_committed
        assert not for_folds(origin_spec({**where, "isolation.level": "read_uncommitted"})).reads_committed
