"""Parsing of setting values, shared by topic settings and broker settings."""

from __future__ import annotations

from foldlog.records.batch import MAX_INT64


class ValueNotAllowedError(Exception):
    """A setting's parser refuses a value; the caller raises the error that names the setting."""


def integer_of(value: object) -> int:
    """An integer, as Kafka's ConfigDef takes it: a number or its decimal text; a float only if it is integral.

    >>> integer_of(" -1 "), integer_of(2.0)
    (-1, 2)
    """
    if isinstance(value, bool):
        raise ValueNotAllowedError
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        text = value.strip()
        digits = text[1:] if text[:1] in {"-", "+"} else text
        if digits.isascii() and digits.isdecimal() and len(digits) <= len(str(MAX_INT64)):
            return int(text)
    raise ValueNotAllowedError
