"""SaslAuthenticate, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from foldlog.wire.schema import Request, Response, field


class SaslAuthenticateRequest(Request, api_key=36, versions=(0, 2), flexible_from=2):
    auth_bytes: bytes = field("bytes", 0, 2, default=b"")


class SaslAuthenticateResponse(Response, api_key=36, versions=(0, 2), flexible_from=2):
    error_code: int = field("int16", 0, 2, default=0)
    error_message: str | None = field("string", 0, 2, nullable_from=0, default="")
    auth_bytes: bytes = field("bytes", 0, 2, default=b"")
    session_lifetime_ms: int = field("int64", 1, 2, default=0)


REQUEST = SaslAuthenticateRequest
RESPONSE = SaslAuthenticateResponse
