"""DeleteGroups, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class DeleteGroupsRequest(Request, api_key=42, versions=(0, 3), flexible_from=2):
    groups_names: Sequence[str] = field("string", 0, 3, is_array=True, default=())


class DeletableGroupResult(Message):
    group_id: str = field("string", 0, 3, default="")
    error_code: int = field("int16", 0, 3, default=0)
    error_message: str | None = field("string", 3, 3, nullable_from=3, default=None)


class DeleteGroupsResponse(Response, api_key=42, versions=(0, 3), flexible_from=2):
    throttle_time_ms: int = field("int32", 0, 3, default=0)
    results: Sequence[DeletableGroupResult] = field(DeletableGroupResult, 0, 3, is_array=True, default=())


REQUEST = DeleteGroupsRequest
RESPONSE = DeleteGroupsResponse
