"""When to sync what nobody waits for: batches sent with acks=1 or acks=0.

Readers see only what is durable, so these have to be synced too, but there is no hurry unless somebody reads. Syncing
each at once would take a sync for every few batches; one in a while takes as long and covers all since the last.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from foldlog.errors import FoldlogError

if TYPE_CHECKING:
    from foldlog.log.partition import Partition
    from foldlog.server.arrivals import Arrivals

_DELAY_S: Final = 0.01
"""How long a record may wait for its sync while nobody waits for it; reading processes look every 20 ms at most."""


class LazySyncs:
    """The event loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, arrivals: Arrivals) -> None:
        self._loop = loop
        self._arrivals = arrivals
        self._wanted: dict[Partition, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def wrote(self, partition: Partition, next_offset: int) -> None:
        """Sync it in a while, or at once if a fetch waits for it."""
        if self._arrivals.are_awaited(partition):
            self._wanted.pop(partition, None)
            partition.on_acknowledged(next_offset, _ignore)
            return
        self._wanted[partition] = next_offset
        if self._timer is None:
            self._timer = self._loop.call_later(_DELAY_S, self._sync_all)

    def hurry(self, partition: Partition) -> None:
        """Somebody wants to read it."""
        next_offset = self._wanted.pop(partition, None)
        if next_offset is not None:
            partition.on_acknowledged(next_offset, _ignore)

    def _sync_all(self) -> None:
        self._timer = None
        wanted, self._wanted = self._wanted, {}
        for partition, next_offset in wanted.items():
            partition.on_acknowledged(next_offset, _ignore)


def _ignore(error: FoldlogError | None) -> None:
    """Who reads will see it, or not; a partition that cannot be synced says so to the next who writes."""
