"""DescribeUserScramCredentials, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class UserName(Message):
    name: str = field("string", 0, 0, default="")


class DescribeUserScramCredentialsRequest(Request, api_key=50, versions=(0, 0), flexible_from=0):
    users: Sequence[UserName] | None = field(UserName, 0, 0, is_array=True, nullable_from=0, default=())


class CredentialInfo(Message):
    mechanism: int = field("int8", 0, 0, default=0)
    iterations: int = field("int32", 0, 0, default=0)


class DescribeUserScramCredentialsResult(Message):
    user: str = field("string", 0, 0, default="")
    error_code: int = field("int16", 0, 0, default=0)
    error_message: str | None = field("string", 0, 0, nullable_from=0, default="")
    credential_infos: Sequence[CredentialInfo] = field(CredentialInfo, 0, 0, is_array=True, default=())


class DescribeUserScramCredentialsResponse(Response, api_key=50, versions=(0, 0), flexible_from=0):
    throttle_time_ms: int = field("int32", 0, 0, default=0)
    error_code: int = field("int16", 0, 0, default=0)
    error_message: str | None = field("string", 0, 0, nullable_from=0, default="")
    results: Sequence[DescribeUserScramCredentialsResult] = field(
        DescribeUserScramCredentialsResult, 0, 0, is_array=True, default=()
    )


REQUEST = DescribeUserScramCredentialsRequest
RESPONSE = DescribeUserScramCredentialsResponse
