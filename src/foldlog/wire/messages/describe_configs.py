"""DescribeConfigs, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class DescribeConfigsResource(Message):
    resource_type: int = field("int8", 1, 4, default=0)
    resource_name: str = field("string", 1, 4, default="")
    configuration_keys: Sequence[str] | None = field("string", 1, 4, is_array=True, nullable_from=1, default=())


class DescribeConfigsRequest(Request, api_key=32, versions=(1, 4), flexible_from=4):
    resources: Sequence[DescribeConfigsResource] = field(DescribeConfigsResource, 1, 4, is_array=True, default=())
    include_synonyms: bool = field("bool", 1, 4, default=False)
    include_documentation: bool = field("bool", 3, 4, default=False)


class DescribeConfigsSynonym(Message):
    name: str = field("string", 1, 4, default="")
    value: str | None = field("string", 1, 4, nullable_from=1, default="")
    source: int = field("int8", 1, 4, default=0)


class DescribeConfigsResourceResult(Message):
    name: str = field("string", 1, 4, default="")
    value: str | None = field("string", 1, 4, nullable_from=1, default="")
    read_only: bool = field("bool", 1, 4, default=False)
    config_source: int = field("int8", 1, 4, default=-1)
    is_sensitive: bool = field("bool", 1, 4, default=False)
    synonyms: Sequence[DescribeConfigsSynonym] = field(DescribeConfigsSynonym, 1, 4, is_array=True, default=())
    config_type: int = field("int8", 3, 4, default=0)
    documentation: str | None = field("string", 3, 4, nullable_from=3, default="")


class DescribeConfigsResult(Message):
    error_code: int = field("int16", 1, 4, default=0)
    error_message: str | None = field("string", 1, 4, nullable_from=1, default="")
    resource_type: int = field("int8", 1, 4, default=0)
    resource_name: str = field("string", 1, 4, default="")
    configs: Sequence[DescribeConfigsResourceResult] = field(
        DescribeConfigsResourceResult, 1, 4, is_array=True, default=()
    )


class DescribeConfigsResponse(Response, api_key=32, versions=(1, 4), flexible_from=4):
    throttle_time_ms: int = field("int32", 1, 4, default=0)
    results: Sequence[DescribeConfigsResult] = field(DescribeConfigsResult, 1, 4, is_array=True, default=())


REQUEST = DescribeConfigsRequest
RESPONSE = DescribeConfigsResponse
