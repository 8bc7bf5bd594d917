"""Who may speak in `__folds`: a record carries a proof that its writer knows the directory's secret.

Whoever may read and write the directory may read its file `folds.key`, and nobody else. A proof is a header of the
record: when it was made, and an HMAC-SHA256 over that time, the record's key and its value. The broker takes no record
of a client into the topic without one, a runner that has the key takes no command without one, and the console opens
no view that a record without one describes. A proof is made for one moment: the broker refuses an old one, so that
nobody can send again what he has read in the topic.
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
"""Names a copy of the file, for a runner that does not reach the directory."""

UNPROVEN: Final = (
    f"topic '__folds' takes records of the directory's own runners; give the runner the file {KEY_FILE} of the"
    " directory (--folds-key), or serve with foldlog.folds.accept.unproven"
)
"""What a broker says of a record without a proof."""

KEPT_FOR_FOLDS: Final = (
    "topic '__folds' is kept for the folds of this directory; to change it, stop the broker and name the directory, or"
    " serve with foldlog.folds.accept.unproven"
)
"""What it says to a client that would change the topic, or delete it or its records."""

PROOF_HEADER: Final = "foldlog.proof"

_SECRET_BYTES: Final = 32
_DOMAIN: Final = b"foldlog __folds 1"
"""What the secret is used for here: another use of it would begin differently."""

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
        """For a log that has no directory."""
        return cls(secrets.token_bytes(_SECRET_BYTES))

    @classmethod
    def read(cls, path: str) -> Self:
        """InvalidArgument if that file is no key; OSError where it cannot be read."""
        if exists(path) and not is_file(path):  # an open of a pipe waits for its other end
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
        """The directory's, made now if it has none. StorageError if it can be neither read nor made."""
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
        """The header that a record gets."""
        at = _TIME.pack(now_ms)
        return PROOF_HEADER, at + self._mac(at, key, value)

    def proven_ms(self, key: bytes | None, value: bytes | None, headers: Headers) -> int | None:
        """When the record's proof was made; None if it has none, or another's."""
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
            made.update(part)  # one by one: joined, a large value would be there twice
        return made.digest()


def runners_key(directory: str | None, named: str | None = None) -> FoldsKey | None:
    """What a runner, or who commands one, has: the file (or the directory) that was named, by FOLDLOG_FOLDS_KEY if not
    by `named`; else that of the directory it reads.

    None where there is neither: of a cluster, or of a broker elsewhere. InvalidArgument, StorageError as above.
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
