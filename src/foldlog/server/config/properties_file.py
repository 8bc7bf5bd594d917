"""Java's .properties syntax, in which Kafka's server.properties is written. Pure: text in, pairs out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from foldlog.errors import InvalidConfig

_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX_DIGITS: Final = re.compile(r"[0-9A-Fa-f]{4}")

_SECRET: Final = re.compile(r"(password|secret|jaas\.config|keystore\.key|key\.pem|token)$")


def has_secret_name(name: str) -> bool:
    """Whether a property, of a client or of a broker, holds something that only its owner may read.

    >>> [has_secret_name(name) for name in ("sasl.password", "sasl.jaas.config", "ssl.key.location")]
    [True, True, False]
    """
    return _SECRET.search(name) is not None


def parse_properties(text: str) -> dict[str, str]:
    """Names and values; if a name occurs twice the last one counts, as in Java.

    A backslash at the end of a line continues it, and before a character it stands for that character (or a tab, a line
    end, a code point). A name ends at '=', ':' or a blank. InvalidConfig names the line, not its content, which may be
    a password.

    >>> parse_properties("# ours\\nnum.partitions = 3\\nlisteners: \\\\\\n    127.0.0.1:9092")
    {'num.partitions': '3', 'listeners': '127.0.0.1:9092'}
    """
    pairs: dict[str, str] = {}
    for line_number, line in _logical_lines(text):
        end = _end_of_name(line)
        rest = line[end:].lstrip(_BLANKS)
        if rest[:1] in {"=", ":"}:
            rest = rest[1:].lstrip(_BLANKS)
        try:
            pairs[_unescaped(line[:end])] = _unescaped(rest)
        except ValueError as error:
            raise InvalidConfig(f"line {line_number} has {error}") from None
    return pairs


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments and blank ones, with continued lines joined, each with the number of its first line."""
    parts: list[str] = []
    first_number = 1
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = natural.lstrip(_BLANKS)
        if not parts and (not line or line[0] in "#!"):
            continue
        first_number = first_number if parts else number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            parts.append(line[:-1])
            continue
        yield first_number, "".join((*parts, line))
        parts.clear()
    if parts:
        yield first_number, "".join(parts)


def _end_of_name(line: str) -> int:
    position = 0
    while position < len(line) and line[position] not in f"=:{_BLANKS}":
        position += 2 if line[position] == "\\" else 1
    return min(position, len(line))


def _unescaped(text: str) -> str:
    """Replace escapes. Raises ValueError for an invalid one."""
    if "\\" not in text:
        return text
    characters: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character == "\\" and position < len(text):
            character = text[position]
            position += 1
            if character == "u":
                digits = _HEX_DIGITS.match(text, position)
                if digits is None:
                    raise ValueError("\\u without four hexadecimal digits behind it")
                character = chr(int(digits[0], 16))
                position += 4
            else:
                character = _ESCAPES.get(character, character)
        characters.append(character)
    return "".join(characters)
