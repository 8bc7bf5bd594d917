"""ListGroups, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class ListGroupsRequest(Request, api_key=16, versions=(0, 5), flexible_from=3):
    states_filter: Sequence[str] = field("string", 4, 5, is_array=True, default=())
    types_filter: Sequence[str] = field("string", 5, 5, is_array=True, default=())


class ListedGroup(Message):
    group_id: str = field("string", 0, 5, default="")
    protocol_type: str = field("string", 0, 5, default="")
    group_state: str = field("string", 4, 5, default="")
    group_type: str = field("string", 5, 5, default="")


class ListGroupsResponse(Response, api_key=16, versions=(0, 5), flexible_from=3):
    throttle_time_ms: int = field("int32", 1, 5, default=0)
    error_code: int = field("int16", 0, 5, default=0)
    groups: Sequence[ListedGroup] = field(ListedGroup, 0, 5, is_array=True, default=())


REQUEST = ListGroupsRequest
RESPONSE = ListGroupsResponse
