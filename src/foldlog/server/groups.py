"""The event loop's way to groups and committed offsets.

The coordinator is a state machine behind a lock that other threads hold, too: the timers of the broker, consumers of
the same process. Nobody holds it for long, but some hold it over a sync. So a call runs here on the loop if it has to
wait for nothing, and on a thread otherwise. To follow a join: `handlers.join_group`, `GroupDriver.park`, then
`broker.groups`; back through `_replied` and `_deliver`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from foldlog.broker.topics.names import OFFSETS_TOPIC
from foldlog.errors import FoldlogError, InvalidArgument, LogClosed, StorageError
from foldlog.server.authorizer import AclOperation, ResourceType
from foldlog.wire.error_codes import ErrorCode, code_of

if TYPE_CHECKING:
    from foldlog.broker.groups.coordinator import GroupCoordinator
    from foldlog.server.call import Call, Later
    from foldlog.server.node import BrokerNode
    from foldlog.wire.schema import Response

logger: Final = logging.getLogger("foldlog.server")

Result = TypeVar("Result")

_APPEND_BYTES: Final = 256 << 10
"""What a call appends at most, but for groups with very many members."""


class _Arrived(NamedTuple):
    """A reply of the coordinator that its client has not been given yet."""

    later: Later
    response_of: Callable[[Any], Response]
    result: Any


class GroupDriver:
    """Asks the coordinator for the connections of one broker. The event loop's, but for `_replied`, which is anybody's.

    Promises: what a block of the coordinator decides is appended to `__consumer_offsets` before a client hears of it.
    Does not promise: that it is durable then; members of a group that was lost join again.
    """

    def __init__(self, node: BrokerNode) -> None:
        self._node = node
        self._lock = node.broker.group_lock
        self._is_loaded = False
        self._arrived: deque[_Arrived] = deque()
        self._waits_for_block = False

    async def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call it with the lock of the groups: here if the lock is free, else on a thread. Raises what it raises.

        It may append to the log, and must not wait for a sync.
        """
        if not self._is_loaded:
            await self._node.run(self._load)
            self._is_loaded = True
        # Tried, never waited for: who has it may hold it over a sync, and the loop is what everybody else waits for.
        # And only if the append that follows it would not wait either, since it is made under this lock, on this
        # thread.
        if not self._append_may_wait() and self._lock.acquire(blocking=False):
            try:
                return function(*arguments)
            finally:
                self._lock.release()
        return await self._node.run(self._locked, function, *arguments)

    def _append_may_wait(self) -> bool:
        """The first append makes the topic, and some begin a segment, which takes some syncs."""
        partition = self._node.open_partition(OFFSETS_TOPIC, 0)
        return partition is None or partition.append_may_wait(_APPEND_BYTES)

    async def ask(self, question: Callable[[GroupCoordinator], Result]) -> Result:
        """What the coordinator, up to date with the clock, answers to that."""
        return await self.run(self._ask, question)

    async def park(
        self,
        request: Callable[[GroupCoordinator, Callable[[Result], None]], None],
        response_of: Callable[[Result], Response],
    ) -> Later:
        """A request that the coordinator answers when it is time: `request` hands it over together with its reply."""
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
        """On any thread, inside the block that decided it and so with the lock. A reply must not raise."""
        self._arrived.append(arrived)
        self._node.soon(self._deliver)

    def _deliver(self) -> None:
        """Answer what has arrived. Who can have the lock knows that the blocks that replied are over, and stored."""
        if not self._arrived:
            return
        if not self._lock.acquire(blocking=False):
            if not self._waits_for_block and not self._node.is_leaving:  # leaving, the end of its connection tells all
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


def group_error_code(group: str, error: FoldlogError) -> ErrorCode:
    """What a client of the coordinator is told: codes that its members and administrators know what to do with."""
    if isinstance(error, StorageError | LogClosed):
        # Clients look the coordinator up again and ask again, which is right: disks are emptied, brokers restarted.
        logger.warning("group %r is refused for now: %s", group, error)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if isinstance(error, InvalidArgument):
        return ErrorCode.INVALID_GROUP_ID
    return code_of(error)
