"""`foldlog acl`: who may do what with which resource."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from foldlog.broker.access.acls import (
    ANY_NAME,
    CLUSTER_NAME,
    USER_PREFIX,
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
    check_principal,
)
from foldlog.cli.confirmation import dry_run_option, is_confirmed, yes_option
from foldlog.cli.exit_codes import DONE, FAILED
from foldlog.cli.log_options import log_options, open_log
from foldlog.cli.output import remark
from foldlog.cli.parsing import Arguments, LazyVerb, Noun, Option, argument, command, option, switch
from foldlog.cli.tables import Column, Outcome, format_option, show, show_outcomes
from foldlog.cli.wording import counted
from foldlog.client.backends.backend import backend_of
from foldlog.errors import InvalidArgument, brief_repr

DESCRIPTION: Final = """\
An access control list (ACL) allows or denies a principal one operation on a resource. Without an ACL that allows it, an
operation is denied. An ACL that denies overrides all that allow. ACLs apply if the broker has
authorizer.class.name=foldlog."""

NOUN: Final = Noun(
    {
        "create": LazyVerb("access.acl:create_acls", "allow or deny operations on a resource"),
        "list": LazyVerb("access.acl:list_acls", "list ACLs"),
        "delete": LazyVerb("access.acl:delete_acls", "delete ACLs"),
    },
    DESCRIPTION,
)

_KINDS: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.CLUSTER,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "user": ResourceType.USER,
}
_OPERATIONS: Final = {
    operation.name.lower().replace("_", "-"): operation for operation in AclOperation if operation > AclOperation.ANY
}

LIST_COLUMNS: Final = (
    Column("principal", "PRINCIPAL"),
    Column("permission", "PERMISSION"),
    Column("operation", "OPERATION"),
    Column("resource", "RESOURCE"),
    Column("pattern", "PATTERN"),
    Column("host", "HOST"),
)

CREATE: Final = """\
A principal is User:alice, or alice for short; User:* is everybody. A resource is topic:NAME, group:NAME,
transactional-id:NAME, user:NAME or cluster; the name * means all.

  foldlog acl create alice read,describe topic:orders
  foldlog acl create alice read group:billing- --prefixed
  foldlog acl create 'User:*' all cluster --deny --host 10.0.0.9"""


def parse_principal(text: str) -> str:
    """
    >>> parse_principal("alice"), parse_principal("User:*")
    ('User:alice', 'User:*')
    """
    return check_principal(text if ":" in text else USER_PREFIX + text)


def parse_operations(text: str) -> tuple[AclOperation, ...]:
    """
    >>> [one.name for one in parse_operations("read,alter-configs")]
    ['READ', 'ALTER_CONFIGS']
    """
    found = []
    for word in text.split(","):
        operation = _OPERATIONS.get(word.strip().lower().replace("_", "-"))
        if operation is None:
            raise InvalidArgument(f"{brief_repr(word)} is no operation; there is {', '.join(_OPERATIONS)}")
        found.append(operation)
    return tuple(dict.fromkeys(found))


def parse_resource(text: str) -> tuple[ResourceType, str]:
    """
    >>> kind, name = parse_resource("topic:orders")
    >>> kind.name, name
    ('TOPIC', 'orders')
    """
    word, _, name = text.partition(":")
    kind = _KINDS.get(word.lower())
    if kind is ResourceType.CLUSTER and name in ("", CLUSTER_NAME):
        return kind, CLUSTER_NAME
    if kind is None or not name:
        raise InvalidArgument(
            f"{brief_repr(text)} is no resource; it is topic:NAME, group:NAME, transactional-id:NAME, user:NAME"
            " or cluster"
        )
    return kind, name


def filter_options() -> list[Option]:
    return [
        option(
            "--principal", metavar="PRINCIPAL", read=parse_principal, told="only for this principal, such as User:alice"
        ),
        option("--operation", metavar="OP", read=parse_operations, told="only these operations"),
        option("--resource", metavar="KIND:NAME", read=parse_resource, told="only on exactly this resource"),
        switch("--matching", told="with --resource: all ACLs that apply to it, also by prefix or *"),
        option("--host", metavar="HOST", told="only for this address"),
    ]


# --- looking --------------------------------------------------------------------------------------------------------


@command(*filter_options(), format_option(), *log_options())
def list_acls(arguments: Arguments) -> int:
    with open_log(arguments, write=False) as log:
        access = backend_of(log).access()
        found = sorted({acl for wanted in _filters(arguments) for acl in access.acls(wanted)})
    what = "no ACL matches" if _is_filtered(arguments) else "there are no ACLs"
    show(arguments, LIST_COLUMNS, [_row(acl) for acl in found], nothing=what)
    return DONE


def _row(acl: Acl) -> dict[str, object]:
    return {
        "principal": acl.principal,
        "permission": acl.permission.name.lower(),
        "operation": acl.operation.name.lower().replace("_", "-"),
        "resource": _resource_text(acl),
        "pattern": acl.pattern.name.lower(),
        "host": acl.host,
    }


def _resource_text(acl: Acl) -> str:
    word = acl.kind.name.lower().replace("_", "-")
    return word if acl.kind is ResourceType.CLUSTER else f"{word}:{acl.name}"


def _filters(arguments: Arguments) -> list[AclFilter]:
    """One for each operation: a filter has one, or any."""
    kind, name = arguments.resource or (ResourceType.ANY, None)
    if arguments.matching and name is None:
        raise InvalidArgument("--matching needs --resource")
    wanted = AclFilter(
        kind=kind,
        name=name,
        pattern=PatternType.MATCH if arguments.matching else PatternType.ANY,
        principal=arguments.principal,
        host=arguments.host,
    )
    operations: Sequence[AclOperation] = arguments.operation or (AclOperation.ANY,)
    return [wanted._replace(operation=operation) for operation in operations]


def _is_filtered(arguments: Arguments) -> bool:
    return any((arguments.principal, arguments.operation, arguments.resource, arguments.host))


# --- changing -------------------------------------------------------------------------------------------------------


@command(
    argument("principal", "PRINCIPAL", "who: User:alice, or alice", read=parse_principal),
    argument("operations", "OP[,…]", "what: read, write, describe, …, all", read=parse_operations),
    argument("resource", "KIND:NAME", "on what: topic:orders, group:app, cluster, …", read=parse_resource),
    switch("--prefixed", told="the name is a prefix, for all resources that begin with it"),
    switch("--deny", told="deny it, even if other ACLs allow it"),
    option("--host", metavar="HOST", default=ANY_NAME, told="only from this address (default: * for all)"),
    format_option(),
    *log_options(),
    more=CREATE,
)
def create_acls(arguments: Arguments) -> int:
    kind, name = arguments.resource
    acls = [
        Acl(
            kind,
            name,
            PatternType.PREFIXED if arguments.prefixed else PatternType.LITERAL,
            arguments.principal,
            arguments.host,
            operation,
            Permission.DENY if arguments.deny else Permission.ALLOW,
        )
        for operation in arguments.operations
    ]
    with open_log(arguments, write=True) as log:
        backend_of(log).access().create_acls(acls)
    return _tell(arguments, acls, "created")


@command(
    *filter_options(),
    switch("--all", told="all ACLs"),
    dry_run_option(),
    yes_option(),
    format_option(),
    *log_options(),
)
def delete_acls(arguments: Arguments) -> int:
    if bool(arguments.all) == _is_filtered(arguments):
        raise InvalidArgument(
            "say which to delete, by --principal, --operation, --resource or --host; or --all, without them"
        )
    filters = _filters(arguments)
    with open_log(arguments, write=not arguments.dry_run) as log:
        access = backend_of(log).access()
        found = sorted({acl for wanted in filters for acl in access.acls(wanted)})
        if not found:
            remark("no ACL matches; nothing was changed")
        elif not arguments.dry_run:
            if not is_confirmed(arguments, f"delete {counted(len(found), 'ACL')}?"):
                return FAILED
            for wanted in filters:
                access.delete_acls(wanted)
    return _tell(arguments, found, "would be deleted" if arguments.dry_run else "deleted")


def _tell(arguments: Arguments, acls: Sequence[Acl], went: str) -> int:
    show_outcomes(arguments, [Outcome(f"{_sentence(acl)}: {went}", {**_row(acl), "status": went}) for acl in acls])
    return DONE


def _sentence(acl: Acl) -> str:
    row = _row(acl)
    whose = "" if acl.pattern is PatternType.LITERAL else "…"
    where = "" if acl.host == ANY_NAME else f" from {acl.host}"
    return f"{acl.principal}: {row['permission']} {row['operation']} on {row['resource']}{whose}{where}"
