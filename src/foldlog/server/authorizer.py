"""Authorization: who may do what, asked on the event loop for every resource that a request names."""

from __future__ import annotations

from typing import Final, Protocol

from foldlog.broker.access.acls import AclOperation, Acls, Identity, ResourceType, Verdicts
from foldlog.broker.access.store import Access, AccessStore
from foldlog.limits import DECISIONS_MAX, TOPIC_NAME_CHARS_MAX


class Authorizer(Protocol):
    """Called on the event loop: it must answer from memory."""

    def allows(self, who: Identity, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        """Whether `who` may do that with the resource of that name."""
        ...

    def allows_some(self, who: Identity, operation: AclOperation, kind: ResourceType) -> bool:
        """Whether there can be a resource of that kind with which `who` may do that."""
        ...


class AllowEverything:
    """The authorizer of a broker without one."""

    def allows(self, who: Identity, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        return True

    def allows_some(self, who: Identity, operation: AclOperation, kind: ResourceType) -> bool:
        return True


class AclAuthorizer:
    """Decides by the ACLs of a directory. A change counts from the next question on, on open connections too."""

    def __init__(self, access: AccessStore, otherwise: Verdicts) -> None:
        self._access = access
        self._otherwise = otherwise
        self._changed(access.current)
        access.watchers.append(self._changed)

    def close(self) -> None:
        """Hear of no more changes."""
        if self._changed in self._access.watchers:
            self._access.watchers.remove(self._changed)

    def _changed(self, access: Access) -> None:
        # One object with what was decided by it: another thread may replace it between two lines of `allows`.
        self._decisions = _Decisions(access.acls, self._otherwise)

    def allows(self, who: Identity, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        decisions = self._decisions
        try:
            return decisions.known[who][kind][operation][name]
        except KeyError:
            return decisions.decide(who, operation, kind, name)

    def allows_some(self, who: Identity, operation: AclOperation, kind: ResourceType) -> bool:
        decisions = self._decisions
        return decisions.acls.allows_some(who, operation, kind, self._otherwise)


_OfKind = dict[ResourceType, dict[AclOperation, dict[str, bool]]]


class _Decisions:
    """Some ACLs, and what they have decided so far: a client asks the same again with each request. Any thread: two
    that decide the same at once remember the same.

    `known` is nested, since a lookup in four dicts takes half the time of one with a key of four parts: every produce
    asks. New ACLs make a new object, so nothing that is remembered can be of older ones.
    """

    __slots__ = ("_otherwise", "_room", "acls", "known")

    def __init__(self, acls: Acls, otherwise: Verdicts) -> None:
        self.acls = acls
        self.known: dict[Identity, _OfKind] = {}
        self._otherwise = otherwise
        self._room = DECISIONS_MAX

    def decide(self, who: Identity, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        """Look at the ACLs, and remember what they say."""
        is_allowed = self.acls.allows(who, operation, kind, name, self._otherwise)
        # Topics have no longer names. Groups may, of 32 KB each: remembered, they would be memory without a bound.
        if len(name) > TOPIC_NAME_CHARS_MAX:
            return is_allowed
        known = self.known
        if self._room <= 0:
            known = self.known = {}
            self._room = DECISIONS_MAX
        self._room -= 1 if who in known else 1 + _IDENTITY_ROOM
        known.setdefault(who, {}).setdefault(kind, {}).setdefault(operation, {})[name] = is_allowed
        return is_allowed


_IDENTITY_ROOM: Final = 10
"""An identity's dicts take the memory of so many decisions."""


_TOPIC_OPERATIONS: Final = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)

_OPERATIONS: Final = {
    ResourceType.TOPIC: _TOPIC_OPERATIONS,
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}


def authorized_operations(authorizer: Authorizer, who: Identity, kind: ResourceType, name: str) -> int:
    """The operations allowed on a resource as the bit field in Kafka's answers.

    >>> from foldlog.broker.access.acls import ANONYMOUS
    >>> bin(authorized_operations(AllowEverything(), Identity(ANONYMOUS, "::1"), ResourceType.GROUP, "fraud"))
    '0b110101001000'
    """
    return sum(1 << op for op in _OPERATIONS[kind] if authorizer.allows(who, op, kind, name))
