"""Where the folds stand, asked of the views themselves and of what the pipeline publishes."""

from __future__ import annotations

from foldlog.demo.payments import TOPIC
from foldlog.demo.pipeline import FOLDS
from foldlog.demo.stage import Stage
from foldlog.views.bookmark import Bookmark


def total(bookmark: Bookmark | None) -> int:
    """How many offsets lie before the bookmark, in all partitions."""
    return 0 if bookmark is None else sum(at.offset for at in bookmark.positions.values())


def epoch(bookmark: Bookmark | None) -> int:
    """Rises with every rewind and every rebuild."""
    return -1 if bookmark is None else bookmark.epoch


def end_of_log(stage: Stage) -> int:
    """How many payments the log holds."""
    return sum(end for _, end in stage.log.offsets(TOPIC).values())


def told_total(stage: Stage, fold: str) -> int:
    """The same as the running pipeline last published it: costs next to nothing, and may be a second old."""
    status = stage.bulletins.latest().get(fold)
    is_of_this_runner = status is not None and status.runner.endswith(f":{stage.pipeline.pid}")
    return sum(status.bookmark.values()) if status is not None and is_of_this_runner else 0


def wait_for_folds(stage: Stage) -> float:
    """Until all folds have read what the log holds now: it is written all the time. How long it took, in seconds."""
    end = end_of_log(stage)
    return stage.wait_for(
        lambda: all(told_total(stage, fold) >= end for fold in FOLDS), f"the folds read {end:,} records"
    )


def are_at_the_end(stage: Stage) -> bool:
    """Once nobody writes any more. The views themselves say so."""
    end = end_of_log(stage)
    if any(told_total(stage, fold) != end for fold in FOLDS):
        return False
    return all(total(stage.pipeline.bookmark(fold)) == end for fold in FOLDS)


def answer_of(stage: Stage, fold: str, asked: str, doing: str) -> tuple[str, float]:
    """What a request to the running pipeline came to, in its own words, and how long that took in seconds."""

    def is_answered() -> bool:
        status = stage.bulletins.latest().get(fold)
        return status is not None and status.last_command == asked and status.result not in (None, doing)

    took_s = stage.wait_for(is_answered, f"{fold} was {doing}")
    return stage.bulletins.latest()[fold].result or "", took_s
