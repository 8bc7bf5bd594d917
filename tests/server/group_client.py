"""A group member as a client program is one: it speaks one version of each request, and follows what it is told."""

from __future__ import annotations

from typing import NamedTuple

from foldlog.server.call import Later
from foldlog.wire.messages.heartbeat import HeartbeatRequest
from foldlog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from foldlog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from foldlog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from server.small_node import SmallNode

GROUP = "readers"
PROTOCOL = "range"
SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x06events\xff\xff\xff\xff\x00\x00\x00\x00"
"""ConsumerProtocol: version 1, the topic "events", no user data, no owned partitions."""


class Versions(NamedTuple):
    """The versions of requests that a client sends together."""

    join: int = 9
    sync: int = 5
    heartbeat: int = 4
    leave: int = 5


class GroupClient:
    """One member. It has no timers: a test calls what a client's threads would call."""

    def __init__(
        self,
        small: SmallNode,
        versions: Versions | None = None,
        *,
        group: str = GROUP,
        instance_id: str | None = None,
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 60_000,
    ) -> None:
        self.small = small
        self.versions = versions or Versions()
        self.group = group
        self.instance_id = instance_id
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.member_id = ""
        self.generation = -1
        self.joined: JoinGroupResponse | None = None

    def join_request(self, **changes: object) -> JoinGroupRequest:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=SUBSCRIPTION)],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return request

    def begin_join(self) -> Later:
        """Join; with KIP-394 the first answer is an id, with which it joins again."""
        later = self.small.begin(self.join_request(), self.versions.join)
        if self.versions.join >= 4 and not self.member_id and self.instance_id is None:
            answer = self.small.answer(later, self.versions.join)
            assert answer.error_code == 79
            self.member_id = answer.member_id
            later = self.small.begin(self.join_request(), self.versions.join)
        return later

    def end_join(self, later: Later) -> JoinGroupResponse:
        answer: JoinGroupResponse = self.small.answer(later, self.versions.join)
        if answer.error_code == 0:
            self.joined, self.member_id, self.generation = answer, answer.member_id, answer.generation_id
        return answer

    @property
    def is_leader(self) -> bool:
        return self.joined is not None and self.joined.leader == self.member_id

    def begin_sync(self) -> Later:
        """Fetch the assignment; the leader gives everybody its own member id as one."""
        assert self.joined is not None
        named = self.versions.sync >= 5
        return self.small.begin(
            SyncGroupRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocol_type="consumer" if named else None,
                protocol_name=PROTOCOL if named else None,
                assignments=[
                    SyncGroupRequestAssignment(member_id=member.member_id, assignment=member.member_id.encode())
                    for member in self.joined.members
                ],
            ),
            self.versions.sync,
        )

    def end_sync(self, later: Later) -> SyncGroupResponse:
        answer: SyncGroupResponse = self.small.answer(later, self.versions.sync)
        return answer

    def heartbeat(self) -> int:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return int(self.small.ask(request, self.versions.heartbeat).error_code)

    def leave(self) -> int:
        """The error code of this member, wherever the version has it."""
        request = LeaveGroupRequest(
            group_id=self.group,
            member_id=self.member_id,
            members=[MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)],
        )
        answer = self.small.ask(request, self.versions.leave)
        return int(answer.members[0].error_code if answer.members else answer.error_code)


def settle(*clients: GroupClient) -> None:
    """All join, and all fetch their assignments: a stable group."""
    joins = [(client, client.begin_join()) for client in clients]
    for client, later in joins:
        assert client.end_join(later).error_code == 0
    # The others first: they wait for what the leader brings.
    syncs = [(client, client.begin_sync()) for client in sorted(clients, key=lambda client: client.is_leader)]
    for client, later in syncs:
        answer = client.end_sync(later)
        assert (answer.error_code, answer.assignment) == (0, client.member_id.encode())
