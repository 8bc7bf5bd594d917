"""Values to bytes and back: the default conversions, and how to use others.

Writing, unless a serializer is given: bytes-like as it is, str as UTF-8, dict, list, tuple, int, float and bool as
compact JSON (UTF-8, not ASCII escapes; NaN is refused, JSON has none), None as null (a tombstone). Everything else is
refused: a guess (a pickle, a repr) would be read back wrongly years later.

A serializer is a callable from a value to bytes or None, or one of the names in SERIALIZERS. A deserializer is a
callable from bytes to a value, or one of the names in DESERIALIZERS; it is never called for null.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from foldlog.errors import InvalidArgument, SerializationError, brief_repr
from foldlog.records.loops import Record

Serializer = Callable[[Any], bytes | None]
Deserializer = Callable[[bytes], Any]

_encode_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def to_json(value: Any) -> bytes | None:
    """Compact JSON in UTF-8; None stays null.

    >>> to_json({"name": "Zoë", "paise": 1999900})
    b'{"name":"Zo\\xc3\\xab","paise":1999900}'
    """
    if value is None:
        return None
    try:
        return _encode_json(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise SerializationError(f"not expressible in JSON: {error}") from error


def to_text(value: Any) -> bytes | None:
    """A str in UTF-8; None stays null.

    >>> to_text("tx_001")
    b'tx_001'
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise SerializationError(f"the 'str' serializer was given {type(value).__name__}")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise SerializationError(f"text is not expressible in UTF-8: {error}") from error


def to_bytes(value: Any) -> bytes | None:
    """Bytes-like only; None stays null.

    >>> to_bytes(bytearray(b"raw"))
    b'raw'
    """
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise SerializationError(f"the 'bytes' serializer was given {type(value).__name__}")


def to_plain(value: Any) -> bytes | None:
    """The default serializer: see the module's docstring.

    >>> to_plain("tx_001"), to_plain({"a": 1}), to_plain(7), to_plain(None)
    (b'tx_001', b'{"a":1}', b'7', None)
    """
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return to_text(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (dict, list, tuple, int, float)):
        return to_json(value)
    raise SerializationError(
        f"{type(value).__name__} has no bytes of its own; give bytes, str, dict, list, int, float, bool or None,"
        " or a serializer"
    )


def from_json(data: bytes) -> Any:
    """
    >>> from_json(b'{"a":1}')
    {'a': 1}
    """
    return json.loads(data)


def from_text(data: bytes) -> str:
    """
    >>> from_text(b"tx_001")
    'tx_001'
    """
    return str(data, "utf-8")


def from_bytes(data: bytes) -> bytes:
    """
    >>> from_bytes(b"raw")
    b'raw'
    """
    return data


SERIALIZERS: Mapping[str, Serializer] = {"json": to_json, "str": to_text, "bytes": to_bytes}
DESERIALIZERS: Mapping[str, Deserializer] = {"json": from_json, "str": from_text, "bytes": from_bytes}


def serializer(chosen: Serializer | str | None) -> Serializer | None:
    """The callable for a serializer given by name or as a callable; None means `to_plain`, which hot paths inline.

    >>> serializer("json")([1, 2])
    b'[1,2]'
    """
    if chosen is None or callable(chosen):
        return chosen
    try:
        return SERIALIZERS[chosen]
    except (KeyError, TypeError):
        raise _unknown("serializer", chosen, SERIALIZERS) from None


def deserializer(chosen: Deserializer | str | None) -> Deserializer | None:
    """The callable for a deserializer given by name or as a callable; None leaves bytes as they are.

    >>> deserializer("json")(b"[1,2]")
    [1, 2]
    """
    if chosen is None or callable(chosen):
        return chosen
    if chosen == "bytes":
        return None
    try:
        return DESERIALIZERS[chosen]
    except (KeyError, TypeError):
        raise _unknown("deserializer", chosen, DESERIALIZERS) from None


def serialized(chosen: Serializer | None, value: Any, what: str, topic: str) -> bytes | None:
    """`value` as bytes, by the chosen serializer; every failure names the topic and what could not be serialized."""
    try:
        data: Any = to_plain(value) if chosen is None else chosen(value)
    except SerializationError as error:
        raise SerializationError(f"the {what} of a record for {topic!r}: {error}") from error
    except Exception as error:  # whatever the caller's serializer raises
        raise SerializationError(f"the {what} of a record for {topic!r}: {error!r} from its serializer") from error
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    raise SerializationError(
        f"the {what} of a record for {topic!r}: its serializer returned {type(data).__name__}, not bytes or None"
    )


def deserialized(records: Sequence[Record], of_key: Deserializer | None, of_value: Deserializer | None) -> list[Record]:
    """These records with key and value deserialized, up to the first that cannot be.

    If that is the very first, raises a SerializationError with topic, partition and offset, so that a reader gets
    everything before a bad record, and can then seek past it.
    """
    done: list[Record] = []
    for record in records:
        key, value = record.key, record.value
        what = "key"
        try:
            if of_key is not None and key is not None:
                key = of_key(key)
            what = "value"
            if of_value is not None and value is not None:
                value = of_value(value)
        except Exception as error:  # whatever the caller's deserializer raises
            if done:
                break
            raise SerializationError(
                f"the {what} at offset {record.offset} of {record.topic}-{record.partition} cannot be deserialized:"
                f" {error!r}; seek past it, or read it without a deserializer"
            ) from error
        done.append(record.replace(key=key, value=value))
    return done


def _unknown(kind: str, chosen: object, known: Mapping[str, Any]) -> InvalidArgument:
    names = ", ".join(repr(name) for name in known)
    return InvalidArgument(f"no {kind} {brief_repr(chosen)}; give a callable or one of {names}")
