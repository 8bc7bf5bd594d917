"""What is stored of a join beside its tables: the bookmark, a vector over its topics, and the columns of both sides.

It is one row of the bookmark table. Whoever changes a side locks it, so that the change of one side is always joined
with all of the other.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from foldlog.errors import FoldError, SchemaChanged, ViewUnavailable
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import RECORD, WHOSE_ROWS_UNKNOWN, Shape
from foldlog.views.join.rows import SideShape
from foldlog.views.join.spec import LEFT, RIGHT, JoinSpec
from foldlog.views.sql.bookmarks import JOIN_KIND as JOIN_KIND
from foldlog.views.sql.names import check_columns
from foldlog.views.sql.types import kept_schema
from foldlog.views.table.shape import TableShape, load_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

KEY: Final = (LEFT, RIGHT)


@dataclass(frozen=True, slots=True)
class JoinState:
    """`sides` and `bookmarks` are None for a side that no range was read of, nor prepared to be. `result` are the
    columns of the joined table, which exists as soon as both sides do.
    """

    spec: JoinSpec
    sides: tuple[SideShape | None, SideShape | None]
    bookmarks: tuple[Bookmark | None, Bookmark | None]
    result: pa.Schema | None = None
    is_loading: bool = False
    """Only the sides are kept up to date yet: the shadow of a rebuild is joined once, at the end."""

    @classmethod
    def new(cls, spec: JoinSpec, *, loading: bool) -> JoinState:
        return cls(spec, (None, None), (None, None), is_loading=loading)

    def side(self, number: int, place: str) -> SideShape:
        """The side; ViewUnavailable if it was not prepared."""
        found = self.sides[number]
        if found is None:
            raise ViewUnavailable(place, "one side of the join is not there; run the fold")
        return found

    def with_side(self, number: int, shape: SideShape) -> JoinState:
        one, other = self.sides
        return replace(self, sides=(shape, other) if number == 0 else (one, shape))

    def at(self, number: int, bookmark: Bookmark) -> JoinState:
        one, other = self.bookmarks
        return replace(self, bookmarks=(bookmark, other) if number == 0 else (one, bookmark))

    def joined(self, place: str) -> JoinState:
        """With the columns of the result, once both sides are known; columns that a side has gained come last."""
        import pyarrow as pa

        left, right = self.sides
        if left is None or right is None:
            return self
        self.spec.check_both(left.own, right.own, place)
        wanted = [*left.own, *(right.columns.field(name) for name in self.spec.right_columns(right.own))]
        if self.result is None:
            key = [(LEFT, pa.string()), (RIGHT, pa.string())]
            check_columns([one.name for one in wanted])
            return replace(self, result=pa.schema([*wanted, *key]))
        added = [one for one in wanted if one.name not in self.result.names]
        return replace(self, result=pa.schema([*self.result, *added])) if added else self

    def bookmarks_json(self) -> str:
        """Canonical: equal bookmarks have equal texts."""
        sides = [None if one is None else json.loads(one.to_json()) for one in self.bookmarks]
        return json.dumps({"sides": sides}, sort_keys=True, separators=(",", ":"))

    def settings_json(self) -> str:
        """It reads as the TableShape of the result, too: the joined table is looked into like any other."""
        fields = {
            **json.loads(TableShape(_or_none(self.result), KEY, None, self.is_loading).to_json()),
            "has_result": self.result is not None,
            "join": self.spec.to_json(),
            "sides": [
                None if one is None else {"columns": _packed(one.columns), "record_key": one.record_key}
                for one in self.sides
            ],
        }
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, bookmarks: str, settings: str, place: str) -> JoinState:
        """The inverse of `bookmarks_json` and `settings_json`."""
        pa = load_pyarrow()
        shape = TableShape.from_json(settings, place)
        try:
            fields, marks = json.loads(settings), json.loads(bookmarks)["sides"]
            sides = [
                None if one is None else SideShape(_unpacked(pa, one["columns"]), one["record_key"])
                for one in fields["sides"]
            ]
            found = [None if one is None else Bookmark.from_json(json.dumps(one)) for one in marks]
            return cls(
                JoinSpec.from_json(fields["join"]),
                (sides[0], sides[1]),
                (found[0], found[1]),
                shape.columns if fields["has_result"] else None,
                shape.is_loading,
            )
        except (ValueError, KeyError, TypeError, IndexError, pa.ArrowException) as error:
            raise ViewUnavailable(place, f"what is stored of the join cannot be understood ({error!r})") from error


def decide_side(shape: Shape, spec: JoinSpec, number: int, place: str) -> SideShape:
    """The side for a fold's rows."""
    load_pyarrow()
    check_columns(shape.columns.names)
    columns = kept_schema(shape.columns)
    spec.check_side(number, columns, place)
    return SideShape(columns, shape.record_key)


def grown_side(stored: SideShape, wanted: SideShape, place: str) -> SideShape:
    """The stored side with the fold's new columns; SchemaChanged if it cannot become the wanted one."""
    import pyarrow as pa

    if wanted.record_key == RECORD and stored.record_key != RECORD:
        raise SchemaChanged(place, WHOSE_ROWS_UNKNOWN)
    if wanted.record_key != stored.record_key:
        raise SchemaChanged(place, f"a side's key is {stored.record_key}, and the fold's is {wanted.record_key}")
    added = []
    for field in wanted.columns:
        if field.name not in stored.columns.names:
            added.append(field)
        elif stored.columns.field(field.name).type != field.type:
            there = stored.columns.field(field.name).type
            raise SchemaChanged(place, f"its column {field.name!r} is {there}, and the fold's is {field.type}")
    return replace(stored, columns=pa.schema([*stored.columns, *added])) if added else stored


def check_same(stored: JoinState, spec: JoinSpec, place: str, *, loading: bool) -> None:
    """SchemaChanged if the fold now joins otherwise than what is stored was joined."""
    if stored.is_loading and not loading:
        raise ViewUnavailable(place, "loading it was never finished; drop it and load it again")
    if stored.spec != spec:
        raise SchemaChanged(place, f"it is an {stored.spec}, and the fold's is an {spec}".replace("an left", "a left"))


class Declared:
    """The join that a fold's function returned last. Its two sides and their shadows share one."""

    def __init__(self) -> None:
        self._spec: JoinSpec | None = None

    def declare(self, spec: JoinSpec, fold: str) -> None:
        """FoldError if the function returned another join before."""
        if self._spec is not None and self._spec != spec:
            raise FoldError(f"fold {fold!r} returned one join ({self._spec}) and then another ({spec}); return one")
        self._spec = spec

    def spec(self, place: str) -> JoinSpec:
        """The join; ViewUnavailable before there is one."""
        if self._spec is None:
            raise ViewUnavailable(place, "what it joins is known only once the fold's function was called")
        return self._spec


def _or_none(columns: pa.Schema | None) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([]) if columns is None else columns


def _packed(columns: pa.Schema) -> str:
    return b64encode(columns.serialize().to_pybytes()).decode("ascii")


def _unpacked(pa: Any, text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(b64decode(text)))


def own_columns(state: JoinState | None) -> Sequence[str]:
    """The columns of the joined table that the fold made."""
    return [] if state is None or state.result is None else state.result.names
