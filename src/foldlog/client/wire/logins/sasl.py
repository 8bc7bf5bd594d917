"""Who we are to a Kafka cluster: sasl.* properties, and the exchange in which a broker is told of them.

PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER; GSSAPI is librdkafka's alone. A password is in no error and in no
repr.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from foldlog.client.wire.connection import WireConnection
from foldlog.client.wire.logins import jaas, oauthbearer
from foldlog.client.wire.logins.oauthbearer import TokenSource
from foldlog.client.wire.logins.scram import HASHES, ScramClient, ScramRefused
from foldlog.client.wire.property_names import OnlyLibrdkafka
from foldlog.errors import AuthenticationFailed, InvalidConfig, RefusedByBroker, brief_repr
from foldlog.wire.error_codes import ErrorCode, known_code
from foldlog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from foldlog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

_WITH_PASSWORD: Final = ("PLAIN", *HASHES)
_KERBEROS: Final = "GSSAPI"
MECHANISMS: Final = (*_WITH_PASSWORD, oauthbearer.MECHANISM)
PROPERTIES: Final = oauthbearer.PROPERTIES | {
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    jaas.PROPERTY,
}

_NONCE_BYTES: Final = 24
_FRAMED: Final = 1
"""The version of SaslHandshake after which the exchange goes in requests like any other."""

_SAID_CHARS_MAX: Final = 200

NO_LOGIN: Final = "nobody logs in at this listener; say security.protocol=PLAINTEXT, or SSL"
CHECK: Final = "check sasl.username and sasl.password, and that the user has one for this mechanism"
_CHECK_TOKEN: Final = "check the sasl.oauthbearer properties, and whose tokens the broker takes"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who logs in, and how."""

    mechanism: str
    username: str
    password: str = field(repr=False)
    tokens_from: TokenSource | None = None

    @classmethod
    def parse(cls, properties: Mapping[str, str], protocol: str) -> Credentials:
        """From librdkafka's names, or Java's sasl.jaas.config. InvalidConfig says what is missing."""
        mechanism = properties.get("sasl.mechanism") or ""
        if mechanism.upper() not in MECHANISMS:
            spoken = f"{', '.join(MECHANISMS[:-1])} and {MECHANISMS[-1]}"
            if not mechanism:
                raise InvalidConfig(f"security.protocol={protocol} needs sasl.mechanism, which is one of {spoken}")
            kind = OnlyLibrdkafka if mechanism.upper() == _KERBEROS else InvalidConfig
            raise kind(f"sasl.mechanism={brief_repr(mechanism)} is not spoken here; {spoken} are")
        if mechanism.upper() == oauthbearer.MECHANISM:
            source = TokenSource.parse(properties)
            return cls(oauthbearer.MECHANISM, source.principal, source.secret, source)
        given = with_jaas_read(properties)
        for name in ("sasl.username", "sasl.password"):
            if not given.get(name):
                raise InvalidConfig(
                    f"sasl.mechanism={mechanism} needs {name}; set it, or username= and password= in {jaas.PROPERTY}"
                )
            if not _is_sendable(given[name]):
                raise InvalidConfig(f"{name} has a NUL, or bytes that are not UTF-8, in it; no broker takes that")
        return cls(mechanism.upper(), given["sasl.username"], given["sasl.password"])


def _is_sendable(text: str) -> bool:
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def with_jaas_read(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties with what sasl.jaas.config says under librdkafka's names, in its place."""
    given = dict(properties)
    text = given.pop(jaas.PROPERTY, None)
    if text is None:
        return given
    login = jaas.parse_jaas(text)
    for option in ("username", "password"):
        name = f"sasl.{option}"
        if name in given and given[name] != login.options.get(option):
            raise InvalidConfig(f"{name} and {jaas.PROPERTY} name different users or passwords; leave one of them out")
        if option not in login.options:
            raise InvalidConfig(
                f"{jaas.PROPERTY} names {login.module} without {option}=; a user and a password are what is taken from"
                f" it, for {', '.join(_WITH_PASSWORD)}"
            )
        given[name] = login.options[option]
    return given


def authenticate(connection: WireConnection, credentials: Credentials, timeout_s: float) -> int:
    """Log in on a connection that has just been made; after how many milliseconds the broker wants it again, 0 for
    never. AuthenticationFailed if it does not let us in; else what a connection raises.
    """
    exchange = _Exchange(connection, credentials, timeout_s)
    exchange.shake_hands()
    if credentials.mechanism == "PLAIN":
        answer = exchange.say(f"\0{credentials.username}\0{credentials.password}".encode())
        return answer.session_lifetime_ms
    if credentials.tokens_from is not None:
        return _show_token(exchange, credentials.tokens_from, timeout_s)
    nonce = secrets.token_urlsafe(_NONCE_BYTES)
    client = ScramClient(credentials.mechanism, credentials.username, credentials.password, nonce)
    try:
        proof = client.final(exchange.say(client.first()).auth_bytes)
        answer = exchange.say(proof)
        client.finish(answer.auth_bytes)
    except ScramRefused as refusal:
        raise exchange.failed(f"{refusal}; {CHECK}") from None
    return answer.session_lifetime_ms


def _show_token(exchange: _Exchange, source: TokenSource, timeout_s: float) -> int:
    try:
        token = oauthbearer.TOKENS.token(source, timeout_s)
    except oauthbearer.TokenRefused as refusal:
        raise exchange.failed(str(refusal)) from None
    try:
        answer = exchange.say(oauthbearer.first_message(source, token), _CHECK_TOKEN)
        if answer.auth_bytes:  # why not, as JSON; the broker says no once it is told that we have heard
            exchange.say(oauthbearer.FAREWELL, _CHECK_TOKEN)
            raise exchange.failed(f"it does not take the token; {_CHECK_TOKEN}")
    except AuthenticationFailed:
        oauthbearer.TOKENS.forget(source)
        raise
    return answer.session_lifetime_ms


class _Exchange:
    """The requests that carry it."""

    def __init__(self, connection: WireConnection, credentials: Credentials, timeout_s: float) -> None:
        self._connection = connection
        self._credentials = credentials
        self._timeout_s = timeout_s

    def shake_hands(self) -> None:
        mechanism = self._credentials.mechanism
        try:
            version = self._connection.version_of(SaslHandshakeRequest)
        except RefusedByBroker:
            raise self.failed(NO_LOGIN) from None
        if version < _FRAMED:
            raise self.failed("its SaslHandshake is older than Kafka 1.0; use a broker of a nearer release")
        request = SaslHandshakeRequest(mechanism=mechanism)
        answer = self._connection.call_in(request, SaslHandshakeResponse, version, self._timeout_s)
        if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(answer.mechanisms) or "none"
            raise self.failed(f"it offers {self._shown(offered)}; say one of them with sasl.mechanism")
        if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise self.failed(NO_LOGIN)
        if answer.error_code:
            raise self.failed(f"it answered {known_code(answer.error_code).name} ({answer.error_code})")

    def say(self, message: bytes, advice: str = CHECK) -> SaslAuthenticateResponse:
        request = SaslAuthenticateRequest(auth_bytes=message)
        answer = self._connection.call(request, SaslAuthenticateResponse, self._timeout_s)
        if answer.error_code:
            name = known_code(answer.error_code).name
            said = self._shown(answer.error_message) if answer.error_message else f"it answered {name}"
            raise self.failed(f"{said.rstrip('.')}; {advice}")
        return answer

    def _shown(self, text: str) -> str:
        """What a broker says, which may be anything, also what it was told."""
        if self._credentials.password:
            text = text.replace(self._credentials.password, "...")
        return "".join(one if one.isprintable() else " " for one in text[:_SAID_CHARS_MAX])

    def failed(self, why: str) -> AuthenticationFailed:
        one = self._credentials
        return AuthenticationFailed(self._connection.address, one.username, one.mechanism, why)
