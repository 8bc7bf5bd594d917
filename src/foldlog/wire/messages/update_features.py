"""UpdateFeatures, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class FeatureUpdateKey(Message):
    feature: str = field("string", 0, 2, default="")
    max_version_level: int = field("int16", 0, 2, default=0)
    allow_downgrade: bool = field("bool", 0, 0, default=False)
    upgrade_type: int = field("int8", 1, 2, default=1)


class UpdateFeaturesRequest(Request, api_key=57, versions=(0, 2), flexible_from=0):
    timeout_ms: int = field("int32", 0, 2, default=60000)
    feature_updates: Sequence[FeatureUpdateKey] = field(FeatureUpdateKey, 0, 2, is_array=True, default=())
    validate_only: bool = field("bool", 1, 2, default=False)


class UpdatableFeatureResult(Message):
    feature: str = field("string", 0, 1, default="")
    error_code: int = field("int16", 0, 1, default=0)
    error_message: str | None = field("string", 0, 1, nullable_from=0, default="")


class UpdateFeaturesResponse(Response, api_key=57, versions=(0, 2), flexible_from=0):
    throttle_time_ms: int = field("int32", 0, 2, default=0)
    error_code: int = field("int16", 0, 2, default=0)
    error_message: str | None = field("string", 0, 2, nullable_from=0, default="")
    results: Sequence[UpdatableFeatureResult] = field(UpdatableFeatureResult, 0, 1, is_array=True, default=())


REQUEST = UpdateFeaturesRequest
RESPONSE = UpdateFeaturesResponse
