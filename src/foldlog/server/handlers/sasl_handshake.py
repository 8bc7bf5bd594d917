"""SaslHandshake: the client chooses a mechanism to log in with. Versions 0 and 1.

- After 0 its tokens come as bare frames, after 1 in SaslAuthenticate.
"""

from __future__ import annotations

from foldlog.server.call import Call
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(call: Call, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    login = call.caller.login
    if login is None:  # nobody logs in at this listener
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    error = login.handshake(request.mechanism, call.version)
    return SaslHandshakeResponse(error_code=error, mechanisms=login.mechanisms)
