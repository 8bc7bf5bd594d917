"""Folds: log to view, beside what its two halves allow together, each measured alone in the same turn.

A source of s records a second and a sink of t cannot do better, one after the other, than 1/(1/s + 1/t). The source
alone is the same fold into a view that throws away; the sink alone is the view without Spark, given the very changes
that the fold makes, captured beforehand.

A new view costs something before its first record: plans, tables, the trial of its fold. A second topic, of a hundredth
of the records, tells that from the speed: two sizes make a line, whose height at no records is the fixed cost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench import spark_topics
from bench.measuring import Place, Scale, Turns, timed
from bench.spark_session import cores, with_spark
from bench.spark_views import Case, Nowhere, cases, nowhere_like, payments_fold, postgres_server
from bench.table import Row, Table, count, per_second, table_of

import foldlog.spark as fl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from foldlog.views.contract import View

TITLE = "Folds: from the log into views"
AIM = 0.75
SMALLER = 100
"""How many times smaller the second topic is."""


@with_spark(TITLE)
def run(place: Place, scale: Scale, spark: SparkSession) -> Table:
    log = place.fresh()
    spark_topics.make_payments(log, scale.fold_records, cores(spark))
    small = place.fresh()
    spark_topics.make_payments(small, scale.fold_records // SMALLER, cores(spark))
    rows: list[Row] = []
    with postgres_server() as postgres:
        for case in cases(postgres):
            rows += measure(place, scale, spark, log, small, case)
    place.give_back(small)
    place.give_back(log)
    notes = [
        f"{count(scale.fold_records)} JSON payments of about 100 bytes, two records a key, one in twenty a tombstone.",
        "'source' is the same fold into a view that throws away, 'sink' the view alone, given the same changes.",
        "'together' is 1/(1/source + 1/sink). Above 1 the two overlap: a range is computed while another is stored.",
        "A rebuild is measured beside the view's bulk load, which fills a shadow and makes its indexes at the end.",
        f"'fixed' and 'then' are the line through this run and one of {count(scale.fold_records // SMALLER)} records.",
        "'fixed' is what a new view or a rebuild takes whatever its size: plans, tables, the trial of its fold.",
    ]
    return table_of(TITLE, rows, notes if postgres else [*notes, "There is no PostgreSQL server to start here."])


def measure(place: Place, scale: Scale, spark: SparkSession, log: Path, small: Path, case: Case) -> list[Row]:
    """One engine: its fold, and its rebuild where that is asked for."""
    kept = capture(case, place, log, spark)
    runs: dict[str, Callable[[], float]] = {
        "source": partial(_source, case, place, log, spark, scale.fold_records),
        "sink": partial(_sink, case, place, kept, scale.fold_records),
        "fold": partial(_fold, case, place, log, spark, scale.fold_records),
        "small fold": partial(_fold, case, place, small, spark, scale.fold_records // SMALLER),
    }
    if case.rebuilds:
        runs["load"] = partial(_sink, case, place, kept, scale.fold_records, loading=True)
        runs["rebuild"] = partial(_rebuild, case, place, log, spark, scale.fold_records)
        runs["small rebuild"] = partial(_rebuild, case, place, small, spark, scale.fold_records // SMALLER)
    # Capturing has warmed up the source; the sinks are not Spark's and need none.
    found = Turns(scale.spark_repeats, runs)
    rows = [_row(found, scale, case.name, "fold", "sink")]
    return [*rows, _row(found, scale, f"{case.name}, rebuild", "rebuild", "load")] if case.rebuilds else rows


def _row(found: Turns, scale: Scale, name: str, whole: str, sink: str) -> Row:
    ratio = found.ratio_together(whole, "source", sink)
    parts = f"source {per_second(found.speed('source'))}, {sink} {per_second(found.speed(sink))}"
    small = scale.fold_records // SMALLER
    fixed_s, beyond = line(
        (small, small / found.speed(f"small {whole}")), (scale.fold_records, scale.fold_records / found.speed(whole))
    )
    told = f"fixed {fixed_s * 1000:.0f} ms, then {'as fast as can be told' if beyond is None else per_second(beyond)}"
    return Row(
        name, f"{per_second(found.speed(whole))} ({'-'.join(map(count, found.spread(whole)))}): {told}",
        f"{parts}: together {per_second(found.together('source', sink))}", ratio, f">= {AIM} of together", ratio >= AIM,
    )  # fmt: skip


def line(small: tuple[int, float], large: tuple[int, float]) -> tuple[float, float | None]:
    """The seconds at no records, and the records a second beyond, of two runs, each with its records and its seconds.
    None where the larger run was not slower, which says nothing but that both are too small.

    >>> line((1000, 0.5), (3000, 1.0))
    (0.25, 4000.0)
    """
    slope = (large[1] - small[1]) / (large[0] - small[0])
    return (small[1], None) if slope <= 0 else (small[1] - small[0] * slope, 1 / slope)


def capture(case: Case, place: Place, log: Path, spark: SparkSession) -> Nowhere:
    """What the fold gives its view: the changes, in their order, and where it began."""
    home = place.fresh()
    view = nowhere_like(case.make(home), keeps=True)
    fl.run([payments_fold(view)], log, once=True, spark=spark)
    place.give_back(home)
    return view


def _source(case: Case, place: Place, log: Path, spark: SparkSession, records: int) -> float:
    home = place.fresh()
    fold = payments_fold(nowhere_like(case.make(home)))
    seconds = timed(lambda: fl.run([fold], log, once=True, spark=spark))
    place.give_back(home)
    return records / seconds


def _sink(case: Case, place: Place, kept: Nowhere, records: int, *, loading: bool = False) -> float:
    home = place.fresh()
    view = case.make(home)
    target = view.shadow("rebuild") if loading else view
    seconds = timed(lambda: apply_all(target, kept, loading=loading))
    target.drop()
    target.close()
    place.give_back(home)
    return records / seconds


def apply_all(view: View, kept: Nowhere, *, loading: bool) -> None:
    if kept.shape is None or kept.start is None:
        raise RuntimeError("nothing was captured")
    view.prepare(kept.shape, kept.start, loading=loading)
    for step in kept.steps:
        view.apply(*step)
    if loading:
        view.finish_loading()


def _fold(case: Case, place: Place, log: Path, spark: SparkSession, records: int) -> float:
    home = place.fresh()
    fold = payments_fold(case.make(home))
    seconds = timed(lambda: fl.run([fold], log, once=True, spark=spark))
    fl.drop(fold, log)
    place.give_back(home)
    return records / seconds


def _rebuild(case: Case, place: Place, log: Path, spark: SparkSession, records: int) -> float:
    """Of a view that is up to date: replayed into a shadow, and put in its place."""
    home = place.fresh()
    fold = payments_fold(case.make(home))
    fl.run([fold], log, once=True, spark=spark)
    seconds = timed(lambda: fl.rebuild(fold, log, spark=spark))
    fl.drop(fold, log)
    place.give_back(home)
    return records / seconds
