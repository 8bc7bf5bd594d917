"""access.json: users, access control lists and quotas of a directory.

Replacing the file is the commit point of a change: a power cut leaves all of it or nothing. Only its owner may read
it: it holds what is kept of passwords. A directory without users, ACLs and quotas has no such file.

    {"version":1,"epoch":3,"secret":"<64 hex digits>","kinds":{"SCRAM-SHA-256":[[16384,24]]},"users":{
    "alice":{"SCRAM-SHA-256":["<salt>",16384,"<stored key>","<server key>"]}},"acls":[
    ["TOPIC","orders","LITERAL","User:alice","*","READ","ALLOW"]],"quotas":[
    [{"user":"alice"},{"producer_byte_rate":1048576.0}]],
    "crc32c":"89abcdef"}
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from foldlog.broker.access.acls import Acl, AclOperation, Acls, PatternType, Permission, ResourceType
from foldlog.broker.access.quotas import Quotas, quotas_of
from foldlog.broker.access.scram import SaltKind, ScramCredential
from foldlog.broker.access.users import Kinds, Users
from foldlog.broker.checked_json import compact, lines_of, sealed, unsealed
from foldlog.errors import FoldlogError, InvalidConfig, NewerVersion
from foldlog.files.base import Files, read_file, replace_file, storage_error
from foldlog.limits import ACCESS_BYTES_MAX

ACCESS_NAME: Final = "access.json"
_VERSION: Final = 1
_ADVICE: Final = (
    "restore it from a backup; or remove it, and make users and ACLs anew: until then only super users may do anything"
)


@dataclass(frozen=True, slots=True)
class Access:
    """Users, ACLs and quotas at one moment. Immutable. `epoch` rises with each change, and is 0 before the first."""

    epoch: int = 0
    users: Users = field(default_factory=Users)
    acls: Acls = field(default_factory=Acls)
    quotas: Quotas = field(default_factory=Quotas)


Decide = Callable[[Access], Access]


class AccessStore:
    """Who may do what in a directory that this process writes. Any thread.

    `current` is always the durable state. `may_write` raises if the directory is no longer this process's. `watchers`
    are called with each new state, in order, before the change returns: it is in force then.
    """

    def __init__(self, files: Files, directory: str, may_write: Callable[[], None]) -> None:
        """Raises CorruptLog or NewerVersion if the file cannot be read as what was written."""
        self._files = files
        self._path = f"{directory}/{ACCESS_NAME}"
        self._may_write = may_write
        self._changing = threading.Lock()
        self.watchers: list[Callable[[Access], None]] = []
        self.current = stored_access(files, directory)

    def change(self, decide: Decide) -> Access:
        """Replace the state by what `decide` makes of it, with no other change in between. Durable on return, and in
        force. `decide` may raise a FoldlogError; nothing is changed then."""
        with self._changing:
            wanted = decide(self.current)
            if wanted == self.current:
                return self.current
            changed = replace(wanted, epoch=self.current.epoch + 1)
            data = encode(changed)
            if len(data) > ACCESS_BYTES_MAX:
                raise InvalidConfig(
                    f"users, ACLs and quotas would take {len(data)} bytes, and they take at most {ACCESS_BYTES_MAX};"
                    " delete some, or use prefixes"
                )
            self._may_write()
            try:
                replace_file(self._files, self._path, data, private=True)
            except OSError as error:
                raise storage_error(
                    "users and ACLs could not be changed; check the disk, and try again", error
                ) from error
            self.current = changed
            for watcher in list(self.watchers):
                watcher(changed)
            return changed


def stored_access(files: Files, directory: str) -> Access:
    """What the file says, for who only reads the directory. Raises as `AccessStore` does."""
    path = f"{directory}/{ACCESS_NAME}"
    try:
        return decode(read_file(files, path), path)
    except FileNotFoundError:
        return Access()


def encode(access: Access) -> bytes:
    users = {
        name: {mechanism: _credential_fields(one) for mechanism, one in sorted(kept.items())}
        for name, kept in access.users.credentials.items()
    }
    acls = _rows([one.name if isinstance(one, Enum) else one for one in acl] for acl in access.acls)
    quotas = _rows([dict(one), dict(sorted(access.quotas.of(one).items()))] for one in access.quotas)
    head = f'{{"version":{_VERSION},"epoch":{access.epoch},"secret":"{access.users.secret.hex()}"'
    head += f',"kinds":{compact(dict(access.users.kinds))}'
    return sealed(f'{head},"users":{{{lines_of(users)}}},"acls":[{acls}],"quotas":[{quotas}]')


def decode(data: bytes, path: str) -> Access:
    """The inverse of `encode`. Raises CorruptLog, naming `path`, if a byte differs from what `encode` wrote,
    NewerVersion if a newer foldlog wrote it."""
    fields = unsealed(data, path, _VERSION, _ADVICE)
    try:
        users = {
            name: MappingProxyType({mechanism: _credential_of(*one) for mechanism, one in kept.items()})
            for name, kept in fields["users"].items()
        }
        return Access(
            fields["epoch"],
            Users(bytes.fromhex(fields["secret"]), MappingProxyType(users), _kinds_of(fields.get("kinds", {}))),
            Acls(_acl_of(row) for row in fields["acls"]),
            quotas_of((tuple(sorted(named.items())), values) for named, values in fields["quotas"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, FoldlogError) as error:
        raise NewerVersion(path, None, _VERSION, f"its checksum is right, and {error!r} is not known here") from error


_ENUMS: Final = MappingProxyType({0: ResourceType, 2: PatternType, 5: AclOperation, 6: Permission})
"""The fields of an Acl that are stored by name."""


def _acl_of(row: list[str]) -> Acl:
    return Acl(*(_ENUMS[index][one] if index in _ENUMS else one for index, one in enumerate(row)))  # type: ignore[arg-type]


def _kinds_of(stored: Mapping[str, list[list[int]]]) -> Kinds:
    """None in a file of before they were kept."""
    return {mechanism: tuple(SaltKind(*one) for one in ones) for mechanism, ones in stored.items()}


def _rows(rows: Iterable[object]) -> str:
    return "".join(f"\n{compact(row)}," for row in rows).removesuffix(",")


def _credential_fields(one: ScramCredential) -> list[Any]:
    texts = [base64.b64encode(each).decode() for each in (one.salt, one.stored_key, one.server_key)]
    return [texts[0], one.iterations, *texts[1:]]


def _credential_of(salt: str, iterations: int, stored_key: str, server_key: str) -> ScramCredential:
    decoded = [base64.b64decode(each, validate=True) for each in (salt, stored_key, server_key)]
    return ScramCredential(decoded[0], iterations, *decoded[1:])
