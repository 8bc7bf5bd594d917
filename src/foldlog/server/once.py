"""Something to do in the event loop's next turn, once for all who ask for it in this one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class OnceATurn:
    """The event loop's. Calling it has the acts called soon, one after the other."""

    __slots__ = ("_acts", "_is_due", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, *acts: Callable[[], None]) -> None:
        self._loop = loop
        self._acts = acts
        self._is_due = False

    def __call__(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._is_due = False
        for act in self._acts:
            act()
