"""PushTelemetry, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from foldlog.wire.schema import ZERO_UUID, Request, Response, field


class PushTelemetryRequest(Request, api_key=72, versions=(0, 0), flexible_from=0):
    client_instance_id: bytes = field("uuid", 0, 0, default=ZERO_UUID)
    subscription_id: int = field("int32", 0, 0, default=0)
    terminating: bool = field("bool", 0, 0, default=False)
    compression_type: int = field("int8", 0, 0, default=0)
    metrics: bytes = field("bytes", 0, 0, default=b"")


class PushTelemetryResponse(Response, api_key=72, versions=(0, 0), flexible_from=0):
    throttle_time_ms: int = field("int32", 0, 0, default=0)
    error_code: int = field("int16", 0, 0, default=0)


REQUEST = PushTelemetryRequest
RESPONSE = PushTelemetryResponse
