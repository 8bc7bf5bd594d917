"""`foldlog topic produce`: write records, a line each."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from foldlog.cli.exit_codes import DONE
from foldlog.cli.log_options import log_options, open_log
from foldlog.cli.output import remark
from foldlog.cli.parsing import Arguments, argument, command, one_of, option, switch
from foldlog.cli.records.options import FORMATS, bytes_value, delimiter_value
from foldlog.errors import FoldlogError, InvalidArgument

if TYPE_CHECKING:
    from foldlog.client.log import Log

PRODUCE: Final = """\
Reads lines from the files, or from standard input, and writes each as a record. It returns once all of them are
durable, and says on standard error how many. An invalid line ends it; the records before that line are written.

As text, a line is a value; with -K ':' it is a key and a value. As JSON, it is what 'topic consume --format json'
prints: "value" is required, "key", "headers", "partition" and "timestamp" are used, "topic" and "offset" are not.

  echo '{"amount": 100}' | foldlog topic produce orders -k u1
  foldlog topic produce orders -k u1 --tombstone            delete the key u1
  foldlog topic consume orders --format json |
  foldlog topic produce copies --format json                copy a topic
"""

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
BY_KEY: Final = "key"


def partition_value(text: str) -> int | str:
    if text == BY_KEY:
        return BY_KEY
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    raise InvalidArgument(f"{text!r} is neither a partition's number nor {BY_KEY!r}")


def header_value(text: str) -> tuple[str, bytes]:
    """
    >>> header_value("source=web")
    ('source', b'web')
    """
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise InvalidArgument(f"{text!r} is not a header, such as source=web")
    return name, bytes_value(value)


@command(
    argument("topic", "TOPIC", "the topic"),
    argument("files", "FILE", "the files to read; - is standard input (default)", is_many=True, is_needed=False),
    *one_of(
        option("-k", "--key", metavar="KEY", read=bytes_value, told="the key of every record"),
        option(
            "-K",
            "--key-delimiter",
            metavar="DELIM",
            read=delimiter_value,
            told="what separates the key from the value in each line",
        ),
    ),
    option(
        "-p",
        "--partition",
        metavar="P",
        read=partition_value,
        told='the partition of every record; "key" chooses it by the key, also if a JSON line names a partition',
    ),
    option(
        "-H",
        "--header",
        dest="headers",
        metavar="NAME=VALUE",
        read=header_value,
        told="a header for every record; repeatable",
        is_repeated=True,
    ),
    option(
        "-z", "--compression", metavar="CODEC", choices=CODECS, default="none", told=f"{', '.join(CODECS[:-1])} or zstd"
    ),
    switch(
        "--tombstone",
        told=(
            "delete the key of -k, without reading a file; or each line is a key to delete, without -K; this writes"
            " records with the value null"
        ),
    ),
    # FOLDLOG_FORMAT may be "wide" for all tables; here it is accepted, and means text.
    option(
        "--format",
        metavar="{text,json}",
        choices=FORMATS,
        default="text",
        told="what a line is: text (default), or json, which contains the key: without -k, -K and --tombstone",
    ),
    *log_options(),
    more=PRODUCE,
)
def produce(arguments: Arguments) -> int:
    from foldlog.cli.records.input import STANDARD_INPUT, Line, Sending, input_lines, json_parser, text_parser
    from foldlog.cli.signals import Interrupts
    from foldlog.client.outgoing import checked_partition
    from foldlog.records.json_lines import UnreadableLine

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
    with open_log(arguments, write=True) as log, Interrupts() as interrupts:
        count = log.topic(arguments.topic).partition_count
        if partition is not None:
            checked_partition(arguments.topic, partition, count)
        if is_read and STANDARD_INPUT in (arguments.files or [STANDARD_INPUT]) and sys.stdin and sys.stdin.isatty():
            remark("type one record per line; Ctrl-D ends it")
        with log.producer(compression=arguments.compression) as producer:
            sending = Sending(producer, arguments.topic, _kept_ms(log, arguments.topic))
            try:
                if is_read:
                    lines = input_lines(arguments.files, interrupts)
                else:
                    lines = iter([Line("the command line", 1, arguments.key)])
                sending.send_lines(lines, parse)
                sending.finish()
            except KeyboardInterrupt:
                sending.finish()
                # On a new line after the ^C that a terminal shows.
                remark(f"\n{sending.written}" if sys.stderr.isatty() else sending.written)
                raise
            except UnreadableLine:
                raise  # its message says how far it came
            except (FoldlogError, OSError):
                if sending.acknowledged:
                    remark(f"note: at least {sending.written} before this:")
                raise
    remark(sending.written)
    return DONE


def _kept_ms(log: Log, topic: str) -> int | None:
    """How long a broker's topic keeps records, by their own timestamps; None if forever, and for a directory, which
    warns of older records itself."""
    from foldlog.client.backends.directory import is_directory

    if is_directory(log):
        return None
    config = log.topic_config(topic)
    if "delete" not in config["cleanup.policy"].value or config["message.timestamp.type"].value == "LogAppendTime":
        return None
    kept_ms = int(config["retention.ms"].value)
    return kept_ms if kept_ms >= 0 else None


def _check_options(arguments: Arguments) -> None:
    if arguments.format == "json" and (arguments.key is not None or arguments.key_delimiter or arguments.tombstone):
        raise InvalidArgument("JSON lines contain their own keys and values; leave out -k, -K and --tombstone")
    if arguments.tombstone and arguments.key_delimiter is not None:
        raise InvalidArgument("with --tombstone there are no values, so each line is a key; leave out -K")
    if arguments.tombstone and arguments.key is not None and arguments.files:
        raise InvalidArgument("-k with --tombstone deletes that one key, and reads nothing; leave out the files, or -k")
