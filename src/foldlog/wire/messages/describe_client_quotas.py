"""DescribeClientQuotas, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class ComponentData(Message):
    entity_type: str = field("string", 0, 1, default="")
    match_type: int = field("int8", 0, 1, default=0)
    match: str | None = field("string", 0, 1, nullable_from=0, default="")


class DescribeClientQuotasRequest(Request, api_key=48, versions=(0, 1), flexible_from=1):
    components: Sequence[ComponentData] = field(ComponentData, 0, 1, is_array=True, default=())
    strict: bool = field("bool", 0, 1, default=False)


class EntityData(Message):
    entity_type: str = field("string", 0, 1, default="")
    entity_name: str | None = field("string", 0, 1, nullable_from=0, default="")


class ValueData(Message):
    key: str = field("string", 0, 1, default="")
    value: float = field("float64", 0, 1, default=0.0)


class EntryData(Message):
    entity: Sequence[EntityData] = field(EntityData, 0, 1, is_array=True, default=())
    values: Sequence[ValueData] = field(ValueData, 0, 1, is_array=True, default=())


class DescribeClientQuotasResponse(Response, api_key=48, versions=(0, 1), flexible_from=1):
    throttle_time_ms: int = field("int32", 0, 1, default=0)
    error_code: int = field("int16", 0, 1, default=0)
    error_message: str | None = field("string", 0, 1, nullable_from=0, default="")
    entries: Sequence[EntryData] | None = field(EntryData, 0, 1, is_array=True, nullable_from=0, default=())


REQUEST = DescribeClientQuotasRequest
RESPONSE = DescribeClientQuotasResponse
