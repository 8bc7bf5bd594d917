"""Members that race: they join, heartbeat, commit and leave from many threads over real sockets.

Sessions are far longer than the test, so nobody may ever hear that it is unknown. A member finishes its commits before
it joins again, as clients do when partitions are taken from them; so who gets a partition must find every commit that
was answered. Each member heartbeats on a connection of its own, all the time, also while it joins.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict

from foldlog.broker.broker import Broker
from foldlog.server.server import Server
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.heartbeat import HeartbeatRequest
from foldlog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from foldlog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from foldlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from foldlog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from foldlog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from server.raw_client import RawClient

GROUP = "readers"
TOPIC = "orders"
PARTITIONS = 3
MEMBERS = 6
ROUNDS = 50
MOVED_ON = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}
BOUND_S = 120.0


class Books:
    """What all members together were told: the law they check each other against."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: dict[tuple[int, int], str] = {}
        self.acknowledged: dict[int, int] = defaultdict(int)
        self.failures: list[str] = []
        self.rounds = 0

    def owns(self, generation: int, partition: int, member_id: str) -> None:
        with self._lock:
            owner = self._owners.setdefault((generation, partition), member_id)
            if owner != member_id:
                self.failures.append(f"{owner} and {member_id} have partition {partition} in generation {generation}")

    def found(self, partition: int, offset: int) -> None:
        with self._lock:
            known = self.acknowledged[partition]
            if max(offset, 0) < known:
                self.failures.append(f"partition {partition} is at {offset}, but {known} was acknowledged")

    def committed(self, partition: int, offset: int) -> None:
        with self._lock:
            self.acknowledged[partition] = max(self.acknowledged[partition], offset)

    def check(self, doing: str, error: int, allowed: set[ErrorCode]) -> bool:
        """Whether it went well; a failure is kept unless it is one that may happen."""
        if error not in {ErrorCode.NONE, *allowed}:
            with self._lock:
                self.failures.append(f"{doing}: {ErrorCode(error).name}")
        return error == ErrorCode.NONE


class RacingMember:
    """One member with two connections and two threads."""

    def __init__(self, address: tuple[str, int], books: Books, seed: int) -> None:
        self._books = books
        self._random = random.Random(seed)
        self._connection = RawClient(address)
        self._heartbeats = RawClient(address)
        self._identity = ("", -1)  # replaced as one, so that a heartbeat never mixes two
        self._is_done = threading.Event()
        self._threads = [threading.Thread(target=self._guard, args=(run,)) for run in (self._live, self._beat)]
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        for thread in self._threads:
            thread.join(BOUND_S)
            assert not thread.is_alive()
        self._connection.close()
        self._heartbeats.close()

    def _guard(self, run: object) -> None:
        try:
            assert callable(run)
            run()
        except Exception as error:  # noqa: BLE001  told by the test, with the others
            self._books.failures.append(repr(error))
        finally:
            self._is_done.set()

    def _beat(self) -> None:
        while not self._is_done.is_set():
            identity = self._identity
            member_id, generation = identity
            if generation < 0:
                self._is_done.wait(0.001)
                continue
            request = HeartbeatRequest(group_id=GROUP, member_id=member_id, generation_id=generation)
            error = self._heartbeats.ask(request, 4).error_code
            if member_id == self._identity[0]:  # it has not left meanwhile
                self._books.check("heartbeat", error, MOVED_ON)

    def _live(self) -> None:
        for _ in range(ROUNDS):
            while not self._join_and_read():
                pass
            self._books.rounds += 1
            if self._random.random() < 0.3:
                self._leave()
        self._leave()

    def _join_and_read(self) -> bool:
        joined = self._join()
        partitions = self._sync(joined)
        if partitions is None:
            return False
        for partition in partitions:
            self._books.owns(joined.generation_id, partition, joined.member_id)
        return all(self._read(partition) for partition in partitions)

    def _join(self) -> JoinGroupResponse:
        while True:
            member_id, _ = self._identity
            answer: JoinGroupResponse = self._connection.ask(
                JoinGroupRequest(
                    group_id=GROUP,
                    session_timeout_ms=300_000,
                    rebalance_timeout_ms=300_000,
                    member_id=member_id,
                    protocol_type="consumer",
                    # Metadata that differs: a join with the same as before would not start a rebalance.
                    protocols=[JoinGroupRequestProtocol(name="range", metadata=self._random.randbytes(8))],
                ),
                9,
            )
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._identity = (answer.member_id, -1)
            elif self._books.check("join", answer.error_code, set()):
                self._identity = (answer.member_id, answer.generation_id)
                return answer
            else:
                raise AssertionError(f"join: {answer.error_code}")

    def _sync(self, joined: JoinGroupResponse) -> list[int] | None:
        """The partitions of this member; the leader deals them out in turn."""
        dealt: dict[str, bytearray] = {member.member_id: bytearray() for member in joined.members}
        for partition in range(PARTITIONS if dealt else 0):
            list(dealt.values())[partition % len(dealt)].append(partition)
        answer = self._connection.ask(
            SyncGroupRequest(
                group_id=GROUP,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[
                    SyncGroupRequestAssignment(member_id=member_id, assignment=bytes(partitions))
                    for member_id, partitions in dealt.items()
                ],
            ),
            5,
        )
        return list(answer.assignment) if self._books.check("sync", answer.error_code, MOVED_ON) else None

    def _read(self, partition: int) -> bool:
        """Go on from where the partition's last reader was, one record further."""
        wanted = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[partition])
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=[wanted])])
        (group,) = self._connection.ask(request, 9).groups
        if not self._books.check("fetch offsets", group.error_code, set()):
            return False
        found = group.topics[0].partitions[0].committed_offset
        self._books.found(partition, found)
        offset = max(found, 0) + 1
        member_id, generation = self._identity
        kept = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        answer = self._connection.ask(
            OffsetCommitRequest(
                group_id=GROUP,
                member_id=member_id,
                generation_id_or_member_epoch=generation,
                topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[kept])],
            ),
            9,
        )
        is_kept = self._books.check("commit", answer.topics[0].partitions[0].error_code, MOVED_ON)
        if is_kept:
            self._books.committed(partition, offset)
        return is_kept

    def _leave(self) -> None:
        member_id, _ = self._identity
        if not member_id:
            return
        self._identity = ("", -1)
        answer = self._connection.ask(
            LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=member_id)]), 5
        )
        self._books.check("leave", answer.members[0].error_code, set())


def test_racing_members_are_never_unknown_never_share_a_partition_and_lose_no_commit(
    broker: Broker, server: Server
) -> None:
    books = Books()
    members = [RacingMember(server.addresses[0], books, seed) for seed in range(MEMBERS)]
    for member in members:
        member.finish()
    assert books.failures == []
    assert books.rounds == MEMBERS * ROUNDS
    kept = {number: offset.offset for (_, number), offset in broker.committed(GROUP).items()}
    assert kept == dict(books.acknowledged)
    assert sum(kept.values()) >= MEMBERS
