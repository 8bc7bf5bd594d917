"""Changes of rows as records: the key, and the value plain or in Debezium's envelope. Pure functions of texts.

| change | plain | debezium |
| --- | --- | --- |
| inserted, updated, read by a snapshot | the row | an event: `before`, `after` (the row), `source`, `op`, `ts_ms` |
| deleted | a tombstone | an event with `"op":"d"`, and a tombstone after it |
| another key | a deletion of the old key, then the row under its new one | likewise |
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, get_args

from foldlog.capture.database import DELETE, CapturedDatabase, Fragments, RowLayout, TransactionBegins
from foldlog.capture.topic_rows import members
from foldlog.errors import InvalidArgument, brief_repr

Values = Literal["plain", "debezium"]
Keys = Literal["plain", "json"]

OP_HEADER: Final = "op"
COMMIT_HEADER: Final = "commit"
"""Headers of every record: the operation, and where its transaction committed, as the database writes it."""


class RowRecord(NamedTuple):
    """One record. `row` is the row under that key from now on, None if there is none."""

    key: bytes
    value: bytes | None
    op: str
    row: str | None


class RecordForm:
    """How rows become records, by the choices of a capture."""

    def __init__(self, values: Values = "plain", keys: Keys | None = None) -> None:
        """`keys` "plain" is the column's text where the key is one column; else, and with "json", an object. Unset it
        is what goes with the values: Debezium's keys are objects."""
        if values not in get_args(Values):
            raise InvalidArgument(f"values={brief_repr(values)} is not 'plain' or 'debezium'")
        if keys is not None and keys not in get_args(Keys):
            raise InvalidArgument(f"keys={brief_repr(keys)} is not 'plain' or 'json'")
        self.values: Final = values
        self.keys: Final = keys or ("json" if values == "debezium" else "plain")

    def key(self, layout: RowLayout, row: Fragments) -> bytes:
        """
        >>> layout = RowLayout("public", "items", ["id", "name"], ["name"])
        >>> RecordForm().key(layout, ["1", '"green tea"']), RecordForm(keys="json").key(layout, ["1", '"green tea"'])
        (b'green tea', b'{"name":"green tea"}')
        """
        if self.keys == "json" or len(layout.keys) > 1:
            return layout.key_document(row).encode()
        text = row[layout.keys[0]] or ""
        return (json.loads(text) if text[:1] == '"' else text).encode()

    def row_of(self, value: bytes | None) -> str | None:
        """The row that a value holds; None if it deletes. The inverse of what is written here."""
        if value is None:
            return None
        text = value.decode()
        if self.values == "plain":
            return text
        after = members(text)["after"]
        return None if after == "null" else after


class Events:
    """Makes the records of one transaction, or of a snapshot."""

    def __init__(
        self,
        form: RecordForm,
        name: str,
        source: CapturedDatabase,
        begun: TransactionBegins,
        *,
        is_snapshot: bool = False,
    ) -> None:
        self._form = form
        self._name = name
        self._source = source
        self._begun = begun
        self._is_snapshot = is_snapshot
        self._origins: dict[int, tuple[RowLayout, str]] = {}

    def put(
        self, op: str, layout: RowLayout, row: Fragments, before: str | None, position: int, now_ms: int
    ) -> Iterator[RowRecord]:
        """The row is so from now on. `before` is the whole row that it was, where the database told it."""
        document = layout.document(row)
        value = document
        if self._form.values == "debezium":
            value = self._envelope(op, layout, before, document, position, now_ms)
        yield RowRecord(self._form.key(layout, row), value.encode(), op, document)

    def delete(
        self, layout: RowLayout, old: Fragments, before: str | None, position: int, now_ms: int
    ) -> Iterator[RowRecord]:
        """`old` holds at least the key."""
        before = before if before is not None else layout.key_document(old)
        return self.delete_key(self._form.key(layout, old), layout, before, position, now_ms)

    def delete_key(self, key: bytes, layout: RowLayout, before: str, position: int, now_ms: int) -> Iterator[RowRecord]:
        """A key that the topic has."""
        if self._form.values == "debezium":
            yield RowRecord(key, self._envelope(DELETE, layout, before, None, position, now_ms).encode(), DELETE, None)
        yield RowRecord(key, None, DELETE, None)

    def _envelope(
        self, op: str, layout: RowLayout, before: str | None, after: str | None, position: int, now_ms: int
    ) -> str:
        return (
            f'{{"before":{before or "null"},"after":{after or "null"},"source":{self._origin(layout)}{position}}},'
            f'"op":"{op}","ts_ms":{now_ms}}}'
        )

    def _origin(self, layout: RowLayout) -> str:
        """Of all changes of a table in the transaction: the object's text up to the position."""
        found = self._origins.get(id(layout))
        if found is None:
            origin = {
                "connector": self._source.kind,
                "name": self._name,
                "ts_ms": self._begun.committed_ms,
                "snapshot": "true" if self._is_snapshot else "false",
                "db": self._source.database,
                **self._source.origin(layout, self._begun),
            }
            text = json.dumps(origin, separators=(",", ":"), ensure_ascii=False)
            # With the layout, so that no other one gets its id while this is used.
            found = self._origins[id(layout)] = layout, f'{text[:-1]},"{self._source.position_name}":'
        return found[1]
