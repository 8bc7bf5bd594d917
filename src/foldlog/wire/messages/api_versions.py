"""ApiVersions, versions 0 to 4.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import Field, Message, Request, Response


class ApiVersionsRequest(Request):
    """In versions 0 to 4."""

    __slots__ = (
        "client_software_name",
        "client_software_version",
    )
    API_KEY: ClassVar[int] = 18
    VERSIONS: ClassVar[tuple[int, int]] = (0, 4)
    FLEXIBLE_FROM: ClassVar[int | None] = 3
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("client_software_name", "string", 3, 4),
        Field("client_software_version", "string", 3, 4),
    )

    def __init__(self, *, client_software_name: str = "", client_software_version: str = "") -> None:
        self.client_software_name = client_software_name
        self.client_software_version = client_software_version


class ApiVersion(Message):
    """In versions 0 to 4."""

    __slots__ = (
        "api_key",
        "min_version",
        "max_version",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("api_key", "int16", 0, 4),
        Field("min_version", "int16", 0, 4),
        Field("max_version", "int16", 0, 4),
    )

    def __init__(self, *, api_key: int = 0, min_version: int = 0, max_version: int = 0) -> None:
        self.api_key = api_key
        self.min_version = min_version
        self.max_version = max_version


class SupportedFeatureKey(Message):
    """In versions 3 to 4."""

    __slots__ = (
        "name",
        "min_version",
        "max_version",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 3, 4),
        Field("min_version", "int16", 3, 4),
        Field("max_version", "int16", 3, 4),
    )

    def __init__(self, *, name: str = "", min_version: int = 0, max_version: int = 0) -> None:
        self.name = name
        self.min_version = min_version
        self.max_version = max_version


class FinalizedFeatureKey(Message):
    """In versions 3 to 4."""

    __slots__ = (
        "name",
        "max_version_level",
        "min_version_level",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 3, 4),
        Field("max_version_level", "int16", 3, 4),
        Field("min_version_level", "int16", 3, 4),
    )

    def __init__(self, *, name: str = "", max_version_level: int = 0, min_version_level: int = 0) -> None:
        self.name = name
        self.max_version_level = max_version_level
        self.min_version_level = min_version_level


class ApiVersionsResponse(Response):
    """In versions 0 to 4."""

    __slots__ = (
        "error_code",
        "api_keys",
        "throttle_time_ms",
        "supported_features",
        "finalized_features_epoch",
        "finalized_features",
        "zk_migration_ready",
    )
    API_KEY: ClassVar[int] = 18
    VERSIONS: ClassVar[tuple[int, int]] = (0, 4)
    FLEXIBLE_FROM: ClassVar[int | None] = 3
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("error_code", "int16", 0, 4),
        Field("api_keys", "struct", 0, 4, item=ApiVersion, is_array=True),
        Field("throttle_time_ms", "int32", 1, 4),
        Field("supported_features", "struct", 3, 4, item=SupportedFeatureKey, is_array=True, tag=0),
        Field("finalized_features_epoch", "int64", 3, 4, tag=1),
        Field("finalized_features", "struct", 3, 4, item=FinalizedFeatureKey, is_array=True, tag=2),
        Field("zk_migration_ready", "bool", 3, 4, tag=3),
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        api_keys: Sequence[ApiVersion] = (),
        throttle_time_ms: int = 0,
        supported_features: Sequence[SupportedFeatureKey] = (),
        finalized_features_epoch: int = -1,
        finalized_features: Sequence[FinalizedFeatureKey] = (),
        zk_migration_ready: bool = False,
    ) -> None:
        self.error_code = error_code
        self.api_keys = api_keys
        self.throttle_time_ms = throttle_time_ms
        self.supported_features = supported_features
        self.finalized_features_epoch = finalized_features_epoch
        self.finalized_features = finalized_features
        self.zk_migration_ready = zk_migration_ready


REQUEST = ApiVersionsRequest
RESPONSE = ApiVersionsResponse
