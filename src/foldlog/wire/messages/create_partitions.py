"""CreatePartitions, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class CreatePartitionsAssignment(Message):
    broker_ids: Sequence[int] = field("int32", 0, 3, is_array=True, default=())


class CreatePartitionsTopic(Message):
    name: str = field("string", 0, 3, default="")
    count: int = field("int32", 0, 3, default=0)
    assignments: Sequence[CreatePartitionsAssignment] | None = field(
        CreatePartitionsAssignment, 0, 3, is_array=True, nullable_from=0, default=()
    )


class CreatePartitionsRequest(Request, api_key=37, versions=(0, 3), flexible_from=2):
    topics: Sequence[CreatePartitionsTopic] = field(CreatePartitionsTopic, 0, 3, is_array=True, default=())
    timeout_ms: int = field("int32", 0, 3, default=0)
    validate_only: bool = field("bool", 0, 3, default=False)


class CreatePartitionsTopicResult(Message):
    name: str = field("string", 0, 3, default="")
    error_code: int = field("int16", 0, 3, default=0)
    error_message: str | None = field("string", 0, 3, nullable_from=0, default=None)


class CreatePartitionsResponse(Response, api_key=37, versions=(0, 3), flexible_from=2):
    throttle_time_ms: int = field("int32", 0, 3, default=0)
    results: Sequence[CreatePartitionsTopicResult] = field(CreatePartitionsTopicResult, 0, 3, is_array=True, default=())


REQUEST = CreatePartitionsRequest
RESPONSE = CreatePartitionsResponse
