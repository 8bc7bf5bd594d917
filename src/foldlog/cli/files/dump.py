"""`foldlog dump`: the files of a log as they are on disk, for people and as JSON lines."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from foldlog.broker.data_directory import CHECKPOINT_NAME
from foldlog.broker.topics.catalog import CATALOG_NAME
from foldlog.broker.topics.names import OFFSETS_TOPIC, partition_directory
from foldlog.cli.exit_codes import DONE, FAILED
from foldlog.cli.files import dump_hints as hints
from foldlog.cli.files.check_targets import partitions_in
from foldlog.cli.files.dump_items import Item, Items
from foldlog.cli.files.dump_kafka import KAFKA_NAMES, QUORUM_NAME, items_of_kafkas, transaction_items
from foldlog.cli.files.dump_segment import SegmentDump, Wanted
from foldlog.cli.output import naming_output, say
from foldlog.cli.parsing import Arguments, argument, command, count_value, option, switch
from foldlog.cli.tables import FORMATS
from foldlog.cli.wording import counted
from foldlog.errors import InvalidArgument, LogNotFound, UnknownPartition, UnknownTopic
from foldlog.files.base import Files, read_file
from foldlog.files.posix import PosixFiles
from foldlog.log.doctor.salvage import UNKNOWN_END
from foldlog.log.epochs import NAME as EPOCHS_NAME
from foldlog.log.journal.format import JOURNAL_SUFFIX
from foldlog.log.journal.recovery import journal_files
from foldlog.log.layout import METADATA_NAME
from foldlog.log.segment import INDEX_SUFFIX, LOG_SUFFIX, SNAPSHOT_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX

DESCRIPTION: Final = """\
Shows the content of a log's files as it is on disk: the batches of segments and, with --records, their records; the
entries of indexes, producer snapshots, leader epochs, the checkpoint, the catalog and the journal. It also reads Apache
Kafka's files, including those that only Kafka has: aborted transactions, offsets of partitions, snapshots of metadata.
It shows damaged bytes in their place, continues behind them, and then exits with 1.

PATH is a file, or the directory of a partition or a log. For a directory it shows the segments, with --all also the
other files. It takes no lock: the last batch of a segment that is being written may look cut off."""

_STEM: Final = re.compile(r"(?P<base>\d{20})(?P<kind>\..*)")
_RANGE: Final = re.compile(r"(?P<start>\d*)(?P<colon>:?)(?P<stop>\d*)")
_BATCHES: Final = re.compile(r"\.log(\.cleaned|\.swap|\.\d+(-\d+)?\.cut|\.deleted)?")
_METADATA_SNAPSHOT: Final = re.compile(r"\d{20}-\d{10}\.checkpoint|bootstrap\.checkpoint")
_SMALL_NAMES: Final = (EPOCHS_NAME, METADATA_NAME)


@command(
    argument("paths", "PATH", "a file, or the directory of a partition or a log", is_many=True),
    option("--topic", metavar="T", told="only this topic of the log"),
    option("-p", "--partition", metavar="N", read=count_value(0), told="only this partition of the topic"),
    switch("--records", told="also show the records of each batch"),
    option("--offsets", metavar="A:B", told="only from offset A to before B; also A: or :B"),
    switch("--all", told="for directories, also show indexes, snapshots, epochs, checkpoint, journal"),
    option(
        "--format",
        metavar="FORMAT",
        choices=FORMATS,
        default="text",
        told="text (the default), wide (with whole values) or json (one object per line)",
    ),
    description=DESCRIPTION,
)
def run(arguments: Arguments) -> int:
    start, stop = parse_range(arguments.offsets)
    wanted = Wanted(start, stop, arguments.records, arguments.format == "wide")
    files = PosixFiles()
    is_whole = True
    for path in _all_files(files, arguments):
        if arguments.format != "json":
            say(f"{path}: {counted(os.path.getsize(path), 'byte')}")
        for item in items_of(files, path, wanted):
            is_whole = is_whole and not item.is_damage
            _show(path, item, is_json=arguments.format == "json")
    return DONE if is_whole else FAILED


def parse_range(text: str | None) -> tuple[int, int]:
    """
    >>> parse_range("100:200"), parse_range(":200"), parse_range("7") == (7, 8)
    ((100, 200), (0, 200), True)
    """
    if text is None:
        return 0, UNKNOWN_END
    found = _RANGE.fullmatch(text.strip())
    if found is None or not (found["start"] or found["stop"]):
        raise InvalidArgument(f"--offsets {text!r} is not a range such as 100:200, 100:, :200 or 100")
    start = int(found["start"] or 0)
    if not found["colon"]:
        return start, start + 1
    return start, int(found["stop"]) if found["stop"] else UNKNOWN_END


def _show(path: str, item: Item, *, is_json: bool) -> None:
    line = json.dumps({"file": path, "kind": item.kind, **item.fields}, ensure_ascii=False) if is_json else item.text
    with naming_output():
        print(line)  # not flushed: there may be millions


# Which files


def _all_files(files: Files, arguments: Arguments) -> Iterator[str]:
    start, stop = parse_range(arguments.offsets)
    for given in arguments.paths:
        path = given.rstrip("/") or "/"
        if not os.path.isdir(path):
            if not os.path.exists(path):
                raise LogNotFound(f"there is no {path}; name a file of a log, or a directory")
            if not is_shown(path):
                raise InvalidArgument(f"{path} is no file of a log that can be shown, by its name")
            _refuse_choice(path, "one file", arguments)
            yield path
            continue
        names = sorted(entry.name for entry in files.entries(path))
        if any(name.endswith(LOG_SUFFIX) for name in names):
            _refuse_choice(path, "one partition", arguments)
            yield from _of_partition(path, names, start, stop, everything=arguments.all)
            continue
        partitions = _chosen(files, path, arguments)
        for name in partitions:
            inside = sorted(entry.name for entry in files.entries(f"{path}/{name}"))
            yield from _of_partition(f"{path}/{name}", inside, start, stop, everything=arguments.all)
        if arguments.all:
            yield from (f"{path}/{name}" for name in (CHECKPOINT_NAME, CATALOG_NAME, *KAFKA_NAMES) if name in names)
            yield from (journal for journal, _ in journal_files(files, path))


def _refuse_choice(path: str, what: str, arguments: Arguments) -> None:
    for name, given in (("--topic", arguments.topic), ("--partition", arguments.partition)):
        if given is not None:
            raise InvalidArgument(f"{path} is {what}; name the directory of its log, or leave {name} out")


def _chosen(files: Files, path: str, arguments: Arguments) -> list[str]:
    """The partition directories of a log, foldlog's or Kafka's, in numerical order."""
    found = partitions_in(files.entries(path))
    if not found:
        raise LogNotFound(f"there is neither a segment nor a partition in {path}; name a directory of a log")
    topic, number = arguments.topic, arguments.partition
    if topic is not None and topic not in {name for name, _ in found}:
        raise UnknownTopic(topic, sorted({name for name, _ in found}))
    chosen = [one for one in found if topic in (None, one[0]) and number in (None, one[1])]
    if not chosen:
        if topic is None:
            raise LogNotFound(f"no topic in {path} has a partition {number}")
        raise UnknownPartition(topic, number, 1 + max(known for name, known in found if name == topic))
    return [partition_directory(name, partition) for name, partition in chosen]


def _of_partition(path: str, names: list[str], start: int, stop: int, *, everything: bool) -> Iterator[str]:
    """A partition's files in offset order, without those outside the wanted range."""
    bases = sorted(
        {int(match["base"]) for name in names if (match := _STEM.fullmatch(name)) and match["kind"] == ".log"}
    )
    for at, base in enumerate(bases):
        following = bases[at + 1] if at + 1 < len(bases) else UNKNOWN_END
        if base >= stop or following <= start:
            continue
        beside = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
        kinds = (LOG_SUFFIX, *beside) if everything else (LOG_SUFFIX,)
        yield from (f"{path}/{base:020d}{kind}" for kind in kinds if f"{base:020d}{kind}" in names)
    if everything:
        others = (*_SMALL_NAMES, QUORUM_NAME)
        yield from (
            f"{path}/{name}"
            for name in names
            if name.endswith(SNAPSHOT_SUFFIX) or name in others or _METADATA_SNAPSHOT.fullmatch(name)
        )


# The contents of one file


def is_shown(path: str) -> bool:
    """Whether a file of that name can be shown."""
    name = os.path.basename(path)
    match = _STEM.fullmatch(name)
    if _METADATA_SNAPSHOT.fullmatch(name) or name.endswith(JOURNAL_SUFFIX):
        return True
    if match is None:
        return name in (*_SMALL_NAMES, CHECKPOINT_NAME, CATALOG_NAME, *KAFKA_NAMES)
    kinds = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX)
    return match["kind"] in kinds or _BATCHES.fullmatch(match["kind"]) is not None


def items_of(files: Files, path: str, wanted: Wanted) -> Items:
    """The contents of a file, by its name."""
    name = os.path.basename(path)
    match = _STEM.fullmatch(name)
    if _METADATA_SNAPSHOT.fullmatch(name):
        return _segment_items(files, path, 0, wanted)
    if match is not None:
        return _partition_file_items(files, path, int(match["base"]), match["kind"], wanted)
    if name in KAFKA_NAMES:
        return items_of_kafkas(name, read_file(files, path))
    if name.endswith(JOURNAL_SUFFIX):
        return hints.journal_items(files, path)
    if name == EPOCHS_NAME:
        return hints.epoch_items(files, path)
    if name == METADATA_NAME:
        return hints.metadata_items(read_file(files, path))
    return hints.checkpoint_items(files, path) if name == CHECKPOINT_NAME else hints.catalog_items(files, path)


def _partition_file_items(files: Files, path: str, base_offset: int, kind: str, wanted: Wanted) -> Items:
    """The contents of a file whose name begins with an offset."""
    if kind == INDEX_SUFFIX:
        return hints.index_items(read_file(files, path), base_offset, wanted)
    if kind == TIME_INDEX_SUFFIX:
        return hints.time_index_items(read_file(files, path), base_offset, wanted)
    if kind == TRANSACTION_INDEX_SUFFIX:
        return transaction_items(read_file(files, path))
    if kind == SNAPSHOT_SUFFIX:
        return hints.snapshot_items(read_file(files, path))
    topic = os.path.basename(os.path.dirname(os.path.abspath(path))).rpartition("-")[0]
    return _segment_items(files, path, base_offset, replace(wanted, are_groups=topic == OFFSETS_TOPIC))


def _segment_items(files: Files, path: str, base_offset: int, wanted: Wanted) -> Items:
    log = files.open(path)
    try:
        dump = SegmentDump(log, base_offset, wanted)
        yield from dump.items()
        yield dump.summary()
    finally:
        log.close()
