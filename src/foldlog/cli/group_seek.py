"""`foldlog group seek`: move what a group has committed, and say how much will be read again."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from foldlog.cli.confirmation import ask, is_attended
from foldlog.cli.exit_codes import DONE, FAILED
from foldlog.cli.group_facts import host_text
from foldlog.cli.output import remark
from foldlog.cli.place_syntax import PlaceSpec, moved_starts, parse_place, resolve
from foldlog.cli.places import open_place
from foldlog.cli.tables import Column, show
from foldlog.cli.topic_names import NamedPartitions, partitions_named
from foldlog.cli.wording import counted
from foldlog.errors import GroupNotEmpty, InvalidArgument, UnknownGroup

if TYPE_CHECKING:
    from foldlog.cli.places import AnyLog
    from foldlog.client.descriptions import MemberDescription
    from foldlog.client.positions import TopicPartition

SHOWN_MEMBERS: Final = 4

COLUMNS: Final = (
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", is_number=True),
    Column("from", "FROM", is_number=True),
    Column("to", "TO", is_number=True),
    Column("again", "READ AGAIN", is_number=True),
    Column("skipped", "SKIPPED", is_number=True),
    Column("start", "START", is_number=True, is_wide=True),
    Column("end", "END", is_number=True, is_wide=True),
)


@dataclass(frozen=True, slots=True)
class Move:
    """One partition: from what the group has committed, None if nothing, to where it is to go on."""

    partition: TopicPartition
    before: int | None
    to: int
    start: int
    end: int

    @property
    def again(self) -> int:
        """Offsets that were read before and will be once more. What the log no longer holds cannot be."""
        return max(0, min(self.before or 0, self.end) - self.to)

    @property
    def skipped(self) -> int:
        return max(0, self.to - max(self.before, self.start)) if self.before is not None else 0

    def row(self) -> dict[str, object]:
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "from": self.before,
            "to": self.to,
            "again": self.again,
            "skipped": self.skipped,
            "start": self.start,
            "end": self.end,
        }


def seek_group(arguments: argparse.Namespace) -> int:
    spec = parse_place(arguments.to)
    if spec.is_range:
        raise InvalidArgument(f"--to {arguments.to} is a range; say one place, from which the group goes on")
    if spec.note:
        remark(f"note: {spec.note}")
    with open_place(arguments, write=not arguments.dry_run) as log:
        moves = planned_moves(log, arguments.group, spec, arguments.topics)
        members = members_of(log, arguments.group)
        is_evicting = arguments.evict
        if members and not is_evicting and not arguments.dry_run:
            if not is_attended():
                raise GroupNotEmpty(_members_in_the_way(arguments.group, members))
            if not ask(f"{_has_members(arguments.group, members)}; move it, and make them rejoin at the new place?"):
                return FAILED
            is_evicting = True
        if not arguments.dry_run:
            log.move_group(arguments.group, {move.partition: move.to for move in moves}, evict=is_evicting)
    show(arguments, COLUMNS, [move.row() for move in moves])
    again = counted(sum(move.again for move in moves), "offset")
    if arguments.dry_run:
        remark(f"{again} would be read again; nothing was moved (--dry-run)")
        if members and not is_evicting:
            remark(_members_in_the_way(arguments.group, members))
    else:
        remark(f"{again} will be read again")
    return DONE


def planned_moves(log: AnyLog, group: str, spec: PlaceSpec, topics: list[NamedPartitions] | None) -> list[Move]:
    """Where each partition would go. Without `topics`, those that the group has committed in."""
    committed = log.committed(group)
    chosen = sorted(committed) if topics is None else partitions_named(log, topics)
    if not chosen:
        raise UnknownGroup(
            f"group {group!r} has committed nothing; say where it is to begin: --topic TOPIC"
            if group in log.groups()
            else f"there is no group {group!r}; to see all: foldlog group list; to make it, say where: --topic TOPIC"
        )
    moves: list[Move] = []
    for topic in dict.fromkeys(partition.topic for partition in chosen):
        numbers = {partition.partition for partition in chosen if partition.topic == topic}
        bounds = {number: at for number, at in log.offsets(topic).items() if number in numbers}
        for sentence in moved_starts(spec, topic, bounds):
            remark(f"note: {sentence}")
        places = resolve(spec, log, topic, bounds=bounds)
        for partition in chosen:
            if partition.topic == topic:
                before = committed.get(partition)
                start, end = bounds[partition.partition]
                to = places[partition.partition].start
                moves.append(Move(partition, None if before is None else before.offset, to, start, end))
    return moves


def members_of(log: AnyLog, group: str) -> tuple[MemberDescription, ...]:
    """Who is in the group; nobody if it does not exist yet."""
    try:
        return log.describe_group(group).members
    except UnknownGroup:
        return ()


def _has_members(group: str, members: tuple[MemberDescription, ...]) -> str:
    """Who is in the way, with names: whoever runs this knows then what to stop."""
    named = [f"{member.instance_id or member.member_id} ({host_text(member)})" for member in members[:SHOWN_MEMBERS]]
    more = len(members) - len(named)
    return f"group {group!r} has {counted(len(members), 'member')}: {', '.join(named)}" + (
        f" and {more} more" if more else ""
    )


def _members_in_the_way(group: str, members: tuple[MemberDescription, ...]) -> str:
    return f"{_has_members(group, members)}; stop them, or say --evict to make them rejoin at the new place"
