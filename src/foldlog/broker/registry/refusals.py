"""Why the registry refuses a request: Confluent's error codes and its sentences, which clients compare and show.

The first three digits of a code are the HTTP status, unless a row says otherwise.
"""

from __future__ import annotations

from typing import Final

SUBJECT_NOT_FOUND: Final = 40401
VERSION_NOT_FOUND: Final = 40402
SCHEMA_NOT_FOUND: Final = 40403
SUBJECT_SOFT_DELETED: Final = 40404
SUBJECT_NOT_SOFT_DELETED: Final = 40405
VERSION_SOFT_DELETED: Final = 40406
VERSION_NOT_SOFT_DELETED: Final = 40407
NO_SUBJECT_CONFIG: Final = 40408
NO_SUBJECT_MODE: Final = 40409
INCOMPATIBLE: Final = 409
INVALID_SCHEMA: Final = 42201
INVALID_VERSION: Final = 42202
INVALID_COMPATIBILITY: Final = 42203
INVALID_MODE: Final = 42204
NOT_PERMITTED: Final = 42205
REFERENCED: Final = 42206
ID_TAKEN: Final = 42207
INVALID_SUBJECT: Final = 42208
STORE_FAILED: Final = 50001


class RegistryRefusal(Exception):
    """A request that is refused, with the code that clients look at."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code

    @property
    def status(self) -> int:
        """
        >>> RegistryRefusal(SUBJECT_NOT_FOUND, "").status, RegistryRefusal(INCOMPATIBLE, "").status
        (404, 409)
        """
        return self.code if self.code < 1000 else self.code // 100


def subject_not_found(subject: str) -> RegistryRefusal:
    return RegistryRefusal(SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")


def version_not_found(version: int | str) -> RegistryRefusal:
    return RegistryRefusal(VERSION_NOT_FOUND, f"Version {version} not found.")


def schema_not_found(schema_id: int | None = None) -> RegistryRefusal:
    return RegistryRefusal(
        SCHEMA_NOT_FOUND, "Schema not found" if schema_id is None else f"Schema {schema_id} not found"
    )


def invalid_version(text: object) -> RegistryRefusal:
    return RegistryRefusal(
        INVALID_VERSION,
        f"The specified version '{text}' is not a valid version id. Allowed values are between [1, 2^31-1] and the"
        ' string "latest"',
    )


def invalid_schema(why: object) -> RegistryRefusal:
    return RegistryRefusal(INVALID_SCHEMA, f"Invalid schema: {why}")
