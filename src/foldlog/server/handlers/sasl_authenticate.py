"""SaslAuthenticate: a token of the exchange in which a client logs in. Versions 0 to 2.

- 1 adds for how long the login holds (KIP-368).
- A refused client is told so late, and its connection is closed then.
"""

from __future__ import annotations

from typing import Final

from foldlog.broker.access.scram import LoginRefused
from foldlog.server.access.logins import REFUSED
from foldlog.server.call import Call, Disconnect
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

_NO_LOGINS: Final = "nobody logs in at this listener"
_NOT_BEGUN: Final = "no login was begun with SaslHandshake"


async def handle(call: Call, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    login = call.caller.login
    if login is None:
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_NO_LOGINS)
    if not login.is_under_way:
        if login.principal is None:
            raise Disconnect(f"SaslAuthenticate: {_NOT_BEGUN}")
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_NOT_BEGUN)
    try:
        answer, lifetime_ms = await login.authenticate(bytes(request.auth_bytes))
    except LoginRefused:
        return SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=REFUSED)
    return SaslAuthenticateResponse(error_message=None, auth_bytes=answer, session_lifetime_ms=lifetime_ms)
