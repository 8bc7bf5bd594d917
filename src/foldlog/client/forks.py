"""What was made before a fork is refused in the child: its files, locks and threads are the parent's.

The refusal must not take a lock (another thread of the parent may have held it at the fork), so every object that
writes is told once, in the child, and looks at a plain field from then on.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    """Something that a forked child must not use."""

    def forked(self) -> None:
        """Runs once, in the child, before anything else does."""
        ...


_watched: weakref.WeakSet[Forkable] = weakref.WeakSet()


def watch_forks(thing: Forkable) -> None:
    """Have `thing.forked()` called in every child forked from here on, for as long as it lives."""
    _watched.add(thing)


def _tell_all() -> None:
    for thing in list(_watched):
        thing.forked()


os.register_at_fork(after_in_child=_tell_all)
