"""kio's classes as values to generate, and the same values as messages of foldlog.

What is generated comes from kio's own declarations, not from our schemas: a field that the generator of our messages
lost would otherwise be lost here too.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import types
import typing
import uuid
from functools import cache
from io import BytesIO
from typing import Any

from hypothesis import strategies as st
from kio.index import load_payload_module
from kio.schema.errors import ErrorCode
from kio.schema.index import PayloadEntityType
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from foldlog.wire.messages import APIS
from foldlog.wire.schema import ZERO_UUID, Message

AnyMessage = typing.TypeVar("AnyMessage", bound=Message)
Draw = typing.Callable[[st.SearchStrategy[Any]], Any]

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MILLISECOND = dt.timedelta(milliseconds=1)

NEWER_THAN_KIO = {(18, 5), (42, 3)}
"""ApiVersions and DeleteGroups of Kafka 4.4, whose schemas kio does not have yet. Kafka's own classes read them too."""

VERSIONS = [
    (api.key, version)
    for api in APIS.values()
    for version in range(api.first, api.last + 1)
    if (api.key, version) not in NEWER_THAN_KIO
]
"""Every API and version that is served, as far as kio has it."""


def version_id(pair: tuple[int, int]) -> str:
    return f"{APIS[pair[0]].module}-v{pair[1]}"


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def milliseconds(bits: int) -> st.SearchStrategy[dt.timedelta]:
    return integers(bits).map(lambda count: count * MILLISECOND)


TEXT = st.text(max_size=6) | st.just("é" * 80)
"""Short, or long enough that a compact length takes two bytes."""

BYTES = st.binary(max_size=6) | st.just(b"\xff" * 200)

STRATEGIES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": integers(8),
    "int16": integers(16),
    "uint16": st.integers(0, (1 << 16) - 1),
    "int32": integers(32),
    "int64": integers(64),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "string": TEXT,
    "bytes": BYTES,
    "records": BYTES,
    "uuid": st.uuids(),
    "error_code": st.sampled_from(ErrorCode),
    "timedelta_i32": milliseconds(32),
    "timedelta_i64": milliseconds(46),  # what a timedelta can hold, and a float of milliseconds tell apart
    "datetime_i64": st.integers(0, 1 << 36).map(lambda count: EPOCH + dt.timedelta(seconds=count)),
}


@cache
def kio_class(api_key: int, version: int, kind: PayloadEntityType) -> type[Any]:
    module = load_payload_module(api_key, version, kind)
    found = [value for value in vars(module).values() if getattr(value, "__type__", None) is kind]
    (entity,) = (value for value in found if isinstance(value, type) and value.__module__ == module.__name__)
    return entity


def request_and_response(api_key: int, version: int) -> tuple[type[Any], type[Any]]:
    return kio_class(api_key, version, EntityType.request), kio_class(api_key, version, EntityType.response)


def kio_bytes(entity: Any) -> bytes:
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def kio_parsed(cls: type[Any], data: bytes) -> Any:
    entity, size = entity_reader(cls)(data, 0)
    assert size == len(data), f"kio read {size} of {len(data)} bytes"
    return entity


class Shape(typing.NamedTuple):
    """What a dataclass field of kio says of its values."""

    inner: Any
    is_array: bool
    is_nullable: bool


_shapes: dict[Any, dict[str, Shape]] = {}


def shapes(cls: Any) -> dict[str, Shape]:
    if cls not in _shapes:
        _shapes[cls] = {field.name: _shape(field.type) for field in dataclasses.fields(cls)}
    return _shapes[cls]


def _shape(annotation: Any) -> Shape:
    is_nullable = isinstance(annotation, types.UnionType)
    if is_nullable:
        (annotation,) = (part for part in typing.get_args(annotation) if part is not types.NoneType)
    if typing.get_origin(annotation) is tuple:
        return Shape(typing.get_args(annotation)[0], True, is_nullable)
    return Shape(annotation, False, is_nullable)


def draw_entity(draw: Draw, cls: type[Any]) -> Any:
    """A value of one of kio's classes. Tagged fields have their defaults half of the time."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        shape = shapes(cls)[field.name]
        is_tagged = "tag" in field.metadata
        if is_tagged and field.default is not dataclasses.MISSING and draw(st.booleans()):
            continue
        if shape.is_nullable and draw(st.integers(0, 3)) == 0:
            values[field.name] = None
        elif shape.is_array:
            count = draw(st.integers(0, 2))
            values[field.name] = tuple(draw_value(draw, field, shape.inner) for _ in range(count))
        else:
            values[field.name] = draw_value(draw, field, shape.inner)
    return cls(**values)


def draw_value(draw: Draw, field: dataclasses.Field[Any], inner: Any) -> Any:
    if dataclasses.is_dataclass(inner):
        return draw_entity(draw, typing.cast(type[Any], inner))
    return draw(STRATEGIES[field.metadata["kafka_type"]])


def our_name(field: dataclasses.Field[Any]) -> str:
    is_time = field.metadata.get("kafka_type", "").startswith(("timedelta", "datetime"))
    return field.name + ("_ms" if is_time else "")


def as_default(field: dataclasses.Field[Any]) -> tuple[str, Any]:
    """Our name of a field that has a default, and that default."""
    if dataclasses.is_dataclass(field.default):
        return our_name(field), None  # not there, which says the same
    return our_name(field), as_value(field.default, field.metadata.get("kafka_type", ""), None)


def as_message(entity: Any, cls: type[AnyMessage]) -> AnyMessage:
    """That value as a message of ours."""
    items = {field.name: field.item for field in cls.SCHEMA if field.item is not None}
    values: dict[str, Any] = {}
    for field in dataclasses.fields(entity):
        value = getattr(entity, field.name)
        kafka_type = field.metadata.get("kafka_type", "")
        name = our_name(field)
        item = items.get(name)
        if item is not None and "tag" in field.metadata and value == field.default:
            values[name] = () if isinstance(value, tuple) else None
        elif isinstance(value, tuple):
            values[name] = [as_value(each, kafka_type, item) for each in value]
        else:
            values[name] = as_value(value, kafka_type, item)
    return cls(**values)


def as_value(value: Any, kafka_type: str, item: type[Message] | None) -> Any:
    match value:
        case None:
            return {"uuid": ZERO_UUID, "datetime_i64": -1}.get(kafka_type)
        case uuid.UUID():
            return value.bytes
        case ErrorCode():
            return int(value)
        case dt.timedelta():
            return value // MILLISECOND
        case dt.datetime():
            return (value - EPOCH) // MILLISECOND
    return value if item is None else as_message(value, item)
