"""The audit log: a line for each login, and for each change that somebody asks for.

Kept where clients say who they are. Lines go to the logger `foldlog.audit`, at INFO, in one form:

    principal="User:alice" address="10.0.0.7" action="CreateTopics" names=["orders"] result="done"

Values are JSON in ASCII: whatever a name holds, it ends where its quote does. In a log of JSON the same fields stand
beside the message. There are names of topics, groups, users and settings, ACLs, and the numbers of quotas, and no other
values: a value may be a secret. What was done is told whole, however many names that are.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from foldlog.broker.access.acls import AclOperation, Identity, PatternType, Permission, ResourceType
from foldlog.broker.access.scram import MECHANISM_NUMBERS
from foldlog.limits import AUDITED_NAMES_MAX, CONSOLE_SESSIONS_MAX
from foldlog.wire.messages import NAMES
from foldlog.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from foldlog.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from foldlog.wire.messages.create_acls import CreateAclsRequest
from foldlog.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from foldlog.wire.schema import ZERO_UUID, Message

if TYPE_CHECKING:
    from foldlog.clock import Clock

logger = logging.getLogger("foldlog.audit")

AUDITED: Final = frozenset({19, 20, 21, 27, 30, 31, 33, 34, 37, 42, 43, 44, 45, 47, 49, 51, 57, 91, 92})
"""The APIs that change something other than records and a group's own offsets."""

DONE: Final = "done"
REFUSED: Final = "refused"
IN_PART: Final = "in part"
CHECKED: Final = "only checked"

_NAMING: Final = frozenset(
    {
        "name",
        "topic",
        "topic_name",
        "topic_names",
        "group_id",
        "groups_names",
        "resource_name",
        "entity_name",
        "key",
        "feature",
    }
)
"""Fields of requests that say what is meant."""

NameOf = Callable[[bytes], str | None]
"""The name of the topic with an id."""


@dataclass(frozen=True, slots=True)
class AuditedChange:
    """What a request asks for."""

    action: str
    names: tuple[str, ...]
    is_check: bool = False


def change_in(api_key: int, request: Message, name_of: NameOf) -> AuditedChange:
    """Before the request is begun: afterwards a deleted topic has no name."""
    if isinstance(request, CreateAclsRequest):
        names = [_acl_text(one, one.resource_name, one.resource_pattern_type) for one in request.creations]
    elif isinstance(request, DeleteAclsRequest):
        names = [
            _acl_text(one, one.resource_name_filter, one.pattern_type_filter, suffix="_filter")
            for one in request.filters
        ]
    elif isinstance(request, AlterUserScramCredentialsRequest):
        names = [f"{one.name!r}: {_scram_name(one.mechanism)} deleted" for one in request.deletions]
        names += [f"{one.name!r}: {_scram_name(one.mechanism)} set" for one in request.upsertions]
    elif isinstance(request, AlterClientQuotasRequest):
        names = list(_quotas_in(request))
    else:
        names = list(names_in(request, name_of))
    return AuditedChange(NAMES[api_key], tuple(names), bool(getattr(request, "validate_only", False)))


def names_in(message: Message, name_of: NameOf) -> Iterator[str]:
    """What a request names, in its order.

    >>> from foldlog.wire.messages.delete_groups import DeleteGroupsRequest
    >>> list(names_in(DeleteGroupsRequest(groups_names=["fraud", "billing"]), {}.get))
    ['fraud', 'billing']
    """
    for field in type(message).SCHEMA:
        value = getattr(message, field.name)
        values = value if field.is_array else (value,)
        for one in values or ():
            if isinstance(one, Message):
                yield from names_in(one, name_of)
            elif isinstance(one, str) and field.name in _NAMING:
                yield one
            elif field.name == "topic_id" and one != ZERO_UUID:
                yield name_of(bytes(one)) or f"the topic with id {bytes(one).hex()}"


def _acl_text(message: Message, name: str | None, pattern: int, suffix: str = "") -> str:
    """An ACL, or a filter of ACLs, in a sentence.

    >>> from foldlog.wire.messages.create_acls import AclCreation
    >>> acl = AclCreation(resource_type=2, principal="User:bob", host="*", operation=3, permission_type=3)
    >>> _acl_text(acl, "ord", 4)
    "ALLOW READ on TOPIC 'ord' PREFIXED to 'User:bob' from '*'"
    """
    kind, principal, host = (getattr(message, f"{one}{suffix}") for one in ("resource_type", "principal", "host"))
    permission, operation = (getattr(message, one) for one in ("permission_type", "operation"))
    return (
        f"{Permission(permission).name} {AclOperation(operation).name}"
        f" on {ResourceType(kind).name} {_shown(name)} {PatternType(pattern).name}"
        f" to {_shown(principal)} from {_shown(host)}"
    )


def _shown(text: str | None) -> str:
    return "any" if text is None else repr(text)


def _scram_name(number: int) -> str:
    return MECHANISM_NUMBERS.get(number, f"mechanism {number}")


def _quotas_in(request: AlterClientQuotasRequest) -> Iterator[str]:
    for entry in request.entries:
        whose = " and ".join(
            f"{one.entity_type} {'by default' if one.entity_name is None else repr(one.entity_name)}"
            for one in entry.entity
        )
        for one in entry.ops:
            yield f"{whose}: {one.key} {'deleted' if one.remove else f'= {one.value:.15g}'}"


# --- lines ------------------------------------------------------------------------------------------------------------


def result_of(answer: Message) -> str:
    """Whether all that was asked for was done, or some of it.

    >>> from foldlog.wire.messages.delete_groups import DeletableGroupResult as Group, DeleteGroupsResponse
    >>> result_of(DeleteGroupsResponse(results=[Group(error_code=16), Group()]))
    'in part'
    """
    codes = set(_codes_in(answer))
    if not codes - {0}:
        return DONE
    # An error for the whole request is none of its parts'.
    return IN_PART if 0 in codes and not getattr(answer, "error_code", 0) else REFUSED


def _codes_in(message: Message) -> Iterator[int]:
    """The error codes of a message: those of its parts, and its own if it has no parts."""
    has_parts = False
    for field in type(message).SCHEMA:
        if field.is_array:
            for one in getattr(message, field.name) or ():
                if isinstance(one, Message):
                    found = list(_codes_in(one))
                    has_parts = has_parts or bool(found)
                    yield from found
    own = getattr(message, "error_code", None)
    if own is not None and (own or not has_parts):
        yield own


def note_change(who: Identity, change: AuditedChange, answer: Message | None) -> None:
    """Write down what became of a change; without an answer it has failed."""
    result = REFUSED if answer is None else result_of(answer)
    names = change.names
    if result == DONE and change.is_check:
        result = CHECKED
    if isinstance(answer, DeleteAclsResponse):
        matched = [one for each in answer.filter_results for one in each.matching_acls]
        names = tuple(_acl_text(one, one.resource_name, one.pattern_type) for one in matched) or names
    note(who, change.action, names, result=result)


def note(who: Identity, action: str, names: Sequence[str] = (), *, result: str = DONE, reason: str = "") -> None:
    """Write a line; several if there are very many names. Of what was refused, the first names are enough."""
    if result == REFUSED and len(names) > AUDITED_NAMES_MAX:
        names = [*names[:AUDITED_NAMES_MAX], f"and {len(names) - AUDITED_NAMES_MAX} more"]
    for start in range(0, max(1, len(names)), AUDITED_NAMES_MAX + 1):
        fields = _fields(who, action, names[start : start + AUDITED_NAMES_MAX + 1], result, reason)
        logger.info("%s", _line(fields), extra=fields)


def _fields(who: Identity, action: str, names: Sequence[str], result: str, reason: str) -> dict[str, Any]:
    fields = {
        "principal": who.principal,
        "address": who.host,
        "action": action,
        "names": list(names),
        "result": result,
        "reason": reason,
    }
    return {name: value for name, value in fields.items() if value or name in ("principal", "address", "names")}


def _line(fields: dict[str, Any]) -> str:
    return " ".join(f"{name}={json.dumps(value)}" for name, value in fields.items())


class RefusedLogins:
    """Lines of refused logins: the first of an address at once, the others counted, and told after a while. Event loop
    only. Who guesses cannot fill the disk with lines."""

    def __init__(self, clock: Clock, interval_ms: float, addresses_max: int) -> None:
        self._clock = clock
        self._interval_ms = interval_ms
        self._addresses_max = addresses_max
        self._told: OrderedDict[str, tuple[float, int, dict[str, Any]]] = OrderedDict()

    def add(self, who: Identity, reason: str) -> None:
        now_ms = self._clock.monotonic_ms()
        fields = _fields(who, "login", (), REFUSED, reason)
        known = self._told.get(who.host)
        if known is not None and now_ms - known[0] < self._interval_ms:
            self._told[who.host] = (known[0], known[1] + 1, fields)
            return
        self._tell(fields, 1 + (known[1] if known is not None else 0))
        self._told.pop(who.host, None)
        self._told[who.host] = (now_ms, 0, fields)
        if len(self._told) > self._addresses_max:
            _, count, last = self._told.popitem(last=False)[1]
            self._tell(last, count)

    def sweep(self) -> None:
        """About once a second: tell what was counted and is due."""
        now_ms = self._clock.monotonic_ms()
        for host, (at_ms, count, fields) in list(self._told.items()):
            if now_ms - at_ms < self._interval_ms:
                break
            del self._told[host]
            self._tell(fields, count)

    @staticmethod
    def _tell(fields: dict[str, Any], count: int) -> None:
        if count:
            told = {**fields, "count": count} if count > 1 else fields
            logger.info("%s", _line(told), extra=told)


class RepeatedLogins:
    """Whose login was written down: those who send a password with each request are, once in a while."""

    def __init__(self, clock: Clock, interval_ms: float) -> None:
        self._clock = clock
        self._interval_ms = interval_ms
        self._told: OrderedDict[Identity, float] = OrderedDict()

    def add(self, who: Identity, action: str, names: Sequence[str]) -> None:
        now_ms = self._clock.monotonic_ms()
        last_ms = self._told.get(who)
        if last_ms is not None and now_ms - last_ms < self._interval_ms:
            return
        note(who, action, names)
        self._told.pop(who, None)
        self._told[who] = now_ms
        if len(self._told) > CONSOLE_SESSIONS_MAX:
            self._told.popitem(last=False)
