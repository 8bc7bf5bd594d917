"""What was made before a fork is refused in the child: its files, locks and threads are the parent's.

The refusal must not take a lock (another thread of the parent may have held it at the fork), so every object that
writes is told once, in the child, and looks at a plain field from then on.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import MethodType
from typing import Any

from foldlog.files.base import in_forked_children

_watched: weakref.WeakKeyDictionary[object, Callable[[Any], None]] = weakref.WeakKeyDictionary()
"""Objects, and the function of each that tells it: a method would keep its object alive."""


def watch_forks(forked: Callable[[], None]) -> None:
    """Have this method called once in every child forked from here on, before anything else, for as long as its object
    lives. One method of an object."""
    if not isinstance(forked, MethodType):
        raise TypeError(f"{forked!r} is not a method")
    _watched[forked.__self__] = forked.__func__


def _tell_all() -> None:
    for thing, forked in list(_watched.items()):
        forked(thing)


in_forked_children(_tell_all)
