"""Produce: what each acks means, who is refused and with which code, duplicates, and batches that stay as they are."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path

import pytest

from foldlog.broker.broker import Broker
from foldlog.files.posix import PosixFiles
from foldlog.limits import QUICK_DECOMPRESSED_BYTES_MAX
from foldlog.log import admission
from foldlog.log.partition import Partition
from foldlog.records.loops import BatchBuilder, decode
from foldlog.server.authorizer import Operation, ResourceType
from foldlog.server.handlers.produce import handle
from foldlog.server.server import Server
from foldlog.server.settings import ServerSettings
from foldlog.testing.faulty_files import NO_FAULT, Fault, FaultyFiles, Kind
from foldlog.testing.faulty_files import Operation as Doing
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from server.conftest import Connect
from server.raw_client import RawClient, batch, fetch, produce, produced
from server.small_node import SmallNode


def partition_of(broker: Broker, number: int = 0, topic: str = "orders") -> Partition:
    partition = broker.partition(topic, number)
    assert isinstance(partition, Partition)
    return partition


def idempotent(producer_id: int, epoch: int, sequence: int, *values: bytes) -> bytes:
    builder = BatchBuilder(1 << 20)
    for value in values:
        builder.append(5, None, value)
    return bytes(builder.build(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_appends_and_says_where(connect: Connect, broker: Broker, version: int) -> None:
    topic_id = bytes.fromhex(broker.topic("orders").topic_id)
    data = [PartitionProduceData(index=1, records=batch(b"one", b"two"))]
    topic = TopicProduceData(name="orders", topic_id=topic_id, partition_data=data)
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
    client = connect()
    for expected in (0, 2):
        answer = client.ask(request, version)
        only = answer.responses[0].partition_responses[0]
        assert (only.index, only.error_code, only.base_offset, only.log_append_time_ms) == (1, 0, expected, -1)
        if version >= 13:
            assert answer.responses[0].topic_id == topic_id
        else:
            assert answer.responses[0].name == "orders"


def test_acks_all_answers_when_it_is_durable(connect: Connect, broker: Broker) -> None:
    assert produced(connect().ask(produce(batch(b"one")), 9)) == (0, 0)
    assert partition_of(broker).durable_offset == 1


def test_acks_one_becomes_visible_by_itself(connect: Connect) -> None:
    client = connect()
    client.ask(produce(batch(b"one"), acks=1), 9)
    assert client.ask(fetch(0, max_wait_ms=20_000), 11).responses[0].partitions[0].records


def test_batches_are_stored_as_they_were_sent_but_for_offset_and_epoch(connect: Connect, broker: Broker) -> None:
    client = connect()
    for codec in range(5):
        sent = batch(*[b"value %d" % n for n in range(50)], compression=codec)
        _, offset = produced(client.ask(produce(sent), 9))
        stored = bytes(partition_of(broker).read(offset).data)
        assert stored[8:12] + stored[16:] == sent[8:12] + sent[16:], codec


def test_a_large_compressed_batch_keeps_its_place_between_small_ones(connect: Connect, broker: Broker) -> None:
    client = connect()
    large = batch(*[b"%d" % n * 50 for n in range(15000)], compression=2)
    assert len(large) < 1 << 20
    assert QUICK_DECOMPRESSED_BYTES_MAX < 15000 * 150
    client.socket.sendall(
        client.frame(produce(batch(b"first")), 9)
        + client.frame(produce(large), 9)
        + client.frame(produce(batch(b"last")), 9)
    )
    offsets = [produced(client.receive(ProduceResponse, 9)[1])[1] for _ in range(3)]
    assert offsets == [0, 1, 15001]


def test_several_partitions_are_answered_each_for_itself(connect: Connect) -> None:
    data = [
        PartitionProduceData(index=0, records=batch(b"one")),
        PartitionProduceData(index=9, records=batch(b"one")),
        PartitionProduceData(index=1, records=batch(b"one")[:-1]),
        PartitionProduceData(index=2, records=batch(b"one")),
    ]
    topics = [
        TopicProduceData(name="orders", partition_data=data),
        TopicProduceData(name="nowhere", partition_data=data[:1]),
        TopicProduceData(name="__consumer_offsets", partition_data=data[:1]),
    ]
    answer = connect().ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), 9)
    assert [[(one.index, one.error_code) for one in topic.partition_responses] for topic in answer.responses] == [
        [
            (0, 0),
            (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (1, ErrorCode.CORRUPT_MESSAGE),
            (2, 0),
        ],
        [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
        [(0, ErrorCode.INVALID_TOPIC_EXCEPTION)],
    ]


def test_a_topic_with_two_underscores_is_a_users_like_any_other(connect: Connect, broker: Broker) -> None:
    broker.create_topic("__debezium-heartbeat.shop")
    assert produced(connect().ask(produce(batch(b"one"), topic="__debezium-heartbeat.shop"), 9)) == (0, 0)


def test_what_no_partition_takes_is_refused_with_kafkas_codes(connect: Connect, broker: Broker) -> None:
    broker.create_topic("state", 1, {"cleanup.policy": "compact"})
    broker.create_topic("small", 1, {"max.message.bytes": 100})
    client = connect()
    assert produced(client.ask(produce(batch(b"x", key=None), topic="state"), 9))[0] == ErrorCode.INVALID_RECORD
    assert produced(client.ask(produce(batch(b"x" * 200), topic="small"), 9))[0] == ErrorCode.MESSAGE_TOO_LARGE
    assert produced(client.ask(produce(batch(b"x"), acks=2), 9))[0] == ErrorCode.INVALID_REQUIRED_ACKS
    transactional = produce(batch(b"x"))
    transactional.transactional_id = "tx"
    assert produced(client.ask(transactional, 9))[0] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    unknown = TopicProduceData(topic_id=b"\1" * 16, partition_data=[PartitionProduceData(records=batch(b"x"))])
    answer = client.ask(ProduceRequest(acks=1, topic_data=[unknown]), 13)
    assert produced(answer)[0] == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_batch_that_expands_beyond_the_limit_is_refused_with_a_code_that_clients_do_not_send_again(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, codec: int
) -> None:
    monkeypatch.setattr(admission, "DECOMPRESSED_BYTES_MAX", 1000)
    answer = connect().ask(produce(batch(bytes(2000), compression=codec)), 9)
    only = answer.responses[0].partition_responses[0]
    assert ErrorCode(only.error_code) is ErrorCode.INVALID_RECORD
    assert not ErrorCode(only.error_code).is_retriable
    assert "expand to more than 1000 bytes" in (only.error_message or "")


def test_a_duplicate_is_answered_with_the_original_offset(connect: Connect, broker: Broker) -> None:
    client = connect()
    first, second = idempotent(7, 0, 0, b"a", b"b"), idempotent(7, 0, 2, b"c")
    assert produced(client.ask(produce(first), 9)) == (0, 0)
    assert produced(client.ask(produce(second), 9)) == (0, 2)
    assert produced(client.ask(produce(first), 9)) == (0, 0)
    assert produced(client.ask(produce(second), 9)) == (0, 2)
    assert produced(client.ask(produce(idempotent(7, 0, 9, b"x")), 9))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produced(client.ask(produce(idempotent(7, 1, 0, b"d")), 9)) == (0, 3)
    assert produced(client.ask(produce(idempotent(7, 0, 3, b"e")), 9))[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition_of(broker).log_end_offset == 4


def test_a_full_or_failing_disk_is_an_error_of_that_partition_alone_and_a_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = FaultyFiles(PosixFiles())
    with Broker.open(str(tmp_path / "data"), files=files) as broker:
        broker.create_topic("orders", 2)
        with Server.start(broker, ServerSettings.parse({"listeners": "127.0.0.1:0"})) as server:
            client = RawClient(server.addresses[0])
            assert produced(client.ask(produce(batch(b"one")), 9)) == (0, 0)
            files.fault = Fault(lambda doing: errno.EIO if doing.kind is Kind.SYNC and "orders-0" in doing.path else 0)
            code, offset = produced(client.ask(produce(batch(b"two")), 9))
            assert (code, offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
            assert produced(client.ask(produce(batch(b"three")), 9))[0] == ErrorCode.KAFKA_STORAGE_ERROR
            assert produced(client.ask(produce(batch(b"one"), partition=1), 9)) == (0, 0)
            files.fault = Fault(lambda doing: errno.ENOSPC if doing.kind is Kind.WRITE else 0)
            assert produced(client.ask(produce(batch(b"two"), partition=1), 9))[0] == ErrorCode.KAFKA_STORAGE_ERROR
            files.fault = NO_FAULT
            assert produced(client.ask(produce(batch(b"two"), partition=1), 9)) == (0, 1)
            client.close()
    poisoned, full = [line.message for line in caplog.records if "a batch is refused" in line.message]
    assert poisoned.startswith("orders-0: a batch is refused: ")
    assert "could not be synced" in poisoned
    assert full.startswith("orders-1: a batch is refused: no space")


class DenyTopics:
    """May do everything but write to and read from topics."""

    def allows(self, principal: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        return kind is not ResourceType.TOPIC


def test_the_authorizer_is_asked(broker: Broker) -> None:
    settings = ServerSettings.parse({"listeners": "127.0.0.1:0"})
    with Server.start(broker, settings, authorizer=DenyTopics()) as server:
        client = RawClient(server.addresses[0])
        assert produced(client.ask(produce(batch(b"one")), 9))[0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        answer = client.ask(fetch(0), 11)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        client.close()


def test_a_topic_made_again_is_another_for_those_who_name_it_by_id(connect: Connect, broker: Broker) -> None:
    old_id = bytes.fromhex(broker.topic("orders").topic_id)
    broker.delete_topic("orders")
    broker.create_topic("orders", 1)
    topic = TopicProduceData(topic_id=old_id, partition_data=[PartitionProduceData(records=batch(b"x"))])
    answer = connect().ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 13)
    assert produced(answer)[0] == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_sync_that_takes_longer_than_the_client_waits_is_a_timeout(tmp_path: Path) -> None:
    gate = threading.Event()
    files = FaultyFiles(PosixFiles())

    def wait_at_sync(doing: Doing) -> int:
        if doing.kind is Kind.SYNC and "orders-0" in doing.path:
            gate.wait()
        return 0

    with Broker.open(str(tmp_path / "data"), files=files) as broker:
        broker.create_topic("orders", 1)
        with Server.start(broker, ServerSettings.parse({"listeners": "127.0.0.1:0"})) as server:
            client = RawClient(server.addresses[0])
            client.ask(produce(batch(b"one")), 9)
            files.fault = Fault(wait_at_sync)
            code, _ = produced(client.ask(produce(batch(b"two"), timeout_ms=50), 9))
            gate.set()
            assert code == ErrorCode.REQUEST_TIMED_OUT
            client.close()


def test_batches_of_a_connection_stay_in_order_when_a_partition_has_to_be_opened_first(
    small: SmallNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.broker.create_topic("orders", 2)
    partition = partition_of(small.broker)
    call, gate = small.call(9), threading.Event()
    call.caller.lane.submit(lambda: assert_set(gate), 0)  # the thread of this connection is busy
    monkeypatch.setattr(small.node, "run", partial(_run_at_once, small))

    async def send() -> None:
        first = handle(call, produce(batch(b"first"), acks=1))
        assert isinstance(first, asyncio.Future)
        data = [PartitionProduceData(index=number, records=batch(b"second")) for number in (1, 0)]
        second = handle(call, ProduceRequest(acks=1, topic_data=[TopicProduceData(name="orders", partition_data=data)]))
        assert isinstance(second, Coroutine)
        second = await second
        gate.set()
        assert isinstance(second, asyncio.Future)
        await asyncio.wait_for(asyncio.gather(first, second), 30)

    small.run(send())
    partition.sync()
    assert [record.value for record in decode(partition.read(0).data, "orders", 0)[0]] == [b"first", b"second"]


def assert_set(gate: threading.Event) -> None:
    assert gate.wait(30)


def _run_at_once(small: SmallNode, function: Callable[..., object], *arguments: object) -> asyncio.Future[object]:
    done: asyncio.Future[object] = small.loop.create_future()
    done.set_result(function(*arguments))
    return done


def test_who_asks_for_a_topic_that_is_not_there_is_not_told_of_others(connect: Connect, broker: Broker) -> None:
    broker.create_topic("secret-plans", 1)
    answer = connect().ask(produce(batch(b"x"), topic="nowhere"), 9)
    only = answer.responses[0].partition_responses[0]
    assert only.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "secret" not in (only.error_message or "")


def test_the_loop_never_waits_for_a_sync_of_what_it_appends(tmp_path: Path) -> None:
    files = FaultyFiles(PosixFiles())
    on_the_loop: list[Doing] = []

    def note(doing: Doing) -> int:
        if doing.kind is not Kind.WRITE and threading.current_thread().name == "foldlog-server":
            on_the_loop.append(doing)
        return 0

    with Broker.open(str(tmp_path / "data"), files=files) as broker:
        broker.create_topic("orders", 2, {"segment.bytes": 2048})
        with Server.start(broker, ServerSettings.parse({"listeners": "127.0.0.1:0"})) as server:
            files.fault = Fault(note)
            client = RawClient(server.addresses[0])
            for number in range(12):
                data = [
                    PartitionProduceData(index=index, records=idempotent(7, 0, number, b"%d" % number * 500))
                    for index in range(2)
                ]
                topic = TopicProduceData(name="orders", partition_data=data)
                answer = client.ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), 9)
                for index, one in enumerate(answer.responses[0].partition_responses):
                    assert (one.index, one.error_code, one.base_offset) == (index, 0, number)
            client.close()
        assert partition_of(broker).segment_count > 2
    assert on_the_loop == []
