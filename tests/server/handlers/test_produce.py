"""Produce: what each acks means, who is refused and with which code, duplicates, and batches that stay as they are."""

from __future__ import annotations

import asyncio
import errno
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from foldlog.broker.access.acls import AclOperation, Identity, ResourceType
from foldlog.broker.broker import Broker
from foldlog.files.base import Buffer
from foldlog.files.posix import PosixFiles
from foldlog.limits import QUICK_DECOMPRESSED_BYTES_MAX
from foldlog.log.partition import Appended, Partition
from foldlog.log.produced import append_run
from foldlog.records.loops import BatchBuilder, decode, pack
from foldlog.server.authorizer import AllowEverything
from foldlog.server.config.settings import ServerSettings
from foldlog.server.handlers.produce import handle
from foldlog.server.net.append_queues import AppendQueue
from foldlog.server.server import Server
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
    unknown = TopicProduceData(topic_id=b"\1" * 16, partition_data=[PartitionProduceData(records=batch(b"x"))])
    answer = client.ask(ProduceRequest(acks=1, topic_data=[unknown]), 13)
    assert produced(answer)[0] == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_batch_that_expands_beyond_its_topics_limit_is_refused_as_one_that_is_too_large(
    connect: Connect, broker: Broker, codec: int
) -> None:
    broker.create_topic("small", 1, {"foldlog.max.decompressed.bytes": 1000})
    client = connect()
    answer = client.ask(produce(batch(bytes(2000), compression=codec), topic="small"), 9)
    only = answer.responses[0].partition_responses[0]
    assert ErrorCode(only.error_code) is ErrorCode.MESSAGE_TOO_LARGE
    assert not ErrorCode(only.error_code).is_retriable
    assert "expand to more than 1000 bytes" in (only.error_message or "")
    assert "foldlog.max.decompressed.bytes" in (only.error_message or "")
    broker.alter_topic("small", {"foldlog.max.decompressed.bytes": 3000})
    assert produced(client.ask(produce(batch(bytes(2000), compression=codec), topic="small"), 9)) == (0, 0)


@pytest.mark.parametrize("codec", [1, 3, 4])
def test_eight_kilobytes_do_not_become_a_quarter_of_a_gigabyte(connect: Connect, codec: int) -> None:
    bomb = batch(bytes(250 << 20 if codec == 4 else 20 << 20), compression=codec)
    refused, _ = produced(connect().ask(produce(bomb), 9))
    assert (refused, len(bomb) < 256 << 10) == (ErrorCode.MESSAGE_TOO_LARGE, True)


def test_a_bomb_behind_a_plain_batch_is_refused_before_it_is_opened(connect: Connect) -> None:
    two = batch(b"one") + batch(bytes(20 << 20), compression=4)
    assert produced(connect().ask(produce(two), 9))[0] == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("version", [3, 6, 7, 9])
def test_zstd_needs_a_client_that_knows_it(connect: Connect, version: int) -> None:
    answer = connect().ask(produce(batch(b"a", compression=4)), version)
    wanted = (ErrorCode.NONE, 0) if version >= 7 else (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, -1)
    assert produced(answer) == wanted


def test_a_refused_batch_is_answered_with_the_start_of_the_log_if_it_was_looked_into(connect: Connect) -> None:
    client = connect()
    gap = client.ask(produce(idempotent(7, 0, 5, b"a")), 9).responses[0].partition_responses[0]
    assert gap.error_code == ErrorCode.NONE, "a producer that is not known begins where it likes"
    for records, start in ((idempotent(7, 0, 9, b"a"), 0), (batch(b"a")[:-1] + b"x", -1)):
        refused = client.ask(produce(records), 9).responses[0].partition_responses[0]
        assert refused.error_code != ErrorCode.NONE
        assert refused.log_start_offset == start


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


class DenyTopics(AllowEverything):
    """May do everything but write to and read from topics."""

    def allows(self, who: Identity, operation: AclOperation, kind: ResourceType, name: str) -> bool:
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


def test_batches_of_a_connection_stay_in_order_when_a_partition_has_to_be_opened_first(
    small: SmallNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.broker.create_topic("orders", 2)
    partition = partition_of(small.broker)
    call, gate = small.call(9), threading.Event()
    call.caller.append_queue.submit(lambda: assert_set(gate))  # the thread of this connection is busy
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


# --- produces off the fast path, and order ---------------------------------------------------------------------------

LARGE = b"x" * (3 << 19)
"""More than is appended on the loop itself."""

LONG_WAYS = ["several partitions", "a queue", "a partition that is opened first"]


def long_request(way: str, acks: int = -1, timeout_ms: int = 30_000) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=batch(LARGE if way == "a queue" else b"small"))]
    if way == "several partitions":
        data.append(PartitionProduceData(index=1, records=batch(b"other")))
    return ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name="orders", partition_data=data)]
    )


def answers_with_a_fault(
    directory: Path, way: str, request: ProduceRequest, fault: Callable[[Doing], int], after: Callable[[], None]
) -> list[tuple[int, int]]:
    """(error code, base offset) of each partition, where the disk has a fault; `after` runs before the end."""
    with Broker.open(str(directory)) as broker:
        broker.create_topic("orders", 2, {"max.message.bytes": 8 << 20})
    files = FaultyFiles(PosixFiles())
    with (
        Broker.open(str(directory), files=files) as broker,
        Server.start(broker, ServerSettings.parse({"listeners": "127.0.0.1:0"})) as server,
    ):
        client = RawClient(server.addresses[0])
        if way != "a partition that is opened first":
            for number in range(2):
                assert produced(client.ask(produce(batch(b"before"), partition=number), 9)) == (0, 0)
        files.fault = Fault(fault)
        answer = client.ask(request, 9)
        after()
        files.fault = NO_FAULT
        client.close()
        return [(one.error_code, one.base_offset) for one in answer.responses[0].partition_responses]


def is_sync_of_the_first(doing: Doing) -> bool:
    return doing.kind is Kind.SYNC and "orders-0/" in doing.path


def failed_sync_answers(directory: Path, way: str) -> list[tuple[int, int]]:
    """(error code, base offset) of each partition, where the sync of the first one fails."""
    request = long_request(way)
    return answers_with_a_fault(
        directory, way, request, lambda doing: errno.EIO if is_sync_of_the_first(doing) else 0, lambda: None
    )


@pytest.mark.parametrize("way", LONG_WAYS)
def test_a_failed_sync_is_never_acknowledged_on_the_long_way(tmp_path: Path, way: str) -> None:
    first, *others = failed_sync_answers(tmp_path / "data", way)
    assert first == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert others == [(0, 1)] * len(others), "what was synced is acknowledged"


@pytest.mark.parametrize("way", ["fast", *LONG_WAYS])
def test_a_sync_that_takes_longer_than_the_client_waits_is_a_timeout_on_every_way(tmp_path: Path, way: str) -> None:
    gate = threading.Event()

    def wait_at_sync(doing: Doing) -> int:
        if is_sync_of_the_first(doing):
            assert gate.wait(30)
        return 0

    request = produce(batch(b"two"), timeout_ms=50) if way == "fast" else long_request(way, timeout_ms=50)
    first, *others = answers_with_a_fault(tmp_path / "data", way, request, wait_at_sync, gate.set)
    assert first == (ErrorCode.REQUEST_TIMED_OUT, -1)
    assert set(others) <= {(0, 1), (ErrorCode.REQUEST_TIMED_OUT, -1)}


def offsets_in_order(monkeypatch: pytest.MonkeyPatch, way: str) -> list[int]:
    """Base offsets of a large batch and of a small one that its connection sends while the large one is on its way."""
    with Broker.open(":memory:") as broker:
        broker.create_topic("orders", 2, {"max.message.bytes": 8 << 20})
        began, came, gate = threading.Event(), threading.Event(), threading.Event()
        append, submit = Partition.append, AppendQueue.submit

        def slow_append(self: Partition, *buffers: Buffer, **how: bool) -> Appended:
            if len(buffers[0]) > len(LARGE):
                began.set()
                assert gate.wait(30)
            elif began.is_set():
                came.set()  # it overtakes
            return append(self, *buffers, **how)

        def seen_append_run(*run: Any) -> Any:
            came.set()  # it overtakes
            return append_run(*run)

        def seen_submit(self: AppendQueue, job: Callable[[], None], *weight: int) -> None:
            submit(self, job, *weight)
            if began.is_set():
                came.set()  # it stands behind the large one

        with Server.start(broker, ServerSettings.parse({"listeners": "127.0.0.1:0"})) as server:
            client = RawClient(server.addresses[0])
            for number in range(2):
                assert produced(client.ask(produce(batch(b"before"), partition=number), 9)) == (0, 0)
            monkeypatch.setattr(Partition, "append", slow_append)
            monkeypatch.setattr(AppendQueue, "submit", seen_submit)
            client.send(produce(batch(LARGE), acks=1), 9)
            assert began.wait(30)
            monkeypatch.setattr("foldlog.server.produce_fast_path.append_run", seen_append_run)
            client.send(produce(batch(b"small"), acks=1) if way == "fast" else long_request(way, acks=1), 9)
            assert came.wait(30)
            gate.set()
            answers = [client.receive(ProduceResponse, 9)[1] for _ in range(2)]
            client.close()
        return [produced(answer)[1] for answer in answers]


@pytest.mark.parametrize("way", ["fast", "several partitions"])
def test_a_small_batch_never_overtakes_a_large_one_of_its_connection(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    assert offsets_in_order(monkeypatch, way) == [1, 2]


HOUR_MS = 60 * 60 * 1000


def timed(*times_ms: int, value: bytes = b"value", compression: int = 0) -> bytes:
    return bytes(pack([(time_ms, b"k", value, ()) for time_ms in times_ms], compression=compression))


@pytest.mark.parametrize("way", ["fast", "several partitions", "queued"])
def test_a_time_too_far_ahead_is_refused_on_every_way_and_its_records_are_named(connect: Connect, way: str) -> None:
    now_ms, client = int(time.time() * 1000), connect()
    times_ms = (now_ms, now_ms + 2 * HOUR_MS, now_ms - 100 * HOUR_MS, now_ms + 3 * HOUR_MS)
    assert produced(client.ask(produce(batch(b"first")), 9)) == (0, 0)
    request = produce(timed(*times_ms))
    if way == "queued":
        request = produce(timed(*times_ms, value=bytes(QUICK_DECOMPRESSED_BYTES_MAX), compression=4))
    elif way == "several partitions":
        other = PartitionProduceData(index=1, records=batch(b"other"))
        request.topic_data[0].partition_data = [*request.topic_data[0].partition_data, other]
    only, *others = client.ask(request, 9).responses[0].partition_responses
    assert only.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [one.batch_index for one in only.record_errors] == [1, 3]
    assert all("ahead of the clock" in one.batch_index_error_message for one in only.record_errors)
    assert "message.timestamp.after.max.ms=3600000" in only.error_message
    assert all(other.error_code == 0 for other in others)
    assert produced(client.ask(produce(timed(now_ms + HOUR_MS // 2)), 9)) == (0, 1), "nothing of it was kept"


def test_how_far_from_the_clock_a_time_may_be_is_the_topics_setting(connect: Connect, broker: Broker) -> None:
    now_ms, client = int(time.time() * 1000), connect()
    broker.create_topic("dated", 1, {"message.timestamp.after.max.ms": 10 * HOUR_MS})
    assert produced(client.ask(produce(timed(now_ms + 9 * HOUR_MS), topic="dated"), 9)) == (0, 0)
    broker.alter_topic("dated", {"message.timestamp.before.max.ms": HOUR_MS})
    for records in (1, 2000):  # so many are looked at by a thread
        old = timed(*[now_ms] * records, -1, now_ms - 2 * HOUR_MS)
        only = client.ask(produce(old, topic="dated"), 9).responses[0].partition_responses[0]
        assert only.error_code == ErrorCode.INVALID_TIMESTAMP
        assert [one.batch_index for one in only.record_errors] == [records + 1], "no time at all is no wrong one"
        assert "behind the clock" in only.record_errors[0].batch_index_error_message
    assert produced(client.ask(produce(timed(now_ms, -1), topic="dated"), 9)) == (0, 1)
    broker.alter_topic("dated", {"message.timestamp.type": "LogAppendTime"})
    assert produced(client.ask(produce(timed(5, now_ms + 99 * HOUR_MS), topic="dated"), 9)) == (0, 3)


def test_the_records_that_a_compacted_topic_refuses_are_named(connect: Connect, broker: Broker) -> None:
    broker.alter_topic("orders", {"cleanup.policy": "compact"})
    builder = BatchBuilder(1 << 20)
    for key in (b"k", None, b"k", None):
        builder.append(5, key, b"value")
    only = connect().ask(produce(bytes(builder.build())), 9).responses[0].partition_responses[0]
    assert only.error_code == ErrorCode.INVALID_RECORD
    assert [one.batch_index for one in only.record_errors] == [1, 3]
    assert all("without a key" in one.batch_index_error_message for one in only.record_errors)


def test_every_record_is_named_once_for_its_key_or_else_for_its_time(connect: Connect, broker: Broker) -> None:
    broker.alter_topic("orders", {"cleanup.policy": "compact"})
    now_ms, client = int(time.time() * 1000), connect()
    late_ms = now_ms + 2 * HOUR_MS

    def refused(*records: tuple[int, bytes | None]) -> tuple[int, dict[int, bool]]:
        data = bytes(pack([(time_ms, key, b"value", ()) for time_ms, key in records]))
        only = client.ask(produce(data), 9).responses[0].partition_responses[0]
        errors = {one.batch_index: "without a key" in one.batch_index_error_message for one in only.record_errors}
        return only.error_code, errors

    mixed = [(now_ms, None), (now_ms, b"k"), (late_ms, b"k"), (late_ms, None)]
    assert refused(*mixed) == (ErrorCode.INVALID_TIMESTAMP, {0: True, 2: False, 3: True})
    assert refused((late_ms, None), (now_ms, b"k")) == (ErrorCode.INVALID_RECORD, {0: True})
