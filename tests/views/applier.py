"""A process that applies ranges to a view for ever and says after each how far it is: tests kill it at any moment.

Run as `applier.py ENGINE PLACE SEED`. It goes on from the view's own bookmark.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

from foldlog.views.contract import View
from foldlog.views.counters.counters import counters
from foldlog.views.search.search import search
from views.counters.counters_model import MEASURES, CountersCase
from views.view_contract import START, ViewCase, at, some_events

EVENTS = some_events(20_000, seed=9, keys=300)

CASES: dict[str, Callable[[Path], ViewCase]] = {
    "tantivy": lambda path: ViewCase(lambda: search(path / "search", "merchant", engine="tantivy")),
    "fts5": lambda path: ViewCase(lambda: search(path / "search.db", "merchant", engine="fts5")),
    "sqlite": lambda path: CountersCase(lambda: counters(path / "live.db", by="merchant", measures=MEASURES)),
    "duckdb": lambda path: CountersCase(lambda: counters(path / "live.duckdb", by="merchant", measures=MEASURES)),
}


def offset_of(view: View) -> int:
    """How far the view is, by its own word; 0 where there is none yet."""
    bookmark = view.bookmark()
    return 0 if bookmark is None else bookmark.positions[0].offset


def main(engine: str, place: str, seed: str) -> None:
    """Apply to the end of the events, in ranges of any size."""
    case, sizes = CASES[engine](Path(place)), random.Random(int(seed))
    view = case.open()
    view.prepare(case.shape, START)
    here = offset_of(view)
    while here < len(EVENTS):
        stop = min(here + sizes.randrange(60), len(EVENTS))
        view.apply(case.delta(EVENTS, here, stop), at(here), at(stop))
        here = stop
        print(here, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
