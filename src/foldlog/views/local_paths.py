"""Where a view's files are: a relative path in a pipeline's file is relative to that file, not to where the command is
called; elsewhere, as in a user's own program, it is relative to the current directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from foldlog.files.paths import PathLike, absolute

_base: Final[ContextVar[str]] = ContextVar("_base", default="")


@contextmanager
def relative_to(directory: str) -> Iterator[None]:
    """Inside the block, relative paths of views begin there."""
    token = _base.set(directory)
    try:
        yield
    finally:
        _base.reset(token)


def local_path(path: str | PathLike[str]) -> str:
    """The absolute path for a path of a view.

    >>> with relative_to("/srv/pipeline"):
    ...     local_path("views/shop.db"), local_path("/tmp/shop.db")
    ('/srv/pipeline/views/shop.db', '/tmp/shop.db')
    """
    return absolute(path, _base.get())
