"""InitProducerId, generated from the schemas of Apache Kafka 4.3.1 by scripts/generate_messages.py."""

from __future__ import annotations

from foldlog.wire.schema import Request, Response, field


class InitProducerIdRequest(Request, api_key=22, versions=(0, 6), flexible_from=2):
    transactional_id: str | None = field("string", 0, 6, nullable_from=0, default="")
    transaction_timeout_ms: int = field("int32", 0, 6, default=0)
    producer_id: int = field("int64", 3, 6, default=-1)
    producer_epoch: int = field("int16", 3, 6, default=-1)
    enable2_pc: bool = field("bool", 6, 6, default=False)
    keep_prepared_txn: bool = field("bool", 6, 6, default=False)


class InitProducerIdResponse(Response, api_key=22, versions=(0, 6), flexible_from=2):
    throttle_time_ms: int = field("int32", 0, 6, default=0)
    error_code: int = field("int16", 0, 6, default=0)
    producer_id: int = field("int64", 0, 6, default=-1)
    producer_epoch: int = field("int16", 0, 6, default=0)
    ongoing_txn_producer_id: int = field("int64", 6, 6, default=-1)
    ongoing_txn_producer_epoch: int = field("int16", 6, 6, default=-1)


REQUEST = InitProducerIdRequest
RESPONSE = InitProducerIdResponse
