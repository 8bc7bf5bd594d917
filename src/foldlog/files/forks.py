"""What a forked child has to do before anything else: it has one thread, and the locks of all the others."""

from __future__ import annotations

import os
from collections.abc import Callable


def in_forked_children(start_over: Callable[[], None]) -> None:
    """Call `start_over` in every child that is forked from now on, for as long as the process lives."""
    os.register_at_fork(after_in_child=start_over)
