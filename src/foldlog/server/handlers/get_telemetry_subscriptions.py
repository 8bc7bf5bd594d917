"""GetTelemetrySubscriptions, version 0: which metrics a client should push, and how often (KIP-714).

Only advertised with `foldlog.client.telemetry`, as Kafka only does with a plugin that takes them.
"""

from __future__ import annotations

from foldlog.server.call import Call
from foldlog.server.telemetry.clients import ACCEPTED_CODECS, traits_of
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)


def handle(call: Call, request: GetTelemetrySubscriptionsRequest) -> GetTelemetrySubscriptionsResponse:
    telemetry = call.node.telemetry
    if telemetry is None:
        return GetTelemetrySubscriptionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    traits = traits_of(call, request.client_instance_id)
    code, instance_id, asked = telemetry.subscribe(request.client_instance_id, traits)
    if code is not ErrorCode.NONE:
        return GetTelemetrySubscriptionsResponse(error_code=code)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=asked.subscription_id,
        accepted_compression_types=ACCEPTED_CODECS,
        push_interval_ms=asked.interval_ms,
        telemetry_max_bytes=call.node.settings.telemetry_max_bytes,
        delta_temporality=False,
        requested_metrics=asked.metrics,
    )
