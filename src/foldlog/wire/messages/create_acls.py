"""CreateAcls, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class AclCreation(Message):
    resource_type: int = field("int8", 1, 3, default=0)
    resource_name: str = field("string", 1, 3, default="")
    resource_pattern_type: int = field("int8", 1, 3, default=3)
    principal: str = field("string", 1, 3, default="")
    host: str = field("string", 1, 3, default="")
    operation: int = field("int8", 1, 3, default=0)
    permission_type: int = field("int8", 1, 3, default=0)


class CreateAclsRequest(Request, api_key=30, versions=(1, 3), flexible_from=2):
    creations: Sequence[AclCreation] = field(AclCreation, 1, 3, is_array=True, default=())


class AclCreationResult(Message):
    error_code: int = field("int16", 1, 3, default=0)
    error_message: str | None = field("string", 1, 3, nullable_from=1, default="")


class CreateAclsResponse(Response, api_key=30, versions=(1, 3), flexible_from=2):
    throttle_time_ms: int = field("int32", 1, 3, default=0)
    results: Sequence[AclCreationResult] = field(AclCreationResult, 1, 3, is_array=True, default=())


REQUEST = CreateAclsRequest
RESPONSE = CreateAclsResponse
