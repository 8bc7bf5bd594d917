"""Group names of foldlog itself, and the errors of moving a group that has members."""

from __future__ import annotations

from typing import Final

from foldlog.errors import GroupNotEmpty, IllegalGeneration, RebalanceInProgress, UnknownMember

COPY_GROUP: Final = "foldlog-copy"
"""Its committed offsets are the ends of copies; their metadata says of what."""

CHECK_GROUP: Final = "foldlog-copy-check"
"""Its committed offsets are how far copies were compared with their sources; their metadata says with which."""

OWN_GROUPS: Final = frozenset({COPY_GROUP, CHECK_GROUP})
"""Groups in which copies note their progress. No consumer uses them, so they are not listed with the others."""

HAS_MEMBERS: Final = (UnknownMember, IllegalGeneration, RebalanceInProgress, GroupNotEmpty)
"""Errors, by broker, for a commit from outside while a group has members."""
