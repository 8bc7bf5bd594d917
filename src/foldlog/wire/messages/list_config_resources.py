"""ListConfigResources, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class ListConfigResourcesRequest(Request, api_key=74, versions=(0, 1), flexible_from=0):
    resource_types: Sequence[int] = field("int8", 1, 1, is_array=True, default=())


class ConfigResource(Message):
    resource_name: str = field("string", 0, 1, default="")
    resource_type: int = field("int8", 1, 1, default=16)


class ListConfigResourcesResponse(Response, api_key=74, versions=(0, 1), flexible_from=0):
    throttle_time_ms: int = field("int32", 0, 1, default=0)
    error_code: int = field("int16", 0, 1, default=0)
    config_resources: Sequence[ConfigResource] = field(ConfigResource, 0, 1, is_array=True, default=())


REQUEST = ListConfigResourcesRequest
RESPONSE = ListConfigResourcesResponse
