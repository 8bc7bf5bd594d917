"""`foldlog check`: verify a log, or files of one; rebuild what is derived; set aside what is damaged.

It uses threads, not processes: reading, checksums and decompression all run without the GIL, so nothing has to be
started or sent.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from foldlog.broker.data_directory import CHECKPOINT_NAME, open_for_writing, settle_journal
from foldlog.broker.topics.catalog import Catalog, CatalogTopic
from foldlog.broker.topics.directories import plan_settlement
from foldlog.broker.topics.names import partition_directory
from foldlog.cli.exit_codes import DONE, FAILED
from foldlog.cli.files.check_report import CheckReport, Finding
from foldlog.cli.files.check_store import check_store, check_store_alone
from foldlog.cli.files.check_targets import CheckTarget, Targets, find_targets
from foldlog.cli.output import say
from foldlog.cli.parsing import Arguments, argument, command, count_value, one_of, option, switch
from foldlog.cli.progress_bar import ProgressBar
from foldlog.cli.tables import format_option, show_json
from foldlog.cli.wording import counted
from foldlog.clock import SystemClock
from foldlog.errors import CorruptLog, FoldlogError, InvalidArgument
from foldlog.files.base import Buffer, File, Files
from foldlog.files.paths import is_store_url
from foldlog.files.posix import PosixFiles
from foldlog.limits import CHECK_JOBS_MAX
from foldlog.log.checkpoint import Checkpoint, Slot
from foldlog.log.doctor.inspection import inspect, inspect_alone, inspect_live
from foldlog.log.doctor.repair import cut_out, rebuild
from foldlog.log.doctor.segment_scan import ForEach
from foldlog.log.journal.format import Placed
from foldlog.log.journal.recovery import JOURNAL_NAME, JournalContents, Owner, keep_aside, read_journal, refuse_missing
from foldlog.log.layout import free_cut_name, read_layout

DESCRIPTION: Final = """\
Reads and verifies every byte of a log: the catalog, the CRC, offsets, leader epoch and records of every batch, and the
indexes. Prints one line per partition. If something is damaged, it names the file, the byte and the reason, and exits
with 1. It changes nothing, takes no lock, and may run beside the log's writer.

What topics have in a store of segments is read and verified, too, object by object.

PATH is a log's directory, one partition of it, or one segment; also of Apache Kafka's. Or the URL of a store.

--repair rebuilds what is wrong or missing and can be derived from the batches: indexes, producer snapshots, leader
epochs, the checkpoint. It removes no byte from a segment. Close the log first.

--cut-out moves damaged bytes into .cut files beside the segment, and puts a batch without records in their place, so
that every other record keeps its offset and can be read. Close the log first."""


_JOURNAL_ADVICE: Final = "every partition says by itself whether it lacks something; open the log to see"


def _cores() -> int:
    return min(CHECK_JOBS_MAX, max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1))


@command(
    argument("path", "PATH", "the directory of a log or a partition, a segment, or a store such as s3://bucket/prefix"),
    option("--topic", metavar="T", told="only this topic of the log"),
    *one_of(
        switch("--repair", told="rebuild wrong indexes and other derived files"),
        switch("--cut-out", told="move damaged bytes aside, so that the rest can be read"),
    ),
    option(
        "-j",
        "--jobs",
        metavar="N",
        read=count_value(1, CHECK_JOBS_MAX),
        told="number of segments to check at a time (default: one per core)",
    ),
    format_option(),
    description=DESCRIPTION,
)
def run(arguments: Arguments) -> int:
    jobs = _cores() if arguments.jobs is None else arguments.jobs
    files = PosixFiles()
    if is_store_url(arguments.path):
        return _run_on_store(files, arguments)
    targets = find_targets(files, arguments.path.rstrip("/") or "/", arguments.topic)
    report = CheckReport(targets.path, is_wide=arguments.format == "wide")
    is_json = arguments.format == "json"
    if arguments.repair or arguments.cut_out:
        lines = _change(files, targets, report, _rebuild if arguments.repair else _cut_out)
    else:
        lines = _verify(targets, report, jobs)
    for line in lines:
        if not is_json:
            say(line)
    for line in check_store(files, targets, report):
        if not is_json:
            say(line)
    if targets.is_all and targets.catalog is not None:
        looks = (_report_directories, _report_journal)
        for line in (line for look in looks for line in look(files, targets.path, targets.catalog, report)):
            if not is_json:
                say(line)
    if is_json:
        show_json(report.document())
    return DONE if report.is_whole else FAILED


def _run_on_store(files: Files, arguments: Arguments) -> int:
    if arguments.repair or arguments.cut_out:
        raise InvalidArgument(
            f"{arguments.path} is a store of segments, in which nothing is repaired; restore its objects, or make a"
            " directory of what is whole with 'foldlog restore'"
        )
    report = CheckReport(arguments.path, is_wide=arguments.format == "wide")
    for line in check_store_alone(files, arguments.path, arguments.topic, report):
        if arguments.format != "json":
            say(line)
    if arguments.format == "json":
        show_json(report.document())
    return DONE if report.is_whole else FAILED


# Looking


def _verify(targets: Targets, report: CheckReport, jobs: int) -> Iterator[str]:
    """Check every partition, as a reader beside the writer; several segments at a time, reported in order."""
    plain = PosixFiles()
    checkpoint: Checkpoint | None = None
    if targets.catalog is not None:
        checkpoint_path = f"{targets.path}/{CHECKPOINT_NAME}"
        try:
            checkpoint = Checkpoint.open(plain, checkpoint_path, write=False)
        except FileNotFoundError:
            yield from report.note(f"{checkpoint_path} is missing; the next open verifies every partition instead")
        except CorruptLog as error:
            yield from report.damage(error)
    bar = ProgressBar(sys.stderr, "checking", sum(_size_bytes(plain, target) for target in targets.chosen))
    files = WatchedFiles(bar.advance)
    # Two pools: partitions that wait for their segments must not occupy the segments' threads.
    with ThreadPoolExecutor(jobs) as partitions, ThreadPoolExecutor(jobs) as segments:
        try:
            looks = [partitions.submit(_look, files, one, checkpoint, segments.map) for one in targets.chosen]
            for look in looks:
                finding = look.result()
                bar.hide()
                yield from report.add(finding)
        except BaseException:
            files.stop()
            partitions.shutdown(wait=False, cancel_futures=True)
            segments.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            bar.hide()


def _look(files: Files, target: CheckTarget, checkpoint: Checkpoint | None, each: ForEach) -> Finding:
    try:
        if target.topic is None:
            return Finding(
                target.name,
                inspect_alone(files, target.directory, only=target.only, log_start=target.log_start, each=each),
            )
        interval_bytes = target.topic.config.log.index_interval_bytes
        if checkpoint is None:
            found = inspect(files, target.directory, None, index_interval_bytes=interval_bytes, each=each)
        else:
            slot = checkpoint.slot(target.topic.slots[target.number])
            found = inspect_live(files, target.directory, slot, index_interval_bytes=interval_bytes, each=each)
    except (FoldlogError, OSError) as error:
        return Finding(target.name, problem=error)
    return Finding(target.name, found)


def _size_bytes(files: Files, target: CheckTarget) -> int:
    """How much there is to read, as far as it is known."""
    try:
        sizes = read_layout(files.entries(target.directory)).logs
    except OSError:
        return 0
    return sum(sizes.values()) if target.only is None else sizes.get(target.only, 0)


def _report_directories(files: Files, path: str, catalog: Catalog, report: CheckReport) -> Iterator[str]:
    settlement = plan_settlement(files.entries(path), catalog)
    for name in settlement.unknown:
        yield from report.note(f"{path}/{name} is not in the catalog; it is left as it is")
    report.is_whole = report.is_whole and not settlement.missing


def _report_journal(files: Files, path: str, catalog: Catalog, report: CheckReport) -> Iterator[str]:
    """What the journal holds that the segments may lack, and whether it is whole. A writer may use a file again while
    it is read, which looks like damage once."""
    directory_id = uuid.UUID(catalog.directory_id).bytes
    contents = read_journal(files, path, directory_id)
    seen = set(read_journal(files, path, directory_id).damages) if contents.damages else set()
    for damage in (damage for damage in contents.damages if damage in seen):
        yield from report.damage(CorruptLog(damage.path, damage.position, damage.reason, _JOURNAL_ADVICE))
    for error in _lost_with_the_journal(files, path, catalog, contents):
        yield from report.damage(error)
    if contents.entries:
        count = sum(len(use.commits) for use in contents.uses)
        yield from report.note(f"{path}/{JOURNAL_NAME}: {counted(count, 'commit')} that a writer replays where need be")


def _lost_with_the_journal(
    files: Files, path: str, catalog: Catalog, contents: JournalContents
) -> Iterator[CorruptLog]:
    """Partitions whose slot says that more was durable than segment and journal hold: a writer refuses them."""
    try:
        checkpoint = Checkpoint.open(files, f"{path}/{CHECKPOINT_NAME}", write=False)
    except (FileNotFoundError, CorruptLog):
        return  # reported already
    for topic in catalog.topics.values():
        for number, slot in enumerate(topic.slots):
            entries = contents.entries.get((uuid.UUID(topic.topic_id).bytes, number), ())
            state = checkpoint.slot(slot).load()
            if state is None or any(placed.entry.next_offset >= state.durable_offset for _, placed in entries):
                continue
            try:
                refuse_missing(files, f"{path}/{partition_directory(topic.name, number)}", checkpoint.slot(slot))
            except CorruptLog as error:
                yield error


# Changing

Change = Callable[[Files, CheckTarget, "_Writing"], Finding]


@dataclass(frozen=True, slots=True)
class _Writing:
    """A directory whose writer this process is. `unjoined`: entries of the journal that partitions could not take, and
    why; their bytes are in the journal still."""

    checkpoint: Checkpoint
    remarks: list[str]
    journal: Sequence[str]
    unjoined: Mapping[Owner, tuple[FoldlogError, Sequence[tuple[str, Placed]]]]

    def slot_of(self, target: CheckTarget) -> tuple[CatalogTopic, Slot]:
        if target.topic is None:
            raise InvalidArgument(f"{target.directory} is no partition of this log")
        return target.topic, self.checkpoint.slot(target.topic.slots[target.number])

    def unjoined_of(self, topic: CatalogTopic, number: int) -> tuple[FoldlogError | None, Sequence[tuple[str, Placed]]]:
        """Why the partition could not take what the journal has for it, and what that is."""
        return self.unjoined.get((uuid.UUID(topic.topic_id).bytes, number), (None, ()))


def _change(files: Files, targets: Targets, report: CheckReport, change: Change) -> Iterator[str]:
    """Change every partition as the directory's writer."""
    if targets.is_kafkas:
        raise InvalidArgument(
            f"{targets.path} is Apache Kafka's and can only be looked at: Kafka makes its indexes and snapshots anew"
            " when it starts, and a damaged replica is fetched again from another"
        )
    if targets.catalog is None:
        raise InvalidArgument(
            f"{targets.path} stands alone and can only be looked at;"
            " to change something, name the directory that holds catalog.json"
        )
    with _as_writer(files, targets.path) as writing:
        for remark in writing.remarks:
            report.notes.append(remark)
            yield remark
        if change is _cut_out and writing.unjoined:
            for beside in keep_aside(files, writing.journal):
                yield from report.note(f"the journal is kept in {beside}: not all of it could be replayed")
        for target in targets.chosen:
            try:
                finding = change(files, target, writing)
            except (FoldlogError, OSError) as error:
                finding = Finding(target.name, problem=error)
            yield from report.add(finding)


def _cut_out(files: Files, target: CheckTarget, writing: _Writing) -> Finding:
    topic, slot = writing.slot_of(target)
    _, unjoined = writing.unjoined_of(topic, target.number)
    repaired = cut_out(files, target.directory, slot, topic_id=topic.topic_id, unjoined=unjoined)
    return Finding(target.name, inspect(files, target.directory, slot.load()), repaired=repaired)


def _rebuild(files: Files, target: CheckTarget, writing: _Writing) -> Finding:
    topic, slot = writing.slot_of(target)
    refused, _ = writing.unjoined_of(topic, target.number)
    if refused is not None:
        # A slot that is made anew would say that the log ends before what only the journal has.
        return Finding(target.name, problem=refused)
    config, label = topic.config.log, (topic.name, target.number)
    found, made = rebuild(files, target.directory, slot, config, clock=SystemClock(), label=label)
    if made:
        interval_bytes = config.index_interval_bytes
        found = inspect(files, target.directory, slot.load(), index_interval_bytes=interval_bytes)
    return Finding(target.name, found, rebuilt=tuple(made))


@contextmanager
def _as_writer(files: Files, path: str) -> Iterator[_Writing]:
    """Holds the directory's lock."""
    opened = open_for_writing(files, path)
    try:
        checkpoint_path = f"{path}/{CHECKPOINT_NAME}"
        remarks = []
        try:
            checkpoint = Checkpoint.open(files, checkpoint_path, write=True)
        except CorruptLog as error:
            # Without it every partition is verified completely at the next open: slower, but nothing is lost.
            beside = free_cut_name(files, checkpoint_path)
            remarks.append(f"{checkpoint_path}: {error.reason}; moved to {beside}")
            files.rename(checkpoint_path, beside)
            files.sync_directory(path)
            checkpoint = Checkpoint.open(files, checkpoint_path, write=True)
        try:
            # First: what the journal has for a partition is not damage of the partition.
            contents, replayed = settle_journal(files, path, opened.catalog, checkpoint)
            remarks += [f"the journal could not be replayed: {error}" for error in replayed.refused.values()]
            unjoined = {owner: (error, contents.entries.get(owner, ())) for owner, error in replayed.refused.items()}
            yield _Writing(checkpoint, remarks, [use.path for use in contents.uses], unjoined)
        finally:
            checkpoint.close()
    finally:
        opened.lock.release()


# --- files that report how much was read ----------------------------------------------------------------------------


class Stopped(FoldlogError):
    """The check was interrupted."""


class WatchedFiles(PosixFiles):
    """Calls `on_read` with the bytes of every read, on the thread that reads. Any thread may `stop` all reads."""

    def __init__(self, on_read: Callable[[int], None]) -> None:
        super().__init__()
        self._on_read = on_read
        self._is_stopped = False

    def stop(self) -> None:
        """From now on every read raises Stopped."""
        self._is_stopped = True

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:  # type: ignore[override]
        return _WatchedFile(super().open(path, write=write, create=create), self._was_read)

    def _was_read(self, count_bytes: int) -> None:
        if self._is_stopped:
            raise Stopped("it was stopped before its end")
        self._on_read(count_bytes)


class _WatchedFile:
    """An open file of WatchedFiles."""

    def __init__(self, file: File, was_read: Callable[[int], None]) -> None:
        self._file = file
        self._was_read = was_read
        self.sync_descriptor = file.sync_descriptor

    def size(self) -> int:
        return self._file.size()

    def read(self, position: int, length: int) -> bytes:
        data = self._file.read(position, length)
        self._was_read(len(data))
        return data

    def read_into(self, position: int, buffer: bytearray | memoryview, *, nowait: bool = False) -> int:
        count_bytes = self._file.read_into(position, buffer, nowait=nowait)
        self._was_read(count_bytes)
        return count_bytes

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        return self._file.write(position, buffers)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()
