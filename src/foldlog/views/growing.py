"""A view that gets a column for each field that its topic's schema does not name: `on_new_column="add"`.

The rows come with such fields in one column, `_more`, a map from their names to their JSON. This view stands before a
table or a lake and makes columns of them, each a text: a text as it is, everything else as its JSON. The type of a
column never depends on which record came first. So the view is the same for every split of the log, and has a column
for every field of the records up to its bookmark, in any order.

Names that not every engine takes for the same column stay in `_more`: see `is_column_name`. So does a field that the
fold has a column for, and a text that the engine cannot hold.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from foldlog.errors import InvalidArgument, brief_repr
from foldlog.limits import FOLD_NEW_COLUMNS_MAX
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import Delta, Shape, Snapshot, View
from foldlog.views.storable import unheld_text

if TYPE_CHECKING:
    import pyarrow as pa

    from foldlog.views.lake.compaction import Compaction, CompactionGoal

MORE: Final = "_more"
"""The column of fields that the schema does not name."""

KINDS: Final = ("table", "lake")
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_TAKEN: Final = frozenset({"rowid", "oid", "tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})
"""What engines call columns of their own."""


def is_column_name(name: str) -> bool:
    """Whether a field of this name becomes a column: small letters, digits and '_', as engines fold case differently.

    >>> [one for one in ("tip", "Tip", "to go", "_id", "xmin", "t2") if is_column_name(one)]
    ['tip', 't2']
    """
    return _NAME.fullmatch(name) is not None and name not in _TAKEN


class GrowingView(View):
    """A table or a lake that grows with the fields of its records."""

    def __init__(self, inner: View) -> None:
        if inner.kind not in KINDS or inner.aggregation is not None or inner.reduction is not None:
            raise InvalidArgument(
                f"on_new_column='add' adds columns to tables and lakes, and {inner.place} is a {inner.kind} view; use"
                " on_new_column='ignore', or 'keep'"
            )
        self._inner = inner
        self._shape: Shape | None = None
        self._is_loading = False
        self._added: set[str] = set()
        # What a view says of itself is the inner one's word.
        self.kind, self.is_keyed, self.adds = inner.kind, inner.is_keyed, inner.adds  # type: ignore[misc]
        self.holds_nul, self.holds_nan, self.keeps_old = inner.holds_nul, inner.holds_nan, inner.keeps_old  # type: ignore[misc]
        self.ttl, self.pace, self.is_transactional = inner.ttl, inner.pace, inner.is_transactional

    @property
    def place(self) -> str:
        return self._inner.place

    def bookmark(self) -> Bookmark | None:
        return self._inner.bookmark()

    def prepare(self, shape: Shape, start: Bookmark, *, loading: bool = False) -> Bookmark:
        if MORE not in shape.columns.names:
            raise InvalidArgument(
                f"the fold of {self.place} leaves out {MORE}, in which new fields come, so none could be added; return"
                f" it (rows.select(..., {MORE!r}, *fl.META)), or use on_new_column='ignore'"
            )
        self._shape, self._is_loading, self._added = shape, loading, set()
        return self._inner.prepare(shape, start, loading=loading)

    def apply(self, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        rows, names = self._spread(delta.rows)
        if self._shape is not None and not names <= self._added:
            self._grow(self._shape, names, expected)
        self._inner.apply(replace(delta, rows=rows), expected, new)

    def _grow(self, shape: Shape, names: set[str], start: Bookmark) -> None:
        """Add columns to the view. A transaction of its own: columns that nobody has filled yet change no row."""
        import pyarrow as pa

        wanted = self._added | names
        if len(wanted) > FOLD_NEW_COLUMNS_MAX:
            raise InvalidArgument(
                f"the records have {len(wanted)} fields that the schema does not name, such as"
                f" {brief_repr(max(wanted))}, and {FOLD_NEW_COLUMNS_MAX} are the most that on_new_column='add'"
                " makes columns of; names that differ from record to record are no columns: use on_new_column='keep'"
            )
        fields = [pa.field(name, pa.string()) for name in sorted(wanted)]
        grown = replace(shape, columns=pa.schema([*shape.columns, *fields]))
        self._inner.prepare(grown, start, loading=self._is_loading)
        self._added = wanted

    def _spread(self, rows: pa.Table) -> tuple[pa.Table, set[str]]:
        """The rows with columns for their new fields, and the names of those."""
        import pyarrow as pa

        given = rows[MORE].to_pylist()
        taken = {name.lower() for name in rows.column_names}
        columns: dict[str, dict[int, str | None]] = {}
        left: list[list[tuple[str, str]] | None] = []
        for number, fields in enumerate(given):
            kept = []
            for name, text in fields or ():
                is_text, value = self._value(text)
                if is_text and name not in taken and is_column_name(name):
                    columns.setdefault(name, {})[number] = value
                else:
                    kept.append((name, text))
            left.append(kept or None)
        kind = rows.schema.field(MORE).type
        rows = rows.set_column(rows.column_names.index(MORE), MORE, pa.array(left, kind))
        for name in sorted(columns):
            found = columns[name]
            values = pa.array([found.get(number) for number in range(rows.num_rows)], pa.string())
            rows = rows.append_column(name, values)
        return rows, set(columns)

    def _value(self, text: str) -> tuple[bool, str | None]:
        """Whether a field can be a text of the view, and which."""
        if text == "null":
            return True, None
        value: Any = json.loads(text) if text.startswith('"') else text
        try:
            value.encode()
        except UnicodeEncodeError:
            return False, None  # half of a surrogate pair
        return unheld_text(self._inner, value) is None, value

    def filled(self, shape: Shape) -> tuple[str, ...]:
        return self._inner.filled(shape)

    def keeps_rows(self, record_key: tuple[str, ...]) -> bool:
        return self._inner.keeps_rows(record_key)

    def holds_unicode(self) -> bool:
        return self._inner.holds_unicode()

    def unheld_characters(self, characters: frozenset[str]) -> frozenset[str]:
        return self._inner.unheld_characters(characters)

    def unheld_keys(self, keys: pa.Table) -> pa.ChunkedArray | None:
        return self._inner.unheld_keys(keys)

    def move(self, expected: Bookmark, new: Bookmark) -> None:
        self._inner.move(expected, new)

    def finish_loading(self) -> None:
        self._inner.finish_loading()

    def shadow(self, label: str) -> View:
        return GrowingView(self._inner.shadow(label))

    def check_swap(self) -> None:
        self._inner.check_swap()

    def swap(self, shadow: View) -> None:
        if not isinstance(shadow, GrowingView):
            raise InvalidArgument(f"{shadow.place} is no shadow of {self.place}")
        self._inner.swap(shadow._inner)

    def drop_old(self) -> bool:
        return self._inner.drop_old()

    def drop(self) -> None:
        self._inner.drop()

    def compact(self, goal: CompactionGoal) -> Compaction:
        return self._inner.compact(goal)

    def scan(self) -> Snapshot:
        return self._inner.scan()

    def description(self) -> dict[str, object] | None:
        return self._inner.description()

    def size_bytes(self) -> int | None:
        return self._inner.size_bytes()

    def peek(self, limit: int = 20) -> list[dict[str, object]]:
        return self._inner.peek(limit)

    def close(self) -> None:
        self._inner.close()
