"""DescribeUserScramCredentials, version 0: which users there are, with which mechanisms and how many iterations.

Without names, or with none: all users. What is kept of passwords is never answered.
"""

from __future__ import annotations

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.access.scram import MECHANISM_NUMBERS
from foldlog.broker.access.users import Users
from foldlog.server.call import Call
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def handle(call: Call, request: DescribeUserScramCredentialsRequest) -> DescribeUserScramCredentialsResponse:
    asked = [user.name for user in request.users or ()]
    if not call.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        sentence = "that needs DESCRIBE on the cluster, which is not allowed"
        results = [DescribeUserScramCredentialsResult(error_code=code, error_message=sentence) for _ in asked]
        return DescribeUserScramCredentialsResponse(error_code=code, error_message=sentence, results=results)
    users = call.node.broker.access.current.users
    twice = call.repeated(asked)
    names = dict.fromkeys(asked or users.names)
    return DescribeUserScramCredentialsResponse(
        error_message=None, results=[_result(users, name, is_repeated=name in twice) for name in names]
    )


def _result(users: Users, name: str, *, is_repeated: bool) -> DescribeUserScramCredentialsResult:
    if is_repeated:
        sentence = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return DescribeUserScramCredentialsResult(
            user=name, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=sentence
        )
    kept = users.of(name)
    if not kept:
        sentence = f"Attempt to describe a user credential that does not exist: {name}"
        return DescribeUserScramCredentialsResult(
            user=name, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=sentence
        )
    infos = [
        CredentialInfo(mechanism=number, iterations=kept[mechanism].iterations)
        for number, mechanism in MECHANISM_NUMBERS.items()
        if mechanism in kept
    ]
    return DescribeUserScramCredentialsResult(user=name, error_message=None, credential_infos=infos)
