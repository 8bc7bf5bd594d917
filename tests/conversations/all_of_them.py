"""Every conversation: importing the modules puts theirs on the list."""

from __future__ import annotations

from conversations import (  # noqa: F401
    access,
    broken,
    classic_groups,
    consumer_groups,
    records,
    settings,
    share_groups,
    topics,
    transactions,
)
from conversations.running import CONVERSATIONS as ALL

CONVERSATIONS = tuple(ALL)
