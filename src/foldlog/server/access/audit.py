"""The audit log: a line for each change that somebody asks for, with who, from where, what, and whether it was done.

Kept where clients say who they are. Lines go to the logger `foldlog.audit`, at INFO; they hold names of topics, groups,
users and settings, and no values: a value may be a secret.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from foldlog.broker.access.acls import Identity
from foldlog.limits import AUDITED_NAMES_MAX
from foldlog.wire.messages import NAMES
from foldlog.wire.schema import Message

logger = logging.getLogger("foldlog.audit")

AUDITED: Final = frozenset({19, 20, 21, 27, 30, 31, 33, 34, 37, 42, 43, 44, 45, 47, 49, 51, 57, 91, 92})
"""The APIs that change something other than records and a group's own offsets."""

_NAMING: Final = frozenset(
    {
        "name",
        "topic",
        "topic_name",
        "topic_names",
        "group_id",
        "groups_names",
        "resource_name",
        "resource_name_filter",
        "principal",
        "principal_filter",
        "entity_name",
        "key",
        "feature",
    }
)
"""Fields of requests that say what is meant."""


def names_in(message: Message) -> Iterator[str]:
    """What a request names, in its order.

    >>> from foldlog.wire.messages.delete_groups import DeleteGroupsRequest
    >>> list(names_in(DeleteGroupsRequest(groups_names=["fraud", "billing"])))
    ['fraud', 'billing']
    """
    for field in type(message).SCHEMA:
        value = getattr(message, field.name)
        values = value if field.is_array else (value,)
        for one in values or ():
            if isinstance(one, Message):
                yield from names_in(one)
            elif isinstance(one, str) and field.name in _NAMING:
                yield one


def described(api_key: int, request: Message) -> str:
    """What is asked for, in a few words."""
    names: list[str] = []
    for name in names_in(request):
        if len(names) == AUDITED_NAMES_MAX:
            names.append("...")
            break
        names.append(repr(name)[1:-1])  # a name may have a line feed in it, and a line is one entry
    return f"{NAMES[api_key]} {', '.join(names)}".rstrip()


def note(who: Identity, what: str, *, is_done: bool) -> None:
    """Write a line."""
    logger.info("%s from %s: %s: %s", repr(who.principal)[1:-1], who.host, what, "done" if is_done else "refused")
