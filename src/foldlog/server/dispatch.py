"""From an API key and a version to the functions that decode, handle and answer it. Loaded at the first request."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple, cast

from foldlog.server.call import Handler
from foldlog.wire.codec import decoder
from foldlog.wire.frames import request_class
from foldlog.wire.messages import APIS, NAMES
from foldlog.wire.schema import Records, Request


class Route(NamedTuple):
    """What serves one version of one API."""

    decode: Callable[[Records, int, int], Request]
    handle: Handler


_ROUTES: dict[tuple[int, int], Route] = {}


def route(api_key: int, version: int) -> Route | None:
    """None if that is not served."""
    known = _ROUTES.get((api_key, version))
    if known is not None:
        return known
    api = APIS.get(api_key)
    if api is None or not api.first <= version <= api.last:
        return None  # not remembered: a client may make up as many as it likes
    module = import_module(f"foldlog.server.handlers.{api.module}")
    made = Route(cast(Any, decoder(request_class(api_key), version)), module.handle)
    _ROUTES[api_key, version] = made
    return made


def describe(api_key: int, version: int) -> str:
    """What a client asked for, for a line in the log."""
    name = NAMES.get(api_key)
    return f"API {api_key}" if name is None else f"{name} v{version}"
