"""Where the disk ends and the store begins: for a partition of either kind, without the modules that a store needs."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from foldlog.errors import StorageError, StoreError
from foldlog.log.checkpoint import SlotState, StartReason
from foldlog.log.reading import Hit

if TYPE_CHECKING:
    from foldlog.log.tier.partition import TieredPartition

InStore = Callable[["TieredPartition", int, int], Hit | None]
"""Searches the store from one offset to another."""

Pick = Callable[[Hit | None, Hit | None], Hit | None]
"""Which of two hits counts: that in the store, or that on the disk."""


class WaitsForStore(BlockingIOError):
    """A read that was asked not to wait would have to wait for the store. Not for a thread that others wait for."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EAGAIN, "it is in the store", path)


def in_store(tier: TieredPartition | None, path: str) -> TieredPartition:
    """The partition's segments in the store. Raises StoreError if the log was opened without one."""
    if tier is None:
        raise StoreError(
            f"{path} has its older records in a store, and tier.json, which says where, is missing in the directory"
            " above; open the log with tier="
        )
    return tier


def search(
    state_of: Callable[[], SlotState],
    tier: TieredPartition | None,
    path: str,
    stored: InStore,
    here: Callable[[], Hit | None],
    pick: Pick,
) -> Hit | None:
    """The hit among those in the store and those on the disk. Searched again if the boundary has moved meanwhile: else
    what was moved in between would be missed in both."""
    while True:
        state = state_of()
        start, boundary = state.log_start_offset, state.local_start_offset
        found = stored(in_store(tier, path), start, boundary) if start < boundary else None
        hit = pick(found, here())
        if state_of().local_start_offset == boundary:
            return hit


def explained(tier: TieredPartition | None, known: SlotState | None, state: SlotState, first_local: int) -> SlotState:
    """The state, with the log's start by the store if files, or the slot that says why it starts there, are gone: else
    readers would pass over what the store has.

    If that was found now, after the slot `known` was written, a store that does not answer is a StoreError. A start
    that was known before may wait for the next round, since producers do not wait for a store.
    """
    is_new = known is None or known.log_start_offset != state.log_start_offset
    if tier is None or not (is_new or state.start_reason is StartReason.UNKNOWN):
        return state
    try:
        return tier.explained(state, first_local)
    except StorageError:
        if is_new:
            raise
        return state
