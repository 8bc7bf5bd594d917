"""`foldlog group`: how far groups have read, who their members are, and moving them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from foldlog.cli.confirmation import add_dry_run_option, add_yes_option, is_confirmed
from foldlog.cli.exit_codes import DONE, FAILED
from foldlog.cli.group_facts import GroupFacts, chosen_groups, cursor_rows, facts_of, member_rows
from foldlog.cli.group_seek import seek_group
from foldlog.cli.output import say
from foldlog.cli.parsing import Verbs, add_verb, add_verbs
from foldlog.cli.place_syntax import PLACE_HELP, take_places
from foldlog.cli.places import add_place_options, open_place
from foldlog.cli.tables import (
    Column,
    Outcome,
    add_format_option,
    add_quiet_option,
    print_table,
    show,
    show_json,
    show_names,
    show_outcomes,
)
from foldlog.cli.topic_names import TOPIC_PARTITION, parse_topic_partition, partitions_named
from foldlog.cli.wording import counted
from foldlog.errors import InvalidArgument, UnknownGroup

if TYPE_CHECKING:
    from foldlog.cli.places import AnyLog
    from foldlog.client.positions import TopicPartition

DESCRIPTION: Final = """\
A group is a name under which readers share a topic's partitions, and under which the log keeps how far they have read:
the committed offset of each partition, which is the next one they want. Its lag is what lies from there to the end."""

LIST_COLUMNS: Final = (
    Column("group", "GROUP"),
    Column("state", "STATE"),
    Column("members", "MEMBERS", is_number=True),
    Column("lag", "LAG", is_number=True),
    Column("topics", "TOPICS", text=lambda value: ",".join(value) if isinstance(value, list) else str(value)),
    Column("protocol", "ASSIGNOR", is_wide=True),
)
CURSOR_COLUMNS: Final = (
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", is_number=True),
    Column("committed", "COMMITTED", is_number=True),
    Column("end", "END", is_number=True),
    Column("lag", "LAG", is_number=True),
    Column("client", "MEMBER"),
    Column("start", "START", is_number=True, is_wide=True),
    Column("member_id", "MEMBER ID", is_wide=True),
    Column("metadata", "NOTE", is_wide=True, is_optional=True),
)
MEMBER_COLUMNS: Final = (
    Column("client_id", "CLIENT"),
    Column("host", "HOST"),
    Column("partitions", "PARTITIONS", is_number=True),
    Column("member_id", "MEMBER ID", is_wide=True),
    Column("instance_id", "INSTANCE", is_wide=True),
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    verbs = add_verbs(parser)
    _configure_looking(verbs)
    _configure_seek(verbs)
    _configure_delete(verbs)


def _configure_looking(verbs: Verbs) -> None:
    listing = add_verb(verbs, "list", "the groups there are, and their lag", list_groups)
    listing.add_argument(
        "patterns", metavar="PATTERN", nargs="*", help="only these: names, or patterns such as 'app-*'"
    )
    add_quiet_option(listing)
    describe = add_verb(
        verbs, "describe", "where a group stands in each partition, and who its members are", describe_groups
    )
    describe.add_argument("groups", metavar="GROUP", nargs="+", help="a name, or a pattern such as 'app-*'")
    for parser in (listing, describe):
        add_format_option(parser)
        add_place_options(parser)


def _configure_seek(verbs: Verbs) -> None:
    seek = add_verb(
        verbs,
        "seek",
        "move a group: the next read goes on from there",
        seek_group,
        "  foldlog group seek fraud --to @-6h --topic orders --dry-run -d data\n\n"
        "Without --topic it moves in every partition it has committed in. A group with members is left alone, since"
        " they would commit their own place again: stop them, or say --evict, which removes them from the group and"
        " moves it before they are back, so that they go on from the new place.",
    )
    seek.add_argument("group", metavar="GROUP", help="the group")
    seek.add_argument("--to", metavar="PLACE", required=True, help=PLACE_HELP)
    _add_topics_option(seek)
    seek.add_argument("--evict", action="store_true", help="make members rejoin at the new place")
    take_places(seek)
    add_dry_run_option(seek)
    add_format_option(seek)
    add_place_options(seek)


def _configure_delete(verbs: Verbs) -> None:
    delete = add_verb(
        verbs,
        "delete",
        "forget groups without members, and what they committed",
        delete_groups,
        "With --topic, only what they committed there is forgotten.",
    )
    delete.add_argument("groups", metavar="GROUP", nargs="+", help="its name")
    _add_topics_option(delete)
    delete.add_argument("--if-exists", action="store_true", help="a group that does not exist is no error")
    add_dry_run_option(delete)
    add_yes_option(delete)
    add_format_option(delete)
    add_place_options(delete)


def _add_topics_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--topic",
        metavar=TOPIC_PARTITION,
        dest="topics",
        type=parse_topic_partition,
        action="append",
        help="only there: a topic, or one partition of it; may be given again",
    )


# --- looking --------------------------------------------------------------------------------------------------------


def list_groups(arguments: argparse.Namespace) -> int:
    with open_place(arguments, write=False) as log:
        names = chosen_groups(log, arguments.patterns)
        if arguments.quiet:
            return show_names(names)
        groups = [facts_of(log, name) for name in names]
    what = "no group has such a name" if arguments.patterns else "there are no groups: nobody has committed anything"
    show(arguments, LIST_COLUMNS, [group.row() for group in groups], nothing=what)
    return DONE


def describe_groups(arguments: argparse.Namespace) -> int:
    with open_place(arguments, write=False) as log:
        groups = [facts_of(log, name) for name in chosen_groups(log, arguments.groups)]
    if not groups:
        raise InvalidArgument(f"no group has such a name: {' '.join(arguments.groups)}; to see all: foldlog group list")
    if arguments.format == "json":
        show_json([{**group.row(), "members": member_rows(group), "cursors": cursor_rows(group)} for group in groups])
        return DONE
    for index, group in enumerate(groups):
        if index:
            say("")
        _describe(arguments, group)
    return DONE


def _describe(arguments: argparse.Namespace, group: GroupFacts) -> None:
    lag = "" if group.lag is None else f", lag {group.lag}"
    say(f"{group.name}: {group.state}, {counted(len(group.members), 'member')}{lag}")
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
                {**row, "partitions": len(member.assignment)}
                for member, row in zip(group.members, member_rows(group), strict=True)
            ],
        )


# --- forgetting -----------------------------------------------------------------------------------------------------


def delete_groups(arguments: argparse.Namespace) -> int:
    with open_place(arguments, write=not arguments.dry_run) as log:
        known = set(log.groups())
        missing = [name for name in arguments.groups if name not in known]
        if missing and not arguments.if_exists:
            raise UnknownGroup(f"there is no group {missing[0]!r}; to see all: foldlog group list")
        chosen = [name for name in dict.fromkeys(arguments.groups) if name in known]
        offsets = {name: _offsets_to_forget(log, name, arguments) for name in chosen}
        if chosen and not arguments.dry_run:
            if not is_confirmed(arguments, f"forget {_named(offsets)} for good?"):
                return FAILED
            for name in chosen:
                if arguments.topics is None:
                    log.delete_group(name)
                else:
                    log.delete_offsets(name, offsets[name])
    went = "would be forgotten" if arguments.dry_run else "forgotten"
    outcomes = [
        Outcome(
            f"{name}: {went}, {counted(len(offsets[name]), 'committed offset')}",
            {"group": name, "status": went, "offsets": len(offsets[name])},
        )
        for name in chosen
    ]
    outcomes += [Outcome(f"{name}: does not exist", {"group": name, "status": "does not exist"}) for name in missing]
    show_outcomes(arguments, outcomes)
    return DONE


def _offsets_to_forget(log: AnyLog, group: str, arguments: argparse.Namespace) -> list[TopicPartition]:
    committed = sorted(log.committed(group))
    if arguments.topics is None:
        return committed
    wanted = set(partitions_named(log, arguments.topics))
    return [partition for partition in committed if partition in wanted]


def _named(offsets: dict[str, list[TopicPartition]]) -> str:
    return "; ".join(f"{group} ({counted(len(each), 'committed offset')})" for group, each in offsets.items())
