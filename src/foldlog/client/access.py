"""Users, ACLs and quotas of a log: looked at and changed where it is, in the directory or by asking a broker.

What is done to the directory's own store and what a broker is asked for are the same change, said twice: a directory
that nobody serves is changed here, all others by who serves them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from foldlog.broker.access.acls import Acl, AclFilter, check_acl
from foldlog.broker.access.quotas import Entity, check_quota
from foldlog.broker.access.scram import (
    ITERATIONS_MAX,
    MECHANISMS,
    SALT_BYTES,
    ScramCredential,
    credential_of,
    salted_password,
)
from foldlog.broker.access.store import Access, stored_access
from foldlog.broker.access.users import check_password, check_user_name
from foldlog.broker.broker import Broker
from foldlog.client.descriptions import UserDescription
from foldlog.client.wire import access as questions
from foldlog.client.wire.questions import Answer, Done, Question
from foldlog.errors import UnknownUser
from foldlog.files.base import Files

if TYPE_CHECKING:
    from foldlog.client.backends.served.transactions import CarriesOut


class AccessHome(Protocol):
    """Where the users, ACLs and quotas are."""

    def look(self, question: Question[Answer, Done], read: Callable[[Access], Done]) -> Done: ...

    def change(self, question: Question[Answer, None], decide: Callable[[Access], Access]) -> None: ...


class HereAccess:
    """A directory of this process."""

    def __init__(self, broker: Broker, files: Files) -> None:
        self._broker = broker
        self._files = files

    def look(self, question: Question[Answer, Done], read: Callable[[Access], Done]) -> Done:
        if self._broker.read_only:
            return read(stored_access(self._files, self._broker.path))
        return read(self._broker.access.current)

    def change(self, question: Question[Answer, None], decide: Callable[[Access], Access]) -> None:
        self._broker.access.change(decide)


class AskedAccess:
    """A broker's, or a directory that another process writes."""

    def __init__(self, carry_out: CarriesOut) -> None:
        self._carry_out = carry_out

    def look(self, question: Question[Answer, Done], read: Callable[[Access], Done]) -> Done:
        return self._carry_out(question, lambda broker: read(broker.access.current))

    def change(self, question: Question[Answer, None], decide: Callable[[Access], Access]) -> None:
        def by_hand(broker: Broker) -> None:
            broker.access.change(decide)

        self._carry_out(question, by_hand)


class AccessAdmin:
    """What an administrator does with them. Each change is durable, and in force, on return. Any thread."""

    def __init__(self, home: AccessHome) -> None:
        self._home = home

    # --- users ----------------------------------------------------------------------------------------------------

    def users(self) -> list[UserDescription]:
        def read(access: Access) -> list[UserDescription]:
            return [
                UserDescription(name, {mechanism: kept.iterations for mechanism, kept in access.users.of(name).items()})
                for name in access.users.names
            ]

        return self._home.look(questions.users(), read)

    def set_password(self, name: str, password: str) -> None:
        """Make the user, or replace their password, for both mechanisms. The password itself goes nowhere."""
        check_user_name(name)
        check_password(password)
        for mechanism in MECHANISMS:
            salt = secrets.token_bytes(SALT_BYTES)
            salted = salted_password(mechanism, password, salt, ITERATIONS_MAX)
            question = questions.set_credential(name, mechanism, salted, salt, ITERATIONS_MAX)
            self._set(name, mechanism, question, credential_of(mechanism, salted, salt, ITERATIONS_MAX))

    def delete_user(self, name: str) -> None:
        """UnknownUser if there is none."""
        found = next((user for user in self.users() if user.name == name), None)
        if found is None:
            raise UnknownUser(f"there is no user {name!r}; to see all: foldlog user list")
        for mechanism in found.iterations:
            self._set(name, mechanism, questions.delete_credential(name, mechanism), None)

    def _set(
        self, name: str, mechanism: str, question: Question[Answer, None], credential: ScramCredential | None
    ) -> None:
        def decide(access: Access) -> Access:
            kept = {each: one for each, one in access.users.of(name).items() if each != mechanism}
            if credential is not None:
                kept[mechanism] = credential
            return replace(access, users=access.users.with_credentials(name, kept))

        self._home.change(question, decide)

    # --- ACLs -----------------------------------------------------------------------------------------------------

    def acls(self, wanted: AclFilter) -> list[Acl]:
        return self._home.look(questions.acls(wanted), lambda access: access.acls.found(wanted))

    def create_acls(self, wanted: Sequence[Acl]) -> None:
        """InvalidArgument, with nothing changed, if one of them is none."""
        checked = [check_acl(acl) for acl in wanted]

        def decide(access: Access) -> Access:
            return replace(access, acls=access.acls.with_more(checked))

        self._home.change(questions.create_acls(checked), decide)

    def delete_acls(self, wanted: AclFilter) -> None:
        """All that the filter means."""

        def decide(access: Access) -> Access:
            return replace(access, acls=access.acls.without(access.acls.found(wanted)))

        self._home.change(questions.delete_acls(wanted), decide)

    # --- quotas ---------------------------------------------------------------------------------------------------

    def quotas(self) -> Mapping[Entity, Mapping[str, float]]:
        def read(access: Access) -> dict[Entity, dict[str, float]]:
            return {one: dict(access.quotas.of(one)) for one in access.quotas}

        return self._home.look(questions.quotas(), read)

    def set_quotas(self, one: Entity, values: Mapping[str, float | None]) -> None:
        """None removes a value."""
        for key, value in values.items():
            if value is not None:
                check_quota(one, key, value)

        def decide(access: Access) -> Access:
            return replace(access, quotas=access.quotas.changed(one, values))

        self._home.change(questions.set_quotas(one, values), decide)
