"""Versions of APIs that no conversation can have in both ways, with the reason."""

from __future__ import annotations

from typing import Final

NEVER_TAKEN: Final[dict[str, str]] = {}
"""Every request is refused."""

NEVER_REFUSED: Final[dict[str, str]] = {}
"""No request that can be read is refused: only one that is cut off, in `requests_that_are_cut_off`."""
