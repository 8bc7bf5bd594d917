"""AlterUserScramCredentials, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class ScramCredentialDeletion(Message):
    name: str = field("string", 0, 0, default="")
    mechanism: int = field("int8", 0, 0, default=0)


class ScramCredentialUpsertion(Message):
    name: str = field("string", 0, 0, default="")
    mechanism: int = field("int8", 0, 0, default=0)
    iterations: int = field("int32", 0, 0, default=0)
    salt: bytes = field("bytes", 0, 0, default=b"")
    salted_password: bytes = field("bytes", 0, 0, default=b"")


class AlterUserScramCredentialsRequest(Request, api_key=51, versions=(0, 0), flexible_from=0):
    deletions: Sequence[ScramCredentialDeletion] = field(ScramCredentialDeletion, 0, 0, is_array=True, default=())
    upsertions: Sequence[ScramCredentialUpsertion] = field(ScramCredentialUpsertion, 0, 0, is_array=True, default=())


class AlterUserScramCredentialsResult(Message):
    user: str = field("string", 0, 0, default="")
    error_code: int = field("int16", 0, 0, default=0)
    error_message: str | None = field("string", 0, 0, nullable_from=0, default="")


class AlterUserScramCredentialsResponse(Response, api_key=51, versions=(0, 0), flexible_from=0):
    throttle_time_ms: int = field("int32", 0, 0, default=0)
    results: Sequence[AlterUserScramCredentialsResult] = field(
        AlterUserScramCredentialsResult, 0, 0, is_array=True, default=()
    )


REQUEST = AlterUserScramCredentialsRequest
RESPONSE = AlterUserScramCredentialsResponse
