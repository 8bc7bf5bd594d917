"""OAUTHBEARER from the client's side (RFC 7628): where its tokens come from, and the message that carries one.

Two sources, by librdkafka's names, and by Java's where it has its own. `sasl.oauthbearer.method=oidc` asks a token
endpoint, as a client that has an id and a secret (RFC 6749, 4.4). `enable.sasl.oauthbearer.unsecure.jwt=true` makes a
token without a signature, for brokers that are told to believe it: tests, and nothing else. A secret and a token are in
no error and in no repr.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from threading import Lock
from typing import Final
from urllib.parse import quote_plus, urlencode, urlsplit

from foldlog.client.forks import watch_forks
from foldlog.client.wire.property_names import OnlyLibrdkafka
from foldlog.errors import InvalidConfig, brief_repr
from foldlog.limits import OAUTH_ANSWER_BYTES_MAX

MECHANISM: Final = "OAUTHBEARER"

_METHOD: Final = "sasl.oauthbearer.method"
_CONFIG: Final = "sasl.oauthbearer.config"
_UNSECURED: Final = "enable.sasl.oauthbearer.unsecure.jwt"
_ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
_SCOPE: Final = "sasl.oauthbearer.scope"
_EXTENSIONS: Final = "sasl.oauthbearer.extensions"
_GRANT: Final = "sasl.oauthbearer.grant.type"
_IDS: Final = ("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id")
_SECRETS: Final = ("sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.client.secret")
_AUTHORITIES: Final = "https.ca.location"

PROPERTIES: Final = frozenset(
    {_METHOD, _CONFIG, _UNSECURED, _ENDPOINT, _SCOPE, _EXTENSIONS, _GRANT, _AUTHORITIES, *_IDS, *_SECRETS}
)

_RENEWED_AT: Final = 0.8
"""The part of a token's life after which another is asked for, as Java's and librdkafka's clients do."""

_LIFE_S: Final = 300.0
"""Of a token whose endpoint does not say: few live for less."""

_PAIR: Final = re.compile(r"(?P<name>[A-Za-z_]+)=(?P<value>\S*)")
_EXTENSION: Final = re.compile(r"(?P<name>[A-Za-z]+)=(?P<value>[\x21-\x7e \t\r\n]+)")


class TokenRefused(Exception):
    """The endpoint gives no token to this client; the text says why."""


@dataclass(frozen=True, slots=True)
class TokenSource:
    """Where a client's tokens come from. `endpoint` is "" for those that are made here."""

    principal: str
    secret: str = field(default="", repr=False)
    endpoint: str = ""
    scope: str = ""
    authorities: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    principal_claim: str = "sub"
    scope_claim: str = "scope"
    life_s: int = 3600

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> TokenSource:
        """InvalidConfig says what is missing."""
        endpoint = properties.get(_ENDPOINT)
        method = (properties.get(_METHOD) or ("oidc" if endpoint else "default")).lower()
        if method == "oidc":
            return cls._of_endpoint(properties)
        if method != "default":
            raise InvalidConfig(f"{_METHOD}={brief_repr(method)} is not known; it is default or oidc")
        if properties.get(_UNSECURED, "false").lower() != "true":
            raise InvalidConfig(
                f"sasl.mechanism={MECHANISM} needs {_METHOD}=oidc with {_ENDPOINT}, {_IDS[1]} and {_SECRETS[1]}; or,"
                f" for brokers that believe tokens without a signature, {_UNSECURED}=true with {_CONFIG}"
            )
        return cls._of_config(properties.get(_CONFIG, ""))

    @classmethod
    def _of_endpoint(cls, properties: Mapping[str, str]) -> TokenSource:
        endpoint = properties.get(_ENDPOINT, "")
        url = urlsplit(endpoint)
        if url.scheme not in ("https", "http") or not url.hostname or "@" in url.netloc:
            raise InvalidConfig(f"{_METHOD}=oidc needs {_ENDPOINT}, which is like https://login.example/oauth2/token")
        grant = properties.get(_GRANT, "client_credentials").lower()
        if grant != "client_credentials":
            raise OnlyLibrdkafka(f"{_GRANT}={brief_repr(grant)} works only with librdkafka; use client_credentials")
        given = [next((properties[name] for name in names if properties.get(name)), "") for names in (_IDS, _SECRETS)]
        for names, value in zip((_IDS, _SECRETS), given, strict=True):
            if not value:
                raise InvalidConfig(f"{_METHOD}=oidc needs {names[1]}")
        return cls(
            principal=given[0],
            secret=given[1],
            endpoint=endpoint,
            scope=properties.get(_SCOPE, ""),
            authorities=properties.get(_AUTHORITIES),
            extensions=_extensions(properties.get(_EXTENSIONS, "").split(",")),
        )

    @classmethod
    def _of_config(cls, text: str) -> TokenSource:
        """What librdkafka takes: principal=ann scope=a,b lifeSeconds=600 extension_traceId=1, with blanks between."""
        found: dict[str, str] = {}
        for word in text.split():
            pair = _PAIR.fullmatch(word)
            if pair is None:
                raise InvalidConfig(f"{_CONFIG} has something in it that is not name=value; separate pairs with blanks")
            found[pair["name"]] = pair["value"]
        extensions = [f"{name[10:]}={value}" for name, value in found.items() if name.startswith("extension_")]
        known = {"principal", "principalClaimName", "scope", "scopeClaimName", "lifeSeconds"}
        unknown = [name for name in found if name not in known and not name.startswith("extension_")]
        if unknown or not found.get("principal"):
            what = f"does not take {brief_repr(unknown[0])}" if unknown else "needs principal="
            raise InvalidConfig(f"{_CONFIG} {what}; it is like: principal=ann scope=read,write lifeSeconds=600")
        life = found.get("lifeSeconds", "3600")
        if not life.isdecimal() or int(life) < 1:
            raise InvalidConfig(f"{_CONFIG} has lifeSeconds={brief_repr(life)}, which is no number of seconds")
        return cls(
            principal=found["principal"],
            scope=found.get("scope", ""),
            extensions=_extensions(extensions),
            principal_claim=found.get("principalClaimName", "sub"),
            scope_claim=found.get("scopeClaimName", "scope"),
            life_s=int(life),
        )


def _extensions(texts: list[str]) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    for text in filter(None, (text.strip() for text in texts)):
        pair = _EXTENSION.fullmatch(text)
        if pair is None or pair["name"] == "auth":
            raise InvalidConfig(f"{_EXTENSIONS} has something in it that is not name=value; separate pairs with commas")
        found.append((pair["name"], pair["value"]))
    return tuple(found)


def first_message(source: TokenSource, token: str) -> bytes:
    """What a client says first.

    >>> first_message(TokenSource("ann", extensions=(("traceId", "1"),)), "x.y.")
    b'n,,\\x01auth=Bearer x.y.\\x01traceId=1\\x01\\x01'
    """
    said = "".join(f"{name}={value}\x01" for name, value in source.extensions)
    return f"n,,\x01auth=Bearer {token}\x01{said}\x01".encode()


FAREWELL: Final = b"\x01"
"""What a client says to a broker that has told it why not, so that it ends the exchange."""


def unsecured_token(source: TokenSource, now_s: float) -> str:
    """A JSON Web Token without a signature (RFC 7519, 6).

    >>> unsecured_token(TokenSource("ann", life_s=60), 1000).split(".")[0]
    'eyJhbGciOiJub25lIn0'
    """
    claims: dict[str, object] = {source.principal_claim: source.principal, "iat": now_s, "exp": now_s + source.life_s}
    if source.scope:
        claims[source.scope_claim] = source.scope.split(",")
    parts = ({"alg": "none"}, claims)
    return "".join(_base64url(json.dumps(one, separators=(",", ":")).encode()) + "." for one in parts)


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


# --- tokens that are good for a while -------------------------------------------------------------------------------


class Tokens:
    """The last token of each source, as long as it is good. Any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[TokenSource, tuple[str, float]] = {}
        watch_forks(self._forked)

    def token(self, source: TokenSource, timeout_s: float) -> str:
        """TokenRefused; OSError where the endpoint does not answer. One is asked for at a time: connections that are
        made together share it."""
        with self._lock:
            token, until_s = self._known.get(source, ("", 0.0))
            if time.monotonic() < until_s:
                return token
            if source.endpoint:
                token, life_s = _asked(source, timeout_s)
            else:
                token, life_s = unsecured_token(source, time.time()), float(source.life_s)
            self._known[source] = token, time.monotonic() + life_s * _RENEWED_AT
            return token

    def forget(self, source: TokenSource) -> None:
        """A broker has refused the last one: the next login asks for another."""
        with self._lock:
            self._known.pop(source, None)

    def _forked(self) -> None:
        """In a forked child another thread of the parent may have held the lock."""
        self._lock = Lock()


TOKENS: Final = Tokens()
"""Of this process: a token is good for every connection."""


def _asked(source: TokenSource, timeout_s: float) -> tuple[str, float]:
    """A token from the endpoint, and for how many seconds it is good."""
    url = urlsplit(source.endpoint)
    shown = f"{url.scheme}://{url.netloc}{url.path}"
    connection: HTTPConnection
    if url.scheme == "https":
        context = ssl.create_default_context(cafile=source.authorities)
        connection = HTTPSConnection(url.hostname or "", url.port, timeout=timeout_s, context=context)
    else:
        connection = HTTPConnection(url.hostname or "", url.port, timeout=timeout_s)
    asked = {"grant_type": "client_credentials"} | ({"scope": source.scope} if source.scope else {})
    # RFC 6749, 2.3.1: both are encoded before they are joined.
    who = f"{quote_plus(source.principal)}:{quote_plus(source.secret)}".encode()
    headers = {
        "Authorization": "Basic " + base64.b64encode(who).decode(),
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    try:
        connection.request("POST", path, urlencode(asked), headers)
        answer = connection.getresponse()
        status, body = answer.status, answer.read(OAUTH_ANSWER_BYTES_MAX)
    except (OSError, HTTPException) as error:
        raise ConnectionError(f"no token from {shown}: {str(error) or type(error).__name__}") from error
    finally:
        connection.close()
    if status >= 500:
        raise ConnectionError(f"no token from {shown}: it answered with status {status}")
    found = _fields_in(body)
    token, life_s = found.get("access_token"), found.get("expires_in")
    if status != 200 or not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token):
        why = str(found.get("error_description") or found.get("error") or f"status {status}, and no token")
        raise TokenRefused(f"{shown} gives no token: {why.replace(source.secret, '...')}")
    is_number = isinstance(life_s, int | float) and not isinstance(life_s, bool) and life_s > 0
    return token, float(life_s) if is_number and isinstance(life_s, int | float) else _LIFE_S


def _fields_in(body: bytes) -> dict[str, object]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
