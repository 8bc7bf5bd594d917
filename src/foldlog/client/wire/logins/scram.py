"""SCRAM-SHA-256 and SCRAM-SHA-512 from the client's side (RFC 5802, RFC 7677): texts in, texts out, no input or output.

The broker proves that it knows the user, too: its last message is checked before anything is sent to it. Passwords and
names are taken as UTF-8, as they are: Kafka's brokers, tools and clients, and librdkafka, leave out the SASLprep of the
RFC, and whoever did it alone could not log in with a password that it changes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from types import MappingProxyType
from typing import Final

from foldlog.errors import MalformedBytes
from foldlog.limits import SCRAM_ITERATIONS_MAX, SCRAM_ITERATIONS_MIN, SCRAM_MESSAGE_BYTES_MAX

HASHES: Final = MappingProxyType({"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"})

_NO_BINDING: Final = "n,,"
"""The header of the first message: TLS is not bound to the exchange, which Kafka does not offer."""

_FIRST: Final = re.compile(r"r=(?P<nonce>[!-+\--~]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[1-9][0-9]*)(,.*)?")
_FINAL: Final = re.compile(r"v=(?P<signature>[A-Za-z0-9+/=]+)(,.*)?")
_ERROR: Final = re.compile(r"e=(?P<why>[^,]*)(,.*)?")


class ScramRefused(Exception):
    """The broker says no, or does not prove who it is; the text says which."""


class ScramClient:
    """One exchange: `first`, then `final` with what the broker answers, then `finish`. Each once, in this order.

    MalformedBytes for what no SCRAM server says, ScramRefused for what one should not.
    """

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        """`nonce` is printable ASCII without a comma, and never the same twice."""
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}"
        self._signature = b""

    def first(self) -> bytes:
        return (_NO_BINDING + self._first_bare).encode()

    def final(self, server_first: bytes) -> bytes:
        """The proof that we know the password, which takes as long as the broker asks for, within bounds."""
        text = _text(server_first)
        found = _FIRST.fullmatch(text)
        if found is None:
            raise _refused(text) or _odd("its first message is not a nonce, a salt and a number")
        nonce, iterations = found["nonce"], found["iterations"]
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramRefused("its answer does not belong to our message; somebody may be between you and the broker")
        # Before it is made a number: one of thousands of digits takes long itself.
        if len(iterations) > len(str(SCRAM_ITERATIONS_MAX)) or int(iterations) > SCRAM_ITERATIONS_MAX:
            raise ScramRefused(f"it wants the password hashed more than {SCRAM_ITERATIONS_MAX:,} times")
        if int(iterations) < SCRAM_ITERATIONS_MIN:
            raise ScramRefused(
                f"it wants the password hashed {iterations} times, and less than {SCRAM_ITERATIONS_MIN} is not safe"
            )
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, _decoded(found["salt"]), int(iterations))
        bare = f"c={_encoded(_NO_BINDING.encode())},r={nonce}"
        told = f"{self._first_bare},{text},{bare}".encode()
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), told)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), told)
        return f"{bare},p={_encoded(proof)}".encode()

    def finish(self, server_final: bytes) -> None:
        """Returns if the broker has proven that it knows the user's password, or what it keeps of it."""
        text = _text(server_final)
        found = _FINAL.fullmatch(text)
        if found is None:
            raise _refused(text) or _odd("its last message is no signature")
        if not self._signature or not hmac.compare_digest(_decoded(found["signature"]), self._signature):
            raise ScramRefused("its signature shows that it does not know the password; it is not the real broker")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _text(message: bytes) -> str:
    if len(message) > SCRAM_MESSAGE_BYTES_MAX:
        raise _odd(f"a message of {len(message)} bytes")
    try:
        return bytes(message).decode()
    except UnicodeDecodeError:
        raise _odd("a message that is not UTF-8") from None


def _refused(text: str) -> ScramRefused | None:
    found = _ERROR.fullmatch(text)
    return None if found is None else ScramRefused(f"it answers {found['why'][:80]!r}")


def _odd(reason: str) -> MalformedBytes:
    return MalformedBytes("SCRAM exchange", reason, 0)


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise _odd("what should be base64 is not") from None
