"""Checked parameters of a request: numbers of the path and the query, and the members of a JSON body. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final

from foldlog.errors import brief_repr
from foldlog.records.batch import MAX_INT64
from foldlog.server.console.api_errors import ApiError
from foldlog.server.http.routes import HttpRequest

_INTEGER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_REQUIRED: Final = object()

Bytes = bytes | None


def bad_request(sentence: str) -> ApiError:
    return ApiError(HTTPStatus.BAD_REQUEST, sentence)


def parse_integer(text: str, name: str, lowest: int, highest: int = MAX_INT64) -> int:
    """
    >>> parse_integer("17", "offset", 0)
    17
    """
    if _INTEGER.fullmatch(text) is not None and lowest <= int(text) <= highest:
        return int(text)
    raise bad_request(f"{name}={brief_repr(text)} is not allowed; it is {_range_text(lowest, highest)}")


def query_integer(request: HttpRequest, name: str, default: int | None, lowest: int, highest: int = MAX_INT64) -> int:
    """A number of the query; required if there is no default."""
    text = request.query.get(name)
    if text is not None:
        return parse_integer(text, name, lowest, highest)
    if default is None:
        raise bad_request(f"the parameter {name} is missing; it is {_range_text(lowest, highest)}")
    return default


def path_partition(request: HttpRequest) -> tuple[str, int]:
    """Topic and partition of a path that names both."""
    number = request.named["partition"]
    if not number.isascii() or not number.isdigit() or len(number) > 10:
        raise ApiError(HTTPStatus.NOT_FOUND, f"{brief_repr(number)} is no partition; partitions are numbered from 0 on")
    return request.named["topic"], int(number)


class JsonBody:
    """The JSON object of a request. Every member has to be read: `end` refuses unknown ones."""

    def __init__(self, request: HttpRequest) -> None:
        try:
            # NaN and Infinity are not JSON, though Python reads them.
            found = json.loads(request.body, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            raise bad_request("the body is not JSON; send an object") from None
        if not isinstance(found, dict):
            raise bad_request(f"the body is a JSON object, not {brief_repr(found)}")
        self._found: dict[str, Any] = found
        self._known: list[str] = []

    def integer(self, name: str, lowest: int, *, default: object = _REQUIRED) -> Any:
        """A number; null or missing is the default, if there is one."""
        value = self._take(name)
        if value is None and default is not _REQUIRED:
            return default
        if type(value) is not int or not lowest <= value <= MAX_INT64:
            raise bad_request(f"{name}={_shown(value)} is not allowed; it is {_range_text(lowest, MAX_INT64)}")
        return value

    def boolean(self, name: str, default: bool) -> bool:
        value = self._take(name)
        if value is None:
            return default
        if type(value) is not bool:
            raise bad_request(f"{name}={_shown(value)} is not allowed; it is true or false")
        return value

    def text(self, name: str, *, default: str | None = None) -> str:
        """A text; null or missing is the default, if there is one."""
        value = self._take(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise bad_request(f"{name}={_shown(value)} is not allowed; it is a text")
        return value

    def texts(self, name: str) -> list[str] | None:
        """A list of texts; None if it is null or missing."""
        value = self._take(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise bad_request(f"{name}={_shown(value)} is not allowed; it is a list of texts")
        return list(value)

    def settings(self, name: str) -> dict[str, str | None]:
        """An object of texts; null resets a setting. Missing is none."""
        value = self._take(name)
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(one, str | None) for one in value.values()):
            raise bad_request(f'{name}={_shown(value)} is not allowed; it is an object of texts, as {{"a": "1"}}')
        return dict(value)

    def data(self, name: str) -> Bytes:
        """Bytes: see `bytes_of`; missing is null."""
        return bytes_of(self._take(name), name)

    def headers(self, name: str) -> list[tuple[str, Bytes]]:
        """A list of [name, value], or an object."""
        value = self._take(name)
        pairs: Iterable[Any] = value.items() if isinstance(value, Mapping) else value or []
        if not isinstance(value, list | dict | None):
            raise bad_request(f"{name}={_shown(value)} is not allowed; it is a list of [name, value]")
        found: list[tuple[str, Bytes]] = []
        for pair in pairs:
            if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
                raise bad_request(f"{_shown(pair)} in {name} is not allowed; a header is [name, value]")
            _encoded(pair[0], name)
            found.append((pair[0], bytes_of(pair[1], f"the header {brief_repr(pair[0])}")))
        return found

    def end(self) -> None:
        """Raises 400 if a member was not read: a misspelt one would otherwise be ignored silently."""
        for name in self._found:
            if name not in self._known:
                raise bad_request(f"the body has {brief_repr(name)}; it takes {', '.join(self._known)}")

    def _take(self, name: str) -> Any:
        self._known.append(name)
        return self._found.get(name)


def bytes_of(value: Any, name: str) -> Bytes:
    """A text as UTF-8, or {"text": …} or {"base64": …}, as records are shown; null for null.

    >>> bytes_of({"base64": "AAE="}, "key")
    b'\\x00\\x01'
    """
    if value is None:
        return None
    if isinstance(value, str):
        return _encoded(value, name)
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        return _encoded(value["text"], name)
    if isinstance(value, dict) and isinstance(value.get("base64"), str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, ValueError):
            raise bad_request(f"{name} is not base64") from None
    raise bad_request(f'{name}={_shown(value)} is not allowed; it is a text, null or {{"base64": "…"}}')


def _encoded(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise bad_request(f"{name} holds half a character, which is not UTF-8; send it as base64") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _range_text(lowest: int, highest: int) -> str:
    return f"an integer from {lowest} on" if highest == MAX_INT64 else f"an integer from {lowest} to {highest}"


def _shown(value: Any) -> str:
    return "null" if value is None else brief_repr(value)
