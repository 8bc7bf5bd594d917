"""The public keys that sign tokens: a JWKS in a file or at an address, kept in memory and read again in the background.

A login never waits for the address if its key is known. Keys are read again each `refresh_ms`, and at once when a token
names a key that is not among them: anybody can make such tokens up, so this happens once in JWKS_COOLDOWN_S. One read
goes on at a time, on a thread of its own, with a bound on its time and size. If it fails, the keys stay as they are.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from foldlog.broker.access.scram import LoginRefused
from foldlog.errors import InvalidConfig, MissingDependency, brief_repr
from foldlog.files.paths import is_special, read_bytes
from foldlog.limits import JWKS_BYTES_MAX, JWKS_COOLDOWN_S, JWKS_RETRY_S, JWKS_TIMEOUT_S
from foldlog.server.net.listeners import is_loopback

if TYPE_CHECKING:
    from http.client import HTTPConnection

    import jwt

logger = logging.getLogger("foldlog.server")

SETTING: Final = "sasl.oauthbearer.jwks.endpoint.url"
CLEAR_SETTING: Final = "foldlog.jwks.insecure"

_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_ADDRESSES: Final = frozenset({"http", "https"})
_OF_SERVERS: Final = 500
"""From this status on it is the server's fault, and may pass."""


class UnknownKey(LoginRefused):
    """A token is signed with a key that is not among those known."""


class SigningKey:
    """A public key, and the algorithms that go with it: one of another kind would be a downgrade."""

    def __init__(self, key: jwt.PyJWK, named_algorithm: object) -> None:
        self.key = key.key
        found: tuple[str, ...]
        if named_algorithm is not None:
            found = (str(named_algorithm),)
        elif key.key_type == "RSA":
            found = tuple(one for one in _ALGORITHMS if one[0] in "RP")
        else:
            found = (str(key.algorithm_name),)
        self.algorithms = tuple(one for one in found if one in _ALGORITHMS)


Keys = Mapping[str | None, SigningKey]


class SigningKeys:
    """The keys that are known now. Any thread."""

    def __init__(self, location: str, refresh_ms: int, now_s: Callable[[], float] = time.monotonic) -> None:
        """Reads them. InvalidConfig if there are none there; MissingDependency without the extra `oauth`. An address
        that does not answer is asked again later: others log in with passwords meanwhile."""
        try:
            import jwt
        except ImportError:
            raise MissingDependency("OAUTHBEARER", "PyJWT", "oauth") from None
        self._jwt = jwt
        self._location = location
        self._refresh_s = refresh_ms / 1000
        self._now_s = now_s
        self._lock = threading.Lock()
        self._reading: Future[None] | None = None
        self._keys: Keys = MappingProxyType({})
        self._is_failing = False
        try:
            self._keys = self._read()
        except (OSError, ValueError) as error:
            if isinstance(error, ValueError) or not _is_address(location):
                raise InvalidConfig(f"{SETTING}={location} cannot be read as the keys of tokens: {error}") from None
            self._failed(error)
        self._ended_s = now_s()
        self._due_s = self._ended_s + self._pause_s

    def find(self, name: str | None) -> SigningKey:
        """The key of that id; the only one, if a token names none. UnknownKey if there is no such key."""
        keys = self._keys
        if name is None and len(keys) == 1:
            return next(iter(keys.values()))
        try:
            return keys[name]
        except KeyError:
            raise UnknownKey("its token is signed with a key that is not known") from None

    def refresh(self) -> Future[None] | None:
        """Begin to read the keys again, or join who does. None if that was done a moment ago."""
        with self._lock:
            if self._reading is None and self._now_s() - self._ended_s >= JWKS_COOLDOWN_S:
                self._begin()
            return self._reading

    def refresh_if_due(self) -> None:
        """About once a second: begin to read the keys again when it is time."""
        with self._lock:
            if self._reading is None and self._now_s() >= self._due_s:
                self._begin()

    @property
    def _pause_s(self) -> float:
        return min(self._refresh_s, JWKS_RETRY_S) if self._is_failing else self._refresh_s

    def _begin(self) -> None:
        self._reading = Future()
        # A thread of its own: one of the broker's would be missing as long as the address takes.
        threading.Thread(target=self._run, args=(self._reading,), name="foldlog-signing-keys", daemon=True).start()

    def _run(self, reading: Future[None]) -> None:
        try:
            self._keys = self._read()
            if self._is_failing:
                logger.info("%s=%s is read again, with %d keys", SETTING, self._location, len(self._keys))
            self._is_failing = False
        except (OSError, ValueError) as error:
            self._failed(error)
        except Exception:
            logger.exception("%s=%s could not be read", SETTING, self._location)
        with self._lock:
            self._ended_s = self._now_s()
            self._due_s = self._ended_s + self._pause_s
            self._reading = None
        reading.set_result(None)

    def _failed(self, error: Exception) -> None:
        """One line, not one for each try."""
        if not self._is_failing:
            logger.warning(
                "%s=%s cannot be read, and is tried again; the %d keys of before are kept: %s",
                SETTING,
                self._location,
                len(self._keys),
                error,
            )
        self._is_failing = True

    def _read(self) -> Keys:
        """OSError if nobody answers, ValueError if what is there are no keys."""
        try:
            document = json.loads(_read(self._location))
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        if not isinstance(document, dict) or not isinstance(document.get("keys"), list):
            raise ValueError("it is no JWKS: an object with a list of keys")
        keys: dict[str | None, SigningKey] = {}
        for one in document["keys"]:
            # `oct` is a shared secret: whoever can check a token could make one.
            if not isinstance(one, dict) or one.get("kty") == "oct" or one.get("use", "sig") != "sig":
                continue
            name = one.get("kid")
            try:
                key = SigningKey(self._jwt.PyJWK(one), one.get("alg"))
            except (self._jwt.PyJWTError, ValueError, TypeError, KeyError):
                continue  # of a kind that is not known here; the others are as good as they were
            if key.algorithms and (name is None or isinstance(name, str)):
                keys[name] = key
        if not keys:
            raise ValueError("there is no public key for signatures in it")
        return MappingProxyType(keys)


def is_clear(location: str) -> bool:
    """Whether keys are asked for over a network without encryption."""
    parts = urlsplit(location)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")


def check_location(location: str, *, takes_clear: bool = False) -> None:
    """InvalidConfig for an address that somebody else could answer for, unless the operator takes one."""
    try:
        parts = urlsplit(location)
        port = parts.port
    except ValueError:
        raise InvalidConfig(f"{brief_repr(location)} is no address; give https://HOST/PATH, or a file") from None
    if not _is_address(location):
        return
    if not parts.hostname or port == 0 or "@" in parts.netloc:
        raise InvalidConfig(f"{SETTING} is like https://login.example.com/keys, without a user in it")
    if is_clear(location) and not takes_clear:
        raise InvalidConfig(
            f"{SETTING}={brief_repr(location)} is not encrypted: somebody on the way could replace the keys;"
            f" use https, or a file; {CLEAR_SETTING}=true allows it, for a network that only you are on"
        )


def _is_address(location: str) -> bool:
    return urlsplit(location).scheme in _ADDRESSES


def _read(location: str) -> bytes:
    parts = urlsplit(location)
    if parts.scheme in _ADDRESSES:
        data = _asked(parts)
    else:
        path = unquote(parts.path) if parts.scheme == "file" else location
        if is_special(path):
            raise ValueError("it is no regular file")
        data = read_bytes(path, JWKS_BYTES_MAX + 1)
    if len(data) > JWKS_BYTES_MAX:
        raise ValueError(f"it has more than {JWKS_BYTES_MAX} bytes")
    return data


def _asked(url: SplitResult) -> bytes:
    from http.client import HTTPException

    connection = _connection(url)
    cut: threading.Timer | None = None
    try:
        connection.connect()
        # A limit on each receive is none for who sends a byte now and then: the connection is cut as a whole.
        cut = threading.Timer(JWKS_TIMEOUT_S, _cut, [connection.sock])
        cut.daemon = True
        cut.start()
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        connection.request("GET", path, headers={"Accept": "application/json", "Connection": "close"})
        answer = connection.getresponse()
        status, length = answer.status, answer.getheader("Content-Length", "")
        data = answer.read(JWKS_BYTES_MAX + 1)
    except HTTPException as error:
        raise OSError(f"its answer is not HTTP, or ends too early: {type(error).__name__}") from None
    finally:
        if cut is not None:
            cut.cancel()
        connection.close()
    if status >= _OF_SERVERS:
        raise OSError(f"it answers with status {status}")
    if 300 <= status < 400:
        target = answer.getheader("Location", "")
        raise ValueError(f"it redirects, to {brief_repr(target)}, and that is not followed; set the address itself")
    if status != 200:
        raise ValueError(f"it answers with status {status}")
    if length.isdecimal() and len(data) < min(int(length), JWKS_BYTES_MAX + 1):
        raise OSError(f"it took more than {JWKS_TIMEOUT_S:.0f} seconds, or was cut off")
    return data


def _connection(url: SplitResult) -> HTTPConnection:
    """Through the proxy that the environment names, if there is one."""
    import ssl
    from http.client import HTTPConnection, HTTPSConnection
    from urllib.request import getproxies, proxy_bypass

    host = url.hostname or ""
    options: dict[str, Any] = {"timeout": JWKS_TIMEOUT_S}
    if url.scheme == "http":
        return HTTPConnection(host, url.port, **options)
    options["context"] = ssl.create_default_context()
    proxy = None if is_loopback(host) or proxy_bypass(host) else getproxies().get("https")
    if not proxy:
        return HTTPSConnection(host, url.port, **options)
    through = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    connection = HTTPSConnection(through.hostname or "", through.port, **options)
    connection.set_tunnel(host, url.port or 443)
    return connection


def _cut(connected: Any) -> None:
    import socket

    try:
        # The socket's own: that of TLS would forget, under its reader, that there is TLS.
        socket.socket.shutdown(connected, socket.SHUT_RDWR)
    except OSError:
        pass  # it has ended meanwhile
