"""Quotas: how much a user, a client id or an address may use, as Kafka has them. Values, and whose quota counts.

An entity is a user, a client id, both, or an address; each by its name, or the default (None) for all that are not
named. Of several that are for a client, the most particular counts, in Kafka's order (`_ORDER`).
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from foldlog.errors import InvalidArgument, brief_repr

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCE_BYTES: Final = "producer_byte_rate"
FETCH_BYTES: Final = "consumer_byte_rate"
REQUEST_TIME: Final = "request_percentage"
MUTATIONS: Final = "controller_mutation_rate"
CONNECTIONS: Final = "connection_creation_rate"

CLIENT_KEYS: Final = (PRODUCE_BYTES, FETCH_BYTES, REQUEST_TIME, MUTATIONS)
"""Of users and client ids: bytes a second, percent of a thread, partitions made or deleted a second."""

ADDRESS_KEYS: Final = (CONNECTIONS,)

Entity = tuple[tuple[str, str | None], ...]
"""Pairs of a kind and a name, sorted by kind; the name None is the default."""

_ORDER: Final = (
    ("name", "name"),
    ("name", "default"),
    ("name", None),
    ("default", "name"),
    ("default", "default"),
    ("default", None),
    (None, "name"),
    (None, "default"),
)
"""How an entity names (user, client id), the most particular first; None: not at all."""


def entity(named: Mapping[str, str | None]) -> Entity:
    """The entity of these kinds and names. Raises InvalidArgument if there is none such."""
    kinds = set(named)
    if not kinds or not (kinds <= {USER, CLIENT_ID} or kinds == {IP}):
        raise InvalidArgument(
            "quotas are for a user, a client id, both, or an address,"
            f" and not for {', '.join(sorted(kinds)) or 'nobody'}"
        )
    if any(name == "" for name in named.values()):
        raise InvalidArgument("the name of an entity of quotas is empty; leave it out for the default")
    return tuple(sorted((kind, _address(name) if kind == IP else name) for kind, name in named.items()))


def _address(name: str | None) -> str | None:
    """The address as connections show it. Kafka takes host names, too; a broker should not have to ask for them."""
    try:
        return None if name is None else str(ipaddress.ip_address(name))
    except ValueError:
        raise InvalidArgument(f"{brief_repr(name)} is no address; quotas are for IPv4 and IPv6 addresses") from None


def entity_text(one: Entity) -> str:
    """
    >>> entity_text((("client-id", None), ("user", "alice")))
    'user alice, default client-id'
    """
    parts = (f"default {kind}" if name is None else f"{kind} {name}" for kind, name in reversed(one))
    return ", ".join(parts)


def check_quota(one: Entity, key: str, value: float) -> float:
    """The value, if such an entity can have it; InvalidArgument if not."""
    allowed = ADDRESS_KEYS if one[0][0] == IP else CLIENT_KEYS
    if key not in allowed:
        raise InvalidArgument(f"{brief_repr(key)} is no quota of {entity_text(one)}; there is {', '.join(allowed)}")
    if not math.isfinite(value) or value <= 0:
        raise InvalidArgument(f"{key} cannot be {value}; it is more than 0")
    if key in (PRODUCE_BYTES, FETCH_BYTES, CONNECTIONS) and value != int(value):
        raise InvalidArgument(f"{key} cannot be {value}; it is a whole number")
    return value


@dataclass(frozen=True, slots=True)
class Quota:
    """A rate, and who shares it: clients with equal `shared_by` use it up together."""

    rate: float
    shared_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Quotas:
    """All quotas of a directory. Immutable."""

    entities: Mapping[Entity, Mapping[str, float]] = field(default_factory=lambda: MappingProxyType({}))

    def of(self, one: Entity) -> Mapping[str, float]:
        return self.entities.get(one, MappingProxyType({}))

    def __iter__(self) -> Iterator[Entity]:
        return iter(sorted(self.entities, key=lambda one: [(kind, name or "") for kind, name in one]))

    def changed(self, one: Entity, values: Mapping[str, float | None]) -> Quotas:
        """A copy with these values for an entity; None removes one."""
        kept = {**self.of(one)}
        for key, value in values.items():
            if value is None:
                kept.pop(key, None)
            else:
                kept[key] = check_quota(one, key, value)
        others = {other: held for other, held in self.entities.items() if other != one}
        return Quotas(MappingProxyType({**others, one: MappingProxyType(kept)} if kept else others))

    def for_client(self, key: str, user: str, client_id: str) -> Quota | None:
        """The quota that counts for a client, if there is one."""
        if not self.entities:
            return None
        for user_is, client_is in _ORDER:
            names: dict[str, str | None] = {}
            if user_is is not None:
                names[USER] = user if user_is == "name" else None
            if client_is is not None:
                names[CLIENT_ID] = client_id if client_is == "name" else None
            rate = self.of(tuple(sorted(names.items()))).get(key)
            if rate is not None:
                shared = (USER, user) * (user_is is not None) + (CLIENT_ID, client_id) * (client_is is not None)
                return Quota(rate, shared)
        return None

    def for_address(self, key: str, host: str) -> Quota | None:
        """The quota that counts for an address, if there is one."""
        for name in (host, None):
            rate = self.of(((IP, name),)).get(key)
            if rate is not None:
                return Quota(rate, (IP, host))
        return None


def quotas_of(rows: Iterable[tuple[Entity, Mapping[str, float]]]) -> Quotas:
    return Quotas(MappingProxyType({one: MappingProxyType(dict(values)) for one, values in rows if values}))
