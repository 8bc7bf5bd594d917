"""GetTelemetrySubscriptions, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import ZERO_UUID, Request, Response, field


class GetTelemetrySubscriptionsRequest(Request, api_key=71, versions=(0, 0), flexible_from=0):
    client_instance_id: bytes = field("uuid", 0, 0, default=ZERO_UUID)


class GetTelemetrySubscriptionsResponse(Response, api_key=71, versions=(0, 0), flexible_from=0):
    throttle_time_ms: int = field("int32", 0, 0, default=0)
    error_code: int = field("int16", 0, 0, default=0)
    client_instance_id: bytes = field("uuid", 0, 0, default=ZERO_UUID)
    subscription_id: int = field("int32", 0, 0, default=0)
    accepted_compression_types: Sequence[int] = field("int8", 0, 0, is_array=True, default=())
    push_interval_ms: int = field("int32", 0, 0, default=0)
    telemetry_max_bytes: int = field("int32", 0, 0, default=0)
    delta_temporality: bool = field("bool", 0, 0, default=False)
    requested_metrics: Sequence[str] = field("string", 0, 0, is_array=True, default=())


REQUEST = GetTelemetrySubscriptionsRequest
RESPONSE = GetTelemetrySubscriptionsResponse
