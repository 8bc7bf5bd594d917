"""DeleteTopics, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import ZERO_UUID, Message, Request, Response, field


class DeleteTopicState(Message):
    name: str | None = field("string", 6, 6, nullable_from=6, default=None)
    topic_id: bytes = field("uuid", 6, 6, default=ZERO_UUID)


class DeleteTopicsRequest(Request, api_key=20, versions=(1, 6), flexible_from=4):
    topics: Sequence[DeleteTopicState] = field(DeleteTopicState, 6, 6, is_array=True, default=())
    topic_names: Sequence[str] = field("string", 1, 5, is_array=True, default=())
    timeout_ms: int = field("int32", 1, 6, default=0)


class DeletableTopicResult(Message):
    name: str | None = field("string", 1, 6, nullable_from=6, default="")
    topic_id: bytes = field("uuid", 6, 6, default=ZERO_UUID)
    error_code: int = field("int16", 1, 6, default=0)
    error_message: str | None = field("string", 5, 6, nullable_from=5, default=None)


class DeleteTopicsResponse(Response, api_key=20, versions=(1, 6), flexible_from=4):
    throttle_time_ms: int = field("int32", 1, 6, default=0)
    responses: Sequence[DeletableTopicResult] = field(DeletableTopicResult, 1, 6, is_array=True, default=())


REQUEST = DeleteTopicsRequest
RESPONSE = DeleteTopicsResponse
