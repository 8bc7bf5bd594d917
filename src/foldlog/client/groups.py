"""Groups that are not read with, but looked after: foldlog's own, and one with members that is moved over the network.

Members of a group that is moved are made to leave, and it is committed before they are back. They notice when they next
ask the group, join it anew, and read on from what is committed here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from foldlog.errors import GroupNotEmpty, IllegalGeneration, RebalanceInProgress, UnknownMember
from foldlog.limits import EVICTION_TRIES_MAX

COPY_GROUP: Final = "foldlog-copy"
"""Its committed offsets are the ends of copies; their notes say of what."""

CHECK_GROUP: Final = "foldlog-copy-check"
"""Its committed offsets are how far copies have been compared with their sources; their notes say with which."""

OWN_GROUPS: Final = frozenset({COPY_GROUP, CHECK_GROUP})
"""In which copies note how far they are. Nobody reads with them, so they are not listed among those that people do."""

HAS_MEMBERS: Final = (UnknownMember, IllegalGeneration, RebalanceInProgress, GroupNotEmpty)
"""What a commit from outside is refused with while a group has members, by one broker or another."""


def commit_evicting(commit: Callable[[], None], evict: Callable[[], None]) -> None:
    """Commit, after making the members leave if there are some; again, if one was back more quickly.

    These are two questions. One of HAS_MEMBERS is raised if somebody was always quicker.
    """
    for _ in range(EVICTION_TRIES_MAX):
        try:
            commit()
        except HAS_MEMBERS:
            evict()
        else:
            return
    commit()
