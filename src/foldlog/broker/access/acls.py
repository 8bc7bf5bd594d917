"""Access control lists: Kafka's model, and what it decides.

An ACL allows or denies one operation (or ALL) on resources of one kind, to one principal (or `User:*`) from one address
(or `*`). Its resources are those of one name, of names that begin with a prefix, or, as the literal name `*`, all.

The rules are those of Kafka's StandardAuthorizer:

1. A super user may do everything.
2. One ACL that denies the operation on the resource is enough to refuse, whatever others allow.
3. Otherwise one that allows it is enough. To allow READ, WRITE, DELETE or ALTER allows DESCRIBE, too; to allow
   ALTER_CONFIGS allows DESCRIBE_CONFIGS. To deny them denies nothing else.
4. Otherwise it is refused, unless no ACL at all is for that resource and `allow.everyone.if.no.acl.found` is set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from foldlog.errors import InvalidArgument, brief_repr

ANY_NAME: Final = "*"
"""As a literal name: every resource of the kind. As a host: every address."""

USER_PREFIX: Final = "User:"
EVERYBODY: Final = USER_PREFIX + "*"
"""The principal of an ACL for all principals."""

ANONYMOUS: Final = USER_PREFIX + "ANONYMOUS"
"""The principal of a connection without a login, as Kafka names it."""

DIRECTORY_OWNER: Final = "Directory:owner"
"""The principal of another process that can read the directory: it may do what the directory's files let it do, so all.
No login of a user gives a principal of this type."""

CLUSTER_NAME: Final = "kafka-cluster"
"""The one resource of kind CLUSTER, as Kafka names it."""


class _Numbered(IntEnum):
    """Kafka's numbers for something; one that this version does not know is UNKNOWN, 0."""

    @classmethod
    def _missing_(cls, value: object) -> _Numbered:
        return cls(0)


class AclOperation(_Numbered):
    """Kafka's numbers, as in its ACLs and in the authorized operations of its answers. ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(_Numbered):
    """Kafka's numbers. ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Numbered):
    """Kafka's numbers. ANY and MATCH (every ACL that is for a resource of that name) are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(_Numbered):
    """Kafka's numbers. ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class Identity(NamedTuple):
    """Who asks: a principal such as `User:alice`, and the address it asks from."""

    principal: str
    host: str


class Acl(NamedTuple):
    """One access control list entry, with the resources that it is for. A value: equal ones are one."""

    kind: ResourceType
    name: str
    pattern: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: Permission


class AclFilter(NamedTuple):
    """Which ACLs are meant; None, ANY and MATCH leave a field open."""

    kind: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        """
        >>> read, prefixed = AclOperation.READ, PatternType.PREFIXED
        >>> acl = Acl(ResourceType.TOPIC, "ord", prefixed, "User:a", "*", read, Permission.ALLOW)
        >>> AclFilter(name="orders", pattern=PatternType.MATCH).matches(acl), AclFilter(name="orders").matches(acl)
        (True, False)
        """
        return (
            self.kind in (ResourceType.ANY, acl.kind)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, acl.pattern):
            return False
        if self.name is None:
            return True
        if self.pattern != PatternType.MATCH:
            return self.name == acl.name
        if acl.pattern == PatternType.PREFIXED:
            return self.name.startswith(acl.name)
        return acl.name in (self.name, ANY_NAME)

    @property
    def is_unknown(self) -> bool:
        """Whether a field has a number that this version does not know."""
        return 0 in (self.kind, self.pattern, self.operation, self.permission)


_IMPLYING: Final = {
    AclOperation.DESCRIBE: frozenset(
        {
            AclOperation.DESCRIBE,
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.ALL,
        }
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset(
        {AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS, AclOperation.ALL}
    ),
}
"""What has to be allowed for these two; for every other operation it is that operation, or ALL."""


def _is_for(acl: Acl, who: Identity, operation: AclOperation) -> bool:
    """Whether the ACL says something about that operation of `who`; its resource is not compared."""
    if acl.principal not in (who.principal, EVERYBODY) or acl.host not in (ANY_NAME, who.host):
        return False
    if acl.permission == Permission.ALLOW and operation in _IMPLYING:
        return acl.operation in _IMPLYING[operation]
    return acl.operation in (operation, AclOperation.ALL)


class _KindAcls:
    """The ACLs for resources of one kind, by name, so that a decision looks at those for its resource only."""

    __slots__ = ("_literal", "_prefix_lengths", "_prefixed", "acls")

    def __init__(self, acls: Iterable[Acl]) -> None:
        self.acls = tuple(acls)
        self._literal: dict[str, list[Acl]] = {}
        self._prefixed: dict[str, list[Acl]] = {}
        for acl in self.acls:
            named = self._prefixed if acl.pattern == PatternType.PREFIXED else self._literal
            named.setdefault(acl.name, []).append(acl)
        self._prefix_lengths = sorted({len(prefix) for prefix in self._prefixed})

    def of(self, name: str) -> Iterator[Acl]:
        """The ACLs for the resource of that name."""
        yield from self._literal.get(name, ())
        if name != ANY_NAME:
            yield from self._literal.get(ANY_NAME, ())
        for length in self._prefix_lengths:
            if length > len(name):
                break
            yield from self._prefixed.get(name[:length], ())


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What is decided without ACLs: who may do everything, and what holds for a resource that has none."""

    super_users: frozenset[str] = frozenset()
    allow_if_no_acl: bool = False


class Acls:
    """All ACLs of a broker, and what they decide. Immutable: a change makes another one. Any thread."""

    def __init__(self, acls: Iterable[Acl] = ()) -> None:
        self._all = frozenset(acls)
        kinds: dict[ResourceType, list[Acl]] = {}
        for acl in sorted(self._all):
            kinds.setdefault(acl.kind, []).append(acl)
        self._kinds = {kind: _KindAcls(some) for kind, some in kinds.items()}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Acl]:
        return iter(sorted(self._all))

    def __contains__(self, acl: object) -> bool:
        return acl in self._all

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Acls) and self._all == other._all

    def __hash__(self) -> int:
        return hash(self._all)

    def found(self, wanted: AclFilter) -> list[Acl]:
        """The ACLs that the filter means, in order."""
        return [acl for acl in self if wanted.matches(acl)]

    def with_more(self, acls: Iterable[Acl]) -> Acls:
        return Acls(self._all.union(acls))

    def without(self, acls: Iterable[Acl]) -> Acls:
        return Acls(self._all.difference(acls))

    def allows(
        self, who: Identity, operation: AclOperation, kind: ResourceType, name: str, otherwise: Verdicts
    ) -> bool:
        """Whether `who` may do that; the rules are on top of this module."""
        if who.principal in otherwise.super_users or who.principal == DIRECTORY_OWNER:
            return True
        of_kind = self._kinds.get(kind)
        is_allowed = is_named = False
        for acl in of_kind.of(name) if of_kind is not None else ():
            is_named = True
            if _is_for(acl, who, operation):
                if acl.permission == Permission.DENY:
                    return False
                is_allowed = True
        return is_allowed or (otherwise.allow_if_no_acl and not is_named)

    def allows_some(self, who: Identity, operation: AclOperation, kind: ResourceType, otherwise: Verdicts) -> bool:
        """Whether there can be a resource of that kind with which `who` may do that, as Kafka's
        `authorizeByResourceType` decides it: something is allowed that no ACL takes back whole."""
        if self.allows(who, operation, kind, "hardcode", otherwise):
            return True  # everything is, or all that nobody named; the name is Kafka's
        of_kind = self._kinds.get(kind)
        said = [
            acl
            for acl in (of_kind.acls if of_kind is not None else ())
            if acl.principal in (who.principal, EVERYBODY)
            and acl.host in (ANY_NAME, who.host)
            and acl.operation in (operation, AclOperation.ALL)
        ]
        denied = {(acl.pattern, acl.name) for acl in said if acl.permission == Permission.DENY}
        if (PatternType.LITERAL, ANY_NAME) in denied:
            return False
        return any(not _is_taken_back(acl, denied) for acl in said if acl.permission == Permission.ALLOW)


def _is_taken_back(allowed: Acl, denied: set[tuple[PatternType, str]]) -> bool:
    """Whether all that this ACL allows is denied by one other."""
    if allowed.pattern == PatternType.LITERAL:
        if allowed.name == ANY_NAME:
            return False
        if (PatternType.LITERAL, allowed.name) in denied:
            return True
    prefixes = (allowed.name[:length] for length in range(1, len(allowed.name) + 1))
    return any((PatternType.PREFIXED, prefix) in denied for prefix in prefixes)


def check_acl(acl: Acl) -> Acl:
    """The ACL, if one can be made of it; InvalidArgument with Kafka's reasons if not."""
    if acl.kind == ResourceType.DELEGATION_TOKEN:
        raise InvalidArgument("there are no delegation tokens here, so there are no ACLs for them")
    if acl.kind == ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        raise InvalidArgument(f"the only cluster is {CLUSTER_NAME}, not {brief_repr(acl.name)}")
    if not acl.name:
        raise InvalidArgument("the name of the resource is empty; '*' stands for all of that kind")
    checks: list[tuple[str, IntEnum, Callable[[int], bool]]] = [
        ("kind of resource", acl.kind, lambda number: number > ResourceType.ANY),
        ("pattern", acl.pattern, lambda number: number in (PatternType.LITERAL, PatternType.PREFIXED)),
        ("operation", acl.operation, lambda number: number > AclOperation.ANY),
        ("permission", acl.permission, lambda number: number in (Permission.ALLOW, Permission.DENY)),
    ]
    for what, value, is_right in checks:
        if not is_right(value):
            raise InvalidArgument(f"an ACL cannot have the {what} {value.name}")
    check_principal(acl.principal)
    if not acl.host:
        raise InvalidArgument("the host of an ACL is empty; '*' stands for every address")
    return acl


def check_principal(principal: str) -> str:
    """The principal if it has Kafka's form, such as `User:alice`; InvalidArgument if not."""
    kind, colon, name = principal.partition(":")
    if not (kind and colon and name):
        raise InvalidArgument(f"{brief_repr(principal)} is no principal; it has a type and a name, such as User:alice")
    return principal
