"""What a process finds around it: its environment's choices, and the machine's cores. No imports from the package."""

from __future__ import annotations

import os
import warnings
from typing import Final

CORES: Final = os.cpu_count() or 1
"""Of the machine, whether or not the process may use all of them."""

PURE_PYTHON: Final = os.environ.get("FOLDLOG_PURE_PYTHON", "") not in ("", "0")
"""Use the Python twins of the compiled loops, even where those were built: for debugging, and to compare."""


def variable(name: str) -> str:
    """As it is now; empty where it is not set."""
    return os.environ.get(name, "")


def _max_decompressed_bytes() -> int:
    text = os.environ.get("FOLDLOG_MAX_DECOMPRESSED_BYTES", "") or "0"
    if text.isascii() and text.isdigit():
        return int(text)
    warnings.warn(
        f"FOLDLOG_MAX_DECOMPRESSED_BYTES={text[:40]!r} is not a number of bytes, and counts as not set",
        RuntimeWarning,
        stacklevel=2,
    )
    return 0


MAX_DECOMPRESSED_BYTES: Final = _max_decompressed_bytes()
"""What one batch may expand to where it is read, for who cannot change the topic's settings; 0: not set."""
