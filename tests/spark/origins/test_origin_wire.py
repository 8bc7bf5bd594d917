"""A log read and written over the network is the log in its directory: every answer is compared with that of the path.

One directory, served by a real broker and read from its files at the same time. What only a cluster has, leader epochs
that ended and settings that nobody may see, comes from a simulated one. No Spark.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from client.wire.simulated_cluster import SimulatedCluster, SimulatedPartition
from foldlog.client.fold_bulletin import FOLDS_CONFIG
from foldlog.client.outgoing import partition_for_key
from foldlog.client.wire.cluster import Cluster
from foldlog.errors import (
    BrokerUnreachable,
    GroupNotEmpty,
    InvalidArgument,
    RecordsMissing,
    UnknownPartition,
    UnknownTopic,
)
from foldlog.records.arrow import COLUMNS, schema
from foldlog.records.loops import pack
from foldlog.spark.origins.by_wire import WireOrigin
from foldlog.spark.origins.ledger import LedgerEntry, WireLedger, open_ledger
from foldlog.spark.origins.origin import Bounds, OffsetRange, Origin, OriginSpec, TopicGrowth, open_origin
from foldlog.testing import KafkaBroker
from foldlog.testing.plugin import KafkaBrokerFactory
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

QUICK = {"retry.backoff.ms": "1", "fetch.max.wait.ms": "1"}


@pytest.fixture
def broker(kafka_broker_factory: KafkaBrokerFactory, tmp_path: Path) -> KafkaBroker:
    return kafka_broker_factory(path=tmp_path / "data")


@pytest.fixture
def wire(broker: KafkaBroker) -> Iterator[WireOrigin]:
    origin = WireOrigin.open(OriginSpec(bootstrap=broker, properties=QUICK))
    yield origin
    origin.close()


@pytest.fixture
def path(broker: KafkaBroker) -> Iterator[Origin]:
    origin = open_origin(OriginSpec(path=broker.log.path))
    yield origin
    origin.close()


@pytest.fixture
def ledger(broker: KafkaBroker) -> Iterator[WireLedger]:
    opened = open_ledger(OriginSpec(bootstrap=broker, properties=QUICK))
    assert isinstance(opened, WireLedger)
    yield opened
    opened.close()


def fill(broker: KafkaBroker, topic: str, count: int, **config: object) -> None:
    broker.create_topic(topic, 1, config)
    for number in range(count):
        broker.log.append(topic, f"v{number}", key=f"k{number % 3}", timestamp_ms=1000 * number)


def read(origin: Origin, wanted: OffsetRange, *columns: str, topic_id: str | None = None) -> pa.Table:
    return pa.Table.from_batches(list(origin.read(wanted, columns, topic_id=topic_id)), schema(columns))


def refusal(origin: Origin, wanted: OffsetRange, topic_id: str | None = None) -> tuple[str, tuple[int, int], str]:
    with pytest.raises(RecordsMissing) as caught:
        read(origin, wanted, "offset", topic_id=topic_id)
    return caught.value.cause, caught.value.wanted, str(caught.value).replace(origin.spec.location, "<place>")


# --- reading ----------------------------------------------------------------------------------------------------------


def test_wire_and_path_read_the_same_of_all_kinds_of_records(
    broker: KafkaBroker, wire: WireOrigin, path: Origin
) -> None:
    broker.create_topic("orders", 1, {"foldlog.segment.records": 9})
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd") * 3):
        with broker.log.producer(compression=codec) as producer:
            for key in (None, b"", b"k"):
                value = None if number % 4 == 0 else b"v" * number
                producer.send("orders", value, key=key, headers=[("h", b"1")] * (number % 3), timestamp_ms=number)
    for start, stop in ((0, 45), (7, 31), (13, 14), (20, 20)):
        wanted = OffsetRange("orders", 0, start, stop)
        assert read(wire, wanted, *COLUMNS).equals(read(path, wanted, *COLUMNS))
        assert read(wire, wanted, *COLUMNS).num_rows == stop - start
        assert read(wire, wanted, "offset", "value").column_names == ["offset", "value"]


def test_wire_and_path_agree_on_a_compacted_topic(broker: KafkaBroker, wire: WireOrigin, path: Origin) -> None:
    fill(broker, "prices", 10, **{"cleanup.policy": "compact", "foldlog.segment.records": 1})
    broker.log.compact("prices")
    for start, stop in ((0, 10), (0, 5), (3, 8)):
        wanted = OffsetRange("prices", 0, start, stop)
        assert read(wire, wanted, "offset", "key").equals(read(path, wanted, "offset", "key"))
    assert wire.missing("prices", None, 0, 0) is path.missing("prices", None, 0, 0) is None


def test_a_topic_is_told_as_the_directory_tells_it_growths_included(
    broker: KafkaBroker, wire: WireOrigin, path: Origin
) -> None:
    fill(broker, "prices", 2, **{"cleanup.policy": "compact"})
    fill(broker, "orders", 3)
    broker.log.grow_topic("prices", 3)
    for name in ("prices", "orders"):
        assert wire.topic(name) == path.topic(name)
        assert wire.bounds(name) == path.bounds(name)
    assert wire.topic("prices").growths == (TopicGrowth(3, (2,)),)
    assert wire.topics() == path.topics() == ["orders", "prices"]
    assert wire.offsets_at("orders", {0: 1500}) == path.offsets_at("orders", {0: 1500}) == {0: 2}
    assert wire.offsets_at("prices", {2: 0}) == path.offsets_at("prices", {2: 0}) == {2: None}


def test_topics_that_are_kept_for_the_log_itself_are_not_listed(
    broker: KafkaBroker, wire: WireOrigin, ledger: WireLedger
) -> None:
    fill(broker, "orders", 1)
    ledger.ensure_topic("__folds", 1, FOLDS_CONFIG)
    ledger.commit("folds", "orders", {0: 1})
    fill(broker, "__mine", 1)
    assert wire.topics() == broker.log.topics() == ["__mine", "orders"]
    assert wire.topic("__folds").is_compacted


def test_what_is_not_there_is_told_with_what_is(broker: KafkaBroker, wire: WireOrigin) -> None:
    fill(broker, "orders", 1)
    for ask in (wire.topic, wire.bounds, lambda name: wire.offsets_at(name, {0: 0})):
        with pytest.raises(UnknownTopic, match="'prices'; there are orders"):
            ask("prices")
    with pytest.raises(UnknownPartition):
        wire.offsets_at("orders", {1: 0})
    with pytest.raises(UnknownPartition):
        wire.epoch_before("orders", 1, 1)


def test_records_without_a_time_are_not_after_any_time_but_not_before_the_first(
    broker: KafkaBroker, wire: WireOrigin, path: Origin
) -> None:
    broker.create_topic("orders", 2)
    with Cluster.open(broker) as cluster, cluster.producer() as producer:
        for time_ms in (-1, -1, 5):
            producer.send("orders", 0, pack([(time_ms, None, b"v", ())]))
    for time_ms, offset in ((-100, 0), (-1, 0), (0, 2), (5, 2), (6, None)):
        wanted = {0: time_ms, 1: time_ms}
        assert wire.offsets_at("orders", wanted) == path.offsets_at("orders", wanted) == {0: offset, 1: None}


# --- what is missing --------------------------------------------------------------------------------------------------


def test_what_is_missing_is_told_as_the_directory_tells_it(broker: KafkaBroker, wire: WireOrigin, path: Origin) -> None:
    fill(broker, "orders", 10, **{"retention.ms": -1})
    broker.log.delete_records("orders", {0: 4})
    fill(broker, "old", 10, **{"retention.ms": 1000, "foldlog.segment.records": 2})
    broker.log.enforce_retention("old")
    fill(broker, "anew", 5)
    older = wire.topic("anew").topic_id
    broker.log.delete_topic("anew")
    fill(broker, "anew", 5)
    for name, topic_id, partition, offset, epoch in (
        ("orders", None, 0, 3, -1), ("orders", None, 0, 4, -1), ("orders", None, 0, 10, -1),
        ("orders", None, 0, 11, -1), ("orders", None, 1, 0, -1), ("orders", None, 0, 10, 0),
        ("orders", None, 0, 11, 0), ("old", None, 0, 0, -1), ("gone", None, 0, 0, -1),
        ("anew", older, 0, 3, -1), ("anew", None, 0, 3, -1), ("anew", "not an id", 0, 3, -1),
    ):  # fmt: skip
        told = path.missing(name, topic_id, partition, offset, epoch)
        assert wire.missing(name, topic_id, partition, offset, epoch) == told
    for wanted, topic_id in (
        (OffsetRange("orders", 0, 3, 10), None),
        (OffsetRange("orders", 0, 4, 11), None),
        (OffsetRange("old", 0, 0, 10), None),
        (OffsetRange("gone", 0, 0, 1), None),
        (OffsetRange("anew", 0, 0, 5), older),
        (OffsetRange("orders", 3, 0, 5), None),
    ):
        assert refusal(wire, wanted, topic_id) == refusal(path, wanted, topic_id)


def test_without_any_retention_what_is_gone_was_deleted(broker: KafkaBroker, wire: WireOrigin) -> None:
    for name, config, cause in (
        ("kept", {"retention.ms": -1}, "deleted"),
        ("compacted", {"cleanup.policy": "compact"}, "deleted"),
        ("timed", {"retention.ms": 1 << 40}, "expired"),
        ("sized", {"retention.ms": -1, "retention.bytes": 1 << 40}, "expired"),
    ):
        fill(broker, name, 3, **config)
        broker.log.delete_records(name, {0: 2})
        assert wire.missing(name, None, 0, 1) == cause


def test_a_topic_made_anew_in_the_middle_of_a_read_is_noticed(broker: KafkaBroker, wire: WireOrigin) -> None:
    values = pa.table({"value": pa.array([b"x" * 400_000] * 20)})  # more than one fetch
    for topic_id in (None, "its own"):
        broker.create_topic("orders")
        broker.log.append_arrow("orders", values)
        known = None if topic_id is None else wire.topic("orders").topic_id
        batches = wire.read(OffsetRange("orders", 0, 0, 20), ["offset"], topic_id=known)
        rows = next(batches).num_rows
        broker.log.delete_topic("orders")
        broker.create_topic("orders")
        broker.log.append_arrow("orders", values)
        with pytest.raises(RecordsMissing) as caught:
            rows += sum(batch.num_rows for batch in batches)
        assert caught.value.cause == "recreated"
        assert 0 < caught.value.wanted[0] < caught.value.wanted[1] == 20
        broker.log.delete_topic("orders")


# --- clusters ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def simulated() -> Iterator[SimulatedCluster]:
    with SimulatedCluster(nodes=2) as started:
        yield started


@pytest.fixture
def elected(simulated: SimulatedCluster) -> SimulatedPartition:
    """Epoch 0 has offsets 0 to 2, epochs 1 and 2 none, epoch 3 has 3 to 6, epoch 4 has 7."""
    (partition,) = simulated.create("orders")
    for epoch, count in enumerate((3, 0, 0, 4, 1)):
        if epoch:
            partition.elect(1 + epoch % 2)
        for _ in range(count):
            partition.append(pack([(1, None, b"v", ())]))
    return partition


def test_the_epoch_of_the_record_before_an_offset_is_found(
    simulated: SimulatedCluster, elected: SimulatedPartition
) -> None:
    origin = WireOrigin.open(OriginSpec(bootstrap=simulated.address(), properties=QUICK))
    assert origin.bounds("orders") == {0: Bounds(0, 8, 4)}
    found = [origin.epoch_before("orders", 0, offset) for offset in range(9)]
    assert found == [-1, 0, 0, 0, 3, 3, 3, 3, 4]
    elected.start = 4
    assert origin.epoch_before("orders", 0, 4) == -1
    origin.close()


def test_a_log_that_was_cut_back_under_a_reader_is_truncated(
    simulated: SimulatedCluster, elected: SimulatedPartition
) -> None:
    """A reader that stood at 5 under epoch 0 has read what is no longer there: epoch 0 ended at 3."""
    origin = WireOrigin.open(OriginSpec(bootstrap=simulated.address(), properties=QUICK))
    assert origin.missing("orders", None, 0, 5, leader_epoch=0) == "truncated"
    assert origin.missing("orders", None, 0, 3, leader_epoch=0) is None
    assert origin.missing("orders", None, 0, 5, leader_epoch=3) is None
    assert origin.missing("orders", None, 0, 9, leader_epoch=4) == "truncated"
    assert origin.missing("orders", None, 0, 9) == "unwritten"
    assert origin.missing("orders", None, 0, 5, leader_epoch=7) == "truncated"  # there was no such epoch
    origin.close()


def test_a_topic_whose_settings_nobody_may_see_is_read_all_the_same(
    simulated: SimulatedCluster, elected: SimulatedPartition, caplog: pytest.LogCaptureFixture
) -> None:
    hidden = DescribeConfigsResult(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, resource_name="orders")
    simulated.interfere = lambda node, request: (
        DescribeConfigsResponse(results=[hidden]) if isinstance(request, DescribeConfigsRequest) else None
    )
    origin = WireOrigin.open(OriginSpec(bootstrap=simulated.address(), properties=QUICK))
    with caplog.at_level(logging.WARNING, logger="foldlog"):
        assert not origin.topic("orders").is_compacted
        assert not origin.topic("orders").is_compacted
    assert len(caplog.messages) == 1
    assert "taken for not compacted" in caplog.messages[0]
    assert read(origin, OffsetRange("orders", 0, 0, 8), "offset").num_rows == 8
    origin.close()


def test_who_is_sent_to_a_cluster_that_has_answered_waits_for_it(
    simulated: SimulatedCluster, elected: SimulatedPartition
) -> None:
    """A broker that restarts takes longer than a person wants to wait for a mistyped address."""
    spec = OriginSpec(bootstrap=simulated.address(), properties={**QUICK, "ssl.key.password": "secret"})
    origin = WireOrigin.open(spec)
    assert not spec.has_answered
    assert origin.spec.has_answered
    assert "secret" not in repr(origin.spec)
    origin.close()


def test_what_became_of_one_partition_is_asked_of_its_leader_alone(simulated: SimulatedCluster) -> None:
    for number, partition in enumerate(simulated.create("spread", 4)):
        partition.leader = 1 + number % 2
    origin = WireOrigin.open(OriginSpec(bootstrap=simulated.address(), properties=QUICK))
    assert origin.missing("spread", None, 2, 0) is None
    assert simulated.count("ListOffsetsRequest", node=1) == 2
    assert simulated.count("ListOffsetsRequest", node=2) == 0
    origin.close()


def test_a_cluster_that_cannot_be_reached_is_told(tmp_path: Path) -> None:
    with SimulatedCluster() as gone:
        address = gone.address()
    spec = OriginSpec(bootstrap=address, properties={**QUICK, "default.api.timeout.ms": "50"})
    for open_it in (open_origin, open_ledger):
        with pytest.raises(BrokerUnreachable, match=address):
            open_it(spec)
    for kind in (WireOrigin, WireLedger):
        with pytest.raises(InvalidArgument):
            kind.open(OriginSpec(path=str(tmp_path)))


# --- the ledger -------------------------------------------------------------------------------------------------------


def test_entries_are_appended_in_order_where_java_clients_would_put_them(
    broker: KafkaBroker, ledger: WireLedger
) -> None:
    ledger.ensure_topic("dead", 3, {"cleanup.policy": "compact"})
    ledger.ensure_topic("dead", 5)
    entries = [
        LedgerEntry(b"k%d" % (number % 7), None if number % 5 == 0 else b"%d" % number, (("reason", b"r%d" % number),))
        for number in range(50)
    ]
    ledger.append("dead", entries[:30])
    ledger.append("dead", iter(entries[30:]))
    ledger.append("dead", [])
    assert broker.log.topic("dead").partition_count == 3
    for partition in range(3):
        found = [(record.key, record.value, record.headers) for record in broker.log.read("dead", partition)]
        assert found == [tuple(entry) for entry in entries if partition_for_key(entry.key, 3) == partition]


def test_many_large_entries_go_in_several_batches(broker: KafkaBroker, ledger: WireLedger) -> None:
    broker.create_topic("dead")
    ledger.append("dead", (LedgerEntry(b"k", b"%03d" % number * 30_000) for number in range(40)))
    ledger.append("dead", [LedgerEntry(b"k", b"x" * 900_000)])
    values = [record.value[:3] for record in broker.log.read("dead", 0)]
    assert values == [*(b"%03d" % number for number in range(40)), b"xxx"]


def test_a_ledger_goes_on_after_an_error(broker: KafkaBroker, ledger: WireLedger) -> None:
    broker.create_topic("dead", 1, {"max.message.bytes": 1000})
    with pytest.raises(ValueError, match=r"max\.message\.bytes"):
        ledger.append("dead", [LedgerEntry(b"k", b"x" * 5000)])
    with pytest.raises(UnknownTopic):
        ledger.append("nowhere", [LedgerEntry(b"k", b"v")])
    ledger.append("dead", [LedgerEntry(b"k", b"v")])
    assert [record.value for record in broker.log.read("dead", 0)] == [b"v"]


def test_a_groups_offsets_are_committed_and_forgotten(broker: KafkaBroker, ledger: WireLedger) -> None:
    broker.create_topic("orders", 2)
    ledger.commit("fold.mirror", "orders", {0: 4, 1: 6})
    committed = broker.log.committed("fold.mirror")
    assert {key[1]: place.offset for key, place in committed.items()} == {0: 4, 1: 6}
    ledger.delete_group("fold.mirror")
    ledger.delete_group("fold.mirror")
    assert broker.log.committed("fold.mirror") == {}


def test_a_group_with_members_is_not_deleted(broker: KafkaBroker, ledger: WireLedger) -> None:
    broker.create_topic("orders")
    with broker.log.consumer(["orders"], group="fold.mirror") as consumer:
        consumer.poll(timeout_ms=0)
        with pytest.raises(GroupNotEmpty):
            ledger.delete_group("fold.mirror")


# --- transactions ---------------------------------------------------------------------------------------------------


def test_committed_records_are_the_same_by_wire_and_by_path(broker: KafkaBroker) -> None:
    log = broker.log
    log.create_topic("orders")
    for value in ("committed", "aborted"):
        with log.transaction("etl") as tx:
            tx.send("orders", value).result(60)
            if value == "aborted":
                tx.abort()
    tx = log.transaction("etl")
    tx.send("orders", "open").result(60)
    level = {"isolation.level": "read_committed"}
    by_wire = open_origin(OriginSpec(bootstrap=broker, properties={**QUICK, **level}))
    by_path = open_origin(OriginSpec(path=log.path, properties=level))
    for origin in (by_wire, by_path):
        assert origin.bounds("orders") == {0: Bounds(0, 4, 0)}
        batches = list(origin.read(OffsetRange("orders", 0, 0, 4), ["value"]))
        assert pa.Table.from_batches(batches, schema(["value"])).column("value").to_pylist() == [b"committed"]
        assert origin.missing("orders", None, 0, 5, 0) is None
        assert origin.missing("orders", None, 0, 6, 0) == "truncated"
        origin.close()
    tx.abort()
