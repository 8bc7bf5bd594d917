"""SaslAuthenticate, versions 0 to 2.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from typing import ClassVar

from foldlog.wire.schema import Field, Request, Response


class SaslAuthenticateRequest(Request):
    """In versions 0 to 2."""

    __slots__ = ("auth_bytes",)
    API_KEY: ClassVar[int] = 36
    VERSIONS: ClassVar[tuple[int, int]] = (0, 2)
    FLEXIBLE_FROM: ClassVar[int | None] = 2
    SCHEMA: ClassVar[tuple[Field, ...]] = (Field("auth_bytes", "bytes", 0, 2),)

    def __init__(self, *, auth_bytes: bytes = b"") -> None:
        self.auth_bytes = auth_bytes


class SaslAuthenticateResponse(Response):
    """In versions 0 to 2."""

    __slots__ = (
        "error_code",
        "error_message",
        "auth_bytes",
        "session_lifetime_ms",
    )
    API_KEY: ClassVar[int] = 36
    VERSIONS: ClassVar[tuple[int, int]] = (0, 2)
    FLEXIBLE_FROM: ClassVar[int | None] = 2
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("error_code", "int16", 0, 2),
        Field("error_message", "string", 0, 2, is_nullable=True),
        Field("auth_bytes", "bytes", 0, 2),
        Field("session_lifetime_ms", "int64", 1, 2),
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = "",
        auth_bytes: bytes = b"",
        session_lifetime_ms: int = 0,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.auth_bytes = auth_bytes
        self.session_lifetime_ms = session_lifetime_ms


REQUEST = SaslAuthenticateRequest
RESPONSE = SaslAuthenticateResponse
