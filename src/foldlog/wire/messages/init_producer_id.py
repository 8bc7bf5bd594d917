"""InitProducerId, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from foldlog.wire.schema import Request, Response, field


class InitProducerIdRequest(Request, api_key=22, versions=(0, 5), flexible_from=2):
    transactional_id: str | None = field("string", 0, 5, nullable_from=0, default="")
    transaction_timeout_ms: int = field("int32", 0, 5, default=0)
    producer_id: int = field("int64", 3, 5, default=-1)
    producer_epoch: int = field("int16", 3, 5, default=-1)


class InitProducerIdResponse(Response, api_key=22, versions=(0, 5), flexible_from=2):
    throttle_time_ms: int = field("int32", 0, 5, default=0)
    error_code: int = field("int16", 0, 5, default=0)
    producer_id: int = field("int64", 0, 5, default=-1)
    producer_epoch: int = field("int16", 0, 5, default=0)


REQUEST = InitProducerIdRequest
RESPONSE = InitProducerIdResponse
