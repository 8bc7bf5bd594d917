"""`foldlog topic consume` and `foldlog topic tail`: print records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from foldlog.cli.exit_codes import DONE
from foldlog.cli.log_options import isolation_option, log_options, open_log
from foldlog.cli.output import remark
from foldlog.cli.parsing import Arguments, argument, command, count_value, option, switch
from foldlog.cli.records.options import output_options, partitions_option
from foldlog.client.places import PLACE_HELP, parse_place
from foldlog.errors import InvalidArgument

if TYPE_CHECKING:
    from foldlog.cli.records.output import RecordOutput
    from foldlog.cli.records.reading import Reach
    from foldlog.client.log import Log

CONSUME: Final = """\
Reads from the start of the topics to their current end, one partition after the other, each in order. With --follow it
then waits for new records and prints them as they arrive, partitions mixed. Ctrl-C ends it.

With --group it joins the group, continues from the group's place, and commits what it has printed.

  foldlog topic consume orders -o -10           the last ten of each partition
  foldlog topic consume orders -o @-1h          the last hour
  foldlog topic consume orders -f '%p@%o %k %v\\n'
  foldlog topic consume orders --format json | jq .value"""

TAIL: Final = """\
Prints the newest records of all partitions together, by timestamp, then new ones as they arrive. Ctrl-C ends it."""


@command(
    argument("topics", "TOPIC", "the topics, read in this order", is_many=True),
    option("-o", "--offset", metavar="PLACE", read=parse_place, told=f"what to read (default: start): {PLACE_HELP}"),
    partitions_option(),
    option("-n", "--count", metavar="COUNT", read=count_value(1), told="stop after this many records"),
    switch("-F", "--follow", told="at the end, wait for new records"),
    option(
        "-g",
        "--group",
        metavar="GROUP",
        told="read as a member of this group, without -p; -o start or -o end says where a new group begins",
    ),
    isolation_option(),
    *output_options(),
    *log_options(),
    more=CONSUME,
)
def consume(arguments: Arguments) -> int:
    from foldlog.cli.records.output import output_for

    if arguments.group is not None:
        _check_group_options(arguments)
    output = output_for(arguments, is_live=arguments.follow)
    with open_log(arguments, write=arguments.group is not None) as log:
        output.of(log)
        if arguments.group is not None:
            _consume_as_group(arguments, log, output)
        else:
            _consume(arguments, log, output)
    return DONE


def _consume(arguments: Arguments, log: Log, output: RecordOutput) -> None:
    from foldlog.cli.records.reading import reaches, read_reaches

    place = arguments.offset or parse_place("start")
    wanted, told = reaches(log, arguments.topics, place, arguments.partitions)
    for line in told:
        remark(f"note: {line}")
    if arguments.follow:
        _print_arrivals(arguments, log, output, wanted, arguments.count)
        return
    output.write_all(read_reaches(log, wanted, arguments.count))
    if output.count == 0:
        remark("there are no records there; --follow waits for some")


def _print_arrivals(
    arguments: Arguments, log: Log, output: RecordOutput, wanted: list[Reach], left: int | None
) -> None:
    from foldlog.cli.records.reading import follow

    for records in follow(log, wanted, whole_topics=arguments.partitions is None):
        if records:
            output.write(records if left is None else records[:left])
        if left is not None:
            left -= len(records)
            if left <= 0:
                return


def _check_group_options(arguments: Arguments) -> None:
    if arguments.partitions is not None:
        raise InvalidArgument("members of a group share its partitions: use --group or -p, not both")
    if arguments.offset is not None and arguments.offset.text not in ("start", "end"):
        raise InvalidArgument(
            f"a group reads on from where it is, so -o {arguments.offset.text} has no place here; move it first:"
            f" foldlog group seek {arguments.group} --to {arguments.offset.text}"
        )


def _consume_as_group(arguments: Arguments, log: Log, output: RecordOutput) -> None:
    from foldlog.cli.records.reading import POLL_RECORDS, GroupReading, Outages
    from foldlog.cli.signals import Interrupts
    from foldlog.client.positions import TopicPartition

    begins_at_end = arguments.offset is not None and arguments.offset.text == "end"
    ends = {
        TopicPartition(topic, number): end
        for topic in arguments.topics
        for number, (_, end) in log.offsets(topic).items()
    }
    left: int | None = arguments.count
    reset = "latest" if begins_at_end else "earliest"
    with (
        log.consumer(arguments.topics, group=arguments.group, auto_offset_reset=reset, auto_commit=False) as consumer,
        Interrupts() as interrupts,
    ):
        reading = GroupReading(consumer)
        outages = Outages(log, consumer)
        try:
            while left is None or left > 0:
                records = reading.poll(POLL_RECORDS if left is None else min(left, POLL_RECORDS))
                outages.look(records)
                if records:
                    # Together: records that the user has seen at Ctrl-C are committed.
                    interrupts.is_put_off = True
                    output.write(records)
                    reading.printed(records)
                    interrupts.check()
                if left is not None:
                    left -= len(records)
                if not arguments.follow and reading.is_at(ends):
                    break
            has_share = bool(consumer.assignment())
        finally:
            refused = reading.keep()
            if refused is not None:
                remark(f"note: what was printed last may be printed again: {refused}")
    if not has_share:
        remark(f"note: other members of group {arguments.group} hold every partition, so there was none to read here")
    elif output.count == 0:
        remark(f"there is nothing that group {arguments.group} has not read; with --follow it waits for more")


@command(
    argument("topics", "TOPIC", "the topics", is_many=True),
    option(
        "-n",
        "--count",
        metavar="COUNT",
        read=count_value(0),
        default="10",
        told="begin with this many records (default: 10)",
    ),
    partitions_option(),
    isolation_option(),
    *output_options(),
    *log_options(),
    more=TAIL,
)
def tail(arguments: Arguments) -> int:
    from foldlog.cli.records.output import output_for
    from foldlog.cli.records.reading import last_records, reaches

    output = output_for(arguments, is_live=True)
    with open_log(arguments, write=False) as log:
        output.of(log)
        wanted, _ = reaches(log, arguments.topics, parse_place("start"), arguments.partitions)
        last = last_records(log, wanted, arguments.count)
        if last:
            output.write(last)
        at_ends = [reach._replace(span=reach.span._replace(start=reach.bounds[1])) for reach in wanted]
        _print_arrivals(arguments, log, output, at_ends, None)
    return DONE
