"""Everything that the story uses: processes, readers, the screen, the checklist; and the positions of the folds, from
the views themselves and from the published statuses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Final

import foldlog
from foldlog.demo.board import Observer
from foldlog.demo.claims import Checklist
from foldlog.demo.payments import TOPIC
from foldlog.demo.pipeline import FOLDS, HISTORY, MIRROR, PER_MINUTE, SEARCH, Bulletins, DemoPipeline, wait_for
from foldlog.demo.prices import Prices
from foldlog.demo.readers import Reader
from foldlog.demo.screen import Screen
from foldlog.demo.servers import DemoBroker
from foldlog.demo.stock_clients import client_name
from foldlog.demo.writer import Writer
from foldlog.errors import FoldlogError
from foldlog.views.bookmark import Bookmark

QUICK: Final = "fraud"
SLOW: Final = "emails"
STOCK: Final = "stock"
SLOW_PART: Final = 10
"""The slow group reads this many times fewer records a second than are written."""
STEP_TIMEOUT_S: Final = 600.0
"""For one step of the story. Only a very busy machine takes so long."""
_REDRAW_S: Final = 0.25


@dataclass
class DemoStage:
    """Owned by the thread that runs the story."""

    screen: Screen
    checklist: Checklist
    broker: DemoBroker
    writer: Writer
    readers: dict[str, Reader]
    observer: Observer
    prices: Prices
    pipeline: DemoPipeline
    log: foldlog.Log
    """For reading; the story's own."""
    bulletins: Bulletins = field(init=False)

    def __post_init__(self) -> None:
        self.bulletins = Bulletins(self.log)

    def claim(self, text: str, holds: bool, numbers: str) -> None:
        """Add it to the checklist, and show it now."""
        self.screen.claim(self.checklist.add(text, holds, numbers))

    def wait_for(self, is_so: Callable[[], bool], what: str, within_s: float = STEP_TIMEOUT_S) -> float:
        """How long it took; DemoFailed, with the reason, if it can no longer happen."""
        return wait_for(is_so, what, within_s, self.check)

    def check(self) -> None:
        """DemoFailed if a process has ended that should not have."""
        self.broker.check()
        self.pipeline.check()
        self.writer.check()
        for reader in self.readers.values():
            reader.check()


class Ticker:
    """Shows the numbers, four times a second, until it is stopped."""

    def __init__(self, observer: Observer, screen: Screen) -> None:
        self._observer = observer
        self._screen = screen
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="demo-table", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._screen.hide()
        self._observer.close()

    def _run(self) -> None:
        while not self._stopping.wait(_REDRAW_S):
            try:
                self._screen.show(self._observer.look())
            except FoldlogError as error:
                self._screen.say(f"The table cannot be drawn any more: {error}")
                return
            except OSError:
                return  # the output is closed; the story's thread finds out by itself


def labels(postgres_url: str | None, slow_per_s: int) -> dict[str, str]:
    """A description for each line of the table."""
    return {
        MIRROR: "table in PostgreSQL" if postgres_url else "table in SQLite",
        SEARCH: "full-text index",
        PER_MINUTE: "counters per minute",
        HISTORY: "Delta lake table",
        QUICK: "group, at full speed",
        SLOW: f"group, {slow_per_s} a second",
        STOCK: client_name(),
    }


def total(bookmark: Bookmark | None) -> int:
    """How many offsets are before the bookmark, in all partitions."""
    return 0 if bookmark is None else sum(at.offset for at in bookmark.positions.values())


def epoch(bookmark: Bookmark | None) -> int:
    """Rises with every rewind and every rebuild."""
    return -1 if bookmark is None else bookmark.epoch


def end_of_log(stage: DemoStage) -> int:
    """How many payments the log holds."""
    return sum(end for _, end in stage.log.offsets(TOPIC).values())


def told_total(stage: DemoStage, fold: str) -> int:
    """How many offsets a fold has read, as last published by the pipeline; may be a second old."""
    status = stage.bulletins.latest().get(fold)
    is_of_this_runner = status is not None and status.runner.endswith(f":{stage.pipeline.pid}")
    return sum(status.bookmark.values()) if status is not None and is_of_this_runner else 0


def wait_for_folds(stage: DemoStage) -> float:
    """Wait until all folds have read what the log holds now; it keeps growing. Returns how long it took, in seconds."""
    end = end_of_log(stage)
    return stage.wait_for(
        lambda: all(told_total(stage, fold) >= end for fold in FOLDS), f"the folds read {end:,} records"
    )


def are_at_the_end(stage: DemoStage) -> bool:
    """Whether all folds have read everything, by their statuses and their views. Once nothing is written any more."""
    end = end_of_log(stage)
    if any(told_total(stage, fold) != end for fold in FOLDS):
        return False
    return all(total(stage.pipeline.bookmark(fold)) == end for fold in FOLDS)


def answer_of(stage: DemoStage, fold: str, asked: str, doing: str) -> tuple[str, float]:
    """The result of a request to the running pipeline, and how long it took in seconds."""

    def is_answered() -> bool:
        status = stage.bulletins.latest().get(fold)
        return status is not None and status.last_command == asked and status.result not in (None, doing)

    took_s = stage.wait_for(is_answered, f"{fold} was {doing}")
    return stage.bulletins.latest()[fold].result or "", took_s
