"""DescribeAcls, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class DescribeAclsRequest(Request, api_key=29, versions=(1, 3), flexible_from=2):
    resource_type_filter: int = field("int8", 1, 3, default=0)
    resource_name_filter: str | None = field("string", 1, 3, nullable_from=1, default="")
    pattern_type_filter: int = field("int8", 1, 3, default=3)
    principal_filter: str | None = field("string", 1, 3, nullable_from=1, default="")
    host_filter: str | None = field("string", 1, 3, nullable_from=1, default="")
    operation: int = field("int8", 1, 3, default=0)
    permission_type: int = field("int8", 1, 3, default=0)


class AclDescription(Message):
    principal: str = field("string", 1, 3, default="")
    host: str = field("string", 1, 3, default="")
    operation: int = field("int8", 1, 3, default=0)
    permission_type: int = field("int8", 1, 3, default=0)


class DescribeAclsResource(Message):
    resource_type: int = field("int8", 1, 3, default=0)
    resource_name: str = field("string", 1, 3, default="")
    pattern_type: int = field("int8", 1, 3, default=3)
    acls: Sequence[AclDescription] = field(AclDescription, 1, 3, is_array=True, default=())


class DescribeAclsResponse(Response, api_key=29, versions=(1, 3), flexible_from=2):
    throttle_time_ms: int = field("int32", 1, 3, default=0)
    error_code: int = field("int16", 1, 3, default=0)
    error_message: str | None = field("string", 1, 3, nullable_from=1, default="")
    resources: Sequence[DescribeAclsResource] = field(DescribeAclsResource, 1, 3, is_array=True, default=())


REQUEST = DescribeAclsRequest
RESPONSE = DescribeAclsResponse
