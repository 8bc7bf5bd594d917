"""The options that verbs about records share, and what their values may be."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Final

from foldlog.cli.place_syntax import PlaceSpec, parse_place
from foldlog.errors import CallerError

FORMATS: Final = ("text", "wide", "json")

FORMAT_HELP: Final = (
    "how to print a record, in kcat's letters: %%t topic, %%p partition, %%o offset, %%T timestamp in ms, %%k key, %%s"
    " or %%v value, %%K and %%S their sizes (-1 for null), %%h headers, %%%% a percent sign; \\n \\t \\r \\0 \\\\ \\xNN"
)


def place_value(text: str) -> PlaceSpec:
    """A place, for argparse, which shows the sentence only of an error of its own."""
    try:
        return parse_place(text)
    except CallerError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def count_value(least: int) -> Callable[[str], int]:
    """A whole number of at least so many, for argparse."""

    def parsed(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) >= least):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, {least} or more")
        return int(text)

    return parsed


def partitions_value(text: str) -> tuple[int, ...]:
    """Numbers with commas between them.

    >>> partitions_value("0,2")
    (0, 2)
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of partitions, such as 0 or 0,2")
    return tuple(dict.fromkeys(int(word) for word in words))


def bytes_value(text: str) -> bytes:
    """A key or header as it was typed: whatever bytes the shell gave, also where they are not UTF-8."""
    return os.fsencode(text)


def delimiter_value(text: str) -> bytes:
    """What stands between key and value; the escapes are those of a format.

    >>> delimiter_value("\\\\t"), delimiter_value(": ")
    (b'\\t', b': ')
    """
    data = os.fsencode(text)
    for escape, meant in ((b"\\t", b"\t"), (b"\\0", b"\0"), (b"\\\\", b"\\")):
        data = data.replace(escape, meant)
    if not data or b"\n" in data:
        raise argparse.ArgumentTypeError(f"{text!r} cannot stand between a key and a value; give a character such as :")
    return data


def add_partitions_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-p", "--partitions", metavar="P[,P…]", type=partitions_value, help="only these partitions (default: all)"
    )


def add_output_options(parser: argparse.ArgumentParser, text: str = "each value on a line") -> None:
    """How records are printed."""
    group = parser.add_argument_group("what is printed")
    group.add_argument(
        "--format",
        metavar="FORMAT",
        choices=FORMATS,
        default="text",
        help=f"text: {text} (the default); wide: rows of time, place, headers, key, value; json: an object a line",
    )
    group.add_argument("-f", "--record-format", metavar="LETTERS", dest="record_format", help=FORMAT_HELP)
    group.add_argument(
        "-Z", "--show-null", action="store_true", help="print NULL for a key or value that is null, in text and with -f"
    )
