"""AlterUserScramCredentials, version 0: credentials of users are made, replaced and deleted.

A request carries salted passwords; what is kept of them is less (`broker/access/scram.py`). Each user is answered once,
and altered by one part of a request at most. All users without an error are altered together, durable when answered.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.access.scram import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISM_NUMBERS, credential_of
from foldlog.broker.access.store import Access
from foldlog.broker.access.users import Users, check_user_name
from foldlog.errors import FoldlogError, InvalidArgument, RefusedByBroker
from foldlog.limits import SALT_BYTES_MAX
from foldlog.server.call import Call
from foldlog.server.topic_admin import refuse, refuse_if_leaving, told
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

_TWICE: Final = "A user credential cannot be altered twice in the same request"

Change = ScramCredentialDeletion | ScramCredentialUpsertion

Errors = dict[str, FoldlogError]
"""By user."""


async def handle(call: Call, request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
    changes: list[Change] = [*request.deletions, *request.upsertions]
    names: dict[str, None] = {}
    errors: Errors = {}
    refusal: FoldlogError | None = None

    def look(change: Change) -> None:
        if change.name in names:
            errors[change.name] = RefusedByBroker(ErrorCode.DUPLICATE_RESOURCE, _TWICE)
        names[change.name] = None

    await call.node.turns.each(look, changes)
    try:
        if not call.allows(AclOperation.ALTER, ResourceType.CLUSTER):
            refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "that needs ALTER on the cluster, which is not allowed")
        refuse_if_leaving(call.node)
        await call.node.run(_alter, call, changes, errors)
    except FoldlogError as error:
        refusal = error
    results = await call.node.turns.each(lambda name: _result(name, refusal or errors.get(name)), list(names))
    held: list[object] = list(errors.values())
    errors.clear()
    await call.node.turns.let_go(held)
    return AlterUserScramCredentialsResponse(results=results)


def _result(name: str, error: FoldlogError | None) -> AlterUserScramCredentialsResult:
    code, sentence = (ErrorCode.NONE, None) if error is None else told(error)
    return AlterUserScramCredentialsResult(user=name, error_code=code, error_message=sentence)


def _alter(call: Call, changes: list[Change], errors: Errors) -> None:
    """On a thread. Adds the users that cannot be altered to `errors`."""

    def decide(access: Access) -> Access:
        users = access.users
        for change in changes:
            if change.name not in errors:
                try:
                    users = _changed(users, change)
                except FoldlogError as error:
                    # A traceback would lead back to `errors`: only a full collection would free any of them.
                    errors[change.name] = error.with_traceback(None)
        return replace(access, users=users)

    call.node.broker.access.change(decide)


def _changed(users: Users, change: Change) -> Users:
    if not change.name:
        refuse(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = MECHANISM_NUMBERS.get(change.mechanism)
    if mechanism is None:
        refuse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    kept = dict(users.of(change.name))
    if isinstance(change, ScramCredentialDeletion):
        if mechanism not in kept:
            refuse(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        del kept[mechanism]
    else:
        _check(change)
        kept[mechanism] = credential_of(mechanism, change.salted_password, change.salt, change.iterations)
    return users.with_credentials(change.name, kept)


def _check(change: ScramCredentialUpsertion) -> None:
    if change.iterations < ITERATIONS_MIN:
        refuse(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > ITERATIONS_MAX:
        refuse(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not 1 <= len(change.salt) <= SALT_BYTES_MAX:
        refuse(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"a salt of {len(change.salt)} bytes; it has 1 to {SALT_BYTES_MAX}")
    try:
        check_user_name(change.name)
    except InvalidArgument as error:
        refuse(ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error))
