"""Groups that are not read with, but looked after: foldlog's own, and one with members that is to be moved."""

from __future__ import annotations

from typing import Final

from foldlog.broker.groups.eviction import HAS_MEMBERS as HAS_MEMBERS

COPY_GROUP: Final = "foldlog-copy"
"""Its committed offsets are the ends of copies; their notes say of what."""

CHECK_GROUP: Final = "foldlog-copy-check"
"""Its committed offsets are how far copies have been compared with their sources; their notes say with which."""

OWN_GROUPS: Final = frozenset({COPY_GROUP, CHECK_GROUP})
"""In which copies note how far they are. Nobody reads with them, so they are not listed among those that people do."""
