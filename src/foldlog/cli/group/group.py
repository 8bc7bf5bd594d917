"""`foldlog group`: the positions of groups, their members, and moving them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.broker.groups.messages import GroupType
from foldlog.cli.confirmation import ask, dry_run_option, is_attended, is_confirmed, yes_option
from foldlog.cli.exit_codes import DONE, FAILED
from foldlog.cli.group.facts import (
    FoldRunsOf,
    GroupFacts,
    chosen_groups,
    cursor_rows,
    facts_of,
    member_rows,
    positions_of,
)
from foldlog.cli.log_options import log_options, open_log
from foldlog.cli.output import remark, say
from foldlog.cli.parsing import Arguments, LazyVerb, Noun, Option, argument, command, option, switch
from foldlog.cli.tables import (
    Column,
    Outcome,
    format_option,
    print_table,
    quiet_option,
    show,
    show_json,
    show_names,
    show_outcomes,
)
from foldlog.cli.wording import counted
from foldlog.client.backends.backend import backend_of
from foldlog.client.descriptions import has_members, not_empty
from foldlog.client.groups import is_of_a_queue
from foldlog.client.places import POINTS_HELP, PlaceSpec, moved_starts, parse_points, resolve
from foldlog.errors import InvalidArgument, UnknownGroup, UnknownPartition

if TYPE_CHECKING:
    from foldlog.client.descriptions import MemberDescription
    from foldlog.client.log import Log
    from foldlog.client.positions import TopicPartition

DESCRIPTION: Final = """\
A group is a name under which readers share a topic's partitions. The log keeps how far they have read: the committed
offset of each partition, which they read next. The lag counts from there to the end, or from the log's start in a
partition that a member has without a commit (FROM START counts these)."""

NOUN: Final = Noun(
    {
        "list": LazyVerb("group.group:list_groups", "list groups and their lag"),
        "describe": LazyVerb("group.group:describe_groups", "show a group's offset in each partition, and its members"),
        "seek": LazyVerb("group.group:seek_group", "move a group to another place"),
        "delete": LazyVerb("group.group:delete_groups", "delete groups without members, and what they committed"),
    },
    DESCRIPTION,
)

LIST_COLUMNS: Final = (
    Column("group", "GROUP"),
    Column("state", "STATE"),
    Column("type", "TYPE"),
    Column("members", "MEMBERS", is_number=True),
    Column("lag", "LAG", is_number=True),
    Column("uncommitted", "FROM START", is_number=True, is_optional=True),
    Column("topics", "TOPICS", text=lambda value: ",".join(value) if isinstance(value, list) else str(value)),
    Column("protocol", "ASSIGNOR", is_wide=True),
)
CURSOR_COLUMNS: Final = (
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", is_number=True),
    Column("committed", "COMMITTED", is_number=True),
    Column("end", "END", is_number=True),
    Column("lag", "LAG", is_number=True),
    Column("counted_from", "COUNTED FROM", is_optional=True),
    Column("client", "MEMBER"),
    Column("start", "START", is_number=True, is_wide=True),
    Column("member_id", "MEMBER ID", is_wide=True),
    Column("metadata", "NOTE", is_wide=True, is_optional=True),
)
MEMBER_COLUMNS: Final = (
    Column("client_id", "CLIENT"),
    Column("host", "HOST"),
    Column("partitions", "PARTITIONS", is_number=True),
    Column("target", "TARGET", is_number=True, is_optional=True),
    Column("epoch", "EPOCH", is_number=True, is_optional=True),
    Column("member_id", "MEMBER ID", is_wide=True),
    Column("instance_id", "INSTANCE", is_wide=True),
)
SEEK_COLUMNS: Final = (
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", is_number=True),
    Column("from", "FROM", is_number=True),
    Column("to", "TO", is_number=True),
    Column("again", "READ AGAIN", is_number=True),
    Column("skipped", "SKIPPED", is_number=True),
    Column("start", "START", is_number=True, is_wide=True),
    Column("end", "END", is_number=True, is_wide=True),
)
TOPIC_PARTITION: Final = "TOPIC[:P]"


# --- partitions by name ---------------------------------------------------------------------------------------------


class NamedPartitions(NamedTuple):
    """A topic, or one partition of it."""

    topic: str
    partition: int | None


def parse_topic_partition(text: str) -> NamedPartitions:
    """
    >>> parse_topic_partition("orders:3")
    NamedPartitions(topic='orders', partition=3)
    """
    topic, colon, number = text.partition(":")
    if not topic or (colon and not (number.isascii() and number.isdecimal())):
        raise InvalidArgument(f"{text!r} is not a topic, such as orders, or a partition, such as orders:0")
    return NamedPartitions(topic, int(number) if colon else None)


def partitions_named(log: Log, names: Iterable[NamedPartitions]) -> list[TopicPartition]:
    """Each partition once, in order; UnknownTopic, UnknownPartition."""
    from foldlog.client.positions import TopicPartition

    found: set[TopicPartition] = set()
    for topic, number in names:
        count = log.topic(topic).partition_count
        if number is not None and number >= count:
            raise UnknownPartition(topic, number, count)
        found.update(TopicPartition(topic, each) for each in (range(count) if number is None else (number,)))
    return sorted(found)


def topics_option() -> Option:
    return option(
        "--topic",
        metavar=TOPIC_PARTITION,
        dest="topics",
        read=parse_topic_partition,
        told="only this topic, or this partition; repeatable",
        is_repeated=True,
    )


# --- looking --------------------------------------------------------------------------------------------------------


@command(
    argument("patterns", "PATTERN", "only these: names, or patterns such as 'app-*'", is_many=True, is_needed=False),
    quiet_option(),
    switch("--internal", told="also internal groups, in which foldlog copy keeps its progress"),
    format_option(),
    *log_options(),
)
def list_groups(arguments: Arguments) -> int:
    with open_log(arguments, write=False) as log:
        names = chosen_groups(log, arguments.patterns, include_internal=arguments.internal)
        if arguments.quiet:
            return show_names(names)
        runs = FoldRunsOf(log)
        groups = [facts_of(log, name, runs) for name in names]
    what = "no group matches" if arguments.patterns else "there are no groups: nobody has committed anything"
    show(arguments, LIST_COLUMNS, [group.row() for group in groups], nothing=what)
    return DONE


@command(
    argument("groups", "GROUP", "a name, or a pattern such as 'app-*'", is_many=True),
    format_option(),
    *log_options(),
)
def describe_groups(arguments: Arguments) -> int:
    with open_log(arguments, write=False) as log:
        runs = FoldRunsOf(log)
        groups = [facts_of(log, name, runs) for name in chosen_groups(log, arguments.groups)]
    if not groups:
        raise UnknownGroup(f"no group has such a name: {' '.join(arguments.groups)}; to see all: foldlog group list")
    if arguments.format == "json":
        show_json([{**group.row(), "members": member_rows(group), "cursors": cursor_rows(group)} for group in groups])
        return DONE
    for index, group in enumerate(groups):
        if index:
            say("")
        _describe(arguments, group)
    return DONE


def _describe(arguments: Arguments, group: GroupFacts) -> None:
    lag = "" if group.lag is None else f", lag {group.lag}"
    readers = counted(group.reader_count, "member" if group.runs is None else "runner")
    say(f"{group.name}: {group.state}, {readers}{lag}")
    description = group.description
    if description.group_type == GroupType.SHARE:
        say(
            f"share group at epoch {description.epoch}, assigned by {description.protocol}: members share partitions"
            " and acknowledge each record; COMMITTED is the first that is not done, and LAG leaves out those that are"
        )
    elif description.epoch is not None:
        say(
            f"consumer group at epoch {description.epoch}, assigned by {description.protocol} for epoch"
            f" {description.assignment_epoch}; TARGET is what each member is to have once others gave it back"
        )
    if group.uncommitted_count:
        where = counted(group.uncommitted_count, "partition")
        say(f"nothing is committed in {where}: the lag there counts from the log's start")
    cursors = cursor_rows(group)
    if cursors:
        say("")
        print_table(arguments, CURSOR_COLUMNS, cursors)
    if group.members:
        say("")
        print_table(
            arguments,
            MEMBER_COLUMNS,
            [
                {
                    **row,
                    "partitions": len(member.assignment),
                    "target": None if member.target is None else len(member.target),
                }
                for member, row in zip(group.members, member_rows(group), strict=True)
            ],
        )


# --- moving ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Move:
    """One partition: from where the group is, None if it was never there, to the new offset."""

    partition: TopicPartition
    before: int | None
    to: int
    start: int
    end: int

    @property
    def again(self) -> int:
        """Offsets that were read before and will be read again; only as far as the log still holds them."""
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


@command(
    argument("group", "GROUP", "the group"),
    option("--to", metavar="PLACE", told=POINTS_HELP, is_needed=True),
    topics_option(),
    switch("--evict", told="make members rejoin at the new place"),
    dry_run_option(),
    format_option(),
    *log_options(),
    more=(
        "  foldlog group seek fraud --to @-6h --topic orders --dry-run -d data\n"
        "\n"
        "Without --topic it moves the group in every partition that it has committed. It does not move a group with"
        " members, because they would commit their own place again. Stop them, or use --evict: it removes them from"
        " the group and moves it before they rejoin, so that they continue from the new place. It cannot evict"
        " members of a queue (a share group)."
    ),
)
def seek_group(arguments: Arguments) -> int:
    spec = parse_points(arguments.to)
    if spec.note:
        remark(f"note: {spec.note}")
    with open_log(arguments, write=not arguments.dry_run) as log:
        moves = planned_moves(log, arguments.group, spec, arguments.topics)
        members = members_of(log, arguments.group)
        is_queue = bool(is_of_a_queue(backend_of(log), arguments.group))
        is_evicting = arguments.evict and not is_queue
        if members and not is_evicting and not arguments.dry_run:
            if is_queue or not is_attended():
                raise not_empty(arguments.group, members, "--evict", is_queue=is_queue)
            if not ask(f"{has_members(arguments.group, members)}; move it, and make them rejoin at the new place?"):
                return FAILED
            is_evicting = True
        if not arguments.dry_run:
            log.reset_group(arguments.group, {move.partition: move.to for move in moves}, evict=is_evicting)
    show(arguments, SEEK_COLUMNS, [move.row() for move in moves])
    again, skipped = counted(sum(move.again for move in moves), "offset"), sum(move.skipped for move in moves)
    if arguments.dry_run:
        left_out = f", {skipped} would be skipped" if skipped else ""
        remark(f"{again} would be read again{left_out}; nothing was moved (--dry-run)")
        if members and not is_evicting:
            remark(str(not_empty(arguments.group, members, "--evict", is_queue=is_queue)))
    else:
        remark(f"{again} will be read again" + (f", {skipped} will be skipped" if skipped else ""))
    return DONE


def planned_moves(log: Log, group: str, spec: PlaceSpec, topics: list[NamedPartitions] | None) -> list[Move]:
    """Where each partition would go. By default those that the group is in already."""
    positions = positions_of(log, group)
    chosen = sorted(positions) if topics is None else partitions_named(log, topics)
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
        spans = resolve(spec, log, topic, bounds=bounds)
        for partition in chosen:
            if partition.topic == topic and partition.partition in spans:
                start, end = bounds[partition.partition]
                to = spans[partition.partition].start
                moves.append(Move(partition, positions.get(partition), to, start, end))
    return moves


def members_of(log: Log, group: str) -> tuple[MemberDescription, ...]:
    """The members of the group; none if it does not exist yet."""
    try:
        return log.describe_group(group).members
    except UnknownGroup:
        return ()


# --- forgetting -----------------------------------------------------------------------------------------------------


@command(
    argument("groups", "GROUP", "its name", is_many=True),
    topics_option(),
    switch("--if-exists", told="do nothing if the group does not exist"),
    dry_run_option(),
    yes_option(),
    format_option(),
    *log_options(),
    more="With --topic, this deletes only what they committed there.",
)
def delete_groups(arguments: Arguments) -> int:
    with open_log(arguments, write=not arguments.dry_run) as log:
        known = set(log.groups())
        missing = [name for name in arguments.groups if name not in known]
        if missing and not arguments.if_exists:
            raise UnknownGroup(f"there is no group {missing[0]!r}; to see all: foldlog group list")
        chosen = [name for name in dict.fromkeys(arguments.groups) if name in known]
        queues = _queues_among(log, chosen, arguments)
        offsets = {name: _offsets_to_forget(log, name, arguments) for name in chosen}
        losses = {name: _loss(len(each), is_queue=name in queues) for name, each in offsets.items()}
        if chosen and not arguments.dry_run:
            if not is_confirmed(arguments, f"delete {_named(losses)} for good?"):
                return FAILED
            for name in chosen:
                if arguments.topics is None:
                    log.delete_group(name)
                else:
                    log.delete_offsets(name, offsets[name])
    went = "would be deleted" if arguments.dry_run else "deleted"
    outcomes = [
        Outcome(
            f"{name}: {went}, {losses[name]}",
            {"group": name, "status": went, "offsets": len(offsets[name])},
        )
        for name in chosen
    ]
    outcomes += [Outcome(f"{name}: does not exist", {"group": name, "status": "does not exist"}) for name in missing]
    show_outcomes(arguments, outcomes)
    return DONE


def _queues_among(log: Log, groups: Iterable[str], arguments: Arguments) -> set[str]:
    """The share groups among these. Raises InvalidArgument if one is to be forgotten in some topics only."""
    found = {name for name in groups if is_of_a_queue(backend_of(log), name)}
    if found and arguments.topics is not None:
        raise InvalidArgument(
            f"group {min(found)!r} belongs to a queue and can only be deleted as a whole: leave out --topic, or move it"
            " in that topic with foldlog group seek"
        )
    return found


def _offsets_to_forget(log: Log, group: str, arguments: Arguments) -> list[TopicPartition]:
    known = sorted(positions_of(log, group))
    if arguments.topics is None:
        return known
    wanted = set(partitions_named(log, arguments.topics))
    return [partition for partition in known if partition in wanted]


def _loss(count: int, *, is_queue: bool) -> str:
    return f"its place in {counted(count, 'partition')}" if is_queue else counted(count, "committed offset")


def _named(losses: dict[str, str]) -> str:
    return "; ".join(f"{group} ({loss})" for group, loss in losses.items())
