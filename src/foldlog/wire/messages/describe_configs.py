"""DescribeConfigs, versions 1 to 4.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import Field, Message, Request, Response


class DescribeConfigsResource(Message):
    """In versions 1 to 4."""

    __slots__ = (
        "resource_type",
        "resource_name",
        "configuration_keys",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("resource_type", "int8", 1, 4),
        Field("resource_name", "string", 1, 4),
        Field("configuration_keys", "string", 1, 4, is_array=True, is_nullable=True),
    )

    def __init__(
        self, *, resource_type: int = 0, resource_name: str = "", configuration_keys: Sequence[str] | None = ()
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.configuration_keys = configuration_keys


class DescribeConfigsRequest(Request):
    """In versions 1 to 4."""

    __slots__ = (
        "resources",
        "include_synonyms",
        "include_documentation",
    )
    API_KEY: ClassVar[int] = 32
    VERSIONS: ClassVar[tuple[int, int]] = (1, 4)
    FLEXIBLE_FROM: ClassVar[int | None] = 4
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("resources", "struct", 1, 4, item=DescribeConfigsResource, is_array=True),
        Field("include_synonyms", "bool", 1, 4),
        Field("include_documentation", "bool", 3, 4),
    )

    def __init__(
        self,
        *,
        resources: Sequence[DescribeConfigsResource] = (),
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> None:
        self.resources = resources
        self.include_synonyms = include_synonyms
        self.include_documentation = include_documentation


class DescribeConfigsSynonym(Message):
    """In versions 1 to 4."""

    __slots__ = (
        "name",
        "value",
        "source",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 1, 4),
        Field("value", "string", 1, 4, is_nullable=True),
        Field("source", "int8", 1, 4),
    )

    def __init__(self, *, name: str = "", value: str | None = "", source: int = 0) -> None:
        self.name = name
        self.value = value
        self.source = source


class DescribeConfigsResourceResult(Message):
    """In versions 1 to 4."""

    __slots__ = (
        "name",
        "value",
        "read_only",
        "config_source",
        "is_sensitive",
        "synonyms",
        "config_type",
        "documentation",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 1, 4),
        Field("value", "string", 1, 4, is_nullable=True),
        Field("read_only", "bool", 1, 4),
        Field("config_source", "int8", 1, 4),
        Field("is_sensitive", "bool", 1, 4),
        Field("synonyms", "struct", 1, 4, item=DescribeConfigsSynonym, is_array=True),
        Field("config_type", "int8", 3, 4),
        Field("documentation", "string", 3, 4, is_nullable=True),
    )

    def __init__(
        self,
        *,
        name: str = "",
        value: str | None = "",
        read_only: bool = False,
        config_source: int = -1,
        is_sensitive: bool = False,
        synonyms: Sequence[DescribeConfigsSynonym] = (),
        config_type: int = 0,
        documentation: str | None = "",
    ) -> None:
        self.name = name
        self.value = value
        self.read_only = read_only
        self.config_source = config_source
        self.is_sensitive = is_sensitive
        self.synonyms = synonyms
        self.config_type = config_type
        self.documentation = documentation


class DescribeConfigsResult(Message):
    """In versions 1 to 4."""

    __slots__ = (
        "error_code",
        "error_message",
        "resource_type",
        "resource_name",
        "configs",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("error_code", "int16", 1, 4),
        Field("error_message", "string", 1, 4, is_nullable=True),
        Field("resource_type", "int8", 1, 4),
        Field("resource_name", "string", 1, 4),
        Field("configs", "struct", 1, 4, item=DescribeConfigsResourceResult, is_array=True),
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = "",
        resource_type: int = 0,
        resource_name: str = "",
        configs: Sequence[DescribeConfigsResourceResult] = (),
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.configs = configs


class DescribeConfigsResponse(Response):
    """In versions 1 to 4."""

    __slots__ = (
        "throttle_time_ms",
        "results",
    )
    API_KEY: ClassVar[int] = 32
    VERSIONS: ClassVar[tuple[int, int]] = (1, 4)
    FLEXIBLE_FROM: ClassVar[int | None] = 4
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("throttle_time_ms", "int32", 1, 4),
        Field("results", "struct", 1, 4, item=DescribeConfigsResult, is_array=True),
    )

    def __init__(self, *, throttle_time_ms: int = 0, results: Sequence[DescribeConfigsResult] = ()) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results = results


REQUEST = DescribeConfigsRequest
RESPONSE = DescribeConfigsResponse
