"""Proofs for records of `__folds`: a record carries a proof that its writer knows the directory's secret.

The secret is in the directory's file `folds.key`, readable only with access to the directory. A proof is a header of
the record: when it was made, and an HMAC-SHA256 over that time, the record's key and its value. Without one, the broker
refuses a client's record for the topic, a runner that has the key refuses a command, and the console opens no view that
the record describes. A proof is for one moment: the broker refuses an old one, so that records read from the topic
cannot be sent again.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from collections.abc import Iterable
from typing import Final, Self

from foldlog.environment import variable
from foldlog.errors import InvalidArgument, StorageError
from foldlog.files.paths import exists, is_directory, is_file, read_bytes, write_secret

KEY_FILE: Final = "folds.key"
KEY_VARIABLE: Final = "FOLDLOG_FOLDS_KEY"
"""Names a copy of the file, for a runner that cannot access the directory."""

UNPROVEN: Final = (
    f"topic '__folds' takes records of the directory's own runners; give the runner the file {KEY_FILE} of the"
    " directory (--folds-key), or serve with foldlog.folds.accept.unproven"
)
"""The broker's error for a record without a proof."""

KEPT_FOR_FOLDS: Final = (
    "topic '__folds' is kept for the folds of this directory; to change it, stop the broker and name the directory, or"
    " serve with foldlog.folds.accept.unproven"
)
"""The broker's error for a client that would change the topic, or delete it or its records."""

PROOF_HEADER: Final = "foldlog.proof"

_SECRET_BYTES: Final = 32
_DOMAIN: Final = b"foldlog __folds 1"
"""The purpose of the secret: other uses of it would begin differently."""

_TIME: Final = struct.Struct(">q")
_LENGTHS: Final = struct.Struct(">qq")
_NO_VALUE: Final = -1

Headers = Iterable[tuple[str, bytes | None]]


class FoldsKey:
    """The secret of a directory. Any thread."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @classmethod
    def made_up(cls) -> Self:
        """A random key, for a log without a directory."""
        return cls(secrets.token_bytes(_SECRET_BYTES))

    @classmethod
    def read(cls, path: str) -> Self:
        """Read a key file. Raises InvalidArgument if it is no key; OSError if it cannot be read."""
        if exists(path) and not is_file(path):  # opening a pipe would wait for its other end
            raise InvalidArgument(f"{path} is not a file, so it is no key of folds; name {KEY_FILE} of a directory")
        text = read_bytes(path, at_most=4 * _SECRET_BYTES)
        try:
            secret = bytes.fromhex(text.decode("ascii").strip())
        except ValueError:
            secret = b""
        if len(secret) != _SECRET_BYTES:
            raise InvalidArgument(f"{path} is not the key of a directory's folds; copy {KEY_FILE} out of the directory")
        return cls(secret)

    @classmethod
    def of_directory(cls, directory: str) -> Self:
        """The directory's key, created now if it has none. Raises StorageError if it cannot be read or created."""
        path = f"{directory}/{KEY_FILE}"
        try:
            if not exists(path):
                write_secret(path, secrets.token_hex(_SECRET_BYTES).encode() + b"\n")
            elif not is_file(path):
                raise StorageError(f"{path} is not a file; it has the name of the folds' key: move it away")
            return cls.read(path)
        except OSError as error:
            raise StorageError(
                f"the key of the directory's folds, {path}, cannot be read: {error.strerror or error};"
                " it is for the user who serves the directory"
            ) from error

    def proof(self, key: bytes | None, value: bytes | None, now_ms: int) -> tuple[str, bytes]:
        """The header for a record."""
        at = _TIME.pack(now_ms)
        return PROOF_HEADER, at + self._mac(at, key, value)

    def proven_ms(self, key: bytes | None, value: bytes | None, headers: Headers) -> int | None:
        """When the record's proof was made; None if it has none, or one by another key."""
        found = [held for name, held in headers if name == PROOF_HEADER]
        if len(found) != 1 or found[0] is None or len(found[0]) < _TIME.size:
            return None
        at, mac = found[0][: _TIME.size], found[0][_TIME.size :]
        if not hmac.compare_digest(mac, self._mac(at, key, value)):
            return None
        return int(_TIME.unpack(at)[0])

    def _mac(self, at: bytes, key: bytes | None, value: bytes | None) -> bytes:
        made = hmac.new(self._secret, _DOMAIN, hashlib.sha256)
        for part in (at, _LENGTHS.pack(_length(key), _length(value)), key or b"", value or b""):
            made.update(part)  # one by one: joining would copy a large value
        return made.digest()


def runners_key(directory: str | None, named: str | None = None) -> FoldsKey | None:
    """The key for a runner, or for a sender of commands: from the file (or directory) in `named` or else in
    FOLDLOG_FOLDS_KEY; else from the directory that it reads.

    None if there is neither: for a cluster, or a broker elsewhere. Raises InvalidArgument and StorageError as above.
    """
    named = named or variable(KEY_VARIABLE)
    if not named:
        return None if directory is None else FoldsKey.of_directory(directory)
    if is_directory(named):
        return FoldsKey.of_directory(named)
    try:
        return FoldsKey.read(named)
    except OSError as error:
        raise InvalidArgument(
            f"the key of the folds, {named}, cannot be read: {error.strerror or error}; name {KEY_FILE} of the served"
            " directory, or a copy of it"
        ) from error


def _length(part: bytes | None) -> int:
    return _NO_VALUE if part is None else len(part)
