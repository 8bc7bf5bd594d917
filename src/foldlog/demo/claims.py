"""What the demo claims, and whether it holds: a line per claim, with the numbers it was counted with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from foldlog.errors import FoldlogError

HOLDS: Final = "✓"
FAILS: Final = "✗"


class DemoFailed(FoldlogError):
    """Something that the demo needs did not happen; one sentence says what."""


@dataclass(frozen=True, slots=True)
class ChecklistItem:
    """One line of the checklist; `holds` was counted, `numbers` says what."""

    text: str
    holds: bool
    numbers: str

    @property
    def mark(self) -> str:
        return HOLDS if self.holds else FAILS


class Checklist:
    """The claims in the order in which they were counted. One thread's."""

    def __init__(self) -> None:
        self.claims: list[ChecklistItem] = []
        self.trouble: str | None = None
        """What kept the demo from counting the rest."""

    def add(self, text: str, holds: bool, numbers: str) -> ChecklistItem:
        claim = ChecklistItem(text, holds, numbers)
        self.claims.append(claim)
        return claim

    @property
    def all_hold(self) -> bool:
        return self.trouble is None and bool(self.claims) and all(claim.holds for claim in self.claims)
