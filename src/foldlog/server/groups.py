"""The event loop's way to groups and committed offsets.

The coordinator is a state machine behind a lock that other threads hold, too: the broker's timers, consumers in the
same process. None holds it for long, but some hold it over a sync. So a call runs on the loop if it does not have to
wait, and on a thread otherwise. To follow a join: `handlers.join_group`, `GroupDriver.park`, then `broker.groups`; back
through `_replied` and `_deliver`.
"""

from __future__ import annotations

import ipaddress
import logging
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.topics.names import OFFSETS_TOPIC
from foldlog.errors import FoldlogError, InvalidArgument, LogClosed, StorageError, brief_repr
from foldlog.server.partitions import partition_refusal
from foldlog.wire.error_codes import ErrorCode, code_of

if TYPE_CHECKING:
    from foldlog.broker.groups.committed import OffsetAndMetadata
    from foldlog.broker.groups.coordinator import GroupCoordinator
    from foldlog.server.call import Call, Later
    from foldlog.server.node import BrokerNode
    from foldlog.wire.schema import Response

logger: Final = logging.getLogger("foldlog.server")

Result = TypeVar("Result")

_APPEND_BYTES: Final = 256 << 10
"""The most that a call appends, except for groups with very many members."""


class _Arrived(NamedTuple):
    """A reply of the coordinator that was not passed to its client yet."""

    later: Later
    response_of: Callable[[Any], Response]
    result: Any


class GroupDriver:
    """Calls the coordinator for the connections of one broker. Event loop only, except `_replied`: any thread.

    Promises: what a block of the coordinator decides is appended to `__consumer_offsets` before a client learns of it.
    Does not promise that it is durable then; members of a lost group join again.
    """

    def __init__(self, node: BrokerNode) -> None:
        self._node = node
        self._lock = node.broker.group_lock
        self._is_loaded = False
        self._arrived: deque[_Arrived] = deque()
        self._waits_for_block = False

    async def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call it under the lock of the groups: here if the lock is free, else on a thread. Raises its errors.

        It may append to the log, and must not wait for a sync.
        """
        if not self._is_loaded:
            await self._node.run(self._load)
            self._is_loaded = True
        # Tried, never waited for: another thread may hold it over a sync, and all connections wait for the loop. And
        # only if the append that follows would not wait either, since it runs under this lock, on this thread.
        if not self._append_may_wait() and self._lock.acquire(blocking=False):
            try:
                return function(*arguments)
            finally:
                self._lock.release()
        return await self._node.run(self._locked, function, *arguments)

    async def run_on_thread(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """As `run`, for what takes longer than a turn of the loop."""
        return await self._node.run(self._locked, function, *arguments)

    def _append_may_wait(self) -> bool:
        """The first append creates the topic, and some begin a segment, which takes several syncs."""
        partition = self._node.open_partition(OFFSETS_TOPIC, 0)
        return partition is None or partition.append_may_wait(_APPEND_BYTES)

    async def ask(self, question: Callable[[GroupCoordinator], Result]) -> Result:
        """The coordinator's answer, after it is brought up to date with the clock."""
        return await self.run(self._ask, question)

    async def park(
        self,
        request: Callable[[GroupCoordinator, Callable[[Result], None]], None],
        response_of: Callable[[Result], Response],
    ) -> Later:
        """Pass on a request that the coordinator answers later: `request` hands it over together with its reply."""
        later: Later = self._node.loop.create_future()

        def replied(result: Result) -> None:
            self._replied(_Arrived(later, response_of, result))

        await self.ask(lambda coordinator: request(coordinator, replied))
        return later

    def _load(self) -> None:
        # The first call reads the whole topic.
        with self._node.broker.coordinator():
            pass

    def _locked(self, function: Callable[..., Result], *arguments: Any) -> Result:
        with self._lock:
            return function(*arguments)

    def _ask(self, question: Callable[[GroupCoordinator], Result]) -> Result:
        with self._node.broker.coordinator() as coordinator:
            return question(coordinator)

    # --- replies ----------------------------------------------------------------------------------------------------

    def _replied(self, arrived: _Arrived) -> None:
        """Runs on any thread, inside the block that decided it and so under the lock. A reply must not raise."""
        self._arrived.append(arrived)
        self._node.soon(self._deliver)

    def _deliver(self) -> None:
        """Answer what has arrived. If this thread gets the lock, the blocks that replied have ended and are stored."""
        if not self._arrived:
            return
        if not self._lock.acquire(blocking=False):
            if not self._waits_for_block and not self._node.is_leaving:  # else the end of its connection suffices
                self._waits_for_block = True
                self._node.run(self._wait_for_block)
            return
        try:
            arrived, self._arrived = self._arrived, deque()
        finally:
            self._lock.release()
        for later, response_of, result in arrived:
            if not later.done():  # its connection may be gone
                later.set_result(response_of(result))

    def _wait_for_block(self) -> None:
        with self._lock:
            pass
        self._node.soon(self._block_ended)

    def _block_ended(self) -> None:
        self._waits_for_block = False
        self._deliver()


def refusal(call: Call, operation: AclOperation, group: str) -> ErrorCode:
    """Why this caller may not do that to a group of that name; NONE if it may."""
    if not call.allows(operation, ResourceType.GROUP, group):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE if group else ErrorCode.INVALID_GROUP_ID


async def heartbeat_refusal(call: Call, group: str, topics: Sequence[str] | None) -> tuple[ErrorCode, str | None]:
    """Why a member may not report to a group of that name that it reads these topics; NONE if it may."""
    if not group.strip():
        return ErrorCode.INVALID_REQUEST, "the group id is blank"
    error = refusal(call, AclOperation.READ, group)
    names = topics or ()
    seen = await call.node.turns.each(lambda name: call.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name), names)
    if error is ErrorCode.NONE and not all(seen):
        hidden = brief_repr(names[seen.index(False)])
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{hidden} is not a topic that you may see"
    return error, None


def commit_refusal(call: Call, topic: str, number: int, offset: OffsetAndMetadata) -> ErrorCode:
    """Why this caller may not commit that in a partition; NONE if it may."""
    error = partition_refusal(call, AclOperation.READ, topic, number)
    if error is not ErrorCode.NONE:
        return error
    is_too_large = len(offset.metadata.encode("utf-8")) > call.node.settings.offset_metadata_max_bytes
    return ErrorCode.OFFSET_METADATA_TOO_LARGE if is_too_large else ErrorCode.NONE


def group_error_code(group: str, error: FoldlogError) -> ErrorCode:
    """The error code for a client of the coordinator: one that members and administrators can handle."""
    if isinstance(error, StorageError | LogClosed):
        # Clients then look the coordinator up and ask again, which is right: disks are emptied, brokers restarted.
        logger.warning("group %r is refused for now: %s", group, error)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if isinstance(error, InvalidArgument):
        return ErrorCode.INVALID_GROUP_ID
    return code_of(error)


def address_in_acls(host: str) -> str:
    """An address as ACLs name it, with every part of an IPv6 address, as in Kafka.

    >>> address_in_acls("127.0.0.1"), address_in_acls("::1")
    ('127.0.0.1', '0:0:0:0:0:0:0:1')
    """
    return as_java_prints(host).removeprefix("/")


def as_java_prints(host: str) -> str:
    """An address as Kafka shows it in group descriptions; tools compare and parse it.

    >>> as_java_prints("127.0.0.1"), as_java_prints("::1")
    ('/127.0.0.1', '/0:0:0:0:0:0:0:1')
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return f"/{host}"
    if isinstance(address, ipaddress.IPv4Address):
        return f"/{address}"
    scope = "" if address.scope_id is None else f"%{address.scope_id}"
    return "/" + ":".join(f"{word:x}" for word in struct.unpack(">8H", address.packed)) + scope
