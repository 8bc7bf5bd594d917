"""`foldlog transaction`: transactional ids, what they have open, and aborting that."""

from __future__ import annotations

import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from foldlog.cli.confirmation import dry_run_option, is_confirmed, yes_option
from foldlog.cli.exit_codes import DONE, FAILED
from foldlog.cli.group.group import NamedPartitions, parse_topic_partition
from foldlog.cli.log_options import log_options, open_log
from foldlog.cli.output import say
from foldlog.cli.parsing import Arguments, LazyVerb, Noun, argument, command, count_value, option, switch
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
from foldlog.client.descriptions import OpenProducer, TransactionDescription
from foldlog.durations import duration_text
from foldlog.errors import InvalidArgument, InvalidTransactionState, UnknownTransactionalId

if TYPE_CHECKING:
    from foldlog.client.log import Log

DESCRIPTION: Final = """\
A transactional id is a name under which one producer at a time writes in transactions. While a transaction is open,
readers of committed records stop at its first record in each partition."""

NOUN: Final = Noun(
    {
        "list": LazyVerb("transaction.transaction:list_transactions", "list transactional ids"),
        "describe": LazyVerb(
            "transaction.transaction:describe_transactions", "show the producer of an id, and its open transaction"
        ),
        "abort": LazyVerb(
            "transaction.transaction:abort_transactions", "abort an open transaction, and fence its producer"
        ),
    },
    DESCRIPTION,
)


def _duration(value: object) -> str:
    return duration_text(max(0, value)) if isinstance(value, int) else str(value)


def _rounded(value: object) -> str:
    """How long something has lasted, which nobody wants to the millisecond.

    >>> _rounded(43_159), _rounded(754_000), _rounded(8_000_000)
    ('43s', '12m', '2h')
    """
    if not isinstance(value, int):
        return str(value)
    units = [unit for unit in (1_000, 60_000, 3_600_000, 86_400_000) if unit <= value]
    return duration_text(value - value % units[-1]) if units else "0s"


LIST_COLUMNS: Final = (
    Column("transactional_id", "TRANSACTIONAL ID"),
    Column("state", "STATE"),
    Column("open_ms", "OPEN FOR", is_number=True, text=_rounded),
    Column("partitions", "PARTITIONS", is_number=True),
    Column("timeout_ms", "TIMEOUT", is_number=True, text=_duration, is_wide=True),
    Column("producer_id", "PRODUCER", is_number=True, is_wide=True),
    Column("producer_epoch", "EPOCH", is_number=True, is_wide=True),
)
PARTITION_COLUMNS: Final = (
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", is_number=True),
    Column("stable", "COMMITTED UP TO", is_number=True),
    Column("end", "END", is_number=True),
)


def _row(one: TransactionDescription, now_ms: int) -> dict[str, object]:
    return {
        "transactional_id": one.transactional_id,
        "state": one.state,
        "open_ms": None if one.start_ms is None else max(0, now_ms - one.start_ms),
        "partitions": len(one.partitions),
        "timeout_ms": one.timeout_ms,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
    }


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# --- looking --------------------------------------------------------------------------------------------------------


@command(
    argument("patterns", "PATTERN", "only these: names, or patterns such as 'etl-*'", is_many=True, is_needed=False),
    switch("--open", told="only those with an open transaction"),
    quiet_option(),
    format_option(),
    *log_options(),
)
def list_transactions(arguments: Arguments) -> int:
    with open_log(arguments, write=False) as log:
        found = [
            one
            for one in backend_of(log).list_transactions()
            if (not arguments.open or one.start_ms is not None)
            and (not arguments.patterns or any(fnmatchcase(one.transactional_id, like) for like in arguments.patterns))
        ]
    if arguments.quiet:
        return show_names([one.transactional_id for one in found])
    what = (
        "no transactional id matches" if arguments.patterns or arguments.open else "nobody has used transactions here"
    )
    show(arguments, LIST_COLUMNS, [_row(one, _now_ms()) for one in found], nothing=what)
    return DONE


@command(
    argument("ids", "ID", "a transactional id", is_many=True),
    format_option(),
    *log_options(),
)
def describe_transactions(arguments: Arguments) -> int:
    with open_log(arguments, write=False) as log:
        found = _named(log, arguments.ids)
        described = [(one, _partition_rows(log, one)) for one in found]
    if arguments.format == "json":
        show_json([{**_row(one, _now_ms()), "partitions": rows} for one, rows in described])
        return DONE
    for index, (one, rows) in enumerate(described):
        if index:
            say("")
        row = _row(one, _now_ms())
        since = (
            ""
            if one.start_ms is None
            else f", open for {_rounded(row['open_ms'])} of at most {_duration(one.timeout_ms)}"
        )
        say(f"{one.transactional_id}: {one.state}{since}; producer {one.producer_id}, epoch {one.producer_epoch}")
        if rows:
            say("")
            print_table(arguments, PARTITION_COLUMNS, rows)
    return DONE


def _named(log: Log, names: Sequence[str]) -> list[TransactionDescription]:
    known = {one.transactional_id: one for one in backend_of(log).list_transactions()}
    for name in names:
        if name not in known:
            raise UnknownTransactionalId(f"there is no transactional id {name!r}; to see all: foldlog transaction list")
    return [known[name] for name in dict.fromkeys(names)]


def _partition_rows(log: Log, one: TransactionDescription) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for topic in dict.fromkeys(partition.topic for partition in one.partitions):
        stable, written = log.offsets(topic, isolation="read_committed"), log.offsets(topic)
        rows += [
            {"topic": topic, "partition": number, "stable": stable[number][1], "end": written[number][1]}
            for name, number in one.partitions
            if name == topic and number in written
        ]
    return rows


# --- aborting -------------------------------------------------------------------------------------------------------

ABORT: Final = """\
The producer gets an error with its next request, and nothing of the transaction counts.

A transaction hangs if it is open in a partition but no transactional id has it open. --partition and --start-offset end
it in that partition alone, as Kafka's own tool does:

  foldlog transaction abort --partition orders:0 --start-offset 1234"""


@command(
    argument("ids", "ID", "a transactional id", is_many=True, is_needed=False),
    option(
        "--partition",
        metavar="TOPIC:P",
        read=parse_topic_partition,
        told="the partition where a transaction hangs, instead of an id",
    ),
    option("--start-offset", metavar="OFFSET", read=count_value(0), told="the offset where it begins there"),
    dry_run_option(),
    yes_option(),
    format_option(),
    *log_options(),
    more=ABORT,
)
def abort_transactions(arguments: Arguments) -> int:
    if bool(arguments.ids) == (arguments.partition is not None):
        raise InvalidArgument("say what to abort: a transactional id, or --partition and --start-offset; not both")
    with open_log(arguments, write=not arguments.dry_run or arguments.partition is not None) as log:
        if arguments.partition is not None:
            return _abort_hanging(arguments, log, arguments.partition)
        found = _named(log, arguments.ids)
        for one in found:
            if one.start_ms is None:
                raise InvalidTransactionState(
                    f"{one.transactional_id!r} has no transaction open: it is in state {one.state}"
                )
        told = ", ".join(f"{one.transactional_id} ({counted(len(one.partitions), 'partition')})" for one in found)
        if not arguments.dry_run:
            if not is_confirmed(arguments, f"abort what {told} has open?"):
                return FAILED
            for one in found:
                backend_of(log).abort_transaction(one)
    went = "would be aborted" if arguments.dry_run else "aborted"
    show_outcomes(
        arguments,
        [
            Outcome(
                f"{one.transactional_id}: {went}, in {counted(len(one.partitions), 'partition')}",
                {"transactional_id": one.transactional_id, "status": went, "partitions": len(one.partitions)},
            )
            for one in found
        ],
    )
    return DONE


def _abort_hanging(arguments: Arguments, log: Log, where: NamedPartitions) -> int:
    if where.partition is None or arguments.start_offset is None:
        raise InvalidArgument("say which partition, --partition TOPIC:P, and where it begins, --start-offset OFFSET")
    topic, number = where.topic, where.partition
    producer = _hanging(backend_of(log).open_producers(topic, number), topic, number, arguments.start_offset)
    if not arguments.dry_run:
        what = f"the transaction of producer {producer.producer_id} from offset {producer.first_offset} on"
        if not is_confirmed(arguments, f"abort {what} in {topic}-{number}?"):
            return FAILED
        backend_of(log).abort_in_partition(topic, number, producer)
    went = "would be aborted" if arguments.dry_run else "aborted"
    fields = {"topic": topic, "partition": number, "producer_id": producer.producer_id, "status": went}
    show_outcomes(arguments, [Outcome(f"{topic}-{number}: {went}, from offset {producer.first_offset} on", fields)])
    return DONE


def _hanging(found: Sequence[OpenProducer], topic: str, number: int, offset: int) -> OpenProducer:
    for one in found:
        if one.first_offset == offset:
            return one
    begin = ", ".join(str(one.first_offset) for one in found)
    told = f"those that are open there begin at {begin}" if found else "none is open there"
    raise InvalidTransactionState(f"no transaction begins at offset {offset} of {topic}-{number}: {told}")
