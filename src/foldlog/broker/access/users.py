"""Users: names, with what is kept of their passwords. Values; nothing here is stored."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from foldlog.broker.access.scram import (
    ITERATIONS_MAX,
    MECHANISMS,
    OUR_KIND,
    SALT_BYTES,
    SaltKind,
    ScramCredential,
    credential_of,
    fits,
    kind_of,
    salted_password,
    unknown_credential,
)
from foldlog.errors import InvalidArgument, brief_repr
from foldlog.limits import PASSWORD_CHARACTERS_MAX, USER_NAME_CHARACTERS_MAX

Credentials = Mapping[str, ScramCredential]
"""By mechanism."""

Kinds = Mapping[str, tuple[SaltKind, ...]]
"""By mechanism."""

_KINDS_MAX: Final = 16

_PLAIN_MECHANISM: Final = "SCRAM-SHA-256"
"""Whose credential a password in the clear is compared with, if the user has both."""


@dataclass(frozen=True, slots=True)
class Users:
    """All users of a directory. Immutable. `secret` is the directory's: it makes up salts for names without a user."""

    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    credentials: Mapping[str, Credentials] = field(default_factory=lambda: MappingProxyType({}), repr=False)

    kinds: Kinds = field(default_factory=lambda: MappingProxyType({}), repr=False, compare=False)
    """Of all credentials that there ever were, by mechanism: made-up ones are of these. A kind that is gone with its
    user stays: otherwise who asks for a name before and after would learn that nobody has it."""

    def __post_init__(self) -> None:
        # Looked for once: to look at each login would take the longer the more users there are.
        found = {mechanism: dict.fromkeys(self.kinds.get(mechanism, ())) for mechanism in MECHANISMS}
        for kept in self.credentials.values():
            for mechanism, one in kept.items():
                found[mechanism][kind_of(one)] = None
        kinds = {mechanism: tuple(ones)[:_KINDS_MAX] for mechanism, ones in found.items()}
        object.__setattr__(self, "kinds", MappingProxyType(kinds))

    @property
    def names(self) -> list[str]:
        return sorted(self.credentials)

    def __contains__(self, name: object) -> bool:
        return name in self.credentials

    def of(self, name: str) -> Credentials:
        """What is kept of the user's password; nothing if there is no such user."""
        return self.credentials.get(name, {})

    def credential(self, mechanism: str, name: str) -> ScramCredential:
        """The user's credential, or one that no password fits, and that looks as some user's does."""
        # Made for everybody, used or not: so it takes as long for names that are known as for those that are not.
        made_up = self._made_up(mechanism, name)
        return self.of(name).get(mechanism, made_up)

    def _made_up(self, mechanism: str, name: str) -> ScramCredential:
        def weight(kind: SaltKind) -> bytes:
            return hmac.digest(self.secret, f"kind {kind.iterations} {kind.salt_bytes} {name}".encode(), "sha256")

        # The heaviest for this name: a kind that is new changes the names that it is for, and no others.
        kind = max(self.kinds[mechanism] or (OUR_KIND,), key=weight)
        return unknown_credential(mechanism, name, self.secret, kind)

    def knows(self, name: str, password: str) -> bool:
        """Whether that is the user's password. Takes the same time whatever the answer: some milliseconds."""
        kept = self.of(name)
        mechanism = _PLAIN_MECHANISM if _PLAIN_MECHANISM in kept or not kept else next(iter(kept))
        return fits(mechanism, self.credential(mechanism, name), password)

    def with_credentials(self, name: str, credentials: Credentials) -> Users:
        """A copy in which the user has these credentials; without any, there is no such user."""
        others = {other: kept for other, kept in self.credentials.items() if other != name}
        if credentials:
            others[check_user_name(name)] = MappingProxyType(dict(credentials))
        return Users(self.secret, MappingProxyType(others), self.kinds)


def credentials_for(password: str, iterations: int = ITERATIONS_MAX) -> Credentials:
    """Credentials of every mechanism, with new salts. Takes some milliseconds each."""
    check_password(password)
    made = {}
    for mechanism in MECHANISMS:
        salt = secrets.token_bytes(SALT_BYTES)
        salted = salted_password(mechanism, password, salt, iterations)
        made[mechanism] = credential_of(mechanism, salted, salt, iterations)
    return made


def check_password(password: str) -> str:
    """The password; InvalidArgument if nobody can have it."""
    if not password or len(password) > PASSWORD_CHARACTERS_MAX:
        raise InvalidArgument(
            f"a password of {len(password)} characters; it has 1 to {PASSWORD_CHARACTERS_MAX}, and better 16 or more"
        )
    return password


def check_user_name(name: str) -> str:
    """The name; InvalidArgument if no user can have it.

    >>> check_user_name("alice")
    'alice'
    """
    if not name or len(name) > USER_NAME_CHARACTERS_MAX or not name.isprintable() or name != name.strip():
        raise InvalidArgument(
            f"{brief_repr(name)} cannot be a user's name; it has 1 to {USER_NAME_CHARACTERS_MAX} printable characters,"
            " and no space at its ends"
        )
    return name
