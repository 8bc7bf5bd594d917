"""How a command ends, for whoever called it."""

from __future__ import annotations

from typing import Final

DONE: Final = 0
FAILED: Final = 1
"""It could not be done, or something is damaged."""
USAGE: Final = 2
"""The command line is wrong."""
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141
"""Nobody reads the output any more."""
