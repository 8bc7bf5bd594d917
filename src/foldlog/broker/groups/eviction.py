"""Moving a group that has members: they are evicted, and their offsets committed before they are back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from foldlog import limits
from foldlog.errors import GroupNotEmpty, IllegalGeneration, RebalanceInProgress, UnknownMember

HAS_MEMBERS: Final = (UnknownMember, IllegalGeneration, RebalanceInProgress, GroupNotEmpty)
"""What a commit from outside is refused with while a group has members, by one broker or another."""


def commit_evicting(commit: Callable[[], None], evict_and_commit: Callable[[], None]) -> None:
    """Commit as nobody's member; where members are in the way, evict them and commit, again and again for some
    seconds: each can be back before the commit is there, and a group that has just begun waits for more members even
    when all have gone.

    The two functions ask a coordinator of this process, or brokers over the network. Members notice when they next ask
    the group, join it anew, and read on from what is committed here. Raises one of HAS_MEMBERS if somebody was always
    quicker.
    """
    try:
        return commit()
    except HAS_MEMBERS:
        pass
    for _ in range(limits.EVICTION_TRIES_MAX - 1):
        try:
            return evict_and_commit()
        except HAS_MEMBERS:
            time.sleep(limits.EVICTION_PAUSE_MS / 1000)
    return evict_and_commit()
