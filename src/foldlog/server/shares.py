"""The event loop's way to what share groups do with records (`broker/share/store.py`), and what is common to ShareFetch
and ShareAcknowledge.

The store is behind a lock that other threads hold, too, and appends under it. So a call runs on the loop if it does not
have to wait, and on a thread otherwise; answers wait for the sync of what was appended without holding anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.share.messages import AcknowledgedBatch, AcknowledgeType
from foldlog.broker.share.store import Saved, Taken
from foldlog.broker.topics.names import SHARE_STATE_TOPIC
from foldlog.errors import FoldlogError
from foldlog.server.share_sessions import ShareSession, ShareSessions, TopicIdPartition
from foldlog.wire.error_codes import ErrorCode, code_of

if TYPE_CHECKING:
    from foldlog.server.call import Call, Caller
    from foldlog.server.node import BrokerNode

Result = TypeVar("Result")

_APPEND_BYTES: Final = 256 << 10
"""The most that a call appends, except for groups whose members acknowledge in no order at all."""


class WaitsForRecords(Protocol):
    """A ShareFetch that waits. Woken on the event loop, perhaps for nothing."""

    def moved(self) -> None: ...


class ShareDriver:
    """Calls the store for the connections of one broker. Event loop only, except `_available`: any thread."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node
        self._store = node.broker.shares
        self._is_loaded = False
        self._waiting: dict[str, set[WaitsForRecords]] = {}
        self.sessions = ShareSessions(self._store.configs.broker.share.sessions_max)
        self._store.watchers.append(self._available)

    def close(self) -> None:
        """The log stays open, and is no longer watched."""
        self._store.watchers.remove(self._available)

    async def run(self, function: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
        """Call a function of the store: here if that does not have to wait, else on a thread. Raises its errors."""
        if self._is_loaded and not self._append_may_wait() and self._store.lock.acquire(blocking=False):
            try:
                return function(*arguments, **named)
            finally:
                self._store.lock.release()
        result = await self._node.run(partial(function, *arguments, **named))
        self._is_loaded = True
        return result

    async def begin(self, group: str, partitions: Sequence[tuple[str, int]]) -> None:
        """See `ShareStore.begin`. On a thread, unless the group was in all of them before: it may wait for a sync."""
        known = await self.run(self._store.has_begun, group, partitions)
        if not known:
            await self._node.run(self._store.begin, group, partitions)

    async def take(self, group: str, member: str, topic: str, number: int, **limits: Any) -> Taken:
        """See `ShareStore.take`."""
        if self._node.open_partition(topic, number) is not None:
            try:
                return await self.run(self._store.take, group, member, topic, number, nowait=True, **limits)
            except BlockingIOError:
                pass
        return await self._node.run(partial(self._store.take, group, member, topic, number, **limits))

    def _append_may_wait(self) -> bool:
        partition = self._node.open_partition(SHARE_STATE_TOPIC, 0)
        return partition is None or partition.append_may_wait(_APPEND_BYTES)

    async def durable(self, saved: Iterable[Saved | None]) -> FoldlogError | None:
        """Wait until all of it is durable; the error if it cannot be."""
        waiting: list[asyncio.Future[FoldlogError | None]] = []
        for one in saved:
            if one is not None and one.partition.high_watermark < one.next_offset:
                reached: asyncio.Future[FoldlogError | None] = self._node.loop.create_future()
                self._node.syncs.wait(one.partition, one.next_offset, partial(_resolve, reached))
                waiting.append(reached)
        errors = [error for error in await asyncio.gather(*waiting) if error is not None]
        return errors[0] if errors else None

    # --- sessions and those who wait ----------------------------------------------------------------------------------

    def end(self, session: ShareSession) -> None:
        """The session is over: what its member has acquired is available to others."""
        self.sessions.end(session)
        self._store.member_gone(session.group, session.member)

    def disconnected(self, caller: Caller) -> None:
        for session in self.sessions.of_caller(caller):
            self.end(session)

    def wait(self, group: str, waiter: WaitsForRecords) -> None:
        """Wake `waiter` whenever records of the group are available again."""
        self._waiting.setdefault(group, set()).add(waiter)

    def forget(self, group: str, waiter: WaitsForRecords) -> None:
        waiting = self._waiting.get(group, set())
        waiting.discard(waiter)
        if not waiting:
            self._waiting.pop(group, None)

    def _available(self, group: str, topic_id: bytes, number: int) -> None:
        if group in self._waiting:
            self._node.soon(self._wake, group)

    def _wake(self, group: str) -> None:
        for waiter in tuple(self._waiting.get(group, ())):
            waiter.moved()


def _resolve(reached: asyncio.Future[FoldlogError | None], error: FoldlogError | None) -> None:
    if not reached.done():
        reached.set_result(error)


# --- what is acknowledged ---------------------------------------------------------------------------------------------


class ShareOutcome(NamedTuple):
    """What became of something a client asked of a partition."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


DONE: Final = ShareOutcome()


class ReceivedBatch(Protocol):
    """Acknowledgements as both requests carry them."""

    first_offset: int
    last_offset: int
    acknowledge_types: Sequence[int]


def refusal_of(call: Call, group: str | None, member: str | None) -> ShareOutcome:
    """Why a member of that name may not take part in a group of that name."""
    if not group or not member:
        return ShareOutcome(ErrorCode.INVALID_REQUEST, "the group id and the member id may not be empty")
    if not call.allows(AclOperation.READ, ResourceType.GROUP, group):
        return ShareOutcome(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return DONE


def readable(call: Call, one: TopicIdPartition) -> tuple[str, ShareOutcome]:
    """The name of the partition's topic, and why the caller may not read it."""
    name = call.node.topic_ids.name_of(one[0])
    if name is None:
        return "", ShareOutcome(ErrorCode.UNKNOWN_TOPIC_ID)
    if not call.allows(AclOperation.READ, ResourceType.TOPIC, name):
        return name, ShareOutcome(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if not call.node.has_partition(name, one[1]):
        return name, ShareOutcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return name, DONE


async def acknowledge(
    call: Call,
    session: ShareSession,
    received: Mapping[TopicIdPartition, Sequence[ReceivedBatch]],
    *,
    is_renewal: bool,
) -> dict[TopicIdPartition, ShareOutcome]:
    """Take in what the member says of records, each partition by itself. Returns once it is durable."""
    shares, store = call.node.shares, call.node.broker.shares
    outcomes: dict[TopicIdPartition, ShareOutcome] = {}
    saved: dict[TopicIdPartition, Saved | None] = {}
    for one, batches in received.items():
        name, outcomes[one] = readable(call, one)
        parsed = _parsed(batches, may_renew=is_renewal)
        if parsed is None:
            outcomes[one] = ShareOutcome(ErrorCode.INVALID_REQUEST, "the acknowledgements are not what they may be")
        elif outcomes[one] is DONE:
            try:
                saved[one] = await shares.run(store.acknowledge, session.group, session.member, name, one[1], parsed)
            except FoldlogError as error:
                call.node.storage_failed("an acknowledgement", name, one[1], error)
                outcomes[one] = ShareOutcome(code_of(error), str(error))
    failed = await shares.durable(saved.values())
    if failed is not None:
        outcomes.update(dict.fromkeys(saved, ShareOutcome(ErrorCode.KAFKA_STORAGE_ERROR, str(failed))))
    return outcomes


def _parsed(batches: Sequence[ReceivedBatch], *, may_renew: bool) -> list[AcknowledgedBatch] | None:
    """As the store takes them; None if they are not in order, or have types that do not exist or are not allowed."""
    last_type = AcknowledgeType.RENEW if may_renew else AcknowledgeType.REJECT
    before = -1
    parsed = []
    for batch in batches:
        types = batch.acknowledge_types
        if not before < batch.first_offset <= batch.last_offset:
            return None
        if len(types) not in (1, batch.last_offset - batch.first_offset + 1):
            return None
        if not all(AcknowledgeType.GAP <= one <= last_type for one in types):
            return None
        before = batch.last_offset
        parsed.append(AcknowledgedBatch(batch.first_offset, batch.last_offset, tuple(map(AcknowledgeType, types))))
    return parsed
