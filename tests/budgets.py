"""How much damage is tried: in `make test` a share of it, in `make test-faults` all.

Planted bugs are found with the share alone, so that it is known to be enough for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import pytest

SHORT: Final = 48
WHOLE: Final = 1

BUDGETS: Final = [pytest.param(SHORT, id="short"), pytest.param(WHOLE, id="whole", marks=pytest.mark.faults)]
"""For a parameter that is passed on as PowerCuts(every=...)."""


def times(short: int, whole: int) -> list[object]:
    """For a parameter that says how often something is done."""
    return [pytest.param(short, id="short"), pytest.param(whole, id="whole", marks=pytest.mark.faults)]


def with_and_without_journal(short: int, whole: int) -> list[object]:
    """As `times`, and whether there is a journal; the short one is with it, as logs are."""
    return [
        pytest.param(short, True, id="short"),
        pytest.param(whole, True, id="whole", marks=pytest.mark.faults),
        pytest.param(whole, False, id="whole-without-journal", marks=pytest.mark.faults),
    ]


def budgets_of(names: Iterable[str], *, long: Collection[str]) -> list[object]:
    """Each name with each budget; those that are long only whole."""
    return [
        pytest.param(name, *budget.values, id=f"{name}-{budget.id}", marks=budget.marks)
        for name in names
        for budget in (BUDGETS[1:] if name in long else BUDGETS)
    ]
