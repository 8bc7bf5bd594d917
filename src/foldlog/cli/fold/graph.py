"""`foldlog fold graph`, and what rewinds and rebuilds do with the folds behind one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from foldlog.cli.exit_codes import DONE
from foldlog.cli.output import remark, say
from foldlog.cli.parsing import Argument, Arguments, Option, argument, command, option, switch
from foldlog.cli.tables import format_option, show_json
from foldlog.client.fold_graphs.drawing import as_svg, as_text
from foldlog.client.fold_graphs.graph import FoldGraph
from foldlog.client.places import PlaceSpec, topic_and_place
from foldlog.errors import FoldError, InvalidArgument

if TYPE_CHECKING:
    from foldlog.spark.folds.declaration import Fold

_DEFAULT_FILE: Final = "folds.py"


def files_argument() -> Argument:
    return argument(
        "files",
        "FILE",
        f"the pipelines, Python files (or FOLDLOG_FOLDS; default: {_DEFAULT_FILE})",
        is_many=True,
        is_needed=False,
    )


@command(
    files_argument(),
    option("--svg", metavar="OUT", told="write an SVG picture to this file instead"),
    format_option(),
)
def show_graph(arguments: Arguments) -> int:
    from foldlog.spark.change_topics.pipelines import graph_of
    from foldlog.spark.folds.declaration import check_distinct, load_folds

    files = arguments.files or [os.environ.get("FOLDLOG_FOLDS") or _DEFAULT_FILE]
    folds = [fold for file in files for fold in load_folds(file)]
    check_distinct(folds)
    graph = graph_of(folds)
    if arguments.svg:
        Path(arguments.svg).write_text(as_svg(graph), encoding="utf-8")
        say(f"wrote {arguments.svg}")
    elif arguments.format == "json":
        show_json([_entry(graph, fold.name) for fold in graph.folds])
    else:
        say(as_text(graph))
    return DONE


def _entry(graph: FoldGraph, name: str) -> dict[str, object]:
    (fold,) = (one for one in graph.folds if one.name == name)
    fields = {key: value for key, value in asdict(fold).items() if key != "note"}
    return {**fields, "downstream": [one.name for one in graph.downstream(name)]}


# --- downstream -------------------------------------------------------------------------------------------------------


def downstream_option() -> Option:
    return switch("--downstream", told="also do this to the folds that read what it writes")


def behind(fold: Fold, folds: Sequence[Fold]) -> list[Fold]:
    """The folds of the pipeline behind one, upstream first."""
    from foldlog.spark.change_topics.pipelines import graph_of

    known = {one.name: one for one in folds}
    return [known[one.name] for one in graph_of(folds).downstream(fold.name)]


def say_behind(fold: Fold, others: Sequence[Fold], verb: str) -> None:
    """What lies behind a fold that was moved alone, and why nothing has to be done there."""
    if others:
        names = ", ".join(other.name for other in others)
        remark(f"behind {fold.name}: {names}; they read what it changes by themselves (--downstream: {verb} them, too)")


def place_behind(to: PlaceSpec) -> str:
    """Where folds behind a rewound one go back to. Times and the start mean the same in every topic: a change has the
    time of the record that made it. Offsets are each topic's own, so with those all is read again.
    """
    points = [*to.each.values()] or [to.start]
    means_the_same = len(points) == 1 and not to.each and (points[0].is_time or points[0].kind == "start")
    return topic_and_place(to.text)[1] if means_the_same else "start"


def tried(what: str, fold: Fold, error: FoldError | InvalidArgument) -> None:
    """A fold behind another that could not be moved is named, and those after it are not left out for it."""
    remark(f"{fold.name} was not {what}: {error}")
