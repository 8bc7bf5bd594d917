"""`foldlog topic produce`: write records, a line each."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from foldlog.cli.exit_codes import DONE
from foldlog.cli.output import remark
from foldlog.cli.parsing import Verbs, add_verb
from foldlog.cli.places import add_place_options, open_place
from foldlog.cli.record_options import FORMATS, bytes_value, delimiter_value
from foldlog.errors import FoldlogError, InvalidArgument

PRODUCE: Final = """\
Reads lines from the files, or from standard input, and writes each as a record; returns once all of them are durable,
and says on standard error how many. A line that is no record ends it, with what came before it written.

As text, a line is a value; with -K ':' it is a key and a value. As JSON, it is what 'topic consume --format json'
prints: "value" is required, "key", "headers", "partition" and "timestamp" are used, "topic" and "offset" are not.

  echo '{"amount": 100}' | foldlog topic produce orders -k u1
  foldlog topic produce orders -k u1 --tombstone            delete the key u1
  foldlog topic consume orders --format json |
  foldlog topic produce copies --format json                copy a topic"""

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
BY_KEY: Final = "key"


def configure(verbs: Verbs) -> None:
    produce = add_verb(verbs, "produce", "write records, a line each", run_produce, PRODUCE)
    produce.add_argument("topic", metavar="TOPIC", help="the topic")
    produce.add_argument("files", metavar="FILE", nargs="*", help="what to read; - is standard input (default)")
    produce.add_argument("-k", "--key", metavar="KEY", type=bytes_value, help="the key of every record")
    produce.add_argument(
        "-K", "--key-delimiter", metavar="DELIM", type=delimiter_value, help="each line is a key, this, and a value"
    )
    produce.add_argument(
        "-p",
        "--partition",
        metavar="P",
        type=partition_value,
        help="the partition of every record; key: by its key, also where a JSON line names a partition",
    )
    produce.add_argument(
        "-H",
        "--header",
        dest="headers",
        metavar="NAME=VALUE",
        type=header_value,
        action="append",
        help="a header for every record; may be given again",
    )
    produce.add_argument(
        "-z", "--compression", metavar="CODEC", choices=CODECS, default="none", help=f"{', '.join(CODECS[:-1])} or zstd"
    )
    produce.add_argument(
        "--tombstone",
        action="store_true",
        help="delete keys: the one of -k, or else each line is one; a record with the value null is written",
    )
    # A table's "wide" may stand in FOLDLOG_FORMAT for all commands; a line has no columns to be wide.
    produce.add_argument(
        "--format",
        metavar="{text,json}",
        choices=FORMATS,
        default="text",
        help="what a line is: text (default) or json",
    )
    add_place_options(produce)


def partition_value(text: str) -> int | str:
    if text == BY_KEY:
        return BY_KEY
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is neither a partition's number nor {BY_KEY!r}")


def header_value(text: str) -> tuple[str, bytes]:
    """
    >>> header_value("source=web")
    ('source', b'web')
    """
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not a header, such as source=web")
    return name, bytes_value(value)


def run_produce(arguments: argparse.Namespace) -> int:
    from foldlog.cli.interrupts import Interrupts
    from foldlog.cli.record_input import STANDARD_INPUT, Line, Sending, input_lines, json_parser, text_parser
    from foldlog.cli.record_json import UnreadableLine
    from foldlog.client.partitioners import checked_partition

    _check_options(arguments)
    headers = tuple(arguments.headers or ())
    partition = arguments.partition if isinstance(arguments.partition, int) else None
    if arguments.format == "json":
        parse = json_parser(headers=headers, partition=partition, by_key=arguments.partition == BY_KEY)
    else:
        parse = text_parser(
            key=arguments.key,
            delimiter=arguments.key_delimiter,
            headers=headers,
            partition=partition,
            is_tombstone=arguments.tombstone,
        )
    is_read = not (arguments.tombstone and arguments.key is not None)
    with open_place(arguments, write=True) as log, Interrupts() as interrupts:
        count = log.topic(arguments.topic).partition_count
        if partition is not None:
            checked_partition(arguments.topic, partition, count)
        if is_read and STANDARD_INPUT in (arguments.files or [STANDARD_INPUT]) and sys.stdin and sys.stdin.isatty():
            remark("a record a line; Ctrl-D ends it")
        with log.producer(compression=arguments.compression) as producer:
            sending = Sending(producer, arguments.topic)
            try:
                if is_read:
                    lines = input_lines(arguments.files, interrupts)
                else:
                    lines = iter([Line("the command line", 1, arguments.key)])
                sending.send_lines(lines, parse)
                sending.finish()
            except KeyboardInterrupt:
                sending.finish()
                # Below the ^C that a terminal shows.
                remark(f"\n{sending.written}" if sys.stderr.isatty() else sending.written)
                raise
            except UnreadableLine:
                raise  # its sentence says how far it came
            except (FoldlogError, OSError):
                if sending.acknowledged:
                    remark(f"note: at least {sending.written} before this:")
                raise
    remark(sending.written)
    return DONE


def _check_options(arguments: argparse.Namespace) -> None:
    if arguments.key is not None and arguments.key_delimiter is not None:
        raise InvalidArgument("-k gives every record the same key, and -K takes it from each line; give one of them")
    if arguments.format == "json" and (arguments.key is not None or arguments.key_delimiter or arguments.tombstone):
        raise InvalidArgument("JSON lines have keys and values of their own; leave out -k, -K and --tombstone")
    if arguments.tombstone and arguments.key_delimiter is not None:
        raise InvalidArgument("with --tombstone there are no values, so each line is a key; leave out -K")
    if arguments.tombstone and arguments.key is not None and arguments.files:
        raise InvalidArgument("-k with --tombstone deletes that one key, and reads nothing; leave out the files, or -k")
