"""EndTxn, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from foldlog.wire.schema import Request, Response, field


class EndTxnRequest(Request, api_key=26, versions=(0, 5), flexible_from=3):
    transactional_id: str = field("string", 0, 5, default="")
    producer_id: int = field("int64", 0, 5, default=0)
    producer_epoch: int = field("int16", 0, 5, default=0)
    committed: bool = field("bool", 0, 5, default=False)


class EndTxnResponse(Response, api_key=26, versions=(0, 5), flexible_from=3):
    throttle_time_ms: int = field("int32", 0, 5, default=0)
    error_code: int = field("int16", 0, 5, default=0)
    producer_id: int = field("int64", 5, 5, default=-1)
    producer_epoch: int = field("int16", 5, 5, default=-1)


REQUEST = EndTxnRequest
RESPONSE = EndTxnResponse
