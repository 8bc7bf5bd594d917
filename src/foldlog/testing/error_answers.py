"""Answers that refuse a request with one error code, for any API in any of its versions.

An answer names what the request named, in the same order, with the code wherever the protocol has a place for it, and
-1 or nothing for what a refused request does not learn. Three APIs are special: the places of a Fetch are in its
session, a client that gets no brokers in Metadata cannot ask again, and Produce with acks=0 has no answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from foldlog.server.call import Call, Disconnect, Handler, has_error
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.frames import response_of
from foldlog.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData
from foldlog.wire.messages.metadata import MetadataRequest, MetadataResponse
from foldlog.wire.messages.produce import ProduceRequest
from foldlog.wire.schema import Field, Message, Request, Response

MESSAGE: Final = "a fault that a test asked for"

_CODES: Final = ("error_code", "partition_error_code")
_MESSAGES: Final = ("error_message",)

_ASKED_AS: Final = {
    "responses": ("topic_data", "topics", "resources", "topic_names"),
    "partition_responses": ("partition_data",),
    "partitions": ("partitions", "partition_indexes"),
    "results": ("resources", "topics", "groups_names", "users", "feature_updates", "creations"),
    "groups": ("groups", "group_ids"),
    "coordinators": ("coordinator_keys",),
    "filter_results": ("filters",),
    "transaction_states": ("transactional_ids",),
    "results_by_transaction": ("transactions",),
    "topic_results": ("topics",),
    "results_by_partition": ("partitions",),
    "results_by_topic_v3_and_below": ("v3_and_below_topics",),
    "replica_election_results": ("topic_partitions",),
    "partition_result": ("partitions",),
}
"""Arrays of answers, with the arrays of requests that they answer where these have other names."""

_NAMES: Final = {
    "name": ("name",),
    "topic": ("topic", "name"),
    "topic_name": ("topic_name", "name"),
    "topic_id": ("topic_id",),
    "index": ("index",),
    "partition": ("partition",),
    "partition_index": ("partition_index", "partition"),
    "partition_id": ("partition_id",),
    "group_id": ("group_id",),
    "key": ("key",),
    "transactional_id": ("transactional_id",),
    "resource_type": ("resource_type",),
    "resource_name": ("resource_name",),
    "user": ("user", "name"),
    "feature": ("feature",),
    "producer_id": ("producer_id",),
    "member_id": ("member_id",),
    "group_instance_id": ("group_instance_id",),
    "entity_type": ("entity_type",),
    "entity_name": ("entity_name",),
}
"""Fields of an item that say what it is about, with their names in requests. For an array of plain values, the first of
these that the item has is the value."""

_UNKNOWN: Final = frozenset(
    {
        "base_offset",
        "log_append_time_ms",
        "log_start_offset",
        "high_watermark",
        "last_stable_offset",
        "committed_offset",
        "committed_leader_epoch",
        "offset",
        "timestamp",
        "end_offset",
        "leader_epoch",
        "low_watermark",
        "node_id",
        "port",
        "producer_epoch",
        "start_offset",
    }
)
"""Numbers that a refused request does not learn: Kafka answers -1."""

_OF_THE_SESSION: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors of a whole Fetch. All others are those of its partitions."""

_FETCH_CODE_FROM: Final = 7
_METADATA_CODE_FROM: Final = 13


def refusing(code: ErrorCode, handle: Handler) -> Handler:
    """A handler that has no effect and answers with the code."""

    def refuse(call: Call, request: Any) -> Any:
        if isinstance(request, MetadataRequest):
            return _refused_metadata(call, request, code, handle)
        if isinstance(request, FetchRequest):
            return _refused_fetch(call, request, code)
        if isinstance(request, ProduceRequest) and not request.acks:
            raise Disconnect(f"Produce with acks=0 fails with {code.name}, which has no other answer")
        return error_answer(request, call.version, code)

    return refuse


def error_answer(request: Request, version: int, code: ErrorCode) -> Response:
    """The answer of that version that refuses all that the request names."""
    kind = response_of(type(request))
    answer = _refused(kind, version, code, request)
    if not has_error(answer):
        _put_one(answer, version, code)
    return cast(Response, answer)


def _refused(kind: type[Message], version: int, code: ErrorCode, asked: object, *, is_item: bool = False) -> Message:
    """A struct of an answer, and all in it, about what was asked: a struct of the request, or a plain value."""
    answer = kind()
    for one in _fields(kind, version):
        if one.name in _CODES:
            setattr(answer, one.name, code)
        elif one.name in _MESSAGES:
            setattr(answer, one.name, MESSAGE)
        elif one.item is not None and one.is_array and isinstance(asked, Message):
            if is_item or _holds_code(one.item, version):
                items = _asked_items(asked, one.name)
                found = [_refused(one.item, version, code, item, is_item=True) for item in items]
                if found or getattr(answer, one.name) is not None:
                    setattr(answer, one.name, found)
        elif one.name in _UNKNOWN:
            setattr(answer, one.name, -1)
    if is_item:
        _name(answer, asked, version)
    elif hasattr(answer, "member_id") and hasattr(asked, "member_id"):
        answer.member_id = asked.member_id
    return answer


def _fields(kind: type[Message], version: int) -> Iterator[Field]:
    return (one for one in kind.SCHEMA if one.first <= version <= one.last)


def _holds_code(kind: type[Message], version: int) -> bool:
    return any(
        one.name in _CODES or (one.item is not None and _holds_code(one.item, version))
        for one in _fields(kind, version)
    )


def _asked_items(asked: Message, name: str) -> list[object]:
    found: list[object] = []
    for candidate in _ASKED_AS.get(name, (name,)):
        found += getattr(asked, candidate, None) or ()
    if not found and name == "results":
        # Two APIs ask in several arrays, or one level further down.
        changed = [*getattr(asked, "deletions", ()), *getattr(asked, "upsertions", ())]
        found += {one.name: one for one in changed}.values()
        found += (topic for place in getattr(asked, "dirs", ()) for topic in place.topics)
    return found


def _name(answer: Message, asked: object, version: int) -> None:
    """Say which item of the request it answers."""
    names = [one.name for one in _fields(type(answer), version) if one.name in _NAMES]
    if not isinstance(asked, Message):
        for name in names[:1]:
            setattr(answer, name, asked)
        return
    for name in names:
        source = next((candidate for candidate in _NAMES[name] if hasattr(asked, candidate)), None)
        if source is not None:
            setattr(answer, name, getattr(asked, source))


def _put_one(answer: Message, version: int, code: ErrorCode) -> None:
    """Put the code into an item about nothing: the request named nothing, and the answer has no other place."""
    for one in _fields(type(answer), version):
        if one.item is not None and one.is_array and _holds_code(one.item, version):
            item = _refused(one.item, version, code, None)
            if not has_error(item):
                _put_one(item, version, code)
            setattr(answer, one.name, [item])
            return


# --- the special ones -------------------------------------------------------------------------------------------------


def _refused_fetch(call: Call, request: FetchRequest, code: ErrorCode) -> FetchResponse:
    """The session goes on as after any fetch whose partitions have errors."""
    if code in _OF_THE_SESSION and call.version >= _FETCH_CODE_FROM:
        return FetchResponse(error_code=code)
    context = call.node.fetch_sessions.resolve(request, call.version)
    if context.error:
        return context.response([])
    return context.response(
        [
            PartitionData(
                partition_index=one.partition,
                error_code=code,
                high_watermark=-1,
                last_stable_offset=-1,
                log_start_offset=-1,
                records=b"",
            )
            for one in context.partitions
        ]
    )


async def _refused_metadata(call: Call, request: MetadataRequest, code: ErrorCode, handle: Handler) -> MetadataResponse:
    """The brokers as they are, so that the client can ask again, and the code with each topic that it asked for."""
    request.allow_auto_topic_creation = False
    answer = handle(call, request)
    while not isinstance(answer, Message):
        if answer is None:
            raise Disconnect("Metadata has no answer")
        answer = await answer
    told = cast(MetadataResponse, answer)
    for topic in told.topics or ():
        topic.error_code = code
        topic.partitions = []
    if not told.topics and call.version >= _METADATA_CODE_FROM:
        told.error_code = code
    return told


def topics_named(call: Call, request: Request) -> set[str]:
    """The topics that a request is about; of a Fetch those of its session too."""
    names = set(_topics_in(call, request, is_topic=False))
    if isinstance(request, FetchRequest):
        # Looked at, not resolved: that would move the session on.
        session = call.node.fetch_sessions._sessions.get(request.session_id)
        for one in () if session is None else session.partitions.values():
            name = one.topic if one.topic is not None else call.node.topic_ids.name_of(one.topic_id)
            names |= set() if name is None else {name}
    return names


_TOPIC_ARRAYS: Final = frozenset(
    {"topics", "topic_data", "topic_partitions", "v3_and_below_topics", "topic_names", "subscribed_topic_names"}
)
_TOPIC_NAMES: Final = ("name", "topic", "topic_name")


def _topics_in(call: Call, part: Message, *, is_topic: bool) -> Iterator[str]:
    if is_topic:
        for field in _TOPIC_NAMES:
            name = getattr(part, field, None)
            if isinstance(name, str) and name:
                yield name
        by_id = call.node.topic_ids.name_of(getattr(part, "topic_id", None) or b"")
        if by_id is not None:
            yield by_id
    for one in _fields(type(part), call.version):
        value = getattr(part, one.name)
        if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview):
            for item in value:
                if isinstance(item, Message):
                    yield from _topics_in(call, item, is_topic=one.name in _TOPIC_ARRAYS)
                elif one.name in _TOPIC_ARRAYS and isinstance(item, str):
                    yield item


async def answered(handle: Handler, call: Call, request: Any) -> Message | None:
    """The handler's answer, once it is there: what the request does is done then."""
    reply = handle(call, request)
    while reply is not None and not isinstance(reply, Message):
        reply = await reply
    return reply


def kept(part: Message) -> None:
    """Copy what a request has of its connection's buffer, so that it can be used later."""
    for one in type(part).SCHEMA:
        value = getattr(part, one.name)
        if isinstance(value, memoryview):
            setattr(part, one.name, bytes(value))
        elif isinstance(value, Message):
            kept(value)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, Message):
                    kept(item)


Waiting = asyncio.Future[None]
"""What a request waits for that is held up."""
