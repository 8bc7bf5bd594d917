"""SaslHandshake, versions 0 to 1.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import Field, Request, Response


class SaslHandshakeRequest(Request):
    """In versions 0 to 1."""

    __slots__ = ("mechanism",)
    API_KEY: ClassVar[int] = 17
    VERSIONS: ClassVar[tuple[int, int]] = (0, 1)
    FLEXIBLE_FROM: ClassVar[int | None] = None
    SCHEMA: ClassVar[tuple[Field, ...]] = (Field("mechanism", "string", 0, 1),)

    def __init__(self, *, mechanism: str = "") -> None:
        self.mechanism = mechanism


class SaslHandshakeResponse(Response):
    """In versions 0 to 1."""

    __slots__ = (
        "error_code",
        "mechanisms",
    )
    API_KEY: ClassVar[int] = 17
    VERSIONS: ClassVar[tuple[int, int]] = (0, 1)
    FLEXIBLE_FROM: ClassVar[int | None] = None
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("error_code", "int16", 0, 1),
        Field("mechanisms", "string", 0, 1, is_array=True),
    )

    def __init__(self, *, error_code: int = 0, mechanisms: Sequence[str] = ()) -> None:
        self.error_code = error_code
        self.mechanisms = mechanisms


REQUEST = SaslHandshakeRequest
RESPONSE = SaslHandshakeResponse
