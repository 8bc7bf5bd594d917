"""Refuses objects made before a fork in the child: their files, locks and threads belong to the parent.

The check must not take a lock (another thread of the parent may have held it at the fork), so every writing object is
notified once, in the child, and from then on checks a plain attribute.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import MethodType
from typing import Any

from foldlog.files.base import in_forked_children

_watched: weakref.WeakKeyDictionary[object, Callable[[Any], None]] = weakref.WeakKeyDictionary()
"""Objects, and the function that notifies each: a method would keep its object alive."""


def watch_forks(forked: Callable[[], None]) -> None:
    """Call this method once in every child forked from now on, before anything else, as long as its object lives. One
    method per object."""
    if not isinstance(forked, MethodType):
        raise TypeError(f"{forked!r} is not a method")
    _watched[forked.__self__] = forked.__func__


def _tell_all() -> None:
    for thing, forked in list(_watched.items()):
        forked(thing)


in_forked_children(_tell_all)
