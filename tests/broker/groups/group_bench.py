"""A coordinator on a clock that the test moves, and answers one can look at. Used by the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Generic, TypeVar

from foldlog.broker.groups.committed import LoggedBatch, LoggedRecord
from foldlog.broker.groups.consumer_protocol import Subscription, encode_subscription
from foldlog.broker.groups.coordinator import GroupCoordinator
from foldlog.broker.groups.errors import GroupErrorCode
from foldlog.broker.groups.messages import (
    GroupSettings,
    GroupState,
    JoinRequest,
    JoinResult,
    MemberIdentity,
    SyncRequest,
    SyncResult,
)
from foldlog.testing.sim_clock import SimClock

GROUP = "fraud"
SESSION_MS = 10_000
REBALANCE_MS = 60_000

Result = TypeVar("Result")


def counting_ids() -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"{next(numbers):04d}"


def wants(*topics: str) -> bytes:
    return encode_subscription(Subscription(topics), version=1)


class Answer(Generic[Result]):
    """A reply that remembers what it was called with, and insists on being called once."""

    def __init__(self) -> None:
        self._results: list[Result] = []

    def __call__(self, result: Result) -> None:
        self._results.append(result)
        assert len(self._results) == 1, "a request was answered twice"

    @property
    def arrived(self) -> bool:
        return bool(self._results)

    @property
    def result(self) -> Result:
        assert self._results, "not answered yet"
        return self._results[0]


class GroupBench:
    """Short ways to say what members do."""

    def __init__(self, settings: GroupSettings | None = None) -> None:
        self.clock = SimClock()
        self.settings = settings
        self.new_id = counting_ids()
        self.coordinator = GroupCoordinator(self.clock, settings, self.new_id)

    def join(
        self,
        member_id: str = "",
        *,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"topics"),),
        instance: str | None = None,
        known_id: bool = False,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        protocol_type: str = "consumer",
        group: str = GROUP,
        skipping: bool = False,
    ) -> Answer[JoinResult]:
        answer: Answer[JoinResult] = Answer()
        request = JoinRequest(
            group,
            protocol_type,
            protocols,
            session_ms,
            rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            client_id="app",
            client_host="/127.0.0.1",
            require_known_member_id=known_id,
            supports_skipping_assignment=skipping,
        )
        self.coordinator.join(request, answer)
        return answer

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        instance: str | None = None,
    ) -> Answer[SyncResult]:
        answer: Answer[SyncResult] = Answer()
        self.coordinator.sync(SyncRequest(GROUP, member_id, generation, assignments or {}, instance), answer)
        return answer

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> GroupErrorCode:
        return self.coordinator.heartbeat(GROUP, member_id, generation, instance)

    def leave(self, *member_ids: str) -> list[GroupErrorCode]:
        results = self.coordinator.leave(GROUP, [MemberIdentity(member_id) for member_id in member_ids])
        return [result.error for result in results]

    @property
    def state(self) -> GroupState:
        return self.coordinator.describe(GROUP).state

    @property
    def generation(self) -> int:
        return self.coordinator.describe(GROUP).generation

    def pass_time(self, ms: int, heartbeats: Mapping[str, int] | None = None) -> None:
        """Let time pass in small steps, ticking as a driver would; `heartbeats` (id to generation) stay alive."""
        end_ms = self.clock.monotonic_ms() + ms
        while self.clock.monotonic_ms() < end_ms:
            self.clock.advance(min(1000, int(end_ms - self.clock.monotonic_ms())))
            for member_id, generation in (heartbeats or {}).items():
                self.heartbeat(member_id, generation)
            self.coordinator.tick(self.clock.monotonic_ms())

    def stable(self, size: int, **join: object) -> list[str]:
        """A stable group of `size` members, each assigned its own id as bytes; the leader comes first."""
        answers = [self.join(**join)]  # type: ignore[arg-type]
        for _ in range(size - 1):
            newcomer = self.join(**join)  # type: ignore[arg-type]
            rejoined = [self.join(answer.result.member_id, **join) for answer in answers]  # type: ignore[arg-type]
            answers = [*rejoined, newcomer]
        self.settle(answers)
        return [answer.result.member_id for answer in answers]

    def settle(self, joins: list[Answer[JoinResult]]) -> None:
        """All sync, the leader last, so that the others are parked for a while."""
        results = sorted((answer.result for answer in joins), key=lambda result: result.is_leader)
        synced = []
        for result in results:
            assert result.error is GroupErrorCode.NONE
            assignments = {member.member_id: member.member_id.encode() for member in result.members}
            synced.append(self.sync(result.member_id, result.generation, assignments))
        for result, answer in zip(results, synced, strict=True):
            assert answer.result == SyncResult(
                GroupErrorCode.NONE, result.member_id.encode(), "consumer", result.protocol
            )

    def restart(self) -> None:
        """A new coordinator that knows only what the old one had given out to be written."""
        records = dict(self.coordinator.take_writes())
        self.coordinator = GroupCoordinator(self.clock, self.settings, self.new_id)
        for key, value in records.items():
            self.coordinator.restore(key, value)


def batch_of(records: Sequence[tuple[bytes | None, bytes | None]]) -> list[LoggedBatch]:
    """Records of `__consumer_offsets` as one batch, for `load_records`."""
    return [LoggedBatch(0, [LoggedRecord(offset, key, value) for offset, (key, value) in enumerate(records)])]
