"""For every API whose requests have arrays: a request with as many items as one wants, each of them another one."""

from __future__ import annotations

from typing import Any

from foldlog.wire.frames import request_class
from foldlog.wire.messages import APIS
from foldlog.wire.schema import Field, Message, Request

TOPIC = "items"

_VALUES: dict[int, dict[str, object]] = {
    0: {"acks": -1, "timeout_ms": 1000},
    1: {"max_bytes": 1 << 20, "partition_max_bytes": 1},
    2: {"replica_id": -1, "timestamp": -1, "current_leader_epoch": -1},
    3: {"allow_auto_topic_creation": False},
    8: {"generation_id_or_member_epoch": -1, "member_id": ""},
    19: {"num_partitions": 1, "replication_factor": 1, "validate_only": True},
    21: {"offset": 0},
    23: {"replica_id": -1, "current_leader_epoch": -1},
    30: {"resource_type": 2, "host": "*", "operation": 3, "permission_type": 3, "resource_pattern_type": 3},
    31: {"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 3, "permission_type": 3},
    32: {"resource_type": 2, "configuration_keys": None},
    33: {"resource_type": 2, "validate_only": True},
    44: {"resource_type": 2, "validate_only": True},
    37: {"count": 1000, "validate_only": True},
    49: {"validate_only": True},
    51: {"mechanism": 1, "iterations": 4096},
    75: {"response_partition_limit": 2000},
}
"""Of fields whose defaults would end a request early, by API key."""

_OUTER = frozenset({"topics", "v3_and_below_topics", "topic_data", "groups", "markers", "dirs", "topic_partitions"})
"""Arrays of one item, if there is another array in it."""

_OF_TOPICS = frozenset({19, 37})
"""APIs whose items are topics, with or without partitions."""

_BY_NAME = {0: 12, 1: 12, 3: 9, 8: 9, 9: 9, 20: 5, 24: 3, 28: 5}
"""The last versions that have topics by name; with ids that do not exist, requests end early."""

PARTITIONS = 100
_COMMITS = frozenset({8, 28})
"""The more they commit, the more they write; others are answered soonest for partitions that do not exist."""


def apis() -> list[int]:
    """The APIs whose requests have arrays."""
    return [key for key in sorted(APIS) if any(one.is_array for one in request_class(key).SCHEMA)]


def version_of(api_key: int) -> int:
    """The version in which a request does most."""
    return _BY_NAME.get(api_key, APIS[api_key].last)


def request_with(api_key: int, count: int, version: int | None = None) -> Request:
    """A request of the API whose largest array has `count` items."""
    version = version_of(api_key) if version is None else version
    kind = request_class(api_key)
    made = _struct(kind, api_key, version, 0)
    fields = [one for one in kind.SCHEMA if one.is_array and one.first <= version <= one.last]
    for field in fields:
        setattr(made, field.name, [])
    field = max(fields, key=lambda one: _depth(one, api_key, version))
    setattr(made, field.name, _items(field, api_key, version, count))
    assert isinstance(made, Request)
    return made


def _depth(field: Field, api_key: int, version: int) -> int:
    return 1 + max((_depth(one, api_key, version) for one in _inner(field, api_key, version)), default=0)


def _inner(field: Field, api_key: int, version: int) -> list[Field]:
    if field.item is None or field.name not in _OUTER or api_key in _OF_TOPICS:
        return []
    return [one for one in field.item.SCHEMA if one.is_array and one.first <= version <= one.last]


def _items(field: Field, api_key: int, version: int, count: int) -> list[Any]:
    if field.item is None:
        return [_value(field, at) for at in range(count)]
    inner = _inner(field, api_key, version)
    if not inner:
        return [_struct(field.item, api_key, version, at) for at in range(count)]
    made = _struct(field.item, api_key, version, 0)
    for name in ("name", "topic", "topic_name"):
        if name in type(made).__slots__:
            setattr(made, name, TOPIC)
    setattr(made, inner[0].name, _items(inner[0], api_key, version, count))
    return [made]


def _struct(kind: type[Message], api_key: int, version: int, at: int) -> Message:
    made = kind()
    for field in kind.SCHEMA:
        if not field.first <= version <= field.last or field.is_array or field.item is not None:
            continue
        given = _VALUES.get(api_key, {})
        if field.name in given:
            setattr(made, field.name, given[field.name])
        elif field.kind == "string" and (field.name == "name" or not field.is_nullable):
            setattr(made, field.name, str(_value(field, at)))
        elif (field.name.startswith("partition") and field.kind == "int32") or field.name == "index":
            setattr(made, field.name, at % PARTITIONS if api_key in _COMMITS else at)
        elif field.kind == "records":
            setattr(made, field.name, b"")
    for name, value in _VALUES.get(api_key, {}).items():
        if name in type(made).__slots__ and value is None:
            setattr(made, name, None)
    return made


def _value(field: Field, at: int) -> object:
    if field.kind == "string":
        return f"User:n{at}" if field.name == "principal" else f"n{at}"
    if field.kind == "uuid":
        return at.to_bytes(16, "big")
    return at % 100 if field.kind == "int8" else at
