"""Errors as Spark's users see them: Spark prints the whole traceback of a Python worker before the sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from foldlog.errors import FoldlogError

Given = ParamSpec("Given")
Result = TypeVar("Result")


def plainly(call: Callable[Given, Result]) -> Callable[Given, Result]:
    """An error of ours leaves the call with one frame and no cause behind it: its sentence says all. Others do not."""

    @wraps(call)
    def called(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        try:
            return call(*args, **kwargs)
        except FoldlogError as error:
            raise error.with_traceback(None) from None

    return called


def plainly_iterated(call: Callable[Given, Iterator[Result]]) -> Callable[Given, Iterator[Result]]:
    """As `plainly`, for what an iterator raises on its way."""

    @wraps(call)
    def called(*args: Given.args, **kwargs: Given.kwargs) -> Iterator[Result]:
        try:
            yield from call(*args, **kwargs)
        except FoldlogError as error:
            raise error.with_traceback(None) from None

    return called
