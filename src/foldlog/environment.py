"""What the process's environment may choose, read once at import. No imports from the package."""

from __future__ import annotations

import os
from typing import Final

PURE_PYTHON: Final = os.environ.get("FOLDLOG_PURE_PYTHON", "") not in ("", "0")
"""Use the Python twins of the compiled loops, even where those were built: for debugging, and to compare."""
