"""DeleteTopics, versions 1 to 6.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import ZERO_UUID, Field, Message, Request, Response


class DeleteTopicState(Message):
    """In version 6."""

    __slots__ = (
        "name",
        "topic_id",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 6, 6, is_nullable=True),
        Field("topic_id", "uuid", 6, 6),
    )

    def __init__(self, *, name: str | None = None, topic_id: bytes = ZERO_UUID) -> None:
        self.name = name
        self.topic_id = topic_id


class DeleteTopicsRequest(Request):
    """In versions 1 to 6."""

    __slots__ = (
        "topic_names",
        "topics",
        "timeout_ms",
    )
    API_KEY: ClassVar[int] = 20
    VERSIONS: ClassVar[tuple[int, int]] = (1, 6)
    FLEXIBLE_FROM: ClassVar[int | None] = 4
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("topic_names", "string", 1, 5, is_array=True),
        Field("topics", "struct", 6, 6, item=DeleteTopicState, is_array=True),
        Field("timeout_ms", "int32", 1, 6),
    )

    def __init__(
        self, *, topic_names: Sequence[str] = (), topics: Sequence[DeleteTopicState] = (), timeout_ms: int = 0
    ) -> None:
        self.topic_names = topic_names
        self.topics = topics
        self.timeout_ms = timeout_ms


class DeletableTopicResult(Message):
    """In versions 1 to 6."""

    __slots__ = (
        "name",
        "topic_id",
        "error_code",
        "error_message",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 1, 5),
        Field("name", "string", 6, 6, is_nullable=True),
        Field("topic_id", "uuid", 6, 6),
        Field("error_code", "int16", 1, 6),
        Field("error_message", "string", 5, 6, is_nullable=True),
    )

    def __init__(
        self,
        *,
        name: str | None = "",
        topic_id: bytes = ZERO_UUID,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.error_code = error_code
        self.error_message = error_message


class DeleteTopicsResponse(Response):
    """In versions 1 to 6."""

    __slots__ = (
        "throttle_time_ms",
        "responses",
    )
    API_KEY: ClassVar[int] = 20
    VERSIONS: ClassVar[tuple[int, int]] = (1, 6)
    FLEXIBLE_FROM: ClassVar[int | None] = 4
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("throttle_time_ms", "int32", 1, 6),
        Field("responses", "struct", 1, 6, item=DeletableTopicResult, is_array=True),
    )

    def __init__(self, *, throttle_time_ms: int = 0, responses: Sequence[DeletableTopicResult] = ()) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.responses = responses


REQUEST = DeleteTopicsRequest
RESPONSE = DeleteTopicsResponse
