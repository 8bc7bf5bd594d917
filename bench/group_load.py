"""Members of groups that speak Kafka's protocol raw, many in one process: how long a rebalance takes a broker.

They do what clients have to, at once, and read nothing. Heartbeats come every 100 ms whatever the broker asks for, so
that the figure is the protocol's and the broker's, not that of an interval of 3 or 5 seconds.
"""

from __future__ import annotations

import select
import socket
import struct
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

from bench.broker_load import CLIENT_ID, CORRELATION_ID, LoadFailed, ask, connect

from foldlog.broker.groups.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.frames import decode_response, encode_request
from foldlog.wire.messages import find_coordinator
from foldlog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from foldlog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from foldlog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from foldlog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from foldlog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from foldlog.wire.schema import Request, Response

HEARTBEAT_S: Final = 0.1
_SESSION_MS: Final = 30_000
_REBALANCE_MS: Final = 60_000
_PATIENCE_S: Final = 120.0
_PAUSE_S: Final = 0.1
_RECEIVE_BYTES: Final = 1 << 16
_ASSIGNOR: Final = "range"


PASSING: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
"""Apache Kafka's answers while it loads the part of its topic of offsets that a group's name belongs to."""


class RawMember(ABC):
    """One connection, one request at a time. `owned` are the numbers of its partitions."""

    def __init__(self, address: tuple[str, int], group: str, topic: str, partitions: int) -> None:
        self.socket = connect(address)
        self.group = group
        self.topic = topic
        self.partitions = partitions
        self.member_id = ""
        self.epoch = 0
        self.owned: frozenset[int] = frozenset()
        self.due_s: float | None = None  # of the next heartbeat, if no answer is waited for
        self._expected: tuple[type[Response], int] | None = None
        self._refused: tuple[Request, int, type[Response]] | None = None  # to be sent again
        self._last: tuple[Request, int, type[Response]] | None = None
        self._buffer = bytearray()

    @abstractmethod
    def join(self) -> None: ...

    @abstractmethod
    def beat(self) -> None: ...

    @abstractmethod
    def leave(self) -> None:
        """Wait for the answer, too."""

    @property
    @abstractmethod
    def is_settled(self) -> bool:
        """Whether it has told the broker that it has what it was given."""

    @abstractmethod
    def answered(self, answer: Response) -> None: ...

    def send(self, request: Request, version: int, response: type[Response]) -> None:
        self.due_s = None
        self._last = (request, version, response)
        self._expected = (response, version)
        self.socket.sendall(b"".join(encode_request(request, version, CORRELATION_ID, CLIENT_ID)))

    def wake(self) -> None:
        """It is time: report, or ask again what was refused for the moment."""
        refused, self._refused = self._refused, None
        if refused is None:
            self.beat()
        else:
            self.send(*refused)

    def rest(self) -> None:
        self.due_s = time.monotonic() + HEARTBEAT_S

    def receive(self) -> None:
        """Take what has come; handles an answer that is complete."""
        got = self.socket.recv(_RECEIVE_BYTES)
        if not got:
            raise LoadFailed("the connection of a member was closed")
        self._buffer += got
        if len(self._buffer) < 4:
            return
        (size,) = struct.unpack_from(">i", self._buffer)
        if len(self._buffer) < size + 4 or self._expected is None:
            return
        response, version = self._expected
        self._expected = None
        frame, self._buffer = bytes(self._buffer[4 : size + 4]), self._buffer[size + 4 :]
        self.answered(decode_response(response, version, frame)[1])

    def finish(self) -> None:
        """Wait for the answer that is due, if one is."""
        while self._expected is not None:
            self.receive()

    def is_passing(self, code: int) -> bool:
        """Whether the same is to be asked again, later."""
        if code in PASSING:
            self._refused = self._last
            self.rest()
        return code in PASSING

    def fail(self, code: int, doing: str) -> None:
        raise LoadFailed(f"{doing} was answered {ErrorCode(code).name}")


class ConsumerMember(RawMember):
    """Of the consumer protocol (KIP-848): gives back and takes at once, and says so at once."""

    def __init__(self, address: tuple[str, int], group: str, topic: str, partitions: int) -> None:
        super().__init__(address, group, topic, partitions)
        self.member_id = str(uuid.uuid4())
        self._topic_id = bytes(16)
        self._told: frozenset[int] | None = None

    @property
    def is_settled(self) -> bool:
        return self.epoch > 0 and self._told == self.owned

    def join(self) -> None:
        self._report([], topics=[self.topic])

    def beat(self) -> None:
        if self._told == self.owned:
            self._report(None)
            return
        self._told = self.owned
        owned = [TopicPartitions(topic_id=self._topic_id, partitions=sorted(self.owned))] if self.owned else []
        self._report(owned)

    def _report(self, owned: Sequence[TopicPartitions] | None, topics: Sequence[str] | None = None) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=-1 if topics is None else _REBALANCE_MS,
            subscribed_topic_names=topics,
            topic_partitions=owned,
        )
        self.send(request, 1, ConsumerGroupHeartbeatResponse)

    def answered(self, answer: Response) -> None:
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        if self.is_passing(answer.error_code):
            return
        if answer.error_code:
            self.fail(answer.error_code, "a heartbeat")
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            given = answer.assignment.topic_partitions
            self._topic_id = given[0].topic_id if given else self._topic_id
            self.owned = frozenset(number for one in given for number in one.partitions)
        if self.epoch < 0:
            return
        if self._told == self.owned:
            self.rest()
        else:
            self.beat()

    def leave(self) -> None:
        self.finish()
        self.epoch = -1
        self._report(None)
        self.finish()


class ClassicMember(RawMember):
    """Of the classic protocol: everybody joins again, the leader assigns. `epoch` is the generation."""

    def __init__(self, address: tuple[str, int], group: str, topic: str, partitions: int) -> None:
        super().__init__(address, group, topic, partitions)
        self._is_stable = False

    @property
    def is_settled(self) -> bool:
        return self._is_stable

    def join(self) -> None:
        self._is_stable = False
        metadata = encode_subscription(Subscription((self.topic,)))
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_REBALANCE_MS,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=_ASSIGNOR, metadata=metadata)],
        )
        self.send(request, 7, JoinGroupResponse)

    def beat(self) -> None:
        request = HeartbeatRequest(group_id=self.group, generation_id=self.epoch, member_id=self.member_id)
        self.send(request, 4, HeartbeatResponse)

    def answered(self, answer: Response) -> None:
        if isinstance(answer, JoinGroupResponse):
            self._joined(answer)
        elif isinstance(answer, SyncGroupResponse):
            self._synced(answer)
        elif isinstance(answer, HeartbeatResponse):
            if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                self.join()
            elif answer.error_code:
                self.fail(answer.error_code, "a heartbeat")
            else:
                self.rest()

    def _joined(self, answer: JoinGroupResponse) -> None:
        if self.is_passing(answer.error_code):
            return
        self.member_id = answer.member_id
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.join()
            return
        if answer.error_code:
            self.fail(answer.error_code, "a join")
        self.epoch = answer.generation_id
        assignments = []
        if answer.leader == self.member_id:
            ids = sorted(member.member_id for member in answer.members)
            assignments = [
                SyncGroupRequestAssignment(
                    member_id=member_id,
                    assignment=encode_assignment(
                        Assignment(tuple((self.topic, one) for one in range(at, self.partitions, len(ids))))
                    ),
                )
                for at, member_id in enumerate(ids)
            ]
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.epoch,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=_ASSIGNOR,
            assignments=assignments,
        )
        self.send(request, 5, SyncGroupResponse)

    def _synced(self, answer: SyncGroupResponse) -> None:
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
            return
        if answer.error_code:
            self.fail(answer.error_code, "a sync")
        self.owned = frozenset(number for _, number in decode_assignment(bytes(answer.assignment)).partitions)
        self._is_stable = True
        self.rest()

    def leave(self) -> None:
        self.finish()
        gone = MemberIdentity(member_id=self.member_id)
        self.send(LeaveGroupRequest(group_id=self.group, members=[gone]), 5, LeaveGroupResponse)
        self.finish()


PROTOCOLS: Final[dict[str, type[RawMember]]] = {"consumer": ConsumerMember, "classic": ClassicMember}


def rebalance_s(
    address: tuple[str, int], protocol: str, group: str, topic: str, partitions: int, before: int, after: int
) -> float:
    """Seconds from the first of the new members' joins until everybody has its share, and has said so."""
    members = [PROTOCOLS[protocol](address, group, topic, partitions) for _ in range(after)]
    try:
        await_coordinator(members[0].socket, group)
        for member in members[:before]:
            member.join()
        _drive(members[:before], lambda: _is_shared(members[:before]))
        start = time.perf_counter()
        for member in members[before:]:
            member.join()
        _drive(members, lambda: _is_shared(members))
        seconds = time.perf_counter() - start
        for member in reversed(members):
            member.leave()
        return seconds
    finally:
        for member in members:
            member.socket.close()


def _is_shared(members: Sequence[RawMember]) -> bool:
    """Whether every partition has one owner, everybody as many as the others, and all know it."""
    if not all(member.is_settled for member in members) or len({member.epoch for member in members}) != 1:
        return False
    counts = [len(member.owned) for member in members]
    owned = frozenset().union(*(member.owned for member in members))
    return sum(counts) == len(owned) == members[0].partitions and max(counts) - min(counts) <= 1


def _drive(members: Sequence[RawMember], is_done: Callable[[], bool]) -> None:
    """Let them receive and report until it is so."""
    by_descriptor = {member.socket.fileno(): member for member in members}
    until_s = time.monotonic() + _PATIENCE_S
    with select.epoll() as poll:
        for descriptor in by_descriptor:
            poll.register(descriptor, select.EPOLLIN)
        while not is_done():
            now_s = time.monotonic()
            if now_s > until_s:
                raise LoadFailed(f"a rebalance took longer than {_PATIENCE_S:.0f} seconds")
            for member in members:
                if member.due_s is not None and member.due_s <= now_s:
                    member.wake()
            due = min((member.due_s for member in members if member.due_s is not None), default=until_s)
            for descriptor, _ in poll.poll(max(0.0, due - now_s)):
                by_descriptor[descriptor].receive()


def await_coordinator(opened: socket.socket, group: str) -> None:
    """Until the broker coordinates groups: Apache Kafka makes its topic of offsets when somebody asks first."""
    until_s = time.monotonic() + _PATIENCE_S
    while True:
        request = find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        answer = ask(opened, request, 4, find_coordinator.FindCoordinatorResponse)
        code = answer.coordinators[0].error_code
        if not code:
            return
        if time.monotonic() > until_s:
            raise LoadFailed(f"no coordinator was found: {ErrorCode(code).name}")
        time.sleep(_PAUSE_S)
