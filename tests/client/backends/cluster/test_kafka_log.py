"""What only a log on a cluster has: its URL and properties, brokers that do not answer, members of other makes.

Real brokers on real sockets; what a log does wherever it is, is in test_one_api.py.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as StockConsumer
from confluent_kafka import KafkaError, KafkaException

import foldlog
from client.log_places import WAIT_MS, handles_of, polled
from foldlog import errors, limits
from foldlog.client.backends.cluster.backend import ClusterBackend
from foldlog.client.backends.cluster.consumption import LibraryConsumption
from foldlog.client.backends.cluster.faults import unreachable
from foldlog.client.backends.cluster.handles import Handles, LibraryTopics
from foldlog.client.backends.cluster.producer import LibrarySender
from foldlog.client.backends.cluster.url import parse_url
from foldlog.client.backends.cluster.wire import Wire, speaks_wire, wire_properties
from foldlog.client.consumer.settings import ConsumerSettings
from foldlog.client.producer import BatchSender
from foldlog.client.wire import questions
from foldlog.client.wire.properties import Address
from foldlog.client.wire.questions import Asker
from foldlog.client.wire.refusals import topic_error
from foldlog.limits import KAFKA_CALL_MS
from foldlog.testing import KafkaBroker
from foldlog.wire.error_codes import ErrorCode


@pytest.fixture
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker.launch() as launched:
        yield launched


@pytest.fixture
def log(broker: KafkaBroker) -> Iterator[foldlog.Log]:
    with foldlog.connect(f"kafka://{broker}?heartbeat.interval.ms=200") as connected:
        yield connected


# --- one Log ----------------------------------------------------------------------------------------------------------


def public_names(one: object) -> set[str]:
    return {name for name in dir(one) if not name.startswith("_")}


def parameters(method: Callable[..., object]) -> list[tuple[str, object, object]]:
    return [(one.name, one.kind, one.default) for one in inspect.signature(method).parameters.values()]


def test_a_log_its_producers_and_its_consumers_are_of_one_type_wherever_the_log_is(log: foldlog.Log) -> None:
    assert foldlog.KafkaLog is foldlog.Log
    with foldlog.open(":memory:") as directory:
        for one in (directory, log):
            assert type(one) is foldlog.Log
            with one.producer() as producer, one.consumer() as consumer:
                assert (type(producer), type(consumer)) == (foldlog.Producer, foldlog.Consumer)


def test_what_a_log_is_made_of_is_not_among_its_public_names() -> None:
    for kind in (foldlog.Log, foldlog.Producer, foldlog.Consumer):
        assert not public_names(kind) & {"broker", "backend", "forked", "reached_through", "reading", "sender"}


def test_a_clusters_topic_is_a_topic(log: foldlog.Log) -> None:
    with foldlog.open(":memory:") as directory:
        here, there = directory.create_topic("orders", 2), log.create_topic("orders", 2)
    assert isinstance(there, foldlog.Topic)
    assert (there.name, there.partition_count) == (here.name, here.partition_count)
    assert here.growths == ()
    assert there.growths is None, "a cluster does not remember them"


def test_what_only_a_directory_has_is_in_the_table_of_the_manual() -> None:
    page = (Path(__file__).parents[4] / "docs" / "clusters.md").read_text()
    table = page.partition("## Differences between a directory and a cluster")[2]
    assert ".growths`" in table


def test_both_ways_to_send_take_the_same() -> None:
    for name in ("enqueue", "checker", "flush", "close"):
        assert parameters(getattr(BatchSender, name)) == parameters(getattr(LibrarySender, name)), name


# --- URLs and properties ----------------------------------------------------------------------------------------------


def test_a_url_names_brokers_and_properties() -> None:
    url = parse_url(
        "kafka://one:9092,[::1]:9093/?sasl.username=a%26b&client.id=x", {"sasl.password": "p%26", "check.crcs": True}
    )
    assert url.addresses == (Address("one", 9092), Address("::1", 9093))
    assert url.properties == {"sasl.username": "a&b", "client.id": "x", "sasl.password": "p%26", "check.crcs": "true"}
    assert str(url) == "kafka://one:9092,[::1]:9093"


@pytest.mark.parametrize(
    "url", ["data/", "", None, "http://h:1", "kafka://", "kafka://host", "kafka://u@h:1", "kafka://h:1/t"]
)
def test_what_is_no_url_of_a_cluster_is_refused(url: str) -> None:
    with pytest.raises(errors.InvalidArgument):
        foldlog.connect(url)


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("no.such.property=1", "^there is no Kafka client property 'no.such.property'; names are those of Java's"),
        (
            "security.protocl=SSL",
            "^there is no Kafka client property 'security.protocl'; did you mean security.protocol",
        ),
        ("fetch.max.wait.ms=1&fetch.wait.max.ms=2", "are two names of one property, and differ"),
        ("security.protocol=telepathy", "security.protocol='telepathy' is not known; it is one of PLAINTEXT, "),
        ("queued.min.messages=few&fetch.max.wait.ms=soon", "fetch.max.wait.ms='soon' is not a whole number"),
        ("client.id", "is not property=value"),
        ("client.id=a&client.id=b", "is twice"),
        ("group.id=a", "group.id cannot be set as a property: set a consumer's group with consumer"),
        ("default.api.timeout.ms=soon", "is not a whole number"),
        ("acks=7", "acks='7' is not known; it is one of all, -1, 0, 1"),
        ("acks=1&enable.idempotence=true", "acks=1 does not go with enable.idempotence=true"),
        ("security.protocol=SSL&ssl.ca.location=/nope/ca.pem", "ssl.ca.location names /nope/ca.pem, and there is no"),
    ],
)
def test_a_property_that_cannot_be_is_told_in_one_sentence(query: str, sentence: str) -> None:
    with pytest.raises(errors.InvalidConfig, match=sentence) as caught:
        foldlog.connect(f"kafka://127.0.0.1:1?{query}")
    assert "\n" not in str(caught.value)


def test_a_port_that_cannot_be_is_told() -> None:
    with pytest.raises(errors.InvalidArgument, match=r"'127\.0\.0\.1:99999', whose port is out of range"):
        foldlog.connect("kafka://127.0.0.1:99999")


def test_fewer_acknowledgements_are_taken_and_an_offset_that_nobody_told_is_none(broker: KafkaBroker) -> None:
    """As Java's client does: idempotence goes with acks=all alone, and acks=0 knows of no offset."""
    offsets = {}
    for acks in ("all", "-1", "1", "0"):
        with foldlog.connect(f"kafka://{broker}?acks={acks}") as log:
            log.create_topic(f"orders{acks}")
            offsets[acks] = log.append(f"orders{acks}", "paid").offset
    with foldlog.connect(f"kafka://{broker}?request.required.acks=0") as log:
        offsets["0, by its other name"] = log.append("orders0", "paid").offset
    assert offsets == {"all": 0, "-1": 0, "1": 0, "0": -1, "0, by its other name": -1}


def test_replicas_may_be_asked_for(broker: KafkaBroker, log: foldlog.Log) -> None:
    """The broker is one, so more than one replica is its to refuse; a directory refuses by itself."""
    assert log.create_topic("orders", replication_factor=1).partition_count == 1
    with pytest.raises(errors.InvalidArgument, match="3 replicas need as many brokers, and there is one"):
        log.create_topic("payments", replication_factor=3)
    with foldlog.open(":memory:") as here:
        here.create_topic("orders", replication_factor=1)
        with pytest.raises(errors.InvalidArgument, match="a replication factor of 3 needs a cluster"):
            here.create_topic("payments", replication_factor=3)
        for wrong in (0, -1, True, "3", 1 << 15):
            for one in (here, log):
                with pytest.raises(errors.InvalidArgument, match="is not a whole number from 1 to 32767"):
                    one.create_topic("payments", replication_factor=wrong)  # type: ignore[arg-type]
        assert here.topics() == log.topics() == ["orders"]


def test_a_time_that_the_topic_does_not_allow_names_the_settings() -> None:
    told = topic_error(ErrorCode.INVALID_TIMESTAMP, None, "orders", 0)
    assert isinstance(told, errors.InvalidTimestamp)
    assert "orders-0" in str(told)
    assert "message.timestamp.after.max.ms" in str(told)
    assert "message.timestamp.before.max.ms" in str(told)


def test_passwords_are_not_shown(broker: KafkaBroker) -> None:
    with foldlog.connect(f"kafka://{broker}?sasl.password=hunter2", properties={"ssl.key.password": "hunter3"}) as log:
        assert repr(log) == f"<Log 'kafka://{broker}'>"
        assert (log.path, log.bootstrap, log.is_remote) == (f"kafka://{broker}", str(broker), True)
        assert log.directory_id == broker.log.directory_id
        assert log.warnings() == []


@pytest.mark.parametrize(
    "url",
    [
        "kafka://ann:hunter2@127.0.0.1:1",
        "kafka:/127.0.0.1:1?sasl.password=hunter2",
        "kafka://127.0.0.1:1?sasl.password=a&hunter2",
        "kafka://127.0.0.1?sasl.password=hunter2",
        "kafka://127.0.0.1:1?sasl.mechanism=PLAIN&security.protocol=telepathy&sasl.password=hunter2",
        "kafka://127.0.0.1:1?sasl.jaas.config=PlainLoginModule%20required%20username=ann%20password=hunter2",
    ],
)
def test_passwords_are_not_shown_where_a_url_is_wrong(url: str) -> None:
    with pytest.raises((errors.InvalidArgument, errors.InvalidConfig)) as caught:
        foldlog.connect(url)
    assert "hunter2" not in str(caught.value)


def test_who_one_is_may_be_said_as_java_does() -> None:
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="hunter2";'
    url = parse_url("kafka://one:9092?sasl.mechanism=PLAIN", {"sasl.jaas.config": login})
    assert url.properties == {"sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": "hunter2"}
    assert repr(url) == "KafkaUrl('kafka://one:9092')"


def test_properties_reach_the_client(broker: KafkaBroker) -> None:
    with foldlog.connect(f"kafka://{broker}", properties={"client.id": "ingest-7"}) as log:
        log.create_topic("orders")
        with log.consumer(["orders"], "fraud"):
            (member,) = log.describe_group("fraud").members
        assert member.client_id == "ingest-7"
        assert member.name.startswith("ingest-7/")


# --- imports ----------------------------------------------------------------------------------------------------------


def test_importing_foldlog_imports_no_kafka_client() -> None:
    program = "import sys, foldlog, foldlog.client.log; print([m for m in sys.modules if 'confluent' in m])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(errors.MissingDependency, match=r"pip install 'foldlog\[kafka\]'"):
        foldlog.connect("kafka://127.0.0.1:1")


# --- brokers that do not answer ---------------------------------------------------------------------------------------


def test_a_cluster_that_is_not_there_is_told_in_one_sentence() -> None:
    with pytest.raises(errors.BrokerUnreachable, match=r"127\.0\.0\.1:1.*Connection refused") as caught:
        foldlog.connect("kafka://127.0.0.1:1?default.api.timeout.ms=500")
    assert caught.value.addresses == ["127.0.0.1:1"]
    assert "\n" not in str(caught.value)


def test_one_address_of_several_is_enough(broker: KafkaBroker) -> None:
    with foldlog.connect(f"kafka://127.0.0.1:1,{broker}") as log:
        assert log.topics() == []


@pytest.mark.usefixtures("few_tries")
def test_a_cluster_that_went_away_is_told_by_every_call_and_comes_back(broker: KafkaBroker, log: foldlog.Log) -> None:
    broker.create_topic("orders")
    broker.log.append("orders", "1")
    with foldlog.connect(f"kafka://{broker}") as hasty:
        broker.stop()
        handles: Any = handles_of(hasty)
        handles.call_s = 0.5
        calls: list[Callable[[], object]] = [
            hasty.topics,
            hasty.groups,
            lambda: hasty.offsets("orders"),
            lambda: hasty.describe_group("fraud"),
            lambda: hasty.committed("fraud"),
            lambda: hasty.append("orders", "2"),
            lambda: hasty.read("orders"),
        ]
        for call in calls:
            with pytest.raises(errors.BrokerUnreachable, match="no answer from the Kafka cluster"):
                call()
    broker.start()
    assert [record.value for record in log.read("orders")] == [b"1"]


def test_producers_and_consumers_ride_out_a_restart(broker: KafkaBroker, log: foldlog.Log) -> None:
    log.create_topic("orders")
    with (
        log.producer() as producer,
        log.consumer(["orders"], "fraud", auto_offset_reset="earliest") as member,
        log.consumer(["orders"], auto_offset_reset="earliest") as alone,
    ):
        producer.send("orders", "before").result(WAIT_MS / 1000)
        broker.stop()
        sent = producer.send("orders", "meanwhile")
        assert not sent.done()
        broker.start()
        assert sent.result(WAIT_MS / 1000).offset == 1
        for consumer in (member, alone):
            assert [record.value for record in polled(consumer, 2)] == [b"before", b"meanwhile"]


def test_a_consumer_without_a_group_reads_partitions_that_its_topic_gains(broker: KafkaBroker) -> None:
    url = f"kafka://{broker}?topic.metadata.refresh.interval.ms=100"
    with foldlog.connect(url) as log, log.consumer([log.create_topic("orders").name]) as consumer:
        log.grow_topic("orders", 2)
        log.append("orders", "first of the new one", partition=1)
        assert [record.value for record in polled(consumer, 1)] == [b"first of the new one"]
        assert consumer.assignment() == {("orders", 0), ("orders", 1)}


def test_upkeep_is_the_clusters_own(log: foldlog.Log) -> None:
    for call in (log.compact, log.enforce_retention):
        with pytest.raises(errors.ReadOnly, match="by the cluster itself"):
            call()
    with pytest.raises(errors.ReadOnly, match="a cluster cannot recompress"):
        log.recompress("orders", "zstd")


def test_a_time_of_zero_cannot_be_sent(log: foldlog.Log) -> None:
    log.create_topic("orders")
    with pytest.raises(errors.InvalidArgument, match="takes it for now"):
        log.append("orders", "x", timestamp_ms=0)


# --- members of other makes -------------------------------------------------------------------------------------------


def stock_consumer(broker: str, group: str) -> StockConsumer:
    """A consumer as anybody writes one, which commits what it was given."""
    return StockConsumer(
        {
            "bootstrap.servers": broker,
            "group.id": group,
            "client.id": "stock",
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 200,
            "enable.auto.commit": False,
        }
    )


def stock_offsets(consumer: StockConsumer, count: int) -> list[int]:
    offsets: list[int] = []
    while len(offsets) < count:
        message = consumer.poll(WAIT_MS / 1000)
        assert message is not None
        assert message.error() is None
        offsets.append(message.offset() or 0)
    return offsets


@pytest.mark.parametrize("is_embedded", [True, False])
def test_stock_members_are_evicted_and_come_back_at_the_new_offsets(
    broker: KafkaBroker, log: foldlog.Log, is_embedded: bool
) -> None:
    moved = broker.log if is_embedded else log
    log.create_topic("orders")
    for number in range(5):
        log.append("orders", str(number))
    consumer = stock_consumer(broker, "fraud")
    try:
        consumer.subscribe(["orders"])
        assert stock_offsets(consumer, 5) == [0, 1, 2, 3, 4]
        consumer.commit(asynchronous=False)
        with pytest.raises(errors.GroupNotEmpty, match="has 1 member: stock/"):
            moved.reset_group("fraud", {("orders", 0): 2})
        moved.reset_group("fraud", {("orders", 0): 2}, evict=True)
        assert stock_offsets(consumer, 3) == [2, 3, 4]
    finally:
        consumer.close()


def test_members_that_are_quicker_are_asked_again_and_in_the_end_named(
    broker: KafkaBroker, log: foldlog.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The eviction is made to leave the members in place, as if each had come back before the commit."""
    log.create_topic("orders")
    with log.consumer(["orders"], "fraud"):
        evictions = 0
        really = questions.evict_members

        def as_if_they_came_back(asker: Asker, group: str) -> None:
            nonlocal evictions
            evictions += 1
            if evictions == quick_times:
                really(asker, group)

        monkeypatch.setattr(questions, "evict_members", as_if_they_came_back)
        monkeypatch.setattr(limits, "EVICTION_PAUSE_MS", 0)
        quick_times = 3
        log.reset_group("fraud", {("orders", 0): "start"}, evict=True)
        assert evictions == 3
    with log.consumer(["orders"], "fraud") as consumer:
        evictions, quick_times = 0, -1
        (member,) = log.describe_group("fraud").members
        with pytest.raises(errors.GroupNotEmpty) as caught:
            log.reset_group("fraud", {("orders", 0): "start"}, evict=True)
        assert caught.value.members == [member.name]
        assert evictions == limits.EVICTION_TRIES_MAX
        assert consumer.assignment() == {("orders", 0)}


def test_a_member_of_a_cluster_and_one_beside_the_writer_share_a_group(tmp_path: os.PathLike[str]) -> None:
    url = "kafka://{}?heartbeat.interval.ms=200"
    with (
        KafkaBroker.launch(path=tmp_path) as broker,
        foldlog.open(tmp_path) as near,
        foldlog.connect(url.format(broker)) as far,
    ):
        far.create_topic("orders", partitions=2)
        with near.consumer(["orders"], "fraud") as first, far.consumer(["orders"], "fraud") as second:
            while len(first.assignment()) != 1 or len(second.assignment()) != 1:
                assert first.poll(timeout_ms=20) == second.poll(timeout_ms=20) == []
            assert first.assignment() | second.assignment() == {("orders", 0), ("orders", 1)}
            ((_, number),) = second.assignment()
            near.append("orders", "x", partition=number)
            assert [record.value for record in polled(second, 1)] == [b"x"]


@pytest.mark.parametrize("assignor", ["sticky", "range"])
def test_what_was_dealt_with_is_committed_before_a_rebalance_takes_it_away(
    log: foldlog.Log, caplog: pytest.LogCaptureFixture, assignor: str
) -> None:
    log.create_topic("shared", partitions=2)
    for partition in range(2):
        for number in range(5):
            log.append("shared", str(number), partition=partition)
    member = partial(
        log.consumer,
        ["shared"],
        "fraud",
        assignor=assignor,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=10**6,
    )
    with member() as first:
        assert len(polled(first, 10)) == 10
        first.poll(timeout_ms=0)  # so all ten count as dealt with, and nothing but a rebalance commits them
        with member() as second:
            while not len(first.assignment()) == len(second.assignment()) == 1:
                assert [*first.poll(timeout_ms=20), *second.poll(timeout_ms=20)] == []
            assert second.poll(timeout_ms=200) == []
        assert {place.offset for place in log.committed("fraud").values()} == {5}
    assert [record.getMessage() for record in caplog.records if "commit" in record.getMessage()] == []


def test_a_commit_that_cannot_be_sent_in_a_rebalance_is_told_and_ends_no_poll(
    log: foldlog.Log, caplog: pytest.LogCaptureFixture
) -> None:
    class Refusing:
        def commit(self, **_: object) -> None:
            raise KafkaException(KafkaError(KafkaError._STATE))

    log.create_topic("shared", partitions=1)
    with log.consumer(["shared"], "fraud", auto_offset_reset="earliest") as consumer:
        state: Any = consumer
        state = state._reading
        real, state._consumer = state._consumer, Refusing()
        state.revoked(real, [foldlog.TopicPartition("shared", 0)])
        state._consumer = real
    assert "auto-commit of group 'fraud' failed in a rebalance" in caplog.text


PLACES = {foldlog.TopicPartition("orders", 0): foldlog.OffsetAndMetadata(1)}


def test_with_a_login_that_only_librdkafka_has_members_are_not_evicted_and_it_is_said_why() -> None:
    url = parse_url("kafka://127.0.0.1:1?security.protocol=sasl_ssl&sasl.mechanism=GSSAPI")
    with pytest.raises(errors.InvalidConfig, match="GSSAPI"):
        ClusterBackend(Handles(url), "").move_group("fraud", PLACES, evict=True)


def test_with_a_login_that_only_librdkafka_has_a_consumer_is_told_to_have_a_group(broker: KafkaBroker) -> None:
    """This librdkafka may not have that login either, so only our own connections are told of it."""
    handles = Handles(parse_url(f"kafka://{broker}"))
    handles.by_library = LibraryTopics(handles)
    handles._wire = Wire(parse_url("kafka://127.0.0.1:1?security.protocol=sasl_ssl&sasl.mechanism=GSSAPI"))
    with pytest.raises(errors.InvalidConfig) as caught:
        ClusterBackend(handles, "").reading(ConsumerSettings())
    assert str(caught.value) == (
        "a consumer without a group reads over foldlog's own connections, which cannot be made so:"
        " sasl.mechanism='GSSAPI' is not spoken here; PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER are; give it"
        " a group, group='name', and librdkafka reads for it"
    )
    handles.close()


UNSECURED = "enable.sasl.oauthbearer.unsecure.jwt=true&sasl.oauthbearer.config=principal%3Dann"


@pytest.mark.parametrize(
    ("properties", "is_spoken"),
    [
        ("security.protocol=SSL", True),
        ("security.protocol=sasl_plaintext&sasl.mechanism=PLAIN&sasl.username=u&sasl.password=p", True),
        (
            f"security.protocol=sasl_ssl&sasl.mechanism=OAUTHBEARER&{UNSECURED}",
            True,
        ),
        ("security.protocol=sasl_ssl&sasl.mechanism=GSSAPI", False),
        ("security.protocol=SSL&ssl.key.pem=x", False),
        ("security.protocol=SSL&enable.ssl.certificate.verification=false", True),
        ("security.protocol=SSL&ssl.ca.location=probe", True),
    ],
)
def test_our_own_connections_are_made_where_they_can_be_made_as_librdkafkas_are(
    properties: str, is_spoken: bool
) -> None:
    assert speaks_wire(parse_url(f"kafka://127.0.0.1:1?{properties}")) is is_spoken


def test_librdkafkas_names_of_times_are_heard_by_our_own_connections() -> None:
    properties = wire_properties(parse_url("kafka://127.0.0.1:1?message.timeout.ms=5000&fetch.wait.max.ms=7"))
    assert (properties.delivery_timeout_ms, properties.fetch_max_wait_ms) == (5000, 7)
    assert properties.default_api_timeout_ms == KAFKA_CALL_MS


def test_where_to_begin_is_asked_again_if_the_cluster_could_not_say(
    log: foldlog.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.create_topic("orders")
    log.append("orders", "1")
    really = LibraryConsumption._committed
    faults: list[errors.FoldlogError] = [unreachable(parse_url("kafka://127.0.0.1:1"), "it is away for a moment")]

    def failing_once(reading: LibraryConsumption, partitions: list[foldlog.TopicPartition]) -> object:
        if faults:
            raise faults.pop()
        return really(reading, partitions)

    monkeypatch.setattr(LibraryConsumption, "_committed", failing_once)
    with log.consumer(group="fraud", auto_offset_reset="earliest") as consumer:
        with pytest.raises(errors.BrokerUnreachable, match="away for a moment"):
            consumer.subscribe(["orders"])
        assert [record.value for record in polled(consumer, 1)] == [b"1"]


# --- forks ------------------------------------------------------------------------------------------------------------


def test_a_forked_child_is_told_to_connect_by_itself(log: foldlog.Log) -> None:
    log.create_topic("orders")
    producer = log.producer()
    handles_of(log).forked()
    sender = producer._sender
    assert isinstance(sender, LibrarySender)
    sender._forked()
    calls: list[Callable[[], object]] = [
        log.topics,
        lambda: log.append("orders", "x"),
        lambda: log.consumer(["orders"]),
        lambda: producer.send("orders", "x"),
    ]
    for call in calls:
        with pytest.raises(errors.WrongProcess):
            call()
