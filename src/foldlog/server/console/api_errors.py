"""Refusals of the console's API: a status and one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from foldlog.errors import (
    CallerError,
    FoldlogError,
    GroupError,
    GroupNotEmpty,
    InvalidTransactionState,
    OffsetOutOfRange,
    RefusedByBroker,
    TopicExists,
    UnknownGroup,
    UnknownPartition,
    UnknownTopic,
    UnknownTransactionalId,
    UnknownUser,
)
from foldlog.server.http.routes import HttpResponse
from foldlog.wire.error_codes import ErrorCode

_STATUSES: Final[tuple[tuple[type[FoldlogError], HTTPStatus], ...]] = (
    (UnknownTopic, HTTPStatus.NOT_FOUND),
    (UnknownPartition, HTTPStatus.NOT_FOUND),
    (UnknownGroup, HTTPStatus.NOT_FOUND),
    (UnknownUser, HTTPStatus.NOT_FOUND),
    (UnknownTransactionalId, HTTPStatus.NOT_FOUND),
    (OffsetOutOfRange, HTTPStatus.NOT_FOUND),
    (GroupNotEmpty, HTTPStatus.CONFLICT),
    (GroupError, HTTPStatus.CONFLICT),
    (TopicExists, HTTPStatus.CONFLICT),
    (InvalidTransactionState, HTTPStatus.CONFLICT),
    (RefusedByBroker, HTTPStatus.BAD_REQUEST),
    (CallerError, HTTPStatus.BAD_REQUEST),
)
"""The first type that matches counts; other errors are the log's, and may be temporary."""


class ApiError(Exception):
    """A handler refuses a request. `more` are members of the answer beside `error`."""

    def __init__(self, status: HTTPStatus, sentence: str, more: Mapping[str, object] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.more = more or {}

    def response(self) -> HttpResponse:
        return error_response(self.status, str(self), self.more)


def status_of(error: FoldlogError) -> HTTPStatus:
    """
    >>> status_of(UnknownTopic("orders")).value
    404
    """
    if isinstance(error, RefusedByBroker) and error.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
        return HTTPStatus.TOO_MANY_REQUESTS
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            return status
    return HTTPStatus.SERVICE_UNAVAILABLE


def error_response(status: int, sentence: str, more: Mapping[str, object] | None = None) -> HttpResponse:
    """
    >>> error_response(404, "there is no such page").body
    b'{"error": "there is no such page"}'
    """
    return HttpResponse.json({"error": sentence, **(more or {})}, status)
