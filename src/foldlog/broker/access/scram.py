"""SCRAM-SHA-256 and SCRAM-SHA-512 from the server's side (RFC 5802, RFC 7677): messages in, messages out, no I/O.

What is kept of a password is its `ScramCredential`: whoever steals it can pretend to be the server, and can guess
passwords at the price of the iterations, but cannot log in. Names and passwords are UTF-8 as they are, without
SASLprep, as Kafka's brokers and clients have them.

An unknown user gets the same exchange as a known one with a wrong password: a salt that is always the same for the name
(`unknown_credential`), and a refusal of the proof.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from foldlog.errors import InvalidArgument, brief_repr
from foldlog.limits import SCRAM_MESSAGE_BYTES_MAX

MECHANISMS: Final = MappingProxyType({"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"})
"""The hash of each mechanism."""

MECHANISM_NUMBERS: Final = MappingProxyType({1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"})
"""Kafka's numbers, as in its requests about users."""

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384
"""Kafka's bounds. A guess of a stolen credential costs this many hashes."""

SALT_BYTES: Final = 24

_JAVA_SALT: Final = 0
_JAVA_SALT_BITS: Final = 130
_JAVA_SALT_FORM: Final = re.compile(rb"[0-9a-z]{20,26}")
_BASE_36: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"

# "n" or "y": the client binds no TLS channel to the exchange; an authorization id, the name, a nonce, extensions.
_FIRST: Final = re.compile(
    r"(?P<header>[ny],(?:a=(?P<authorization>[^,]*))?,)(?P<bare>n=(?P<name>[^,]+),r=(?P<nonce>[!-+\--~]+)(?:,.*)?)",
    re.DOTALL,
)
_FINAL: Final = re.compile(
    r"(?P<unproven>c=(?P<header>[A-Za-z0-9+/=]+),r=(?P<nonce>[!-+\--~]+)(?:,.*)?),p=(?P<proof>[A-Za-z0-9+/=]+)",
    re.DOTALL,
)
_QUOTED: Final = re.compile(r"=(2C|3D)?")


class LoginRefused(Exception):
    """The client has not shown that it is who it says. The text is for the broker's log: clients are told less."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What is kept of a password for one mechanism. Its `repr` shows nothing."""

    salt: bytes = field(repr=False)
    iterations: int = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(MECHANISMS[mechanism], password.encode(), salt, iterations)


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a salted password. Raises InvalidArgument for iterations outside of Kafka's bounds."""
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise InvalidArgument(
            f"{iterations} iterations; a password is hashed {ITERATIONS_MIN:,} to {ITERATIONS_MAX:,} times"
        )
    algorithm = MECHANISMS[mechanism]
    stored_key = hashlib.new(algorithm, hmac.digest(salted, b"Client Key", algorithm)).digest()
    return ScramCredential(salt, iterations, stored_key, hmac.digest(salted, b"Server Key", algorithm))


class SaltKind(NamedTuple):
    """What a challenge shows of how a password was kept: different tools choose differently."""

    iterations: int
    salt_bytes: int
    """_JAVA_SALT: as Kafka's tools make it, 130 random bits written with base 36, so 25 or 26 characters."""


OUR_KIND: Final = SaltKind(ITERATIONS_MAX, SALT_BYTES)


def kind_of(credential: ScramCredential) -> SaltKind:
    """
    >>> kind_of(ScramCredential(b"1k3qmcyx0p9v4h8w2z7r5t6b0d", 8192, b"", b""))
    SaltKind(iterations=8192, salt_bytes=0)
    """
    is_javas = _JAVA_SALT_FORM.fullmatch(credential.salt) is not None
    return SaltKind(credential.iterations, _JAVA_SALT if is_javas else len(credential.salt))


def unknown_credential(mechanism: str, name: str, secret: bytes, kind: SaltKind = OUR_KIND) -> ScramCredential:
    """A credential for a user that does not exist, which no password fits: always the same for a name, so that asking
    twice tells nothing. `secret` is the directory's."""
    algorithm = MECHANISMS[mechanism]
    salt = hmac.digest(secret, f"salt {mechanism} {name}".encode(), "sha512")
    while len(salt) < kind.salt_bytes:
        salt += hmac.digest(secret, salt, "sha512")
    salt = _java_salt(salt) if kind.salt_bytes == _JAVA_SALT else salt[: kind.salt_bytes]
    keys = [hmac.digest(secret, f"{which} {mechanism} {name}".encode(), algorithm) for which in ("stored", "server")]
    return ScramCredential(salt, kind.iterations, *keys)


def _java_salt(random: bytes) -> bytes:
    number, digits = int.from_bytes(random, "big") % (1 << _JAVA_SALT_BITS), bytearray()
    while number:
        number, digit = divmod(number, len(_BASE_36))
        digits.append(_BASE_36[digit])
    return bytes(reversed(digits))


def fits(mechanism: str, credential: ScramCredential, password: str) -> bool:
    """Whether the credential is of that password. Takes as long as its iterations do, whatever the answer."""
    salted = salted_password(mechanism, password, credential.salt, credential.iterations)
    algorithm = MECHANISMS[mechanism]
    stored_key = hashlib.new(algorithm, hmac.digest(salted, b"Client Key", algorithm)).digest()
    return hmac.compare_digest(stored_key, credential.stored_key)


class ScramServer:
    """One exchange: `named` with the client's first message, `challenge`, then `verify` with its last. Each once."""

    def __init__(self, mechanism: str, nonce: str) -> None:
        """`nonce` is printable ASCII without a comma, and never the same twice."""
        self._algorithm = MECHANISMS[mechanism]
        self._nonce = nonce
        self._header = self._first_bare = self._first = ""
        self._credential: ScramCredential | None = None

    def named(self, first: bytes) -> str:
        """The user's name in the client's first message."""
        found = _FIRST.fullmatch(_text(first))
        if found is None:
            raise LoginRefused("its first message is not that of SCRAM, or it wants TLS bound to the exchange")
        name = _unquoted(found["name"])
        if found["authorization"] is not None and _unquoted(found["authorization"]) != name:
            raise LoginRefused(f"{brief_repr(name)} wants to act as somebody else")
        self._header, self._first_bare = found["header"], found["bare"]
        self._nonce = found["nonce"] + self._nonce
        return name

    def challenge(self, credential: ScramCredential) -> bytes:
        """The answer to the first message."""
        self._credential = credential
        self._first = f"r={self._nonce},s={_encoded(credential.salt)},i={credential.iterations}"
        return self._first.encode()

    def verify(self, final: bytes) -> bytes:
        """The proof that we know the user, too, if the client's last message proves that it knows the password."""
        credential, self._credential = self._credential, None
        found = _FINAL.fullmatch(_text(final))
        if credential is None or found is None:
            raise LoginRefused("its last message is not that of SCRAM")
        if _decoded(found["header"]) != self._header.encode():
            raise LoginRefused("its two messages do not belong together")
        # librdkafka before 2.6.1 has its own nonce before both, so compare the end: what is random is in it whole.
        if not found["nonce"].endswith(self._nonce):
            raise LoginRefused("its last message answers another exchange")
        told = f"{self._first_bare},{self._first},{found['unproven']}".encode()
        signature = hmac.digest(credential.stored_key, told, self._algorithm)
        proof = _decoded(found["proof"])
        if len(proof) != len(signature):
            raise LoginRefused("its proof has the wrong length")
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._algorithm, client_key).digest(), credential.stored_key):
            raise LoginRefused("wrong password")
        return f"v={_encoded(hmac.digest(credential.server_key, told, self._algorithm))}".encode()


def _text(message: bytes) -> str:
    if len(message) > SCRAM_MESSAGE_BYTES_MAX:
        raise LoginRefused(f"a message of {len(message)} bytes")
    try:
        return bytes(message).decode()
    except UnicodeDecodeError:
        raise LoginRefused("a message that is not UTF-8") from None


def _unquoted(name: str) -> str:
    """The name; RFC 5802 quotes ',' and '=' in it."""

    def replaced(found: re.Match[str]) -> str:
        if found[1] is None:
            raise LoginRefused("a name with '=' that is not quoted")
        return "," if found[1] == "2C" else "="

    return _QUOTED.sub(replaced, name)


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise LoginRefused("what should be base64 is not") from None
