"""ApiVersions, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class ApiVersionsRequest(Request, api_key=18, versions=(0, 5), flexible_from=3):
    client_software_name: str = field("string", 3, 5, default="")
    client_software_version: str = field("string", 3, 5, default="")
    cluster_id: str | None = field("string", 5, 5, nullable_from=5, default=None)
    node_id: int = field("int32", 5, 5, default=-1)


class ApiVersion(Message):
    api_key: int = field("int16", 0, 5, default=0)
    min_version: int = field("int16", 0, 5, default=0)
    max_version: int = field("int16", 0, 5, default=0)


class SupportedFeatureKey(Message):
    name: str = field("string", 3, 5, default="")
    min_version: int = field("int16", 3, 5, default=0)
    max_version: int = field("int16", 3, 5, default=0)


class FinalizedFeatureKey(Message):
    name: str = field("string", 3, 5, default="")
    max_version_level: int = field("int16", 3, 5, default=0)
    min_version_level: int = field("int16", 3, 5, default=0)


class ApiVersionsResponse(Response, api_key=18, versions=(0, 5), flexible_from=3):
    error_code: int = field("int16", 0, 5, default=0)
    api_keys: Sequence[ApiVersion] = field(ApiVersion, 0, 5, is_array=True, default=())
    throttle_time_ms: int = field("int32", 1, 5, default=0)
    supported_features: Sequence[SupportedFeatureKey] = field(
        SupportedFeatureKey, 3, 5, is_array=True, tag=0, default=()
    )
    finalized_features_epoch: int = field("int64", 3, 5, tag=1, default=-1)
    finalized_features: Sequence[FinalizedFeatureKey] = field(
        FinalizedFeatureKey, 3, 5, is_array=True, tag=2, default=()
    )
    zk_migration_ready: bool = field("bool", 3, 5, tag=3, default=False)


REQUEST = ApiVersionsRequest
RESPONSE = ApiVersionsResponse
