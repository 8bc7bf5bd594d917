"""What is asked of a broker about users, ACLs and quotas, and what its answers mean. Pure: see `questions`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from foldlog.broker.access.acls import Acl, AclFilter, AclOperation, PatternType, Permission, ResourceType
from foldlog.broker.access.quotas import Entity
from foldlog.broker.access.scram import MECHANISM_NUMBERS
from foldlog.client.descriptions import UserDescription
from foldlog.client.wire.questions import Question, Whom
from foldlog.client.wire.refusals import check_code
from foldlog.errors import RefusedByBroker, UnknownUser
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from foldlog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from foldlog.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from foldlog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from foldlog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from foldlog.wire.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from foldlog.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

_NUMBERS: Final = {mechanism: number for number, mechanism in MECHANISM_NUMBERS.items()}

NO_AUTHORIZER: Final = (
    "the broker has no authorizer, so it has no ACLs and everybody may do everything; start it with"
    " authorizer.class.name=foldlog (Apache Kafka with its StandardAuthorizer)"
)


# --- users ----------------------------------------------------------------------------------------------------------


def users() -> Question[DescribeUserScramCredentialsResponse, list[UserDescription]]:
    """All of them, in order."""

    def read(answer: DescribeUserScramCredentialsResponse) -> list[UserDescription]:
        check_code(answer.error_code, answer.error_message)
        return [
            UserDescription(
                one.user,
                {
                    MECHANISM_NUMBERS[info.mechanism]: info.iterations
                    for info in one.credential_infos
                    if info.mechanism in MECHANISM_NUMBERS
                },
            )
            for one in sorted(answer.results, key=lambda one: one.user)
        ]

    return Question(
        DescribeUserScramCredentialsRequest(users=None), DescribeUserScramCredentialsResponse, read, Whom.ANYBODY
    )


def set_credential(
    name: str, mechanism: str, salted: bytes, salt: bytes, iterations: int
) -> Question[AlterUserScramCredentialsResponse, None]:
    """One mechanism a question: a broker alters a user once in a request."""
    upsertion = ScramCredentialUpsertion(
        name=name, mechanism=_NUMBERS[mechanism], iterations=iterations, salt=salt, salted_password=salted
    )
    return _altering(name, AlterUserScramCredentialsRequest(upsertions=[upsertion]))


def delete_credential(name: str, mechanism: str) -> Question[AlterUserScramCredentialsResponse, None]:
    """UnknownUser if there is none."""
    deletion = ScramCredentialDeletion(name=name, mechanism=_NUMBERS[mechanism])
    return _altering(name, AlterUserScramCredentialsRequest(deletions=[deletion]))


def _altering(
    name: str, request: AlterUserScramCredentialsRequest
) -> Question[AlterUserScramCredentialsResponse, None]:
    def read(answer: AlterUserScramCredentialsResponse) -> None:
        for result in answer.results:
            if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
                raise UnknownUser(f"there is no user {name!r} with that mechanism")
            check_code(result.error_code, result.error_message)

    return Question(request, AlterUserScramCredentialsResponse, read, Whom.CONTROLLER, UnknownUser)


# --- ACLs -----------------------------------------------------------------------------------------------------------


def acls(wanted: AclFilter) -> Question[DescribeAclsResponse, list[Acl]]:
    """Those that the filter means, in order."""

    def read(answer: DescribeAclsResponse) -> list[Acl]:
        _check(answer.error_code, answer.error_message)
        return sorted(
            Acl(
                ResourceType(resource.resource_type),
                resource.resource_name,
                PatternType(resource.pattern_type),
                acl.principal,
                acl.host,
                AclOperation(acl.operation),
                Permission(acl.permission_type),
            )
            for resource in answer.resources
            for acl in resource.acls
        )

    request = DescribeAclsRequest(**_fields(wanted))
    return Question(request, DescribeAclsResponse, read)


def create_acls(wanted: Sequence[Acl]) -> Question[CreateAclsResponse, None]:
    def read(answer: CreateAclsResponse) -> None:
        for result in answer.results:
            _check(result.error_code, result.error_message)

    creations = [
        AclCreation(
            resource_type=acl.kind,
            resource_name=acl.name,
            resource_pattern_type=acl.pattern,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )
        for acl in wanted
    ]
    return Question(CreateAclsRequest(creations=creations), CreateAclsResponse, read, Whom.CONTROLLER)


def delete_acls(wanted: AclFilter) -> Question[DeleteAclsResponse, None]:
    def read(answer: DeleteAclsResponse) -> None:
        for result in answer.filter_results:
            _check(result.error_code, result.error_message)
            for acl in result.matching_acls:
                _check(acl.error_code, acl.error_message)

    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**_fields(wanted))])
    return Question(request, DeleteAclsResponse, read, Whom.CONTROLLER)


def _fields(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.kind,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _check(code: int, message: str | None) -> None:
    if code == ErrorCode.SECURITY_DISABLED:
        raise RefusedByBroker(code, NO_AUTHORIZER)
    check_code(code, message)


# --- quotas ---------------------------------------------------------------------------------------------------------


def quotas() -> Question[DescribeClientQuotasResponse, dict[Entity, dict[str, float]]]:
    def read(answer: DescribeClientQuotasResponse) -> dict[Entity, dict[str, float]]:
        check_code(answer.error_code, answer.error_message)
        return {
            tuple(sorted((part.entity_type, part.entity_name) for part in one.entity)): {
                value.key: value.value for value in one.values
            }
            for one in answer.entries or ()
        }

    return Question(DescribeClientQuotasRequest(), DescribeClientQuotasResponse, read)


def set_quotas(one: Entity, values: Mapping[str, float | None]) -> Question[AlterClientQuotasResponse, None]:
    """None removes a value."""

    def read(answer: AlterClientQuotasResponse) -> None:
        for result in answer.entries:
            check_code(result.error_code, result.error_message)

    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in one],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )
    return Question(AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse, read, Whom.CONTROLLER)
