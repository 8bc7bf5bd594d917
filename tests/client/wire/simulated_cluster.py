"""Several brokers on real sockets, in this process, with a log in memory: for what one broker cannot show.

Leaders move, epochs rise, transactions abort, and a test may step in before any request is answered. The log takes what
producers send as Kafka does: numbers that it has are repetitions, numbers that skip are refused. Nothing is checked
beyond that, and nothing waits: a fetch at the end is answered at once.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Protocol, Self

from foldlog.records.loops import assign_offsets, walk
from foldlog.wire.codec import decoder
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.frames import encode_response, parse_request_header, request_class
from foldlog.wire.messages import APIS
from foldlog.wire.messages import api_versions as av
from foldlog.wire.messages import create_topics as ct
from foldlog.wire.messages import describe_configs as dc
from foldlog.wire.messages import fetch as fe
from foldlog.wire.messages import find_coordinator as fc
from foldlog.wire.messages import init_producer_id as ip
from foldlog.wire.messages import list_offsets as lo
from foldlog.wire.messages import metadata as md
from foldlog.wire.messages import offset_commit as oc
from foldlog.wire.messages import offset_for_leader_epoch as oe
from foldlog.wire.messages import produce as pr
from foldlog.wire.schema import ZERO_UUID, Request, Response

WAIT_S = 30.0


class Door(Protocol):
    """What a connection comes through before requests are looked at."""

    def admit(self, frame: bytes) -> bytes | bool:
        """An answer to send, or whether the request is let in; one that is not ends the connection."""
        ...


class Mishap(Enum):
    """What a test may do to a request instead of having it answered."""

    CUT = "the connection ends before it is looked at"
    CUT_AFTER = "it is carried out, and the connection ends before the answer"
    SILENCE = "it is never answered"


Interference = Callable[[int, Request], Response | Mishap | bytes | None]
"""(node, request) to what happens instead; bytes are sent as they are; None lets it be answered."""


@dataclass
class SimulatedPartition:
    """A log of batches. `ends` are (epoch, end offset) of the epochs that are over."""

    leader: int = 1
    epoch: int = 0
    start: int = 0
    end: int = 0
    stable_end: int | None = None
    batches: list[bytes] = field(default_factory=list)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)  # producer id, first offset, marker
    ends: list[tuple[int, int]] = field(default_factory=list)
    sequences: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)  # first, next, base offset

    def append(self, batch: bytes | bytearray) -> int:
        """Offsets assigned here; the base offset."""
        data = bytearray(batch)
        headers = walk(data).headers
        base, self.end = self.end, assign_offsets(data, headers, self.end, self.epoch)
        self.batches.append(bytes(data))
        return base

    def elect(self, leader: int) -> None:
        self.ends.append((self.epoch, self.end))
        self.leader, self.epoch = leader, self.epoch + 1

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        if epoch > self.epoch:
            return -1, -1
        if epoch == self.epoch:
            return epoch, self.end
        return max((one for one in self.ends if one[0] <= epoch), default=(epoch, self.start))

    def produce(self, batch: bytes) -> tuple[int, int]:
        """(error code, base offset)."""
        (header,) = walk(batch).headers
        first = header.base_sequence
        known = self.sequences.setdefault(header.producer_id, [])
        for begin, _, base in known:
            if begin == first:
                return ErrorCode.NONE, base
        if known and first < known[-1][1]:
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1
        if known and first != known[-1][1]:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        base = self.append(batch)
        known.append((first, first + header.last_offset_delta + 1, base))
        del known[:-5]
        return ErrorCode.NONE, base


@dataclass
class SimulatedTopic:
    """Its id is zero for a cluster from before there were ids."""

    topic_id: bytes
    partitions: list[SimulatedPartition]
    config: dict[str, str] = field(default_factory=lambda: {"cleanup.policy": "delete"})


class SimulatedCluster:
    """Nodes 1 to `nodes`, each on a port of its own. `asked` counts what came, as (node, name of the request)."""

    def __init__(self, nodes: int = 1, versions: dict[int, tuple[int, int]] | None = None) -> None:
        self.topics: dict[str, SimulatedTopic] = {}
        self.interfere: Interference = lambda node, request: None
        self.asked: list[tuple[int, str]] = []
        self.coordinator = 1
        self.committed: dict[tuple[str, str, int], int] = {}
        self.versions = versions or {}
        self.door: Callable[[], Door] | None = None
        self.connections_made = 0
        self._changing = threading.RLock()
        self._next_producer_id = 1000
        self._connections: list[socket.socket] = []
        self._serving: list[threading.Thread] = []
        self._listeners = {node: socket.create_server(("127.0.0.1", 0)) for node in range(1, nodes + 1)}
        self._accepting = {
            node: threading.Thread(target=self._accept, args=(node, listener), daemon=True)
            for node, listener in self._listeners.items()
        }
        for thread in self._accepting.values():
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self._listeners:
            self.stop(node)
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._serving:
            thread.join(WAIT_S)  # each closes its own

    def address(self, node: int = 1) -> str:
        host, port = self._listeners[node].getsockname()
        return f"{host}:{port}"

    def stop(self, node: int) -> None:
        """The node listens no more; its connections stay."""
        with suppress(OSError):
            self._listeners[node].shutdown(socket.SHUT_RDWR)
        # Before it is closed: else its thread may be about to accept, and the next socket of that number is another's.
        self._accepting[node].join(WAIT_S)
        self._listeners[node].close()

    def refuse(self, node: int) -> None:
        """The node listens no more, and the others have not noticed: they still name it."""
        self._listeners[node].shutdown(socket.SHUT_RDWR)

    def create(self, name: str, partitions: int = 1, *, topic_id: bytes | None = None) -> list[SimulatedPartition]:
        made = SimulatedTopic(
            topic_id or (len(self.topics) + 1).to_bytes(16, "big"), [SimulatedPartition() for _ in range(partitions)]
        )
        self.topics[name] = made
        return made.partitions

    def count(self, name: str, node: int | None = None) -> int:
        """How often a request of that name came."""
        with self._changing:
            return sum(1 for one, asked in self.asked if asked == name and node in (None, one))

    # --- sockets --------------------------------------------------------------------------------------------------

    def _accept(self, node: int, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                self.connections_made += 1
                self._connections.append(connection)
                self._serving.append(threading.Thread(target=self._serve, args=(node, connection), daemon=True))
                self._serving[-1].start()

    def _serve(self, node: int, connection: socket.socket) -> None:
        door = None if self.door is None else self.door()
        with suppress(OSError, ConnectionError):
            while self._answer(node, connection, door):
                pass
        connection.close()

    def _answer(self, node: int, connection: socket.socket, door: Door | None) -> bool:
        frame = _exactly(connection, struct.unpack(">i", _exactly(connection, 4))[0])
        admitted = True if door is None else door.admit(frame)
        if isinstance(admitted, bytes):
            connection.sendall(admitted)
        if admitted is not True:
            return admitted is not False
        header, position = parse_request_header(frame, 0, len(frame))
        cls = request_class(header.api_key)
        request = decoder(cls, header.api_version)(frame, position, len(frame))
        with self._changing:
            self.asked.append((node, cls.__name__))
            happens = self.interfere(node, request)
            if happens is Mishap.CUT:
                return False
            if happens is Mishap.SILENCE:
                return True
            if isinstance(happens, bytes):
                connection.sendall(happens)
                return True
            answer = happens if isinstance(happens, Response) else self._carry_out(node, request, header.api_version)
            if happens is Mishap.CUT_AFTER:
                return False
        connection.sendall(b"".join(encode_response(answer, header.api_version, header.correlation_id)))
        return True

    # --- what the nodes do ----------------------------------------------------------------------------------------

    def _carry_out(self, node: int, request: Request, version: int) -> Response:  # noqa: PLR0911 one for each API
        match request:
            case av.ApiVersionsRequest():
                return self._api_versions()
            case md.MetadataRequest():
                return self._metadata(request)
            case fe.FetchRequest():
                return self._fetch(node, request)
            case lo.ListOffsetsRequest():
                return self._list_offsets(node, request)
            case oe.OffsetForLeaderEpochRequest():
                return self._epoch_ends(node, request)
            case pr.ProduceRequest():
                return self._produce(node, request)
            case ip.InitProducerIdRequest():
                self._next_producer_id += 1
                return ip.InitProducerIdResponse(producer_id=self._next_producer_id, producer_epoch=0)
            case fc.FindCoordinatorRequest():
                return self._find_coordinator(request, version)
            case oc.OffsetCommitRequest():
                return self._commit(node, request)
            case dc.DescribeConfigsRequest():
                return self._configs(request)
            case ct.CreateTopicsRequest():
                return self._create_topics(request)
        raise AssertionError(f"nobody taught the simulation {type(request).__name__}")

    def _api_versions(self) -> Response:
        ranges = {key: (api.first, api.last) for key, api in APIS.items()} | self.versions
        return av.ApiVersionsResponse(
            api_keys=[
                av.ApiVersion(api_key=key, min_version=first, max_version=last) for key, (first, last) in ranges.items()
            ]
        )

    def _metadata(self, request: md.MetadataRequest) -> Response:
        names = list(self.topics) if request.topics is None else [one.name or "" for one in request.topics]
        return md.MetadataResponse(
            brokers=[
                md.MetadataResponseBroker(node_id=node, host="127.0.0.1", port=int(self.address(node).split(":")[1]))
                for node, listener in self._listeners.items()
                if listener.fileno() >= 0
            ],
            cluster_id="simulated",
            controller_id=1,
            topics=[self._described(name) for name in names],
        )

    def _described(self, name: str) -> md.MetadataResponseTopic:
        topic = self.topics.get(name)
        if topic is None:
            return md.MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
        return md.MetadataResponseTopic(
            name=name,
            topic_id=topic.topic_id,
            partitions=[
                md.MetadataResponsePartition(
                    error_code=ErrorCode.NONE if one.leader > 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                    partition_index=number,
                    leader_id=one.leader,
                    leader_epoch=one.epoch,
                )
                for number, one in enumerate(topic.partitions)
            ],
        )

    def _led(
        self, node: int, name: str, topic_id: bytes, number: int, epoch: int
    ) -> tuple[ErrorCode, SimulatedPartition]:
        if not name:
            found = [topic for topic in self.topics.values() if topic.topic_id == topic_id != ZERO_UUID]
            if not found:
                return ErrorCode.UNKNOWN_TOPIC_ID, SimulatedPartition()
        else:
            found = [self.topics[name]] if name in self.topics else []
        if not found or number >= len(found[0].partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, SimulatedPartition()
        partition = found[0].partitions[number]
        if partition.leader != node:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, partition
        if 0 <= epoch < partition.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH, partition
        return (ErrorCode.UNKNOWN_LEADER_EPOCH if epoch > partition.epoch else ErrorCode.NONE), partition

    def _fetch(self, node: int, request: fe.FetchRequest) -> Response:
        left = request.max_bytes
        responses = []
        for topic in request.topics:
            parts = []
            for wanted in topic.partitions:
                part = self._fetched(node, request.isolation_level, topic, wanted, left)
                left -= len(part.records or b"")
                parts.append(part)
            responses.append(fe.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=parts))
        return fe.FetchResponse(responses=responses)

    def _fetched(
        self, node: int, isolation_level: int, topic: fe.FetchTopic, wanted: fe.FetchPartition, left: int
    ) -> fe.PartitionData:
        """At least one batch, as long as something is left of what the answer may take."""
        code, partition = self._led(node, topic.topic, topic.topic_id, wanted.partition, wanted.current_leader_epoch)
        if not code and not partition.start <= wanted.fetch_offset <= partition.end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        stable_end = partition.end if partition.stable_end is None else partition.stable_end
        limit = stable_end if isolation_level else partition.end
        found = (
            []
            if code or left <= 0
            else _from(partition.batches, wanted.fetch_offset, limit, wanted.partition_max_bytes)
        )
        return fe.PartitionData(
            partition_index=wanted.partition,
            error_code=code,
            high_watermark=partition.end,
            last_stable_offset=stable_end,
            log_start_offset=partition.start,
            aborted_transactions=[
                fe.AbortedTransaction(producer_id=producer_id, first_offset=first)
                for producer_id, first, marker in partition.aborted
                if marker >= wanted.fetch_offset
            ],
            records=b"".join(found),
        )

    def _list_offsets(self, node: int, request: lo.ListOffsetsRequest) -> Response:
        (topic,) = request.topics
        results = []
        for wanted in topic.partitions:
            code, partition = self._led(
                node, topic.name, ZERO_UUID, wanted.partition_index, wanted.current_leader_epoch
            )
            offset = {-2: partition.start, -1: partition.end}.get(wanted.timestamp, -1)
            if request.isolation_level and wanted.timestamp == -1 and partition.stable_end is not None:
                offset = partition.stable_end
            results.append(
                lo.ListOffsetsPartitionResponse(
                    partition_index=wanted.partition_index,
                    error_code=code,
                    offset=-1 if code else offset,
                    leader_epoch=partition.epoch if wanted.timestamp == -1 and not code else -1,
                )
            )
        return lo.ListOffsetsResponse(topics=[lo.ListOffsetsTopicResponse(name=topic.name, partitions=results)])

    def _epoch_ends(self, node: int, request: oe.OffsetForLeaderEpochRequest) -> Response:
        (topic,) = request.topics
        (wanted,) = topic.partitions
        code, partition = self._led(node, topic.topic, ZERO_UUID, wanted.partition, wanted.current_leader_epoch)
        epoch, end = (-1, -1) if code else partition.epoch_end(wanted.leader_epoch)
        result = oe.EpochEndOffset(error_code=code, partition=wanted.partition, leader_epoch=epoch, end_offset=end)
        return oe.OffsetForLeaderEpochResponse(
            topics=[oe.OffsetForLeaderTopicResult(topic=topic.topic, partitions=[result])]
        )

    def _produce(self, node: int, request: pr.ProduceRequest) -> Response:
        def append(topic: pr.TopicProduceData, data: pr.PartitionProduceData) -> tuple[int, int]:
            code, partition = self._led(node, topic.name, topic.topic_id, data.index, -1)
            return (code, -1) if code else partition.produce(bytes(data.records or b""))

        return produced(request, append)

    def _find_coordinator(self, request: fc.FindCoordinatorRequest, version: int) -> Response:
        host, port = self.address(self.coordinator).split(":")
        if version < 4:
            return fc.FindCoordinatorResponse(node_id=self.coordinator, host=host, port=int(port))
        (key,) = request.coordinator_keys
        found = fc.Coordinator(key=key, node_id=self.coordinator, host=host, port=int(port))
        return fc.FindCoordinatorResponse(coordinators=[found])

    def _commit(self, node: int, request: oc.OffsetCommitRequest) -> Response:
        (topic,) = request.topics
        code = ErrorCode.NONE if node == self.coordinator else ErrorCode.NOT_COORDINATOR
        by_id = {one.topic_id: name for name, one in self.topics.items()}
        if not code:
            for one in topic.partitions:
                key = (request.group_id, topic.name or by_id[topic.topic_id], one.partition_index)
                self.committed[key] = one.committed_offset
        results = [
            oc.OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
            for one in topic.partitions
        ]
        return oc.OffsetCommitResponse(
            topics=[oc.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=results)]
        )

    def _configs(self, request: dc.DescribeConfigsRequest) -> Response:
        (resource,) = request.resources
        topic = self.topics.get(resource.resource_name)
        result = dc.DescribeConfigsResult(
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else ErrorCode.NONE,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[
                dc.DescribeConfigsResourceResult(name=name, value=value, documentation=None)
                for name, value in (topic.config if topic is not None else {}).items()
            ],
        )
        return dc.DescribeConfigsResponse(results=[result])

    def _create_topics(self, request: ct.CreateTopicsRequest) -> Response:
        (topic,) = request.topics
        exists = topic.name in self.topics
        if not exists:
            self.create(topic.name, topic.num_partitions)
        result = ct.CreatableTopicResult(
            name=topic.name,
            error_code=ErrorCode.TOPIC_ALREADY_EXISTS if exists else ErrorCode.NONE,
            error_message=None,
        )
        return ct.CreateTopicsResponse(topics=[result])


def produced(
    request: pr.ProduceRequest, outcome: Callable[[pr.TopicProduceData, pr.PartitionProduceData], tuple[int, int]]
) -> pr.ProduceResponse:
    """The answer to a produce request: of each batch (error code, base offset)."""
    responses = []
    for topic in request.topic_data:
        results = []
        for data in topic.partition_data:
            code, base = outcome(topic, data)
            results.append(pr.PartitionProduceResponse(index=data.index, error_code=code, base_offset=base))
        responses.append(pr.TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results))
    return pr.ProduceResponse(responses=responses)


def _from(batches: Sequence[bytes], offset: int, limit: int, max_bytes: int) -> Iterable[bytes]:
    """The batches from the one that holds the offset on, up to the limit; at least one."""
    size = 0
    for batch in batches:
        (header,) = walk(batch).headers
        if header.next_offset <= offset:
            continue
        if header.base_offset >= limit or (size and size + len(batch) > max_bytes):
            return
        size += len(batch)
        yield batch


def _exactly(source: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        piece = source.recv(count - len(found))
        if not piece:
            raise ConnectionError
        found += piece
    return bytes(found)
