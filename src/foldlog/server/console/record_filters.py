"""Which records of a topic somebody wants to see: by key, text, a JSON path, and time. Pure.

A path is written as in JSON: `$.customer.id`, `items[0].sku`, `items[*].sku`, `["a name"].x`. With an operator and a
value it is a test: `$.amount >= 100`, `$.status = paid`, `$.name ~ tea`; alone it asks whether there is something.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from foldlog.errors import InvalidArgument, brief_repr
from foldlog.records.decoding import AUTO, Decoder, How, document_of
from foldlog.records.loops import Record

_EVERY: Final = object()
_STEP: Final = re.compile(
    r"\.?(?P<name>[^\s.\[\]=!<>~\"]+)|\[(?P<index>\d{1,9}|\*)\]|\[(?P<quoted>\"(?:\\.|[^\"\\])*\")\]"
)
_TEST: Final = re.compile(r"\s*(?P<operator>==|=|!=|>=|<=|>|<|~)\s*(?P<value>.*?)\s*", re.DOTALL)
_EXAMPLE: Final = "write it as $.customer.id = 17, items[0].sku ~ tea, or $.error"

_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}

Path = tuple[Any, ...]


def parse_path(text: str) -> Path:
    """
    >>> parse_path("$.items[0].sku"), parse_path('["a b"]')
    (('items', 0, 'sku'), ('a b',))
    """
    path, at = _path(text.strip())
    if at != len(text.strip()):
        raise InvalidArgument(f"{brief_repr(text)} is no path into a value; {_EXAMPLE}")
    return path


def _path(text: str) -> tuple[Path, int]:
    at = 1 if text.startswith("$") else 0
    steps: list[Any] = []
    while (found := _STEP.match(text, at)) is not None:
        if found["name"] is not None:
            steps.append(found["name"])
        elif found["index"] is not None:
            steps.append(_EVERY if found["index"] == "*" else int(found["index"]))
        else:
            steps.append(json.loads(found["quoted"]))
        at = found.end()
    if not steps and not text.startswith("$"):
        raise InvalidArgument(f"{brief_repr(text)} is no path into a value; {_EXAMPLE}")
    return tuple(steps), at


def found_at(document: Any, path: Path) -> Iterator[Any]:
    """What stands there, nothing or many for `[*]`.

    >>> list(found_at({"items": [{"n": 1}, {"n": 2}, {}]}, parse_path("items[*].n")))
    [1, 2]
    """
    if not path:
        yield document
        return
    step, rest = path[0], path[1:]
    if step is _EVERY:
        for inner in (
            document if isinstance(document, list) else document.values() if isinstance(document, dict) else ()
        ):
            yield from found_at(inner, rest)
    elif isinstance(document, dict) and str(step) in document:
        yield from found_at(document[str(step)], rest)
    elif isinstance(document, list) and isinstance(step, int) and step < len(document):
        yield from found_at(document[step], rest)


@dataclass(frozen=True, slots=True)
class PathTest:
    """A path, and what has to stand there; without an operator, anything."""

    path: Path
    operator: str | None = None
    value: Any = None
    text: str = ""

    @classmethod
    def parse(cls, text: str) -> PathTest:
        """
        >>> PathTest.parse("$.customer.id >= 17").value
        17
        """
        text = text.strip()
        path, at = _path(text)
        if at == len(text):
            return cls(path)
        test = _TEST.fullmatch(text, at)
        if test is None or (not test["value"]):
            raise InvalidArgument(f"{brief_repr(text)} is no test of a value; {_EXAMPLE}")
        return cls(path, test["operator"].replace("==", "="), _literal(test["value"]), test["value"])

    @classmethod
    def whole(cls, text: str) -> PathTest:
        """That the document itself is what was typed.

        >>> PathTest.whole('{"id":17}').holds({"id": 17}), PathTest.whole("17").holds("17")
        (True, True)
        """
        return cls((), "=", _literal(text), text)

    def holds(self, document: Any) -> bool:
        return any(self._holds(value) for value in found_at(document, self.path))

    def _holds(self, value: Any) -> bool:
        if self.operator is None:
            return True
        if self.operator == "~":
            wanted = self.value if isinstance(self.value, str) else self.text
            return wanted.lower() in plain(value).lower()
        if self.operator in ("=", "!="):
            return self._is_equal(value) is (self.operator == "=")
        is_alike = (_is_number(value) and _is_number(self.value)) or (
            isinstance(value, str) and isinstance(self.value, str)
        )
        return is_alike and _ORDERS[self.operator](value, self.value)

    def _is_equal(self, value: Any) -> bool:
        if isinstance(value, bool) is isinstance(self.value, bool) and value == self.value:
            return True
        # `id = 17` finds "17", too: whoever types does not know how it was written.
        return isinstance(value, str) and value == self.text


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def plain(value: Any) -> str:
    """A value of a document as a text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """All that are given have to hold. `key` is the whole key, and `key_test` tests what it is by its schema: one of
    both is enough. `text` is somewhere in key, value or headers, and ASCII letters match in either case; times are
    inclusive."""

    key: bytes | None = None
    text: bytes | None = None
    test: PathTest | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    decoder: How = AUTO
    key_test: PathTest | None = None
    key_decoder: Decoder | None = None

    def matches(self, record: Record) -> bool:
        if self.since_ms is not None and record.timestamp_ms < self.since_ms:
            return False
        if self.until_ms is not None and record.timestamp_ms > self.until_ms:
            return False
        if self.key is not None and record.key != self.key and not self._is_key_by_schema(record.key):
            return False
        if self.text is not None and not self._has_text(record, self.text.lower()):
            return False
        return self.test is None or (
            record.value is not None and self.test.holds(document_of(record.value, self.decoder))
        )

    def _is_key_by_schema(self, key: bytes | None) -> bool:
        if self.key_test is None or self.key_decoder is None or key is None:
            return False
        document = document_of(key, self.key_decoder)
        return document is not None and self.key_test.holds(document)

    @staticmethod
    def _has_text(record: Record, wanted: bytes) -> bool:
        for data in (record.value, record.key):
            if data is not None and wanted in data.lower():
                return True
        return any(
            wanted in name.encode().lower() or wanted in (value or b"").lower() for name, value in record.headers
        )
