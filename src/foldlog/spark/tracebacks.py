"""Errors as Spark's users see them: Spark prints the whole traceback of a Python worker before the sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from foldlog.errors import FoldlogError

Given = ParamSpec("Given")
Result = TypeVar("Result")


def without_traceback(call: Callable[Given, Result]) -> Callable[Given, Result]:
    """An error of ours leaves the call with one frame and no cause behind it: its sentence says all. Others do not."""

    @wraps(call)
    def called(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        try:
            return call(*args, **kwargs)
        except FoldlogError as error:
            raise error.with_traceback(None) from None

    return called


def iterated_without_traceback(call: Callable[Given, Iterator[Result]]) -> Callable[Given, Iterator[Result]]:
    """As `without_traceback`, for what an iterator raises on its way."""

    @wraps(call)
    def called(*args: Given.args, **kwargs: Given.kwargs) -> Iterator[Result]:
        try:
            yield from call(*args, **kwargs)
        except FoldlogError as error:
            raise error.with_traceback(None) from None

    return called
