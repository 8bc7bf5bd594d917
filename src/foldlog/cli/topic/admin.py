"""`foldlog topic list|create|describe|alter|delete`: the topics, and their settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from foldlog.cli.confirmation import dry_run_option, is_confirmed, yes_option
from foldlog.cli.exit_codes import DONE, FAILED
from foldlog.cli.log_options import init_option, log_options, open_log
from foldlog.cli.output import remark, say
from foldlog.cli.parsing import Arguments, Option, argument, command, option, switch
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
from foldlog.cli.topic.facts import (
    PartitionFacts,
    chosen_topics,
    limit_text,
    parse_settings,
    partitions_of,
    setting_text,
    setting_value,
    settings_rows,
    total,
    with_holders,
)
from foldlog.cli.units import size_text
from foldlog.cli.wording import counted
from foldlog.errors import FoldlogError, InvalidArgument, InvalidConfig, TopicExists, UnknownTopic, brief_repr

if TYPE_CHECKING:
    from foldlog.client.log import Log


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
    Column("stable", "COMMITTED UP TO", is_number=True, is_optional=True),
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


def settings_option(told: str) -> Option:
    return option("-c", "--topic-config", dest="settings", metavar="NAME=VALUE", told=told, is_repeated=True)


def count(text: str) -> int:
    """A number of partitions."""
    if not (text.isascii() and text.isdecimal() and int(text) >= 1):
        raise InvalidArgument(f"{text!r} is not a number of 1 or more")
    return int(text)


# --- looking --------------------------------------------------------------------------------------------------------


@command(
    argument("patterns", "PATTERN", "only these: names, or patterns such as 'pay*'", is_many=True, is_needed=False),
    quiet_option(),
    switch("--internal", told="also internal topics, such as __consumer_offsets"),
    format_option(),
    *log_options(),
    more=(
        "OFFSETS is the number of offsets between start and end: the number of records, or more after compaction."
        " Sizes on disk are known only for directories."
    ),
)
def list_topics(arguments: Arguments) -> int:
    with open_log(arguments, write=False) as log:
        names = chosen_topics(log, arguments.patterns, include_internal=arguments.internal)
        if arguments.quiet:
            return show_names(names)
        rows = [_topic_row(log, name, partitions_of(log, name)) for name in names]
    what = "no topic matches" if arguments.patterns else "there are no topics"
    show(arguments, LIST_COLUMNS, rows, nothing=f"{what}; to make one: foldlog topic create NAME")
    for row in rows:
        if row["error"]:
            remark(f"damaged: {row['error']}")
    return FAILED if any(row["error"] for row in rows) else DONE


def _topic_row(log: Log, name: str, partitions: Sequence[PartitionFacts]) -> dict[str, object]:
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


@command(
    argument("topics", "TOPIC", "a name, or a pattern such as 'pay*'", is_many=True),
    switch("--all", told="every setting, also those with their default"),
    format_option(),
    *log_options(),
    more="Shows the settings that differ from their default; --all, or --format wide, shows every one.",
)
def describe_topics(arguments: Arguments) -> int:
    with open_log(arguments, write=False) as log:
        described = []
        for name in chosen_topics(log, arguments.topics):
            partitions = with_holders(log, name, partitions_of(log, name))
            described.append((_topic_row(log, name, partitions), partitions, settings_rows(log, name)))
        if not described:
            raise UnknownTopic(" ".join(arguments.topics), log.topics())
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
    arguments: Arguments,
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
        if partition.stable is not None:
            say(_held_text(partition))
    shown = [one for one in settings if is_wide or arguments.all or not one["is_default"]]
    say("")
    if not shown:
        say("every setting has its default (--all shows them)")
        return
    print_table(arguments, SETTING_COLUMNS, shown)


def _held_text(partition: PartitionFacts) -> str:
    who = ", ".join(partition.held_by)
    holds = f"{who} has a transaction open" if who else "a transaction hangs that no transactional id has open"
    return f"partition {partition.partition}: committed records are read up to offset {partition.stable}: {holds}"


def _extent(partitions: Sequence[PartitionFacts]) -> str:
    """The size of a topic, for a message."""
    offsets = total(partition.offsets for partition in partitions)
    size_bytes = total(partition.size_bytes for partition in partitions)
    told = [counted(len(partitions), "partition")]
    told += [] if offsets is None else [counted(offsets, "offset")]
    told += [] if size_bytes is None else [size_text(size_bytes)]
    return ", ".join(told)


# --- changing -------------------------------------------------------------------------------------------------------


@command(
    argument("topics", "TOPIC", "its name", is_many=True),
    init_option(),
    option("-p", "--partitions", metavar="N", read=count, default="1", told="number of partitions (default: 1)"),
    option(
        "--replication-factor",
        metavar="N",
        read=count,
        told="number of replicas (default: the cluster's); 1 with -d",
    ),
    settings_option("a setting, such as retention.ms=7d; repeatable"),
    switch("--if-not-exists", told="do nothing if the topic exists"),
    format_option(),
    *log_options(),
    more=(
        "Settings have Kafka's names. You can write times and sizes as 7d or 1GiB:\n"
        "\n"
        "  foldlog topic create orders -p 3 -c retention.ms=7d -d data\n"
        "\n"
        "If the directory does not exist or is empty, this makes a log in it."
    ),
)
def create_topics(arguments: Arguments) -> int:
    from foldlog.broker.topics.names import check_user_topic_name
    from foldlog.client.positions import check_one_replica

    settings = {name: value for name, value in parse_settings(arguments.settings or ()).items() if value is not None}
    for name in arguments.topics:
        check_user_topic_name(name)  # before a directory is created for it
    if arguments.directory:
        check_one_replica(arguments.replication_factor)
    names = list(dict.fromkeys(arguments.topics))
    with open_log(arguments, write=True, make=True) as log:
        known = set(log.topics(include_internal=True))
        there = [name for name in names if name in known]
        if there and not arguments.if_not_exists:
            raise TopicExists(there[0])  # before any of the others is created
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


def _created(log: Log, name: str, arguments: Arguments, settings: Mapping[str, str]) -> Outcome:
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


@command(
    argument("topics", "TOPIC", "its name", is_many=True),
    option("-p", "--partitions", metavar="N", read=count, told="add partitions until there are N"),
    settings_option("a setting and its value, or NAME= for the default; repeatable"),
    dry_run_option(),
    format_option(),
    *log_options(),
    more=(
        "  foldlog topic alter orders -c retention.ms=1d -c segment.bytes= -d data\n"
        "\n"
        "NAME= without a value restores the default. You can add partitions, but not remove them. Keys then move to"
        " other partitions, so the order of a key starts anew."
    ),
)
def alter_topics(arguments: Arguments) -> int:
    changes = parse_settings(arguments.settings or ())
    if not changes and arguments.partitions is None:
        raise InvalidArgument("say what to change: -c NAME=VALUE, or --partitions N")
    outcomes: list[Outcome] = []
    with open_log(arguments, write=not arguments.dry_run) as log:
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
    """Refuse before anything is changed what would be refused halfway through."""
    from foldlog.broker.topics.config import TOPIC_SETTINGS, TopicConfig

    # Settings that only a cluster has are checked by the cluster.
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


@command(
    argument("topics", "TOPIC", "its name", is_many=True),
    switch("--if-exists", told="do nothing if the topic does not exist"),
    dry_run_option(),
    yes_option(),
    format_option(),
    *log_options(),
)
def delete_topics(arguments: Arguments) -> int:
    with open_log(arguments, write=not arguments.dry_run) as log:
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
