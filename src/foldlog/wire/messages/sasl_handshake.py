"""SaslHandshake, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Request, Response, field


class SaslHandshakeRequest(Request, api_key=17, versions=(0, 1), flexible_from=None):
    mechanism: str = field("string", 0, 1, default="")


class SaslHandshakeResponse(Response, api_key=17, versions=(0, 1), flexible_from=None):
    error_code: int = field("int16", 0, 1, default=0)
    mechanisms: Sequence[str] = field("string", 0, 1, is_array=True, default=())


REQUEST = SaslHandshakeRequest
RESPONSE = SaslHandshakeResponse
