"""DeleteShareGroupOffsets, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import ZERO_UUID, Message, Request, Response, field


class DeleteShareGroupOffsetsRequestTopic(Message):
    topic_name: str = field("string", 0, 0, default="")


class DeleteShareGroupOffsetsRequest(Request, api_key=92, versions=(0, 0), flexible_from=0):
    group_id: str = field("string", 0, 0, default="")
    topics: Sequence[DeleteShareGroupOffsetsRequestTopic] = field(
        DeleteShareGroupOffsetsRequestTopic, 0, 0, is_array=True, default=()
    )


class DeleteShareGroupOffsetsResponseTopic(Message):
    topic_name: str = field("string", 0, 0, default="")
    topic_id: bytes = field("uuid", 0, 0, default=ZERO_UUID)
    error_code: int = field("int16", 0, 0, default=0)
    error_message: str | None = field("string", 0, 0, nullable_from=0, default=None)


class DeleteShareGroupOffsetsResponse(Response, api_key=92, versions=(0, 0), flexible_from=0):
    throttle_time_ms: int = field("int32", 0, 0, default=0)
    error_code: int = field("int16", 0, 0, default=0)
    error_message: str | None = field("string", 0, 0, nullable_from=0, default=None)
    responses: Sequence[DeleteShareGroupOffsetsResponseTopic] = field(
        DeleteShareGroupOffsetsResponseTopic, 0, 0, is_array=True, default=()
    )


REQUEST = DeleteShareGroupOffsetsRequest
RESPONSE = DeleteShareGroupOffsetsResponse
