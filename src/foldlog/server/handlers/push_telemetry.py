"""PushTelemetry, version 0: a client's metrics, in OpenTelemetry's format (KIP-714). See `telemetry/clients.py`."""

from __future__ import annotations

from foldlog.server.call import Call
from foldlog.server.telemetry.clients import read_values, traits_of
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


async def handle(call: Call, request: PushTelemetryRequest) -> PushTelemetryResponse:
    telemetry = call.node.telemetry
    if telemetry is None:
        return PushTelemetryResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    code = telemetry.admit(
        request.client_instance_id,
        traits_of(call, request.client_instance_id),
        subscription_id=request.subscription_id,
        codec=request.compression_type,
        is_last=request.terminating,
    )
    if code is ErrorCode.NONE and len(request.metrics) > call.node.settings.telemetry_max_bytes:
        code = ErrorCode.TELEMETRY_TOO_LARGE
    if code is ErrorCode.NONE and request.metrics:
        values = await call.node.run(read_values, request.compression_type, request.metrics)
        if values is None:
            code = ErrorCode.INVALID_RECORD
        else:
            telemetry.store(request.client_instance_id, values)
    return PushTelemetryResponse(error_code=code)
