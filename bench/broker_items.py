"""How long one request with very many items holds the broker's event loop, so that nobody else is answered.

A second connection asks ApiVersions all the while: its slowest answer is what the others would have waited. A message
may have REQUEST_ITEMS_MAX items; the table has fewer, and what the largest would take at the same cost for each.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator

from bench import broker_process
from bench.broker_load import CLIENT_ID, CORRELATION_ID, connect
from bench.measuring import FULL, Place, Scale
from bench.table import Table, duration

from foldlog.limits import REQUEST_ITEMS_MAX
from foldlog.wire.frames import encode_request
from foldlog.wire.messages import (
    api_versions,
    create_topics,
    delete_topics,
    describe_groups,
    fetch,
    find_coordinator,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
)
from foldlog.wire.schema import Request

_TOPIC = "items"
_PARTITIONS = 100
_TARGET_S = 0.05
_PAUSE_S = 0.0005
_PATIENCE_S = 120.0
_LENGTH = struct.Struct(">i")

Case = tuple[str, Request, int]


def _of_partitions(count: int) -> Iterator[Case]:
    offsets = [list_offsets.ListOffsetsPartition(partition_index=at, timestamp=-1) for at in range(count)]
    of_topic = list_offsets.ListOffsetsTopic(name=_TOPIC, partitions=offsets)
    yield "ListOffsets", list_offsets.ListOffsetsRequest(replica_id=-1, topics=[of_topic]), 7
    epochs = [offset_for_leader_epoch.OffsetForLeaderPartition(partition=at, leader_epoch=0) for at in range(count)]
    asked = offset_for_leader_epoch.OffsetForLeaderTopic(topic=_TOPIC, partitions=epochs)
    request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(replica_id=-1, topics=[asked])
    yield "OffsetForLeaderEpoch", request, 4
    wanted = [fetch.FetchPartition(partition=at, fetch_offset=0, partition_max_bytes=1) for at in range(count)]
    of_fetch = fetch.FetchTopic(topic=_TOPIC, partitions=wanted)
    yield "Fetch", fetch.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[of_fetch]), 12
    sent = [produce.PartitionProduceData(index=at, records=b"") for at in range(count)]
    of_produce = produce.TopicProduceData(name=_TOPIC, partition_data=sent)
    yield "Produce, nothing in it", produce.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[of_produce]), 9


def _of_groups(count: int) -> Iterator[Case]:
    commits = [
        offset_commit.OffsetCommitRequestPartition(partition_index=at % _PARTITIONS, committed_offset=0)
        for at in range(count)
    ]
    of_topic = offset_commit.OffsetCommitRequestTopic(name=_TOPIC, partitions=commits)
    commit = offset_commit.OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[of_topic])
    yield "OffsetCommit", commit, 8
    asked = offset_fetch.OffsetFetchRequestTopics(name=_TOPIC, partition_indexes=list(range(count)))
    group = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=[asked])
    yield "OffsetFetch", offset_fetch.OffsetFetchRequest(groups=[group]), 8
    names = [f"g{at}" for at in range(count)]
    yield "FindCoordinator", find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=names), 4
    yield "DescribeGroups", describe_groups.DescribeGroupsRequest(groups=names), 5


def _of_topics(count: int) -> Iterator[Case]:
    names = [f"t{at}" for at in range(count)]
    topics = [metadata.MetadataRequestTopic(name=name) for name in names]
    yield "Metadata", metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9
    made = [create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    request = create_topics.CreateTopicsRequest(timeout_ms=60_000, validate_only=True, topics=made)
    yield "CreateTopics, only checked", request, 5
    yield "DeleteTopics", delete_topics.DeleteTopicsRequest(timeout_ms=60_000, topic_names=names), 4


class Bystander:
    """A client that asks all the while, on a thread of its own, and notes the slowest answer."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = connect(address)
        self._frame = _framed(api_versions.ApiVersionsRequest(), 3)
        self._is_over = False
        self.slowest_s = 0.0
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        while not self._is_over:
            began = time.perf_counter()
            self._socket.sendall(self._frame)
            _take(self._socket)
            self.slowest_s = max(self.slowest_s, time.perf_counter() - began)
            time.sleep(_PAUSE_S)

    def close(self) -> None:
        self._is_over = True
        self._thread.join()
        self._socket.close()


def _framed(request: Request, version: int) -> bytes:
    return b"".join(encode_request(request, version, CORRELATION_ID, CLIENT_ID))


def _take(opened: socket.socket) -> None:
    (left,) = _LENGTH.unpack(opened.recv(_LENGTH.size))
    while left > 0:
        left -= len(opened.recv(min(left, 1 << 20)))


def run(place: Place, scale: Scale) -> Table:
    count, turns = (20_000, 3) if scale is FULL else (100, 1)
    path = place.fresh()
    lines = []
    with broker_process.running(path / "log") as broker:
        broker.create_topic(_TOPIC, _PARTITIONS)
        bystander = Bystander(broker.address)
        for name, request, version in (*_of_partitions(count), *_of_groups(count), *_of_topics(count)):
            frame = _framed(request, version)
            held = []
            for _ in range(turns):
                with connect(broker.address) as opened:
                    opened.settimeout(_PATIENCE_S)
                    bystander.slowest_s = 0.0
                    opened.sendall(frame)
                    _take(opened)
                held.append(bystander.slowest_s)
            held_s = sorted(held)[turns // 2]
            met = "yes" if held_s * REQUEST_ITEMS_MAX / count <= _TARGET_S else "**no**"
            lines.append([name, duration(held_s), duration(held_s * REQUEST_ITEMS_MAX / count), met])
        bystander.close()
    place.give_back(path)
    head = ["request", f"{count:,} items", f"{REQUEST_ITEMS_MAX:,} items, at the same cost", "<= 50 ms"]
    notes = [
        "How long another connection waits for an answer to ApiVersions meanwhile, at most; the median of the turns."
    ]
    return Table("How long the largest requests hold the loop", head, lines, notes)
