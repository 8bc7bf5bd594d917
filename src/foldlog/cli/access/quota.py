"""`foldlog quota`: how much users, client ids and addresses may use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from foldlog.broker.access.quotas import (
    ADDRESS_KEYS,
    CLIENT_ID,
    CLIENT_KEYS,
    CONNECTIONS,
    FETCH_BYTES,
    IP,
    PRODUCE_BYTES,
    USER,
    Entity,
    entity,
    entity_text,
)
from foldlog.cli.confirmation import dry_run_option, is_confirmed, yes_option
from foldlog.cli.exit_codes import DONE, FAILED
from foldlog.cli.log_options import log_options, open_log
from foldlog.cli.output import remark
from foldlog.cli.parsing import Arguments, LazyVerb, Noun, Option, argument, command, in_section, one_of, option, switch
from foldlog.cli.tables import Column, Outcome, format_option, show, show_outcomes
from foldlog.cli.units import parse_size_bytes
from foldlog.client.backends.backend import backend_of
from foldlog.errors import InvalidArgument, brief_repr

DESCRIPTION: Final = """\
A quota limits what a user, a client id, both together or an address may use. The broker delays clients that use more.
If several quotas apply to a client, the most specific counts."""

NOUN: Final = Noun(
    {
        "set": LazyVerb("access.quota:set_quotas", "set quotas"),
        "list": LazyVerb("access.quota:list_quotas", "list quotas"),
        "delete": LazyVerb("access.quota:delete_quotas", "delete quotas"),
    },
    DESCRIPTION,
)

_KEYS: Final = (*CLIENT_KEYS, *ADDRESS_KEYS)
_SIZES: Final = (PRODUCE_BYTES, FETCH_BYTES)

LIST_COLUMNS: Final = (
    Column("user", "USER", is_optional=True),
    Column("client_id", "CLIENT ID", is_optional=True),
    Column("ip", "ADDRESS", is_optional=True),
    Column("quota", "QUOTA"),
    Column("value", "VALUE", is_number=True),
)

SET: Final = f"""\
Bytes a second of what is written and read: {PRODUCE_BYTES}, {FETCH_BYTES}, also as 64MiB. Percent of a
thread's time: request_percentage. Partitions made and deleted a second: controller_mutation_rate. Connections a second
of an address: {CONNECTIONS}.

  foldlog quota set --user alice producer_byte_rate=1MiB
  foldlog quota set --default-user --client-id report request_percentage=50
  foldlog quota set --default-ip connection_creation_rate=20"""


def parse_quota(text: str) -> tuple[str, float]:
    """
    >>> parse_quota("producer_byte_rate=1MiB"), parse_quota("request_percentage=12.5")
    (('producer_byte_rate', 1048576.0), ('request_percentage', 12.5))
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise InvalidArgument(f"{brief_repr(text)} is not KEY=VALUE, such as producer_byte_rate=1MiB")
    if key not in _KEYS:
        raise InvalidArgument(f"{brief_repr(key)} is no quota; there is {', '.join(_KEYS)}")
    try:
        return key, float(parse_size_bytes(value, key)) if key in _SIZES else float(value)
    except ValueError:
        raise InvalidArgument(f"{key} is a number, and not {brief_repr(value)}") from None


def entity_options() -> list[Option]:
    return in_section(
        "whose quota",
        *one_of(
            option("--user", metavar="USER", told="for this user"),
            switch("--default-user", told="for each user without a quota"),
        ),
        *one_of(
            option("--client-id", metavar="ID", told="for this client id; with --user, only for that user"),
            switch("--default-client-id", told="for each client id without a quota"),
        ),
        *one_of(
            option("--ip", metavar="ADDRESS", told="for this address"),
            switch("--default-ip", told="for each address without a quota"),
        ),
    )


def _entity(arguments: Arguments) -> Entity:
    asked: tuple[tuple[str, str | None, bool], ...] = (
        (USER, arguments.user, arguments.default_user),
        (CLIENT_ID, arguments.client_id, arguments.default_client_id),
        (IP, arguments.ip, arguments.default_ip),
    )
    named = {kind: name for kind, name, is_default in asked if name is not None or is_default}
    if not named:
        raise InvalidArgument("say whose quota: --user, --client-id, --ip, or --default-user and so on")
    return entity(named)


# --- looking --------------------------------------------------------------------------------------------------------


@command(format_option(), *log_options())
def list_quotas(arguments: Arguments) -> int:
    with open_log(arguments, write=False) as log:
        found = backend_of(log).access().quotas()
    rows = [
        {**_shown(one), "quota": key, "value": _number(value)}
        for one, values in sorted(found.items(), key=lambda item: entity_text(item[0]))
        for key, value in sorted(values.items())
    ]
    show(arguments, LIST_COLUMNS, rows, nothing="there are no quotas")
    return DONE


def _shown(one: Entity) -> dict[str, object]:
    names = {kind: "(default)" if name is None else name for kind, name in one}
    return {"user": names.get(USER), "client_id": names.get(CLIENT_ID), "ip": names.get(IP)}


def _number(value: float) -> float:
    return int(value) if value == int(value) else value


# --- changing -------------------------------------------------------------------------------------------------------


@command(
    argument("quotas", "KEY=VALUE", "a quota, such as producer_byte_rate=1MiB", read=parse_quota, is_many=True),
    *entity_options(),
    format_option(),
    *log_options(),
    more=SET,
)
def set_quotas(arguments: Arguments) -> int:
    one, values = _entity(arguments), dict(arguments.quotas)
    if len(values) != len(arguments.quotas):
        raise InvalidArgument("a quota is given twice; give each once")
    with open_log(arguments, write=True) as log:
        backend_of(log).access().set_quotas(one, values)
    return _tell(arguments, one, values, "set")


@command(
    argument("keys", "KEY", "only these quotas", choices=_KEYS, is_many=True, is_needed=False),
    *entity_options(),
    dry_run_option(),
    yes_option(),
    format_option(),
    *log_options(),
)
def delete_quotas(arguments: Arguments) -> int:
    one = _entity(arguments)
    with open_log(arguments, write=not arguments.dry_run) as log:
        access = backend_of(log).access()
        held = access.quotas().get(one, {})
        values = {key: value for key, value in held.items() if not arguments.keys or key in arguments.keys}
        if not values:
            remark(f"{entity_text(one)} has no such quota; nothing was changed")
        elif not arguments.dry_run:
            if not is_confirmed(arguments, f"delete {', '.join(values)} of {entity_text(one)}?"):
                return FAILED
            access.set_quotas(one, dict.fromkeys(values))
    return _tell(arguments, one, values, "would be deleted" if arguments.dry_run else "deleted")


def _tell(arguments: Arguments, one: Entity, values: Mapping[str, float], went: str) -> int:
    outcomes = [
        Outcome(
            f"{entity_text(one)}: {key}={_number(value)} {went}",
            {**_shown(one), "quota": key, "value": _number(value), "status": went},
        )
        for key, value in values.items()
    ]
    show_outcomes(arguments, outcomes)
    return DONE
