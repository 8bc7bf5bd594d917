"""`foldlog topic trim|compact`: remove records that are old, or that newer ones of their key have replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from foldlog.cli.confirmation import dry_run_option, is_confirmed, yes_option
from foldlog.cli.exit_codes import DONE, FAILED
from foldlog.cli.log_options import log_options, open_log
from foldlog.cli.output import remark
from foldlog.cli.parsing import Arguments, argument, command, option, switch
from foldlog.cli.records.options import partitions_option
from foldlog.cli.tables import Column, format_option, show
from foldlog.cli.topic.facts import chosen_topics, partitions_of, setting_value
from foldlog.cli.units import size_text
from foldlog.cli.wording import counted
from foldlog.client.places import POINT_HELP, PlaceSpec, parse_point, resolve
from foldlog.errors import InvalidArgument, UnknownPartition

if TYPE_CHECKING:
    from foldlog.client.log import Log

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


def _size(value: object) -> str:
    return size_text(value) if isinstance(value, int) else str(value)


TRIM_COLUMNS: Final = (
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", is_number=True),
    Column("start", "START", is_number=True),
    Column("new_start", "NEW START", is_number=True),
    Column("end", "END", is_number=True),
    Column("removed", "REMOVED", is_number=True),
)
COMPACT_COLUMNS: Final = (
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", is_number=True),
    Column("records_before", "RECORDS", is_number=True),
    Column("records_after", "NOW", is_number=True),
    Column("bytes_before", "SIZE", is_number=True, text=_size),
    Column("bytes_after", "NOW", is_number=True, text=_size),
    Column("segments_before", "SEGMENTS", is_number=True, is_wide=True),
    Column("segments_after", "NOW", is_number=True, is_wide=True),
)
RECOMPRESS_COLUMNS: Final = (
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", is_number=True),
    Column("bytes_before", "SIZE", is_number=True, text=_size),
    Column("bytes_after", "NOW", is_number=True, text=_size),
    Column("batches", "BATCHES", is_number=True),
    Column("batches_rewritten", "REWRITTEN", is_number=True),
    Column("segments", "SEGMENTS", is_number=True, is_wide=True),
    Column("segments_rewritten", "REWRITTEN", is_number=True, is_wide=True),
)
PLANNED_COLUMNS: Final = (
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", is_number=True),
    Column("offsets", "OFFSETS", is_number=True),
    Column("size_bytes", "SIZE", is_number=True, text=_size),
    Column("segments", "SEGMENTS", is_number=True),
)


# --- trim -----------------------------------------------------------------------------------------------------------


@command(
    argument("topic", "TOPIC", "the topic"),
    option("--before", metavar="PLACE", told=POINT_HELP, is_needed=True),
    partitions_option(),
    dry_run_option(),
    yes_option(),
    format_option(),
    *log_options(),
    more=(
        "  foldlog topic trim orders --before @-30d --dry-run -d data\n"
        "\n"
        "This moves the log start offset to the place; offsets are never used again. With --partitions, other"
        " partitions stay as they are."
    ),
)
def trim_topic(arguments: Arguments) -> int:
    spec = parse_point(arguments.before)
    if spec.note:
        remark(f"note: {spec.note}")
    with open_log(arguments, write=not arguments.dry_run) as log:
        rows = planned_trim(log, arguments.topic, spec, arguments.partitions)
        removed = sum(int(str(row["removed"])) for row in rows)
        if removed and not arguments.dry_run:
            if not is_confirmed(arguments, f"delete {counted(removed, 'offset')} of {arguments.topic} for good?"):
                return FAILED
            before = {int(str(row["partition"])): int(str(row["new_start"])) for row in rows if row["removed"]}
            log.delete_records(arguments.topic, before)
    show(arguments, TRIM_COLUMNS, rows)
    if arguments.dry_run:
        remark(f"{counted(removed, 'offset')} would be deleted; nothing was changed (--dry-run)")
    elif not removed:
        remark("there is nothing before that place")
    return DONE


def planned_trim(log: Log, topic: str, spec: PlaceSpec, partitions: Sequence[int] | None) -> list[dict[str, object]]:
    """Per partition, where the log starts and where it would start."""
    bounds: Mapping[int, tuple[int, int]] = log.offsets(topic)
    for number in partitions or ():
        if number not in bounds:
            raise UnknownPartition(topic, number, len(bounds))
    chosen = {number: at for number, at in bounds.items() if partitions is None or number in partitions}
    for number, (_, end) in chosen.items():
        # Elsewhere an offset beyond the end usually means the end. Here that would delete everything.
        if spec.start.kind == "offset" and spec.start.value > end:
            raise InvalidArgument(
                f"{topic}-{number} ends at {end}, before offset {spec.start.value}; nothing was deleted: say 'end' to"
                " delete everything, or name the partitions that are meant with -p"
            )
    spans = resolve(spec, log, topic, bounds=chosen)
    return [
        {
            "topic": topic,
            "partition": number,
            "start": start,
            "new_start": spans[number][0],
            "end": end,
            "removed": spans[number][0] - start,
        }
        for number, (start, end) in sorted(chosen.items())
    ]


# --- compact --------------------------------------------------------------------------------------------------------


@command(
    argument(
        "topics", "TOPIC", "the topics (default: all with compact in cleanup.policy)", is_many=True, is_needed=False
    ),
    option("--recompress", metavar="CODEC", choices=CODECS, told=f"one of {', '.join(CODECS)}"),
    switch("--force", told="also topics without compact in cleanup.policy"),
    dry_run_option(),
    format_option(),
    *log_options(is_for_brokers=False),
    more=(
        "The log compacts topics with compact in cleanup.policy by itself; this does it at once, for everything up"
        " to now. Offsets stay the same. A broker compacts the directory that it serves.\n"
        "\n"
        "With --recompress, it removes no record: it stores records in another codec, where that makes them"
        " smaller."
    ),
)
def compact_topics(arguments: Arguments) -> int:
    with open_log(arguments, write=not arguments.dry_run) as opened:
        log = _directory(opened, arguments)
        topics = _topics_to_compact(log, arguments)
        if arguments.dry_run:
            rows = [{"topic": topic, **partition.row()} for topic in topics for partition in partitions_of(log, topic)]
            show(arguments, PLANNED_COLUMNS, rows)
            remark("this would be compacted; nothing was changed (--dry-run)")
            return DONE
        if arguments.recompress:
            rows = [row for topic in topics for row in _recompressed(log, topic, arguments.recompress)]
        else:
            rows = [row for topic in topics for row in _compacted(log, topic)]
    columns = RECOMPRESS_COLUMNS if arguments.recompress else COMPACT_COLUMNS
    show(arguments, columns, rows, nothing="no topic has compact in its cleanup.policy; name a topic")
    return DONE


def _directory(log: Log, arguments: Arguments) -> Log:
    """The log, if it can be compacted from here."""
    from foldlog.client.backends.directory import is_directory

    if not is_directory(log):
        if arguments.recompress:
            raise InvalidArgument("--recompress works on a directory that no broker serves: stop it, and use -d DIR")
        raise InvalidArgument(
            "a broker compacts its topics by itself, when it is due; use -d DIR for a directory that no broker serves"
        )
    return log


def _topics_to_compact(log: Log, arguments: Arguments) -> list[str]:
    named = chosen_topics(log, arguments.topics, include_internal=not arguments.recompress)
    if arguments.recompress:
        return named
    policies = {topic: setting_value(log.topic_config(topic), "cleanup.policy") or "" for topic in named}
    if not arguments.topics:
        return [topic for topic in named if "compact" in policies[topic]]
    kept = [topic for topic in named if "compact" not in policies[topic]]
    if kept and not arguments.force:
        raise InvalidArgument(
            f"{kept[0]} has cleanup.policy={policies[kept[0]]}, so all its records are wanted, not only the newest of"
            " each key; say --force if they are not"
        )
    return named


def _compacted(log: Log, topic: str) -> list[dict[str, object]]:
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "records_before": report.records_before,
            "records_after": report.records_after,
            "bytes_before": report.bytes_before,
            "bytes_after": report.bytes_after,
            "segments_before": report.segments_before,
            "segments_after": report.segments_after,
        }
        for partition, report in sorted(log.compact(topic).items())
    ]


def _recompressed(log: Log, topic: str, codec: str) -> list[dict[str, object]]:
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "bytes_before": report.bytes_before,
            "bytes_after": report.bytes_after,
            "batches": report.batches,
            "batches_rewritten": report.batches_rewritten,
            "segments": report.segments,
            "segments_rewritten": report.segments_rewritten,
        }
        for partition, report in sorted(log.recompress(topic, codec).items())
    ]
