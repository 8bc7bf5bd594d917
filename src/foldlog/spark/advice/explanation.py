"""`fold explain`: what the next run of a fold would read, shuffle and write. Nothing is read and nothing is stored."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import DataFrame

from foldlog.limits import FOLD_STAGED_OFFSETS_MIN
from foldlog.spark.folds.declaration import Fold
from foldlog.spark.folds.deltas import prepare
from foldlog.spark.folds.feed import starting_bookmark
from foldlog.spark.folds.ranges import RANGE_BYTES, RangeSizes, lag, next_ranges
from foldlog.spark.folds.reading import TopicFrames
from foldlog.spark.origins.origin import Origin, TopicFacts
from foldlog.views.contract import META, View

_STEPS: Final = {
    "Exchange": "shuffle",
    "BroadcastExchange": "broadcast",
    "ArrowEvalPython": "Python over Arrow",
    "BatchEvalPython": "Python, row by row",
    "MapInPandas": "Python over pandas",
    "MapInArrow": "Python over Arrow",
    "PythonMapInArrow": "Python over Arrow",
    "Generate": "rows out of rows",
}
"""Nodes of Spark's physical plan that a person wants to know of."""

_STAGED: Final = f"the executors, of ranges with {FOLD_STAGED_OFFSETS_MIN:,} offsets or more; else the driver"

_NODE: Final = re.compile(r"^[\s:+|*()0-9-]*(?P<name>[A-Z][A-Za-z]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The plan of a fold's next run."""

    fold: str
    topic: str
    partitions: int
    format: str
    records: int
    """Offsets from the bookmark to the end of the log."""
    ranges: int
    """About how many ranges they are read in."""
    from_the_start: bool
    columns_read: list[str]
    columns_unread: list[str]
    steps: dict[str, int]
    """What Spark does with the rows, beside reading: shuffles, broadcasts, Python, and how often each."""
    view: str
    kind: str
    is_new: bool
    key: list[str]
    columns_written: list[str]
    writers: str
    """Who writes the rows: the executors, or the driver."""
    how: str
    """How the view takes them, in one sentence."""


def explained(fold: Fold, frames: TopicFrames, origin: Origin, facts: TopicFacts) -> Explanation:
    """UnlawfulFold or another FoldError if the fold cannot run."""
    bounds = origin.bounds(facts.name)
    prepared = prepare(fold, frames)
    stored = fold.view.bookmark()
    base = stored or starting_bookmark(facts, bounds)
    if fold.topic.is_several:  # of which some may be new
        base = replace(base.met(dict.fromkeys(bounds, 0)), topic=facts.name, topic_id=facts.topic_id)
    left = lag(base, bounds)
    reach = {number: bound.end for number, bound in bounds.items()}
    budget = RangeSizes(origin).budget(base, reach, RANGE_BYTES) if left else 1
    wanted = list(next_ranges(base, reach, budget)) if left else []
    given = frames.rows(wanted, None, needs_key=prepared.needs_key)
    planned = prepared.plan(given)
    declared = [one for one in given.columns if one not in META]
    used = set(declared) if planned.used is None else set(planned.used)
    stages = prepared.may_stage and _stages(fold)
    return Explanation(
        fold=fold.title,
        topic=facts.name,
        partitions=len(bounds),
        format=fold.topic.format,
        records=left,
        ranges=-(-left // max(1, budget)),
        from_the_start=stored is None,
        columns_read=[one for one in declared if one in used],
        columns_unread=[one for one in declared if one not in used],
        steps={} if planned.is_plain else dict(steps_of(planned.final) - steps_of(given)),
        view=fold.view.place,
        kind=fold.view.kind,
        is_new=stored is None,
        key=list(prepared.shape.key),
        columns_written=list(prepared.shape.columns.names),
        writers=_STAGED if stages else "the driver",
        how=_how(fold),
    )


def _stages(fold: Fold) -> bool:
    """Whether the view takes rows from executors at all."""
    return type(fold.view).stage is not View.stage


def _how(fold: Fold) -> str:
    view = fold.view
    if view.aggregation is not None:
        return "each range is aggregated in Spark, and its groups are merged into the view with the bookmark"
    if view.is_keyed:
        return "rows replace those of their key, deletions delete them, and the bookmark moves, in one transaction"
    return "rows are added and the bookmark moves, in one transaction"


def steps_of(result: DataFrame) -> Counter[str]:
    """What the physical plan does, by what people call it; our own read of the log is a step, too."""
    plan = str(result._jdf.queryExecution().executedPlan().toString())
    found = Counter(match["name"] for match in _NODE.finditer(plan))
    steps: Counter[str] = Counter()
    for node, told in _STEPS.items():
        if found[node]:
            steps[told] += found[node]
    return steps
