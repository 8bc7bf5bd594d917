"""FindCoordinator, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class FindCoordinatorRequest(Request, api_key=10, versions=(0, 6), flexible_from=3):
    key: str = field("string", 0, 3, default="")
    key_type: int = field("int8", 1, 6, default=0)
    coordinator_keys: Sequence[str] = field("string", 4, 6, is_array=True, default=())


class Coordinator(Message):
    key: str = field("string", 4, 6, default="")
    node_id: int = field("int32", 4, 6, default=0)
    host: str = field("string", 4, 6, default="")
    port: int = field("int32", 4, 6, default=0)
    error_code: int = field("int16", 4, 6, default=0)
    error_message: str | None = field("string", 4, 6, nullable_from=4, default="")


class FindCoordinatorResponse(Response, api_key=10, versions=(0, 6), flexible_from=3):
    throttle_time_ms: int = field("int32", 1, 6, default=0)
    error_code: int = field("int16", 0, 3, default=0)
    error_message: str | None = field("string", 1, 3, nullable_from=1, default="")
    node_id: int = field("int32", 0, 3, default=0)
    host: str = field("string", 0, 3, default="")
    port: int = field("int32", 0, 3, default=0)
    coordinators: Sequence[Coordinator] = field(Coordinator, 4, 6, is_array=True, default=())


REQUEST = FindCoordinatorRequest
RESPONSE = FindCoordinatorResponse
