"""Messages of the JSON-lines node: Maelstrom's envelope, its error codes, and the fields of a request. No I/O.

    {"src": "c1", "dest": "n1", "body": {"type": "partition_append", "msg_id": 2, ...}}

Answers have their keys in one order: type, in_reply_to, the answer's own fields, msg_id.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from enum import IntEnum
from typing import Any, Final

from foldlog.errors import (
    CallerError,
    FoldlogError,
    GroupError,
    OffsetOutOfRange,
    StorageFull,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from foldlog.limits import TOPIC_NAME_CHARS_MAX

Fields = dict[str, Any]

OFFSET_MAX: Final = (1 << 63) - 1
LINE_BYTES_MAX: Final = 8 << 20
"""Eight times the default max.message.bytes: a longer line cannot become a record, even if everything is escaped."""

KEY_TOPIC_PREFIX: Final = "key."
"""Prefix of topics that hold the keys of Maelstrom's kafka workload: one topic with one partition per key."""

_ESCAPED: Final = re.compile(rb"[^a-zA-Z0-9-]")


class NodeErrorCode(IntEnum):
    """Maelstrom's codes. All but CRASH are definite: the request did not happen and will not."""

    NOT_SUPPORTED = 10
    TEMPORARILY_UNAVAILABLE = 11
    MALFORMED_REQUEST = 12
    CRASH = 13
    ABORT = 14
    KEY_DOES_NOT_EXIST = 20
    PRECONDITION_FAILED = 22


class RequestError(Exception):
    """A request that is answered with an error: `code`, and the text of the exception."""

    def __init__(self, code: NodeErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def malformed(text: str) -> RequestError:
    return RequestError(NodeErrorCode.MALFORMED_REQUEST, text)


_CODES: Final[tuple[tuple[type[FoldlogError], NodeErrorCode], ...]] = (
    (OffsetOutOfRange, NodeErrorCode.KEY_DOES_NOT_EXIST),
    (UnknownTopic, NodeErrorCode.KEY_DOES_NOT_EXIST),
    (UnknownPartition, NodeErrorCode.KEY_DOES_NOT_EXIST),
    (TopicExists, NodeErrorCode.PRECONDITION_FAILED),
    (GroupError, NodeErrorCode.PRECONDITION_FAILED),
    (CallerError, NodeErrorCode.MALFORMED_REQUEST),
    (StorageFull, NodeErrorCode.TEMPORARILY_UNAVAILABLE),
)


def code_of(error: FoldlogError) -> NodeErrorCode:
    """The corresponding code; CRASH if it is unknown whether the request happened."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), NodeErrorCode.CRASH)


# Lines


def parse_line(line: bytes) -> Fields:
    """The message of one line. RequestError if it is malformed."""
    if len(line) > LINE_BYTES_MAX:
        raise malformed(f"the line is longer than {LINE_BYTES_MAX} bytes")
    try:
        message = json.loads(line, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise malformed(f"the line is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise malformed("the line is not a JSON object")
    return message


def body_of(message: Fields) -> Fields:
    """The body of a message. RequestError if it has none with a type."""
    body = message.get("body")
    if not isinstance(body, dict):
        raise malformed('the message has no "body" that is an object')
    if not isinstance(body.get("type"), str):
        raise malformed('the body has no "type" that is a string')
    return body


def is_answer(body: Fields) -> bool:
    """Whether the message is an answer: answers are never answered, or two nodes would continue forever."""
    kind = body["type"]
    return "in_reply_to" in body and (kind == "error" or kind.endswith("_ok"))


def format_line(source: object, destination: object, body: Fields) -> bytes:
    return json.dumps({"src": source, "dest": destination, "body": body}).encode("ascii") + b"\n"


def ok_body(request: Fields, fields: Fields) -> Fields:
    return {"type": f"{request['type']}_ok", "in_reply_to": request.get("msg_id"), **fields}


def error_body(request_id: object, code: NodeErrorCode, text: str) -> Fields:
    return {"type": "error", "in_reply_to": request_id, "code": int(code), "text": text}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):  # it would come back as Infinity, which is not JSON
        raise ValueError(f"{text[:32]} is too large for a number")
    return number


# Fields


def text_field(body: Fields, name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise malformed(f'{body["type"]} needs "{name}", a string that is not empty')
    return value


def number_field(body: Fields, name: str) -> int:
    return _number(body.get(name), f'{body["type"]} needs "{name}", an integer')


def value_field(body: Fields, name: str) -> Any:
    """Any JSON value, even null, but it has to be present."""
    if name not in body:
        raise malformed(f'{body["type"]} needs "{name}"')
    return body[name]


def key_field(body: Fields) -> str:
    """A key of the kafka workload: a string, or an integer, which becomes the string of its digits."""
    return _key(body.get("key"), body)


def node_ids_field(body: Fields) -> list[str]:
    """All nodes; by default only the one of `node_id`."""
    value = body.get("node_ids", [body["node_id"]])
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise malformed(f'{body["type"]} has "node_ids" that are no list of strings')
    if body["node_id"] not in value:
        named = ", ".join(value) or "there are none"
        raise malformed(
            f"{body['type']} has the node_id {body['node_id']!r:.64}, which is not among its node_ids: {named:.256}"
        )
    return sorted(set(value))


def keys_field(body: Fields) -> list[str]:
    value = body.get("keys")
    if not isinstance(value, list):
        raise malformed(f'{body["type"]} needs "keys", a list of strings')
    return [_key(key, body) for key in value]


def offsets_field(body: Fields) -> dict[str, int]:
    """Key → offset."""
    value = body.get("offsets")
    if not isinstance(value, dict):
        raise malformed(f'{body["type"]} needs "offsets", an object of offsets by key')
    return {key: _number(offset, f"the offset of key {key!r} is no integer") for key, offset in value.items()}


def _key(value: object, body: Fields) -> str:
    if isinstance(value, str):
        return value
    if type(value) is int:
        return str(value)
    raise malformed(f"{body['type']} needs keys that are strings, not {value!r:.64}")


def _number(value: object, problem: str) -> int:
    if type(value) is not int:  # true is an int in Python, and no number in JSON
        raise malformed(problem)
    if not -OFFSET_MAX <= value <= OFFSET_MAX:
        raise malformed(f"{problem} of 64 bits")
    return value


# Stored records


def to_record(message: Any) -> bytes:
    """A JSON value as the record that holds it."""
    try:
        return json.dumps(message, separators=(",", ":")).encode("ascii")
    except RecursionError:
        raise malformed("the message is nested too deeply") from None


def from_record(value: bytes | None, offset: int) -> Any:
    """The JSON value of a record; null for a tombstone."""
    if value is None:
        return None
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise RequestError(NodeErrorCode.ABORT, f"the record at offset {offset} was not written as JSON") from None


def topic_of_key(key: str) -> str:
    """A topic name for any string, different for different strings.

    Bytes that a topic name cannot contain are written as `_` and two hex digits; a name that would then be too long is
    replaced by its SHA-256, after a second dot, which no escaped name has.

    >>> topic_of_key("k1"), topic_of_key("a b"), topic_of_key("")
    ('key.k1', 'key.a_20b', 'key.')
    """
    raw = key.encode("utf-8", "surrogatepass")
    escaped = _ESCAPED.sub(lambda byte: b"_%02x" % byte[0][0], raw).decode("ascii")
    if len(KEY_TOPIC_PREFIX) + len(escaped) <= TOPIC_NAME_CHARS_MAX:
        return KEY_TOPIC_PREFIX + escaped
    return f"{KEY_TOPIC_PREFIX}.{hashlib.sha256(raw).hexdigest()}"
