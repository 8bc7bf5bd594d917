"""Shortens errors for Spark's users: Spark prints the whole traceback of a Python worker before the message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from foldlog.errors import FoldlogError

Given = ParamSpec("Given")
Result = TypeVar("Result")


def without_traceback(call: Callable[Given, Result]) -> Callable[Given, Result]:
    """Raise foldlog's errors with a single frame and no cause: their message is complete. Others stay as they are."""

    @wraps(call)
    def called(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        try:
            return call(*args, **kwargs)
        except FoldlogError as error:
            raise error.with_traceback(None) from None

    return called


def iterated_without_traceback(call: Callable[Given, Iterator[Result]]) -> Callable[Given, Iterator[Result]]:
    """Like `without_traceback`, for errors raised while iterating."""

    @wraps(call)
    def called(*args: Given.args, **kwargs: Given.kwargs) -> Iterator[Result]:
        try:
            yield from call(*args, **kwargs)
        except FoldlogError as error:
            raise error.with_traceback(None) from None

    return called
