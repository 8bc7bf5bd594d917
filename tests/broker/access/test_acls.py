"""What ACLs decide, compared with the rules written down in another way: a list, looked through from top to bottom."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.broker.access.acls import (
    Acl,
    AclFilter,
    AclOperation,
    Acls,
    Identity,
    PatternType,
    Permission,
    ResourceType,
    Verdicts,
    check_acl,
)
from foldlog.errors import InvalidArgument

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
NOBODY = Verdicts()

NAMES = st.sampled_from(["*", "o", "ord", "orders", "orders.eu", "pay"])
ACLS = st.builds(
    Acl,
    st.sampled_from([TOPIC, GROUP]),
    NAMES,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(["User:a", "User:b", "User:*"]),
    st.sampled_from(["*", "10.0.0.1"]),
    st.sampled_from([AclOperation(number) for number in range(2, 13)]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
IMPLIED = {
    DESCRIBE: [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER],
    AclOperation.DESCRIBE_CONFIGS: [AclOperation.ALTER_CONFIGS],
}


def acl(
    name: str = "orders",
    operation: AclOperation = READ,
    permission: Permission = Permission.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
    principal: str = "User:a",
    host: str = "*",
    kind: ResourceType = TOPIC,
) -> Acl:
    return Acl(kind, name, pattern, principal, host, operation, permission)


def plainly_allows(
    acls: list[Acl], who: Identity, operation: AclOperation, kind: ResourceType, name: str, if_none: bool
) -> bool:
    about = [
        one
        for one in acls
        if one.kind == kind
        and (name.startswith(one.name) if one.pattern == PatternType.PREFIXED else one.name in (name, "*"))
    ]
    mine = [one for one in about if one.principal in (who.principal, "User:*") and one.host in ("*", who.host)]
    if any(one.permission == Permission.DENY and one.operation in (operation, AclOperation.ALL) for one in mine):
        return False
    enough = [operation, AclOperation.ALL, *IMPLIED.get(operation, [])]
    if any(one.permission == Permission.ALLOW and one.operation in enough for one in mine):
        return True
    return if_none and not about


@given(st.lists(ACLS, max_size=8), st.sampled_from(range(3, 13)), NAMES.filter(lambda name: name != "*"), st.booleans())
def test_a_decision_is_that_of_the_rules(acls: list[Acl], operation: int, name: str, if_none: bool) -> None:
    for who in (Identity("User:a", "10.0.0.1"), Identity("User:b", "10.0.0.2"), Identity("User:c", "10.0.0.1")):
        found = Acls(acls).allows(who, AclOperation(operation), TOPIC, name, Verdicts(allow_if_no_acl=if_none))
        assert found == plainly_allows(acls, who, AclOperation(operation), TOPIC, name, if_none)


def test_a_super_user_may_do_what_is_denied_to_everybody() -> None:
    acls = Acls([acl(principal="User:*", permission=Permission.DENY, operation=AclOperation.ALL)])
    admin = Verdicts(super_users=frozenset({"User:admin"}))
    assert acls.allows(Identity("User:admin", "10.0.0.1"), WRITE, TOPIC, "orders", admin)
    assert not acls.allows(Identity("User:a", "10.0.0.1"), WRITE, TOPIC, "orders", admin)


def test_to_deny_reading_does_not_deny_describing() -> None:
    who = Identity("User:a", "10.0.0.1")
    acls = Acls([acl(operation=WRITE), acl(operation=READ, permission=Permission.DENY)])
    assert acls.allows(who, DESCRIBE, TOPIC, "orders", NOBODY)
    assert not acls.allows(who, READ, TOPIC, "orders", NOBODY)


@pytest.mark.parametrize(
    ("acls", "is_some"),
    [
        ([], False),
        ([acl()], True),
        ([acl(), acl(permission=Permission.DENY)], False),
        ([acl(), acl("*", permission=Permission.DENY)], False),
        ([acl(), acl("ord", permission=Permission.DENY, pattern=PatternType.PREFIXED)], False),
        ([acl("ord", pattern=PatternType.PREFIXED), acl("orders", permission=Permission.DENY)], True),
        ([acl("*"), acl("orders", permission=Permission.DENY)], True),
        ([acl(operation=WRITE)], False),
        ([acl(principal="User:b")], False),
        ([acl(host="10.0.0.9")], False),
    ],
)
def test_whether_there_can_be_a_resource_that_is_allowed(acls: list[Acl], is_some: bool) -> None:
    assert Acls(acls).allows_some(Identity("User:a", "10.0.0.1"), READ, TOPIC, NOBODY) == is_some


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (AclFilter(), ["*", "ord", "orders"]),
        (AclFilter(name="orders"), ["orders"]),
        (AclFilter(name="orders", pattern=PatternType.MATCH), ["*", "ord", "orders"]),
        (AclFilter(name="ord", pattern=PatternType.LITERAL), []),
        (AclFilter(name="ord", pattern=PatternType.PREFIXED), ["ord"]),
        (AclFilter(kind=GROUP), []),
        (AclFilter(operation=WRITE), []),
        (AclFilter(principal="User:a"), ["*", "ord", "orders"]),
        (AclFilter(host="10.0.0.1"), []),
    ],
)
def test_a_filter_finds_what_it_means(wanted: AclFilter, names: list[str]) -> None:
    acls = Acls([acl(), acl("*"), acl("ord", pattern=PatternType.PREFIXED)])
    assert [one.name for one in acls.found(wanted)] == names


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (acl(name=""), "empty"),
        (acl(kind=ResourceType.CLUSTER, name="mine"), "kafka-cluster"),
        (acl(kind=ResourceType.ANY), "kind of resource ANY"),
        (acl(pattern=PatternType.MATCH), "pattern MATCH"),
        (acl(operation=AclOperation.ANY), "operation ANY"),
        (acl(permission=Permission.UNKNOWN), "permission UNKNOWN"),
        (acl(principal="alice"), "no principal"),
        (acl(host=""), "host"),
    ],
)
def test_what_is_no_acl_is_refused_with_the_reason(wrong: Acl, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        check_acl(wrong)


@pytest.mark.parametrize("permission", [Permission.ALLOW, Permission.DENY])
def test_an_acl_of_one_address_says_nothing_about_another(permission: Permission) -> None:
    everybody = Acl(
        ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:a", "*", AclOperation.READ, Permission.ALLOW
    )
    acls = Acls([everybody._replace(host="10.0.0.1", permission=permission)])
    if permission is Permission.DENY:
        acls = acls.with_more([everybody])
    allowed = {
        host: acls.allows(Identity("User:a", host), AclOperation.READ, ResourceType.TOPIC, "orders", Verdicts())
        for host in ("10.0.0.1", "10.0.0.2")
    }
    is_allow = permission is Permission.ALLOW
    assert allowed == {"10.0.0.1": is_allow, "10.0.0.2": not is_allow}
