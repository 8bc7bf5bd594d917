"""IncrementalAlterConfigs, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class AlterableConfig(Message):
    name: str = field("string", 0, 1, default="")
    config_operation: int = field("int8", 0, 1, default=0)
    value: str | None = field("string", 0, 1, nullable_from=0, default="")


class AlterConfigsResource(Message):
    resource_type: int = field("int8", 0, 1, default=0)
    resource_name: str = field("string", 0, 1, default="")
    configs: Sequence[AlterableConfig] = field(AlterableConfig, 0, 1, is_array=True, default=())


class IncrementalAlterConfigsRequest(Request, api_key=44, versions=(0, 1), flexible_from=1):
    resources: Sequence[AlterConfigsResource] = field(AlterConfigsResource, 0, 1, is_array=True, default=())
    validate_only: bool = field("bool", 0, 1, default=False)


class AlterConfigsResourceResponse(Message):
    error_code: int = field("int16", 0, 1, default=0)
    error_message: str | None = field("string", 0, 1, nullable_from=0, default="")
    resource_type: int = field("int8", 0, 1, default=0)
    resource_name: str = field("string", 0, 1, default="")


class IncrementalAlterConfigsResponse(Response, api_key=44, versions=(0, 1), flexible_from=1):
    throttle_time_ms: int = field("int32", 0, 1, default=0)
    responses: Sequence[AlterConfigsResourceResponse] = field(
        AlterConfigsResourceResponse, 0, 1, is_array=True, default=()
    )


REQUEST = IncrementalAlterConfigsRequest
RESPONSE = IncrementalAlterConfigsResponse
