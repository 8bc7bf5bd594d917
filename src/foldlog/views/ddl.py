"""Columns as Spark's DDL writes them ("merchant STRING, lines ARRAY<BIGINT>"), read without Spark: a pipeline's file is
loaded, and a state is checked, where no JVM runs.

Only what folds declare is understood: names, types, NOT NULL and COMMENT. tests/spark/test_ddl.py compares with Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from foldlog.errors import InvalidArgument, brief_repr

if TYPE_CHECKING:
    import pyarrow as pa

_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\w+|[^\s\w])")

_DECIMAL_DIGITS_MAX: Final = 38

_NAMES: Final[dict[str, str]] = {
    "BOOLEAN": "bool",
    "TINYINT": "int8",
    "BYTE": "int8",
    "SMALLINT": "int16",
    "SHORT": "int16",
    "INT": "int32",
    "INTEGER": "int32",
    "BIGINT": "int64",
    "LONG": "int64",
    "FLOAT": "float32",
    "REAL": "float32",
    "DOUBLE": "float64",
    "STRING": "string",
    "BINARY": "binary",
    "DATE": "date32",
}


def columns_of(ddl: str) -> pa.Schema:
    """The columns of a DDL, in Arrow's types; times in UTC, of microseconds. InvalidArgument if it is not understood.

    >>> columns_of("merchant STRING NOT NULL, `the sum` DECIMAL(9, 2)").names
    ['merchant', 'the sum']
    """
    import pyarrow as pa

    reader = _Reader(ddl)
    fields: list[pa.Field] = []
    while True:
        fields.append(reader.column())
        if reader.at_end:
            break
        reader.expect(",")
    names = [one.name.lower() for one in fields]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidArgument(f"{brief_repr(ddl)} names the column {twice!r} twice")
    return pa.schema(fields)


class _Reader:
    """The tokens of a DDL, read once."""

    def __init__(self, ddl: str) -> None:
        self._ddl = ddl
        self._tokens = _TOKEN.findall(ddl)
        self._at = 0

    @property
    def at_end(self) -> bool:
        return self._at >= len(self._tokens)

    def column(self) -> pa.Field:
        """One column: its name, its type, and what may follow."""
        import pyarrow as pa

        name = self._name()
        self._skip(":")
        kind = self._type()
        is_nullable = True
        if self._skip("NOT"):
            self.expect("NULL")
            is_nullable = False
        if self._skip("COMMENT"):
            self._next("a comment")
            while not self.at_end and self._tokens[self._at][0] in "'\"":
                self._at += 1  # texts that follow each other are one, and '' in a text is a quote
        return pa.field(name, kind, is_nullable)

    def expect(self, token: str) -> None:
        """The next token is this one."""
        if not self._skip(token):
            found = "its end" if self.at_end else repr(self._tokens[self._at])
            raise self._wrong(f"{token!r} is expected where {found} is")

    def _type(self) -> Any:
        import pyarrow as pa

        word = self._next("a type").upper()
        nested: dict[str, Callable[[], Any]] = {"ARRAY": self._array, "MAP": self._map, "STRUCT": self._struct}
        if word in nested:
            return nested[word]()
        if word in ("DECIMAL", "DEC", "NUMERIC"):
            return self._decimal()
        if word in ("TIMESTAMP", "TIMESTAMP_LTZ"):
            return pa.timestamp("us", tz="UTC")
        if word == "TIMESTAMP_NTZ":
            return pa.timestamp("us")
        if word in _NAMES:
            return getattr(pa, {"bool": "bool_"}.get(_NAMES[word], _NAMES[word]))()
        raise self._wrong(f"{word} is not a type that columns can have here")

    def _array(self) -> Any:
        import pyarrow as pa

        self.expect("<")
        inner = self._type()
        self.expect(">")
        return pa.list_(pa.field("element", inner))

    def _map(self) -> Any:
        import pyarrow as pa

        self.expect("<")
        key = self._type()
        self.expect(",")
        value = self._type()
        self.expect(">")
        return pa.map_(key, value)

    def _struct(self) -> Any:
        import pyarrow as pa

        self.expect("<")
        fields: list[Any] = []
        while not self._skip(">"):
            if fields:
                self.expect(",")
            fields.append(self.column())
        return pa.struct(fields)

    def _decimal(self) -> Any:
        import pyarrow as pa

        precision, scale = 10, 0
        if self._skip("("):
            precision = self._number()
            if self._skip(","):
                scale = self._number()
            self.expect(")")
        if not 0 < precision <= _DECIMAL_DIGITS_MAX or scale > precision:
            raise self._wrong(f"DECIMAL({precision}, {scale}) is not one of at most {_DECIMAL_DIGITS_MAX} digits")
        return pa.decimal128(precision, scale)

    def _number(self) -> int:
        word = self._next("a number")
        if not word.isascii() or not word.isdigit():
            raise self._wrong(f"{word!r} is not a number")
        return int(word)

    def _name(self) -> str:
        word = self._next("a column")
        if word.startswith("`"):
            return word[1:-1].replace("``", "`")
        if not (word.isidentifier() or word.replace("_", "a").isalnum()):
            raise self._wrong(f"{word!r} is not a name for a column; put other names into `backticks`")
        return word

    def _next(self, what: str) -> str:
        if self.at_end:
            raise self._wrong(f"it ends where {what} is expected")
        self._at += 1
        return str(self._tokens[self._at - 1])

    def _skip(self, token: str) -> bool:
        is_there = not self.at_end and self._tokens[self._at].upper() == token
        self._at += is_there
        return is_there

    def _wrong(self, why: str) -> InvalidArgument:
        return InvalidArgument(
            f"{brief_repr(self._ddl)} is not a list of columns such as 'merchant STRING, amount_paise BIGINT': {why}"
        )
