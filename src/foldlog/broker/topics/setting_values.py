"""How the text of a setting becomes a value: what topic settings and broker settings share."""

from __future__ import annotations

from foldlog.records.batch import MAX_INT64


class ValueNotAllowedError(Exception):
    """A value that a setting's parser does not take; who called it makes a sentence that names the setting."""


def integer_of(value: object) -> int:
    """Kafka's ConfigDef takes numbers and their decimal text. A float is taken where nothing is lost by it.

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
