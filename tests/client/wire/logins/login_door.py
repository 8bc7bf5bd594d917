"""The broker's side of SASL, from the RFCs and Kafka's protocol: what a connection goes through in a simulation.

Its SCRAM keeps what a server keeps (salt, stored key, server key) and finds the client's key from the proof, so it
shares no step with the client but the hashes.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from foldlog.wire.codec import decoder
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.frames import encode_response
from foldlog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from foldlog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from foldlog.wire.schema import Response

VERSIONS = {17: (0, 1), 36: (0, 2)}
"""What a broker with SASL says it serves, beside the rest."""

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
SALT = b"a grain of salt"

_API_VERSIONS = 18


def _hashed(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Hi() of RFC 5802, as it stands there."""
    last = hmac.new(password, salt + b"\0\0\0\1", name).digest()
    found = int.from_bytes(last, "big")
    for _ in range(iterations - 1):
        last = hmac.new(password, last, name).digest()
        found ^= int.from_bytes(last, "big")
    return found.to_bytes(len(last), "big")


@dataclass
class ScramServer:
    """One exchange of a user with that password; `first` and `final` answer what the client says."""

    mechanism: str
    user: str
    password: str
    iterations: int = 4096
    nonce: str = "server%nonce"
    _told: str = field(default="", init=False)

    def first(self, message: bytes) -> bytes:
        header, _, bare = message.decode().partition(",,")
        name, nonce = bare.split(",")
        assert (header, name) == ("n", f"n={self.user.replace('=', '=3D').replace(',', '=2C')}")
        salt = base64.b64encode(SALT).decode()
        answer = f"{nonce}{self.nonce},s={salt},i={self.iterations}"
        self._told = f"{bare},{answer}"
        return answer.encode()

    def final(self, message: bytes) -> bytes:
        """The signature, or Kafka's word for a proof that proves nothing."""
        name = HASHES[self.mechanism]
        bare, _, proof = message.decode().partition(",p=")
        salted = _hashed(name, self.password.encode(), SALT, self.iterations)
        stored_key = hashlib.new(name, hmac.new(salted, b"Client Key", name).digest()).digest()
        server_key = hmac.new(salted, b"Server Key", name).digest()
        told = f"{self._told},{bare}".encode()
        signature = hmac.new(stored_key, told, name).digest()
        client_key = bytes(one ^ other for one, other in zip(base64.b64decode(proof), signature, strict=True))
        if hashlib.new(name, client_key).digest() != stored_key:
            return b"e=invalid-proof"
        return b"v=" + base64.b64encode(hmac.new(server_key, told, name).digest())


@dataclass
class Login:
    """What all connections share: who is known, and for how long. `tokens` are taken, each as somebody's; `logins` has
    who came in, in their order."""

    users: dict[str, str]
    mechanisms: tuple[str, ...] = MECHANISMS
    lifetime_ms: int = 0
    refusal: str = "Authentication failed: Invalid username or password"
    tamper: Callable[[bytes], bytes] = lambda answer: answer
    tokens: dict[str, str] = field(default_factory=dict)
    logins: list[str] = field(default_factory=list)
    failures: int = 0
    extensions: list[str] = field(default_factory=list)

    def door(self) -> LoginDoor:
        return LoginDoor(self)


class LoginDoor:
    """One connection. See Door."""

    def __init__(self, login: Login) -> None:
        self._login = login
        self._mechanism = ""
        self._scram: ScramServer | None = None
        self._user: str | None = None

    def admit(self, frame: bytes) -> bytes | bool:
        api_key, version, correlation_id, size = struct.unpack_from(">hhih", frame)
        position = 10 + max(0, size)
        answer: Response
        if api_key == 17:
            asked = decoder(SaslHandshakeRequest, version)(frame, position, len(frame))
            answer = self._shake_hands(asked.mechanism)
        elif api_key == 36:
            position += version >= 2  # the tagged fields of the header: none
            said = decoder(SaslAuthenticateRequest, version)(frame, position, len(frame))
            answer = self._hear(bytes(said.auth_bytes))
        else:
            return self._user is not None or api_key == _API_VERSIONS
        return b"".join(encode_response(answer, version, correlation_id))

    def _shake_hands(self, mechanism: str) -> Response:
        known = self._login.mechanisms
        self._mechanism = mechanism
        code = ErrorCode.NONE if mechanism in known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return SaslHandshakeResponse(error_code=code, mechanisms=known)

    def _hear(self, message: bytes) -> Response:
        if self._mechanism == "PLAIN":
            _, user, password = message.decode().split("\0")
            return self._let_in(user) if self._login.users.get(user) == password else self._refuse()
        if self._mechanism == "OAUTHBEARER":
            return self._hear_bearer(message)
        if self._scram is None:
            user = message.decode().split(",")[2].removeprefix("n=").replace("=2C", ",").replace("=3D", "=")
            if user not in self._login.users:
                return self._refuse()
            self._scram = ScramServer(self._mechanism, user, self._login.users[user])
            return SaslAuthenticateResponse(
                error_message=None, auth_bytes=self._login.tamper(self._scram.first(message))
            )
        final = self._scram.final(message)
        return self._refuse() if final.startswith(b"e=") else self._let_in(self._scram.user, final)

    def _hear_bearer(self, message: bytes) -> Response:
        """As Kafka does it: why not is said as JSON, and no once the client has heard that."""
        if message == b"\x01":
            return self._refuse()
        header, auth, *extensions, last, end = message.decode().split("\x01")
        assert (header, auth[:12], last, end) == ("n,,", "auth=Bearer ", "", "")
        self._login.extensions.extend(extensions)
        user = self._login.tokens.get(auth[12:])
        if user is None:
            return SaslAuthenticateResponse(error_message=None, auth_bytes=b'{"status":"invalid_token"}')
        return self._let_in(user)

    def _let_in(self, user: str, auth_bytes: bytes = b"") -> Response:
        self._user = user
        self._login.logins.append(user)
        return SaslAuthenticateResponse(
            error_message=None,
            auth_bytes=self._login.tamper(auth_bytes),
            session_lifetime_ms=self._login.lifetime_ms,
        )

    def _refuse(self) -> Response:
        self._login.failures += 1
        return SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=self._login.refusal
        )
