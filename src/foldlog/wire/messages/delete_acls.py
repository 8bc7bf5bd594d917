"""DeleteAcls, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class DeleteAclsFilter(Message):
    resource_type_filter: int = field("int8", 1, 3, default=0)
    resource_name_filter: str | None = field("string", 1, 3, nullable_from=1, default="")
    pattern_type_filter: int = field("int8", 1, 3, default=3)
    principal_filter: str | None = field("string", 1, 3, nullable_from=1, default="")
    host_filter: str | None = field("string", 1, 3, nullable_from=1, default="")
    operation: int = field("int8", 1, 3, default=0)
    permission_type: int = field("int8", 1, 3, default=0)


class DeleteAclsRequest(Request, api_key=31, versions=(1, 3), flexible_from=2):
    filters: Sequence[DeleteAclsFilter] = field(DeleteAclsFilter, 1, 3, is_array=True, default=())


class DeleteAclsMatchingAcl(Message):
    error_code: int = field("int16", 1, 3, default=0)
    error_message: str | None = field("string", 1, 3, nullable_from=1, default="")
    resource_type: int = field("int8", 1, 3, default=0)
    resource_name: str = field("string", 1, 3, default="")
    pattern_type: int = field("int8", 1, 3, default=3)
    principal: str = field("string", 1, 3, default="")
    host: str = field("string", 1, 3, default="")
    operation: int = field("int8", 1, 3, default=0)
    permission_type: int = field("int8", 1, 3, default=0)


class DeleteAclsFilterResult(Message):
    error_code: int = field("int16", 1, 3, default=0)
    error_message: str | None = field("string", 1, 3, nullable_from=1, default="")
    matching_acls: Sequence[DeleteAclsMatchingAcl] = field(DeleteAclsMatchingAcl, 1, 3, is_array=True, default=())


class DeleteAclsResponse(Response, api_key=31, versions=(1, 3), flexible_from=2):
    throttle_time_ms: int = field("int32", 1, 3, default=0)
    filter_results: Sequence[DeleteAclsFilterResult] = field(DeleteAclsFilterResult, 1, 3, is_array=True, default=())


REQUEST = DeleteAclsRequest
RESPONSE = DeleteAclsResponse
