"""The report of a copy, done or planned, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from foldlog.cli.output import say
from foldlog.cli.parsing import Arguments
from foldlog.cli.tables import Column, print_table, show_json
from foldlog.cli.units import size_text
from foldlog.cli.wording import counted

if TYPE_CHECKING:
    from foldlog.cli.copy.folds import FoldMove
    from foldlog.client.copy.check import CopyVerdict
    from foldlog.client.copy.copying import Plan, Prepared
    from foldlog.client.copy.groups import GroupMove
    from foldlog.client.copy.targets import Copied, Route
    from foldlog.errors import CorruptLog


def _number(value: object) -> str:
    return f"{value:,}"


PLAN_COLUMNS: Final = (
    Column("topic", "TOPIC"),
    Column("to_topic", "TO"),
    Column("partition", "PARTITION", is_number=True),
    Column("start", "START", is_number=True),
    Column("end", "END", is_number=True),
    Column("from", "COPY FROM", is_number=True),
    Column("remaining", "OFFSETS TO COPY", is_number=True, text=_number),
)

COLUMNS: Final = (
    Column("topic", "TOPIC"),
    Column("to_topic", "TO"),
    Column("partition", "PARTITION", is_number=True),
    Column("records", "COPIED", is_number=True, text=_number),
    Column("bytes", "BYTES", is_number=True, text=lambda value: size_text(int(str(value)))),
    Column("source_end", "SOURCE END", is_number=True),
    Column("target_end", "COPY END", is_number=True),
    Column("offsets", "OFFSETS"),
    Column("checked", "CHECKED", is_number=True, is_optional=True, text=_number),
    Column("digest", "DIGEST", is_optional=True, text=lambda value: str(value)[:12]),
    Column("removed", "REMOVED SINCE", is_number=True, is_wide=True, text=_number),
    Column("result", "RESULT"),
)

GROUP_COLUMNS: Final = (
    Column("group", "GROUP"),
    Column("to_topic", "TOPIC"),
    Column("partition", "PARTITION", is_number=True),
    Column("source_offset", "SOURCE", is_number=True),
    Column("target_offset", "COPY", is_number=True, is_optional=True),
    Column("outcome", "RESULT"),
)

_OUTCOMES: Final = {
    "moved": "moved",
    "moved back": "moved back: reads up to {reread_max} records again, as the source has lost some since",
    "left back": "left there: reads up to {reread_max} records again, as the source has lost some since",
    "there": "stands there already",
    "ahead": "has read further in the copy; left there",
    "has members": "has members in the target; stop them, then copy again",
    "queue": "left: a queue's place is not copied; open it there once, then use foldlog group seek",
}
_PLANNED: Final = {"moved": "would be moved", "queue": f"would be {_OUTCOMES['queue']}"}


@dataclass(slots=True)
class CopyReport:
    """The result of a copy so far."""

    prepared: Sequence[Prepared]
    copied: dict[Route, Copied] = field(default_factory=dict)
    verdicts: dict[Route, CopyVerdict] = field(default_factory=dict)
    groups: Sequence[GroupMove] = ()
    folds: Sequence[FoldMove] = ()
    undecided: Mapping[Route, tuple[int, int]] = field(default_factory=dict)
    damages: Mapping[str, CorruptLog] = field(default_factory=dict)

    @property
    def is_same(self) -> bool:
        """True unless a difference was found; also if nothing was checked."""
        return all(verdict.is_same for verdict in self.verdicts.values())


def damage_text(damages: Mapping[str, CorruptLog], *, would: bool = False) -> str:
    """The damaged partitions, and what happened to the others, in one sentence."""
    named = "; ".join(
        f"{name} is damaged ({error.path}, byte {error.position}: {error.reason})" for name, error in damages.items()
    )
    others = "would be copied" if would else "were copied"
    return (
        f"foldlog: {named}; the others {others}, and groups and folds left where they are: restore what is"
        " damaged, as 'foldlog check' says, and copy again"
    )


def _undecided_text(route: Route, stretch: tuple[int, int]) -> str:
    first, end = stretch
    verb = "is" if end - first == 1 else "are"
    return (
        f"{route.topic}-{route.partition}: {counted(end - first, 'offset')} from {first} on {verb} behind an open"
        " transaction, and left for a later copy"
    )


_TAKE_ALL: Final = (
    "if it will never end, since its cluster is dead, copy to a topic of another name with"
    " --from-property isolation.level=read_uncommitted: aborted records come, too"
)


def _tell_undecided(undecided: Mapping[Route, tuple[int, int]]) -> None:
    for route, stretch in undecided.items():
        say(_undecided_text(route, stretch))
    if undecided:
        say(_TAKE_ALL)


def _undecided_cells(undecided: Mapping[Route, tuple[int, int]], route: Route) -> dict[str, object]:
    first, end = undecided.get(route, (None, None))
    return {"undecided_from": first, "undecided": 0 if first is None or end is None else end - first}


def report_plan(
    arguments: Arguments,
    plans: Sequence[Plan],
    groups: Sequence[GroupMove],
    folds: Sequence[FoldMove],
    undecided: Mapping[Route, tuple[int, int]],
) -> None:
    """Show what would be done."""
    rows = [
        {
            "topic": plan.span.route.topic,
            "to_topic": plan.span.route.to_topic,
            "partition": plan.span.route.partition,
            "start": plan.span.start,
            "end": plan.span.stop,
            "from": plan.resume.at.source,
            "to": plan.resume.at.target,
            "remaining": plan.remaining,
            "makes_topic": plan.is_new,
            **_undecided_cells(undecided, plan.span.route),
        }
        for plan in plans
    ]
    moves = [
        {
            **move.route._asdict(),
            "group": move.group,
            "source_offset": move.source_offset,
            "outcome": _PLANNED[move.outcome],
        }
        for move in groups
    ]
    if arguments.format == "json":
        show_json({"partitions": rows, "groups": moves, "folds": [_fold_row(move) for move in folds]})
        return
    print_table(arguments, PLAN_COLUMNS, rows)
    new = sorted({str(row["to_topic"]) for row in rows if row["makes_topic"]})
    if new:
        say(f"would make {', '.join(new)}")
    _tell_undecided(undecided)
    if moves:
        print_table(arguments, GROUP_COLUMNS, moves)
    for move in folds:
        say(f"fold {move.fold}: {_planned_fold_text(move)}")


def show_report(arguments: Arguments, report: CopyReport) -> None:
    """Show what was done."""
    rows = [
        _partition_row(route, one, report.verdicts.get(route)) | _undecided_cells(report.undecided, route)
        for route, one in report.copied.items()
    ]
    groups = [
        {
            **move.route._asdict(),
            "group": move.group,
            "source_offset": move.source_offset,
            "target_offset": move.target_offset,
            "outcome": move.outcome,
            "reread_max": move.reread_max,
        }
        for move in report.groups
    ]
    folds = [_fold_row(move) for move in report.folds]
    if arguments.format == "json":
        topics = [
            {
                "topic": one.pair.topic,
                "to_topic": one.pair.to_topic,
                "is_made": one.is_made,
                "settings": dict(one.settings),
                "settings_left": dict(one.left),
            }
            for one in report.prepared
        ]
        damages = [
            {"name": name, "file": error.path, "position": error.position, "reason": error.reason}
            for name, error in report.damages.items()
        ]
        show_json({"topics": topics, "partitions": rows, "groups": groups, "folds": folds, "damages": damages})
        return
    print_table(arguments, COLUMNS, rows)
    _tell_undecided(report.undecided)
    if groups:
        told = [{**row, "outcome": _group_text(move)} for row, move in zip(groups, report.groups, strict=True)]
        print_table(arguments, GROUP_COLUMNS, told)
    for move in report.folds:
        say(f"fold {move.fold}: {_fold_text(move)}")


def _partition_row(route: Route, copied: Copied, verdict: CopyVerdict | None) -> dict[str, object]:
    end = copied.offsets.end
    return {
        **route._asdict(),
        "records": copied.records,
        "bytes": copied.size_bytes,
        "source_end": end.source,
        "target_end": end.target,
        "offsets": "kept" if copied.offsets.is_kept else "mapped",
        "checked": None if verdict is None else verdict.records,
        "digest": None if verdict is None else verdict.target_digest,
        "source_digest": None if verdict is None else verdict.source_digest,
        "removed": None if verdict is None else verdict.removed,
        "uncompared": None if verdict is None else verdict.uncompared,
        "result": _result_text(verdict),
    }


def _result_text(verdict: CopyVerdict | None) -> str:
    if verdict is None:
        return "not checked"
    if verdict.is_same and verdict.is_empty:
        return "not compared: the source or the copy has lost what could be"
    if verdict.is_same and verdict.uncompared:
        return f"same, but {counted(verdict.uncompared, 'earlier record')} not compared: the source has lost some since"
    if verdict.is_same:
        return "same"
    return f"DIFFERENT: {verdict.difference or 'other records than the source'}"


def _group_text(move: GroupMove) -> str:
    return _OUTCOMES[move.outcome].format(reread_max=f"{move.reread_max:,}")


def _fold_row(move: FoldMove) -> dict[str, object]:
    return {"fold": move.fold, "view": move.view, "outcome": move.outcome, "before": move.before, "after": move.after}


def _planned_fold_text(move: FoldMove) -> str:
    if move.outcome == "would be moved":
        return (
            f"{move.view} would go on in the copy, after {counted(sum(move.before.values()), 'offset')} of the source"
        )
    return f"{move.view} would be left as it is: {move.outcome}"


def _fold_text(move: FoldMove) -> str:
    if move.after == move.before and move.outcome != "moved":
        return f"{move.view} is left as it is: {move.outcome}"
    read = sum(move.after.values())
    return f"{move.view} goes on in the copy, after {counted(read, 'offset')}"
