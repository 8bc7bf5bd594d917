"""The options that verbs for records share, and their values."""

from __future__ import annotations

import os
from typing import Final

from foldlog.cli.parsing import Option, in_section, option, switch
from foldlog.errors import InvalidArgument
from foldlog.records.decoding import NAMES

FORMATS: Final = ("text", "wide", "json")

FORMAT_HELP: Final = (
    "how to print a record, in kcat's letters: %t topic, %p partition, %o offset, %T timestamp in ms, %k key, %s"
    " or %v value, %K and %S their sizes (-1 for null), %h headers, %% a percent sign; \\n \\t \\r \\0 \\\\ \\xNN"
)


def partitions_value(text: str) -> tuple[int, ...]:
    """Numbers separated by commas.

    >>> partitions_value("0,2")
    (0, 2)
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):
        raise InvalidArgument(f"{text!r} is not a list of partitions, such as 0 or 0,2")
    return tuple(dict.fromkeys(int(word) for word in words))


def bytes_value(text: str) -> bytes:
    """A key or header as it was typed: any bytes from the shell, even if they are not UTF-8."""
    return os.fsencode(text)


def delimiter_value(text: str) -> bytes:
    """The separator of key and value; the escapes are those of a format.

    >>> delimiter_value("\\\\t"), delimiter_value(": ")
    (b'\\t', b': ')
    """
    data = os.fsencode(text)
    for escape, meant in ((b"\\t", b"\t"), (b"\\0", b"\0"), (b"\\\\", b"\\")):
        data = data.replace(escape, meant)
    if not data or b"\n" in data:
        raise InvalidArgument(f"{text!r} cannot stand between a key and a value; give a character such as :")
    return data


def partitions_option() -> Option:
    return option(
        "-p", "--partitions", metavar="P[,P…]", read=partitions_value, told="only these partitions (default: all)"
    )


def output_options(text: str = "each value on a line") -> list[Option]:
    """The options for how records are printed."""
    return in_section(
        "output",
        option(
            "--format",
            metavar="FORMAT",
            choices=FORMATS,
            default="text",
            told=f"text: {text} (the default); wide: rows of time, place, headers, key, value; json: an object a line",
        ),
        option("-f", "--record-format", metavar="LETTERS", told=FORMAT_HELP),
        option(
            "--decode",
            metavar="HOW",
            choices=NAMES,
            told=(
                "decode each value: json and msgpack print JSON, hex prints rows of bytes, text prints text;"
                " registry decodes key and value by the schema that each names; auto decodes only MessagePack"
            ),
        ),
        option(
            "--registry",
            metavar="URL",
            told="with --decode, for registry: where the schemas are (default: the log's own topic _schemas)",
        ),
        switch("-Z", "--show-null", told="print NULL for a key or value that is null, in text and with -f"),
    )
