"""AddOffsetsToTxn, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from foldlog.wire.schema import Request, Response, field


class AddOffsetsToTxnRequest(Request, api_key=25, versions=(0, 4), flexible_from=3):
    transactional_id: str = field("string", 0, 4, default="")
    producer_id: int = field("int64", 0, 4, default=0)
    producer_epoch: int = field("int16", 0, 4, default=0)
    group_id: str = field("string", 0, 4, default="")


class AddOffsetsToTxnResponse(Response, api_key=25, versions=(0, 4), flexible_from=3):
    throttle_time_ms: int = field("int32", 0, 4, default=0)
    error_code: int = field("int16", 0, 4, default=0)


REQUEST = AddOffsetsToTxnRequest
RESPONSE = AddOffsetsToTxnResponse
