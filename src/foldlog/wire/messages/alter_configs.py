"""AlterConfigs, versions 0 to 2.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import Field, Message, Request, Response


class AlterableConfig(Message):
    """In versions 0 to 2."""

    __slots__ = (
        "name",
        "value",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 0, 2),
        Field("value", "string", 0, 2, is_nullable=True),
    )

    def __init__(self, *, name: str = "", value: str | None = "") -> None:
        self.name = name
        self.value = value


class AlterConfigsResource(Message):
    """In versions 0 to 2."""

    __slots__ = (
        "resource_type",
        "resource_name",
        "configs",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("resource_type", "int8", 0, 2),
        Field("resource_name", "string", 0, 2),
        Field("configs", "struct", 0, 2, item=AlterableConfig, is_array=True),
    )

    def __init__(
        self, *, resource_type: int = 0, resource_name: str = "", configs: Sequence[AlterableConfig] = ()
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.configs = configs


class AlterConfigsRequest(Request):
    """In versions 0 to 2."""

    __slots__ = (
        "resources",
        "validate_only",
    )
    API_KEY: ClassVar[int] = 33
    VERSIONS: ClassVar[tuple[int, int]] = (0, 2)
    FLEXIBLE_FROM: ClassVar[int | None] = 2
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("resources", "struct", 0, 2, item=AlterConfigsResource, is_array=True),
        Field("validate_only", "bool", 0, 2),
    )

    def __init__(self, *, resources: Sequence[AlterConfigsResource] = (), validate_only: bool = False) -> None:
        self.resources = resources
        self.validate_only = validate_only


class AlterConfigsResourceResponse(Message):
    """In versions 0 to 2."""

    __slots__ = (
        "error_code",
        "error_message",
        "resource_type",
        "resource_name",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("error_code", "int16", 0, 2),
        Field("error_message", "string", 0, 2, is_nullable=True),
        Field("resource_type", "int8", 0, 2),
        Field("resource_name", "string", 0, 2),
    )

    def __init__(
        self, *, error_code: int = 0, error_message: str | None = "", resource_type: int = 0, resource_name: str = ""
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.resource_type = resource_type
        self.resource_name = resource_name


class AlterConfigsResponse(Response):
    """In versions 0 to 2."""

    __slots__ = (
        "throttle_time_ms",
        "responses",
    )
    API_KEY: ClassVar[int] = 33
    VERSIONS: ClassVar[tuple[int, int]] = (0, 2)
    FLEXIBLE_FROM: ClassVar[int | None] = 2
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("throttle_time_ms", "int32", 0, 2),
        Field("responses", "struct", 0, 2, item=AlterConfigsResourceResponse, is_array=True),
    )

    def __init__(self, *, throttle_time_ms: int = 0, responses: Sequence[AlterConfigsResourceResponse] = ()) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.responses = responses


REQUEST = AlterConfigsRequest
RESPONSE = AlterConfigsResponse
