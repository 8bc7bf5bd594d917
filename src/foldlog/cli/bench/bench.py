"""`foldlog bench`: the speed of a log on this machine, compared with its disk alone."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from foldlog.broker.topics.catalog import CATALOG_NAME
from foldlog.cli.bench.measures import BenchTopic, Disk, Load, Tally, in_turns
from foldlog.cli.exit_codes import DONE
from foldlog.cli.log_options import log_options, open_log, open_named
from foldlog.cli.output import remark
from foldlog.cli.parsing import Arguments, command, count_value, option
from foldlog.cli.signals import SIGNAL_EXIT
from foldlog.cli.tables import Column, format_option, show
from foldlog.cli.units import parse_seconds, parse_size_bytes, size_text
from foldlog.errors import FoldlogError, InvalidArgument
from foldlog.limits import BENCH_DISK_BYTES, BENCH_RECORDS_MAX, BENCH_SECONDS_MAX, BENCH_SIZE_MAX

if TYPE_CHECKING:
    from foldlog.client.log import Log

DESCRIPTION: Final = """\
Measures appends acknowledged one by one, appends in batches, reading back, and the time from an append until another
thread has read the record. In turns with them it measures the disk alone: the sync of one record, and one large write.
Look at the ratios: absolute figures depend on the machine and its load.

It uses its own topic and removes it at the end, also after Ctrl-C. Without -d or -b, it uses its own directory below
the current one. It cannot see a broker's disk (-b), so it compares nothing then. Each measurement ends after --records
or --seconds, whichever comes first."""

PREFIX: Final = "foldlog-bench-"

COLUMNS: Final = (
    Column("measure", "MEASURE"),
    Column("per_s", "PER SECOND", is_number=True, text=lambda value: f"{value:,.0f}"),
    Column("bytes_per_s", "BYTES/S", is_number=True, text=lambda value: f"{size_text(int(str(value)))}/s"),
    Column("p50_ms", "P50", is_number=True, text=lambda value: f"{value:.3f} ms"),
    Column("p99_ms", "P99", is_number=True, text=lambda value: f"{value:.3f} ms"),
    Column("ratio", "VS DISK", text=lambda value: f"{value:.2f} x"),
    Column("count", "COUNT", is_number=True, is_wide=True, text=lambda value: f"{value:,}"),
    Column("compared", "COMPARED", is_wide=True),
)


@command(
    option(
        "--records",
        metavar="N",
        read=count_value(1, BENCH_RECORDS_MAX),
        default="1000000",
        told="at most this many records (default: 1000000)",
    ),
    option("--size", metavar="BYTES", default="100", told="size of each record's value (default: 100)"),
    option("--seconds", metavar="S", default="3", told="at most this long for each measurement (default: 3)"),
    *log_options(),
    format_option(),
    description=DESCRIPTION,
)
def run(arguments: Arguments) -> int:
    load = _load(arguments)
    with _leaving_on_terminate(), _measured_log(arguments) as (log, directory):
        if directory is not None:
            _refuse_if_full(directory, load)
        name = PREFIX + uuid.uuid4().hex[:8]
        disk = Disk(f"{directory}/.{name}", load) if directory is not None else None
        try:
            with _scratch_topic(log, name):
                topic = BenchTopic(log, name, load)
                _measure(topic, disk, load)
        finally:
            if disk is not None:
                disk.close()
                os.unlink(f"{directory}/.{name}")
    rows = _rows(topic, disk)
    show(arguments, COLUMNS, rows)
    if arguments.format != "json":
        _explain(disk)
    return DONE


def _load(arguments: Arguments) -> Load:
    size_bytes = parse_size_bytes(arguments.size, "--size")
    seconds = parse_seconds(arguments.seconds, "--seconds")
    for name, value, low, high in (
        ("--size", size_bytes, 1, BENCH_SIZE_MAX),
        ("--seconds", seconds, 0.001, BENCH_SECONDS_MAX),
    ):
        if not low <= value <= high:
            raise InvalidArgument(f"{name} is from {low} to {high}, not {value:.15g}")
    return Load(arguments.records, size_bytes, seconds)


# The log to measure


@contextmanager
def _measured_log(arguments: Arguments) -> Iterator[tuple[Log, str | None]]:
    """A log to measure, and the directory of its disk, if that is on this machine."""
    if arguments.bootstrap:
        with open_log(arguments, write=True) as log:
            yield log, None
    elif arguments.directory and os.path.exists(os.path.join(arguments.directory, CATALOG_NAME)):
        with open_log(arguments, write=True) as log:
            yield log, arguments.directory
    else:
        around = arguments.directory or "."
        if not os.path.isdir(around):
            raise InvalidArgument(f"there is no directory {around}; make it first, so that its disk can be measured")
        scratch = tempfile.mkdtemp(prefix=f".{PREFIX}", dir=around)
        try:
            with open_named(scratch, None, write=True, make=True) as log:
                yield log, scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _scratch_topic(log: Log, name: str) -> Iterator[None]:
    log.create_topic(name, partitions=1)
    try:
        yield
    finally:
        try:
            log.delete_topic(name)
        except FoldlogError as error:
            remark(f"foldlog: the scratch topic {name} could not be removed ({error}); delete it with topic delete")


@contextmanager
def _leaving_on_terminate() -> Iterator[None]:
    """SIGTERM unwinds like Ctrl-C, so that what was created for the measurement is removed."""

    def leave(number: int, _frame: object) -> None:
        sys.exit(SIGNAL_EXIT + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _refuse_if_full(directory: str, load: Load) -> None:
    needed_bytes = 2 * load.records * (load.size_bytes + 100) + BENCH_DISK_BYTES
    free_bytes = shutil.disk_usage(directory).free
    if free_bytes < needed_bytes:
        raise InvalidArgument(
            f"{directory} has {size_text(free_bytes)} free, and this may need {size_text(needed_bytes)};"
            " say fewer --records"
        )


# The measurements


def _measure(topic: BenchTopic, disk: Disk | None, load: Load) -> None:
    alone = [] if disk is None else [disk.sync_records]
    _doing("appending one by one, in turns with the disk alone")
    in_turns(load, topic.append_one_by_one, *alone)
    _doing("appending in batches, in turns with the disk alone")
    in_turns(load, topic.send_in_batches, *([] if disk is None else [disk.write_blocks]))
    _doing("reading back")
    topic.read_back()
    _doing("from an append to its reader")
    with topic.follow() as arrived:
        in_turns(load, lambda most, seconds: topic.send_and_wait(arrived, most, seconds))
    _doing("")


def _doing(what: str) -> None:
    """On a terminal, show the current measurement, in a line that is overwritten."""
    if sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        print(f"\r\x1b[K{what}{' …' if what else ''}", end="", file=sys.stderr, flush=True)


def _rows(topic: BenchTopic, disk: Disk | None) -> list[dict[str, object]]:
    syncs = None if disk is None else disk.syncs
    rows = [
        _row("append, one by one", topic.appends, _times(topic.appends, syncs), "p50 with the sync's"),
        _row("append, in batches", topic.sends, _speed(topic.sends, disk), "bytes/s with those of one large write"),
        _row("read back", topic.reads, None, ""),
        _row("append to reader", topic.ways, _times(topic.ways, syncs), "p50 with the sync's"),
    ]
    if disk is not None:
        rows += [
            _row("disk: sync of one record", disk.syncs, None, ""),
            _row("disk: one large write", disk.writes, None, ""),
        ]
    return rows


def _row(measure: str, tally: Tally, ratio: float | None, compared: str) -> dict[str, object]:
    return {
        "measure": measure,
        "count": tally.count,
        "per_s": tally.per_s,
        "bytes_per_s": int(tally.bytes_per_s) if tally.size_bytes else None,
        "p50_ms": tally.quantile_ms(0.5),
        "p99_ms": tally.quantile_ms(0.99),
        "ratio": ratio,
        "compared": compared if ratio is not None else None,
    }


def _times(tally: Tally, syncs: Tally | None) -> float | None:
    ours, alone = tally.quantile_ms(0.5), None if syncs is None else syncs.quantile_ms(0.5)
    return ours / alone if ours is not None and alone else None


def _speed(tally: Tally, disk: Disk | None) -> float | None:
    if disk is None or not disk.writes.bytes_per_s:
        return None
    return tally.bytes_per_s / disk.writes.bytes_per_s


def _explain(disk: Disk | None) -> None:
    if disk is None:
        remark(
            "a broker's disk cannot be measured from here: nothing is compared with it, and every time includes"
            " the network"
        )
    else:
        remark("VS DISK: times as a multiple of one sync, speed as a share of one large write")
    remark("what was just written is read from memory, not from the disk")
