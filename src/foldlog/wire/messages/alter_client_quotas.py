"""AlterClientQuotas, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class EntityData(Message):
    entity_type: str = field("string", 0, 1, default="")
    entity_name: str | None = field("string", 0, 1, nullable_from=0, default="")


class OpData(Message):
    key: str = field("string", 0, 1, default="")
    value: float = field("float64", 0, 1, default=0.0)
    remove: bool = field("bool", 0, 1, default=False)


class EntryData(Message):
    entity: Sequence[EntityData] = field(EntityData, 0, 1, is_array=True, default=())
    ops: Sequence[OpData] = field(OpData, 0, 1, is_array=True, default=())


class AlterClientQuotasRequest(Request, api_key=49, versions=(0, 1), flexible_from=1):
    entries: Sequence[EntryData] = field(EntryData, 0, 1, is_array=True, default=())
    validate_only: bool = field("bool", 0, 1, default=False)


class EntryDataResult(Message):
    error_code: int = field("int16", 0, 1, default=0)
    error_message: str | None = field("string", 0, 1, nullable_from=0, default="")
    entity: Sequence[EntityData] = field(EntityData, 0, 1, is_array=True, default=())


class AlterClientQuotasResponse(Response, api_key=49, versions=(0, 1), flexible_from=1):
    throttle_time_ms: int = field("int32", 0, 1, default=0)
    entries: Sequence[EntryDataResult] = field(EntryDataResult, 0, 1, is_array=True, default=())


REQUEST = AlterClientQuotasRequest
RESPONSE = AlterClientQuotasResponse
