"""FindCoordinator, versions 0 to 6.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import Field, Message, Request, Response


class FindCoordinatorRequest(Request):
    """In versions 0 to 6."""

    __slots__ = (
        "key",
        "key_type",
        "coordinator_keys",
    )
    API_KEY: ClassVar[int] = 10
    VERSIONS: ClassVar[tuple[int, int]] = (0, 6)
    FLEXIBLE_FROM: ClassVar[int | None] = 3
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("key", "string", 0, 3),
        Field("key_type", "int8", 1, 6),
        Field("coordinator_keys", "string", 4, 6, is_array=True),
    )

    def __init__(self, *, key: str = "", key_type: int = 0, coordinator_keys: Sequence[str] = ()) -> None:
        self.key = key
        self.key_type = key_type
        self.coordinator_keys = coordinator_keys


class Coordinator(Message):
    """In versions 4 to 6."""

    __slots__ = (
        "key",
        "node_id",
        "host",
        "port",
        "error_code",
        "error_message",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("key", "string", 4, 6),
        Field("node_id", "int32", 4, 6),
        Field("host", "string", 4, 6),
        Field("port", "int32", 4, 6),
        Field("error_code", "int16", 4, 6),
        Field("error_message", "string", 4, 6, is_nullable=True),
    )

    def __init__(
        self,
        *,
        key: str = "",
        node_id: int = 0,
        host: str = "",
        port: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
    ) -> None:
        self.key = key
        self.node_id = node_id
        self.host = host
        self.port = port
        self.error_code = error_code
        self.error_message = error_message


class FindCoordinatorResponse(Response):
    """In versions 0 to 6."""

    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "error_message",
        "node_id",
        "host",
        "port",
        "coordinators",
    )
    API_KEY: ClassVar[int] = 10
    VERSIONS: ClassVar[tuple[int, int]] = (0, 6)
    FLEXIBLE_FROM: ClassVar[int | None] = 3
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("throttle_time_ms", "int32", 1, 6),
        Field("error_code", "int16", 0, 3),
        Field("error_message", "string", 1, 3, is_nullable=True),
        Field("node_id", "int32", 0, 3),
        Field("host", "string", 0, 3),
        Field("port", "int32", 0, 3),
        Field("coordinators", "struct", 4, 6, item=Coordinator, is_array=True),
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        node_id: int = 0,
        host: str = "",
        port: int = 0,
        coordinators: Sequence[Coordinator] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.node_id = node_id
        self.host = host
        self.port = port
        self.coordinators = coordinators


REQUEST = FindCoordinatorRequest
RESPONSE = FindCoordinatorResponse
