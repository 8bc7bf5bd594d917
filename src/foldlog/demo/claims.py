"""The checklist of the demo: a line per claim, with the numbers it was counted with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from foldlog.errors import FoldlogError

HOLDS: Final = "✓"
FAILS: Final = "✗"


class DemoFailed(FoldlogError):
    """Something that the demo needs did not happen; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class ChecklistItem:
    """One line of the checklist; `holds` was counted, `numbers` are the counts."""

    text: str
    holds: bool
    numbers: str

    @property
    def mark(self) -> str:
        return HOLDS if self.holds else FAILS


class Checklist:
    """The claims in the order in which they were counted. For one thread."""

    def __init__(self) -> None:
        self.claims: list[ChecklistItem] = []
        self.trouble: str | None = None
        """Why the demo could not count the rest."""

    def add(self, text: str, holds: bool, numbers: str) -> ChecklistItem:
        claim = ChecklistItem(text, holds, numbers)
        self.claims.append(claim)
        return claim

    @property
    def all_hold(self) -> bool:
        return self.trouble is None and bool(self.claims) and all(claim.holds for claim in self.claims)
