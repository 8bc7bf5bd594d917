"""`foldlog topic list|create|describe|alter|delete`: which topics there are, and what they are like."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from foldlog.cli.confirmation import add_dry_run_option, add_yes_option, is_confirmed
from foldlog.cli.exit_codes import DONE, FAILED
from foldlog.cli.output import remark, say
from foldlog.cli.parsing import Verbs, add_verb
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
from foldlog.cli.topic_facts import (
    PartitionFacts,
    chosen_topics,
    limit_text,
    parse_settings,
    partitions_of,
    setting_text,
    setting_value,
    settings_rows,
    total,
)
from foldlog.cli.units import size_text
from foldlog.cli.wording import counted
from foldlog.errors import FoldlogError, InvalidArgument, InvalidConfig, TopicExists, UnknownTopic, brief_repr

if TYPE_CHECKING:
    from foldlog.cli.places import AnyLog


def _size(value: object) -> str:
    return size_text(value) if isinstance(value, int) else str(value)


LIST_COLUMNS: Final = (
    Column("topic", "TOPIC"),
    Column("partitions", "PARTITIONS", is_number=True),
    Column("offsets", "OFFSETS", is_number=True),
    Column("size_bytes", "SIZE", is_number=True, is_optional=True, text=_size),
    Column("cleanup_policy", "CLEANUP"),
    Column("segments", "SEGMENTS", is_number=True, is_wide=True, is_optional=True),
    Column("retention_ms", "RETENTION", is_wide=True, text=lambda value: limit_text("retention.ms", int(str(value)))),
    Column(
        "retention_bytes", "MAX SIZE", is_wide=True, text=lambda value: limit_text("retention.bytes", int(str(value)))
    ),
    Column("id", "ID", is_wide=True),
)
PARTITION_COLUMNS: Final = (
    Column("partition", "PARTITION", is_number=True),
    Column("start", "START", is_number=True),
    Column("end", "END", is_number=True),
    Column("offsets", "OFFSETS", is_number=True),
    Column("size_bytes", "SIZE", is_number=True, is_optional=True, text=_size),
    Column("segments", "SEGMENTS", is_number=True, is_wide=True, is_optional=True),
)
SETTING_COLUMNS: Final = (
    Column("name", "SETTING"),
    Column("text", "VALUE"),
    Column("is_default", "DEFAULT", is_wide=True, text=lambda value: "yes" if value else "no"),
    Column("about", "WHAT IT DOES", is_wide=True),
)


def configure(verbs: Verbs) -> None:
    _configure_looking(verbs)
    _configure_changing(verbs)


def _configure_looking(verbs: Verbs) -> None:
    listing = add_verb(
        verbs,
        "list",
        "the topics there are",
        list_topics,
        "OFFSETS is how many lie between start and end: as many as there are records, or more where compaction removed"
        " some. Sizes on disk are known of directories only.",
    )
    listing.add_argument("patterns", metavar="PATTERN", nargs="*", help="only these: names, or patterns such as 'pay*'")
    add_quiet_option(listing)
    listing.add_argument("--internal", action="store_true", help="also topics of the log's own, such as the groups'")

    describe = add_verb(
        verbs,
        "describe",
        "partitions and settings of topics",
        describe_topics,
        "Shows the settings that differ from their default; --all, or --format wide, shows every one.",
    )
    describe.add_argument("topics", metavar="TOPIC", nargs="+", help="a name, or a pattern such as 'pay*'")
    describe.add_argument("--all", action="store_true", help="every setting, also those that have their default")
    for parser in (listing, describe):
        add_format_option(parser)
        add_place_options(parser)


def _configure_changing(verbs: Verbs) -> None:
    create = add_verb(
        verbs,
        "create",
        "make topics",
        create_topics,
        "Settings have Kafka's names; times and sizes may be written as 7d or 1GiB:\n\n"
        "  foldlog topic create orders -p 3 -c retention.ms=7d -d data\n\n"
        "A directory that holds no log yet becomes one.",
    )
    create.add_argument("topics", metavar="TOPIC", nargs="+", help="its name")
    create.add_argument("-p", "--partitions", metavar="N", type=count, default=1, help="how many (default: 1)")
    create.add_argument(
        "--replication-factor",
        metavar="N",
        type=count,
        help="how many brokers of a cluster have each record (default: as the cluster says)",
    )
    _settings_option(create, "a setting, such as retention.ms=7d; may be given again")
    create.add_argument("--if-not-exists", action="store_true", help="leave a topic that exists as it is: no error")

    alter = add_verb(
        verbs,
        "alter",
        "change settings of topics, or add partitions",
        alter_topics,
        "  foldlog topic alter orders -c retention.ms=1d -c segment.bytes= -d data\n\n"
        "Nothing behind the sign puts a setting back to its default. Partitions can only become more, and keys move"
        " then: the order of a key starts anew in another partition.",
    )
    alter.add_argument("topics", metavar="TOPIC", nargs="+", help="its name")
    alter.add_argument("-p", "--partitions", metavar="N", type=count, help="add partitions until there are N")
    _settings_option(alter, "a setting and its value, or NAME= for the default; may be given again")
    add_dry_run_option(alter)

    delete = add_verb(verbs, "delete", "remove topics, their records, and what groups committed in them", delete_topics)
    delete.add_argument("topics", metavar="TOPIC", nargs="+", help="its name")
    delete.add_argument("--if-exists", action="store_true", help="a topic that does not exist is no error")
    add_dry_run_option(delete)
    add_yes_option(delete)
    for parser in (create, alter, delete):
        add_format_option(parser)
        add_place_options(parser)


def _settings_option(parser: argparse.ArgumentParser, told: str) -> None:
    parser.add_argument(
        "-c", "--topic-config", dest="settings", metavar="NAME=VALUE", action="append", default=[], help=told
    )


def count(text: str) -> int:
    """A number of partitions; argparse makes the sentence."""
    if not (text.isascii() and text.isdecimal() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)


# --- looking --------------------------------------------------------------------------------------------------------


def list_topics(arguments: argparse.Namespace) -> int:
    with open_place(arguments, write=False) as log:
        names = chosen_topics(log, arguments.patterns, include_internal=arguments.internal)
        if arguments.quiet:
            return show_names(names)
        rows = [_topic_row(log, name, partitions_of(log, name)) for name in names]
    what = "no topic has such a name" if arguments.patterns else "there are no topics"
    show(arguments, LIST_COLUMNS, rows, nothing=f"{what}; to make one: foldlog topic create NAME")
    for row in rows:
        if row["error"]:
            remark(f"damaged: {row['error']}")
    return FAILED if any(row["error"] for row in rows) else DONE


def _topic_row(log: AnyLog, name: str, partitions: Sequence[PartitionFacts]) -> dict[str, object]:
    config = log.topic_config(name)
    return {
        "topic": name,
        "id": str(log.topic(name).topic_id),
        "partitions": len(partitions),
        "offsets": total(partition.offsets for partition in partitions),
        "size_bytes": total(partition.size_bytes for partition in partitions),
        "segments": total(partition.segments for partition in partitions),
        "cleanup_policy": setting_value(config, "cleanup.policy"),
        "retention_ms": _number(setting_value(config, "retention.ms")),
        "retention_bytes": _number(setting_value(config, "retention.bytes")),
        "error": "; ".join(partition.error for partition in partitions if partition.error) or None,
    }


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def describe_topics(arguments: argparse.Namespace) -> int:
    with open_place(arguments, write=False) as log:
        described = []
        for name in chosen_topics(log, arguments.topics):
            partitions = partitions_of(log, name)
            described.append((_topic_row(log, name, partitions), partitions, settings_rows(log, name)))
    if not described:
        raise InvalidArgument(f"no topic has such a name: {' '.join(arguments.topics)}; to see all: foldlog topic list")
    if arguments.format == "json":
        show_json(
            [
                {
                    **row,
                    "partitions": [partition.row() for partition in partitions],
                    "configs": [{key: setting[key] for key in ("name", "value", "is_default")} for setting in settings],
                }
                for row, partitions, settings in described
            ]
        )
    else:
        for index, (row, partitions, settings) in enumerate(described):
            if index:
                say("")
            _describe(arguments, row, partitions, settings)
    return FAILED if any(row["error"] for row, _, _ in described) else DONE


def _describe(
    arguments: argparse.Namespace,
    row: dict[str, object],
    partitions: Sequence[PartitionFacts],
    settings: Sequence[dict[str, object]],
) -> None:
    is_wide = arguments.format == "wide"
    say(f"{row['topic']}: {_extent(partitions)}")
    if is_wide:
        say(f"id {row['id']}")
    say("")
    print_table(arguments, PARTITION_COLUMNS, [one.row() for one in partitions])
    for partition in partitions:
        if partition.error:
            remark(f"damaged: {partition.error}")
    shown = [one for one in settings if is_wide or arguments.all or not one["is_default"]]
    say("")
    if not shown:
        say("every setting has its default (--all shows them)")
        return
    print_table(arguments, SETTING_COLUMNS, shown)


def _extent(partitions: Sequence[PartitionFacts]) -> str:
    """How much of a topic there is, for a sentence."""
    offsets = total(partition.offsets for partition in partitions)
    size_bytes = total(partition.size_bytes for partition in partitions)
    told = [counted(len(partitions), "partition")]
    told += [] if offsets is None else [counted(offsets, "offset")]
    told += [] if size_bytes is None else [size_text(size_bytes)]
    return ", ".join(told)


# --- changing -------------------------------------------------------------------------------------------------------


def create_topics(arguments: argparse.Namespace) -> int:
    from foldlog.broker.topic_names import check_user_topic_name
    from foldlog.client.positions import check_one_replica

    settings = {name: value for name, value in parse_settings(arguments.settings).items() if value is not None}
    for name in arguments.topics:
        check_user_topic_name(name)  # before a directory is made for it
    if arguments.directory:
        check_one_replica(arguments.replication_factor)
    names = list(dict.fromkeys(arguments.topics))
    with open_place(arguments, write=True, make=True) as log:
        known = set(log.topics(include_internal=True))
        there = [name for name in names if name in known]
        if there and not arguments.if_not_exists:
            raise TopicExists(there[0])  # before any of the others is made
        outcomes: list[Outcome] = []
        try:
            for name in names:
                outcomes.append(_created(log, name, arguments, settings))  # noqa: PERF401 kept when the next one fails
        except FoldlogError:
            if outcomes:
                show_outcomes(arguments, outcomes)
            raise
    show_outcomes(arguments, outcomes)
    return DONE


def _created(log: AnyLog, name: str, arguments: argparse.Namespace, settings: Mapping[str, str]) -> Outcome:
    try:
        replicas = arguments.replication_factor
        made = log.create_topic(name, arguments.partitions, settings, replication_factor=replicas)
        status = "created"
    except TopicExists:
        if not arguments.if_not_exists:
            raise
        made, status = log.topic(name), "exists"
    return Outcome(
        f"{name}: {status} with {counted(made.partition_count, 'partition')}",
        {"topic": name, "status": status, "partitions": made.partition_count},
    )


def alter_topics(arguments: argparse.Namespace) -> int:
    changes = parse_settings(arguments.settings)
    if not changes and arguments.partitions is None:
        raise InvalidArgument("say what to change: -c NAME=VALUE, or --partitions N")
    outcomes: list[Outcome] = []
    with open_place(arguments, write=not arguments.dry_run) as log:
        before = {name: (log.topic(name).partition_count, log.topic_config(name)) for name in arguments.topics}
        for name, (partitions, config) in before.items():
            _check_alteration(name, partitions, config, changes, arguments.partitions)
        for name, (partitions, config) in before.items():
            if changes and not arguments.dry_run:
                log.alter_topic(name, changes)
            if arguments.partitions not in (None, partitions) and not arguments.dry_run:
                log.grow_topic(name, arguments.partitions)
            after = log.topic_config(name)
            for setting, value in changes.items():
                now = value if arguments.dry_run else setting_value(after, setting)
                outcomes.append(_setting_outcome(name, setting, setting_value(config, setting), now))
            if arguments.partitions is not None:
                outcomes.append(
                    Outcome(
                        f"{name}: {partitions} -> {counted(arguments.partitions, 'partition')}",
                        {"topic": name, "partitions": {"from": partitions, "to": arguments.partitions}},
                    )
                )
    show_outcomes(arguments, outcomes)
    if arguments.dry_run:
        remark("nothing was changed (--dry-run)")
    return DONE


def _check_alteration(
    name: str, partitions: int, config: Mapping[str, object], changes: dict[str, str | None], wanted: int | None
) -> None:
    """What would be refused halfway through is refused before anything is changed."""
    from foldlog.broker.topic_config import TOPIC_SETTINGS, TopicConfig

    # Settings that only a cluster has are for the cluster to judge.
    known = {setting: value for setting, value in changes.items() if setting in TOPIC_SETTINGS or setting not in config}
    TopicConfig.parse({setting: value for setting, value in known.items() if value is not None})
    for setting in known:
        if setting not in config:
            raise InvalidConfig(
                f"{name} has no setting {brief_repr(setting)}; to see all: foldlog topic describe --all"
            )
    if wanted is not None and wanted < partitions:
        raise InvalidArgument(
            f"{name} has {counted(partitions, 'partition')}, and they cannot become {wanted}: their records would be"
            " lost; make another topic and copy them"
        )


def _setting_outcome(topic: str, setting: str, before: str | None, now: str | None) -> Outcome:
    shown = [setting_text(setting, value) if value is not None else "its default" for value in (before, now)]
    told = f"is {shown[1]} already" if before == now else f"{shown[0]} -> {shown[1]}"
    return Outcome(f"{topic}: {setting} {told}", {"topic": topic, "setting": setting, "from": before, "to": now})


def delete_topics(arguments: argparse.Namespace) -> int:
    with open_place(arguments, write=not arguments.dry_run) as log:
        known = set(log.topics(include_internal=True))
        missing = [name for name in arguments.topics if name not in known]
        if missing and not arguments.if_exists:
            raise UnknownTopic(missing[0], log.topics())
        chosen = [name for name in dict.fromkeys(arguments.topics) if name in known]
        extents = {name: _extent(partitions_of(log, name)) for name in chosen}
        named = "; ".join(f"{name} ({extent})" for name, extent in extents.items())
        if chosen and not arguments.dry_run:
            if not is_confirmed(arguments, f"delete {named} for good?"):
                return FAILED
            for name in chosen:
                log.delete_topic(name)
    went = "would be deleted" if arguments.dry_run else "deleted"
    outcomes = [Outcome(f"{name}: {went}, {extents[name]}", {"topic": name, "status": went}) for name in chosen] + [
        Outcome(f"{name}: does not exist", {"topic": name, "status": "does not exist"}) for name in missing
    ]
    show_outcomes(arguments, outcomes)
    return DONE
