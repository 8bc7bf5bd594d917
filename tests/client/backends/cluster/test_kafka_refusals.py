"""What a log on a cluster refuses before, or instead of, asking the brokers: one of our errors, one sentence each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError

import foldlog
from foldlog import errors
from foldlog.client.backends.cluster.faults import Where, fault_of
from foldlog.client.backends.cluster.handles import Handles
from foldlog.client.backends.cluster.url import parse_url
from foldlog.testing import KafkaBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker.launch({"group.min.session.timeout.ms": 6000}) as launched:
        yield launched


@pytest.fixture(scope="module")
def log(broker: KafkaBroker) -> Iterator[foldlog.Log]:
    with foldlog.connect(f"kafka://{broker}") as connected:
        yield connected


# --- topics of the cluster's own --------------------------------------------------------------------------------------


def changes_of(log: foldlog.Log) -> list[Callable[[str], object]]:
    return [
        log.delete_topic,
        lambda name: log.grow_topic(name, 3),
        lambda name: log.alter_topic(name, {"retention.ms": 1}),
        lambda name: log.delete_records(name, {0: "end"}),
    ]


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", "__share_group_state"])
def test_what_kafka_keeps_for_itself_is_refused_before_anything_is_sent(
    log: foldlog.Log, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handles, "wire", lambda *_: pytest.fail("a broker was asked"))
    for change in changes_of(log):
        with pytest.raises(errors.InvalidTopicName, match=f"^topic '{name}' is made and kept by the log itself; "):
            change(name)


def test_what_else_a_cluster_says_is_its_own_is_refused_too(log: foldlog.Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its metadata tells: here of a topic that our broker has, and is made to call its own."""
    log.create_topic("_schemas", partitions=2)
    monkeypatch.setattr("foldlog.server.partitions.KAFKA_OWN_TOPICS", frozenset({"_schemas"}))
    for change in changes_of(log):
        with pytest.raises(errors.InvalidTopicName, match=r"^topic '_schemas' is made and kept by the log itself; "):
            change("_schemas")
    monkeypatch.undo()
    assert log.topic("_schemas").partition_count == 2
    log.delete_topic("_schemas")


# --- properties -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["error_cb", "logger", "stats_cb", "oauth_cb", "throttle_cb", "rebalance_cb", "on_commit", "default.topic.config"],
)
def test_what_the_client_takes_as_a_function_or_an_object_is_no_property(name: str) -> None:
    sentence = f"^{name} cannot be set as a property: it is a function or an object, and not offered here$"
    with pytest.raises(errors.InvalidConfig, match=sentence):
        foldlog.connect(f"kafka://127.0.0.1:1?{name}=1")
    with pytest.raises(errors.InvalidConfig, match=sentence):
        foldlog.connect("kafka://127.0.0.1:1", properties={name: print})


def test_properties_that_are_no_dict_of_texts_are_refused_and_not_shown() -> None:
    with pytest.raises(errors.InvalidArgument, match=r"properties are a dict such as .*, not a list$"):
        foldlog.connect("kafka://127.0.0.1:1", properties=["a"])  # type: ignore[arg-type]
    for value in (None, b"secret", ["secret"]):
        with pytest.raises(errors.InvalidConfig, match=r"^sasl\.password is a \w+; a Kafka client") as caught:
            foldlog.connect("kafka://127.0.0.1:1", properties={"sasl.password": value})
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("protocol", ["SASL_SSL", "sasl_plaintext"])
def test_a_login_without_a_mechanism_names_those_that_there_are(protocol: str) -> None:
    with pytest.raises(
        errors.InvalidConfig,
        match=f"^security.protocol={protocol.upper()} needs sasl.mechanism, which is one of PLAIN, SCRAM-SHA-256",
    ):
        foldlog.connect(f"kafka://127.0.0.1:1?security.protocol={protocol}&sasl.username=a&sasl.password=b")


def test_the_most_that_a_client_sends_is_kept_to(broker: KafkaBroker, log: foldlog.Log) -> None:
    log.create_topic("small")
    with foldlog.connect(f"kafka://{broker}?message.max.bytes=1000") as limited:
        assert limited.append("small", "x" * 800).offset == 0
        with pytest.raises(
            errors.RecordTooLarge, match=r"over message\.max\.bytes=1000; .* raise the client's"
        ) as caught:
            limited.append("small", "x" * 1000)
        assert caught.value.limit_bytes == 1000
    assert log.offsets("small") == {0: (0, 1)}


# --- sentences --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_who_logs_in_where_nobody_does_is_told_so(broker: KafkaBroker, mechanism: str) -> None:
    query = f"security.protocol=SASL_PLAINTEXT&sasl.mechanism={mechanism}&sasl.username=a&sasl.password=b"
    with pytest.raises(
        errors.AuthenticationFailed, match=r"nobody logs in at this listener; say security\.protocol=PLAIN"
    ):
        foldlog.connect(f"kafka://{broker}?{query}")


def test_a_record_that_is_not_acknowledged_in_time_blames_no_address() -> None:
    url = parse_url("kafka://127.0.0.1:9?message.timeout.ms=1")
    error = KafkaError(KafkaError._MSG_TIMED_OUT)
    late = fault_of(error, url, Where("orders", 0), None)
    assert isinstance(late, errors.WaitTimeout)
    assert str(late).startswith("a record for orders-0 was not acknowledged within message.timeout.ms=1; it may yet be")
    assert isinstance(fault_of(error, url, Where("orders", 0), "127.0.0.1:9: refused"), errors.BrokerUnreachable)


def test_a_session_that_the_brokers_do_not_allow_names_what_says_it_and_their_limits(log: foldlog.Log) -> None:
    log.create_topic("watched")
    with (
        pytest.raises(errors.InvalidArgument, match=r"does not take this session\.timeout\.ms.*max_poll_interval_ms"),
        log.consumer(["watched"], "hasty", max_poll_interval_ms=1000) as consumer,
    ):
        consumer.poll(timeout_ms=10_000)
