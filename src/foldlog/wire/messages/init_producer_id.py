"""InitProducerId, versions 0 to 6.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from typing import ClassVar

from foldlog.wire.schema import Field, Request, Response


class InitProducerIdRequest(Request):
    """In versions 0 to 6."""

    __slots__ = (
        "transactional_id",
        "transaction_timeout_ms",
        "producer_id",
        "producer_epoch",
        "enable2_pc",
        "keep_prepared_txn",
    )
    API_KEY: ClassVar[int] = 22
    VERSIONS: ClassVar[tuple[int, int]] = (0, 6)
    FLEXIBLE_FROM: ClassVar[int | None] = 2
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("transactional_id", "string", 0, 6, is_nullable=True),
        Field("transaction_timeout_ms", "int32", 0, 6),
        Field("producer_id", "int64", 3, 6),
        Field("producer_epoch", "int16", 3, 6),
        Field("enable2_pc", "bool", 6, 6),
        Field("keep_prepared_txn", "bool", 6, 6),
    )

    def __init__(
        self,
        *,
        transactional_id: str | None = "",
        transaction_timeout_ms: int = 0,
        producer_id: int = -1,
        producer_epoch: int = -1,
        enable2_pc: bool = False,
        keep_prepared_txn: bool = False,
    ) -> None:
        self.transactional_id = transactional_id
        self.transaction_timeout_ms = transaction_timeout_ms
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.enable2_pc = enable2_pc
        self.keep_prepared_txn = keep_prepared_txn


class InitProducerIdResponse(Response):
    """In versions 0 to 6."""

    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "producer_id",
        "producer_epoch",
        "ongoing_txn_producer_id",
        "ongoing_txn_producer_epoch",
    )
    API_KEY: ClassVar[int] = 22
    VERSIONS: ClassVar[tuple[int, int]] = (0, 6)
    FLEXIBLE_FROM: ClassVar[int | None] = 2
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("throttle_time_ms", "int32", 0, 6),
        Field("error_code", "int16", 0, 6),
        Field("producer_id", "int64", 0, 6),
        Field("producer_epoch", "int16", 0, 6),
        Field("ongoing_txn_producer_id", "int64", 6, 6),
        Field("ongoing_txn_producer_epoch", "int16", 6, 6),
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        producer_id: int = -1,
        producer_epoch: int = 0,
        ongoing_txn_producer_id: int = -1,
        ongoing_txn_producer_epoch: int = -1,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.ongoing_txn_producer_id = ongoing_txn_producer_id
        self.ongoing_txn_producer_epoch = ongoing_txn_producer_epoch


REQUEST = InitProducerIdRequest
RESPONSE = InitProducerIdResponse
