"""`foldlog check`: verify a data directory; with --cut-out, set aside what is damaged."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from foldlog.broker.catalog import Catalog, Topic
from foldlog.broker.data_directory import CHECKPOINT_NAME, open_for_reading, open_for_writing
from foldlog.broker.topic_directories import plan_settlement
from foldlog.broker.topic_names import partition_directory
from foldlog.cli.exit_codes import DONE, FAILED
from foldlog.cli.output import say
from foldlog.cli.wording import counted, damage_text
from foldlog.errors import CorruptLog, FoldlogError, LogNotFound, UnknownTopic
from foldlog.files.base import Files
from foldlog.files.posix import PosixFiles
from foldlog.log.checkpoint import Checkpoint
from foldlog.log.inspection import Damage, Inspection, inspect, inspect_live
from foldlog.log.layout import CUT_SUFFIX
from foldlog.log.repair import RepairReport, cut_out

DESCRIPTION: Final = """\
Reads every byte of a log and verifies it: the catalog, the CRC, offsets, leader epoch and records of every batch, and
the indexes. Prints one line a partition; the exit code is 1 if something is damaged, and the file, the byte and the
reason are named. Changes nothing, takes no lock, and may run beside the log's writer.

With --cut-out, which needs the log to be closed, damaged bytes are moved into .cut files beside the segment, never
deleted; a batch without records takes their place, so that every other record keeps its offset and can be read."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument("dir", metavar="DIR", help="the log's directory")
    parser.add_argument("--topic", metavar="T", help="only this topic")
    parser.add_argument("--cut-out", action="store_true", help="set damaged bytes aside, so that the rest can be used")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    files, path = PosixFiles(), arguments.dir.rstrip("/") or "/"
    try:
        catalog = open_for_reading(files, path)
    except LogNotFound:
        raise LogNotFound(f"there is no log in {path}; name the directory that holds its catalog.json") from None
    topics = _chosen(catalog, arguments.topic)
    is_whole = repair(files, path, topics) if arguments.cut_out else verify(files, path, topics)
    if arguments.topic is None:
        is_whole = _report_directories(files, path, catalog) and is_whole
    return DONE if is_whole else FAILED


def _chosen(catalog: Catalog, name: str | None) -> list[Topic]:
    if name is None:
        return [catalog.topics[known] for known in sorted(catalog.topics)]
    if name not in catalog.topics:
        raise UnknownTopic(name, list(catalog.topics))
    return [catalog.topics[name]]


def verify(files: Files, path: str, topics: list[Topic]) -> bool:
    """Look at every partition, as a reader beside the writer; whether all are whole."""
    is_whole = True
    checkpoint: Checkpoint | None = None
    try:
        checkpoint = Checkpoint.open(files, f"{path}/{CHECKPOINT_NAME}", write=False)
    except FileNotFoundError:
        say(f"note: {path}/{CHECKPOINT_NAME} is missing; the next open verifies every partition instead")
    except CorruptLog as error:
        is_whole = False
        say(f"{error.path}: DAMAGED: byte {error.position}: {error.reason}")
    for topic in topics:
        for number, slot in enumerate(topic.slots):
            name = partition_directory(topic.name, number)
            try:
                if checkpoint is None:
                    found = inspect(files, f"{path}/{name}", None)
                else:
                    found = inspect_live(files, f"{path}/{name}", checkpoint.slot(slot))
            except (FoldlogError, OSError) as error:
                is_whole = False
                say(f"{name}: DAMAGED: {damage_text(error)}")
                continue
            is_whole = is_whole and not found.damages
            _print_inspection(name, found)
    return is_whole


def repair(files: Files, path: str, topics: list[Topic]) -> bool:
    """Set damage aside in every partition, as the directory's writer; whether all are whole then."""
    is_whole = True
    with _as_writer(files, path) as checkpoint:
        for topic in topics:
            for number, slot_number in enumerate(topic.slots):
                name = partition_directory(topic.name, number)
                slot = checkpoint.slot(slot_number)
                try:
                    report = cut_out(files, f"{path}/{name}", slot, topic_id=topic.topic_id)
                    after = inspect(files, f"{path}/{name}", slot.load())
                except (FoldlogError, OSError) as error:
                    is_whole = False
                    say(f"{name}: DAMAGED: {damage_text(error)}")
                    continue
                is_whole = is_whole and not after.damages
                _print_repair(name, report)
                _print_inspection(name, after)
    return is_whole


@contextmanager
def _as_writer(files: Files, path: str) -> Iterator[Checkpoint]:
    """The checkpoint, to be written; nobody else has the log open for writing meanwhile."""
    opened = open_for_writing(files, path)
    try:
        place = f"{path}/{CHECKPOINT_NAME}"
        try:
            checkpoint = Checkpoint.open(files, place, write=True)
        except CorruptLog as error:
            # Without it every partition is verified whole at the next open: slower, and nothing is lost.
            beside = _free_name(files, place)
            say(f"{place}: {error.reason}; moved to {beside}")
            files.rename(place, beside)
            files.sync_directory(path)
            checkpoint = Checkpoint.open(files, place, write=True)
        try:
            yield checkpoint
        finally:
            checkpoint.close()
    finally:
        opened.lock.release()


def _free_name(files: Files, place: str) -> str:
    """Where a file is moved to as a whole. What was moved there before stays as it is."""
    name, number = f"{place}{CUT_SUFFIX}", 2
    while files.exists(name):
        name, number = f"{place}-{number}{CUT_SUFFIX}", number + 1
    return name


def _report_directories(files: Files, path: str, catalog: Catalog) -> bool:
    settlement = plan_settlement(files.entries(path), catalog)
    for name in settlement.unknown:
        say(f"note: {path}/{name} is not in the catalog; it is left as it is")
    return not settlement.missing


def _print_inspection(name: str, found: Inspection) -> None:
    say(
        f"{name}: offsets {found.state.log_start_offset} to {found.end_offset}, {counted(found.records, 'record')},"
        f" {counted(len(found.segments), 'segment')}, {counted(found.size_bytes, 'byte')}:"
        f" {'DAMAGED' if found.damages else 'whole'}"
    )
    for damage in found.damages:
        say(f"  {_describe(damage)}")
    for note in found.notes:
        say(f"  note: {note}")


def _print_repair(name: str, report: RepairReport) -> None:
    for damage in report.damages:
        say(f"{name}: cut out {_describe(damage)}")
    for path in report.kept_aside:
        say(f"{name}: kept in {path}")


def _describe(damage: Damage) -> str:
    if damage.is_mendable:
        loss = "no record is lost by it"
    elif damage.is_loss_unknown:
        loss = "which offsets are lost is not known"
    elif damage.lost_offsets:
        loss = f"offsets {damage.first_offset} to {damage.next_offset} (exclusive) are lost"
    else:
        loss = "no offset is lost by it"
    return f"{damage.path}: byte {damage.position}: {damage.reason}; {loss}"
