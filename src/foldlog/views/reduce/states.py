"""The form of a state: columns with declared types. Every state that a step returns is checked and put into this form.

The form is what the table gives back: a decimal has its scale, a FLOAT its precision, a time is in UTC, a map is sorted
by key, and -0.0 is 0.0. So a state is the same whether the next record comes at once, or after the state was stored and
read again: otherwise a view would depend on how the log was split.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from foldlog.errors import InvalidArgument, brief_repr
from foldlog.views.contract import META, View
from foldlog.views.ddl import columns_of
from foldlog.views.sql.names import check_columns
from foldlog.views.sql.types import kept_schema
from foldlog.views.storable import unheld_text

if TYPE_CHECKING:
    import pyarrow as pa

State = dict[str, Any]

_WIDE: Final = Context(prec=80)
"""For decimals of 38 digits: Python's own rounds after 28."""

Form = Callable[[Any], Any]
"""The form of one value that is not None; ValueError, with the reason, if it has none."""


@dataclass(frozen=True)
class StateColumns:
    """The columns of a state. `view` is the table that holds them; None if every text can be held."""

    schema: pa.Schema
    view: View | None = None
    _forms: dict[str, tuple[Form, bool]] = field(init=False, repr=False, compare=False)
    _is_flat: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        from pyarrow import types

        text = _text if self.view is None else _text_in(self.view)
        object.__setattr__(self, "_forms", {one.name: (_form(one.type, text), one.nullable) for one in self.schema})
        object.__setattr__(self, "_is_flat", not any(types.is_nested(one.type) for one in self.schema))

    def copied(self, state: State | None) -> State | None:
        """A state that may be changed while the given one stays."""
        return state if state is None else dict(state) if self._is_flat else deepcopy(state)

    def checked(self, given: object) -> State:
        """A new state in the declared form; ValueError, with the reason, if it does not fit."""
        if not isinstance(given, dict):
            raise ValueError(f"a state is a dict of {', '.join(self._forms)}, or None, not {brief_repr(given)}")
        if given.keys() != self._forms.keys():
            self._refuse_names(given)
        state: State = {}
        for name, (form, may_be_null) in self._forms.items():
            value = given[name]
            if value is None or (value := _plain(value)) is None:
                if not may_be_null:
                    raise ValueError(f"the state's column {name!r} is None, and declared NOT NULL")
                state[name] = None
                continue
            try:
                state[name] = form(value)
            except ValueError as error:
                raise ValueError(f"the state's column {name!r} cannot be {brief_repr(value)}: {error}") from None
        return state

    def _refuse_names(self, given: Mapping[Any, Any]) -> None:
        missing = [name for name in self._forms if name not in given]
        if missing:
            raise ValueError(f"the state has no {missing[0]!r}; return all of {', '.join(self._forms)}")
        more = next(name for name in given if name not in self._forms)
        raise ValueError(f"the state has {more!r}, which is not declared; declared are {', '.join(self._forms)}")

    def arrays(self, states: Sequence[State | None]) -> list[pa.Array]:
        """States that were checked, as columns; None is a null in each."""
        import pyarrow as pa

        def values(name: str, kind: Any) -> list[Any]:
            return [None if one is None else _for_arrow(one[name], kind) for one in states]

        return [pa.array(values(column.name, column.type), column.type) for column in self.schema]

    def states(self, rows: pa.Table) -> list[State]:
        """The states of rows of a table that has these columns."""
        return [self.checked(row) for row in rows.select(self.schema.names).to_pylist(maps_as_pydicts="strict")]


def state_schema(declared: object) -> pa.Schema:
    """The columns of a user's `state=`: Spark's DDL, a StructType or an Arrow schema."""
    import pyarrow as pa

    if isinstance(declared, pa.Schema):
        found = declared
    elif type(declared).__name__ == "StructType":
        fields: Any = declared
        found = columns_of(", ".join(f"`{one.name}` {one.dataType.simpleString()}" for one in fields))
    elif isinstance(declared, str) and declared.strip():
        found = columns_of(declared)
    else:
        raise InvalidArgument(
            f"state= declares the columns of a state, such as 'status STRING, paid BIGINT', not {brief_repr(declared)}"
        )
    taken = next((name for name in found.names if name in META), None)
    if taken is not None:
        raise InvalidArgument(f"state= has a column {taken!r}, which is foldlog's own; give it another name")
    check_columns(found.names)
    kept = kept_schema(found)
    return pa.schema([one.with_nullable(found.field(number).nullable) for number, one in enumerate(kept)])


def _plain(value: Any) -> Any:
    """The Python value of a scalar of Arrow's or NumPy's, as sums and extremes of columns are."""
    if hasattr(value, "as_py"):
        return value.as_py()
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        return value.item()
    return value


def _form(kind: Any, text: Form) -> Form:
    from pyarrow import types

    if types.is_nested(kind):
        return _nested_form(kind, text)
    if types.is_integer(kind):
        return _integer(kind.bit_width)
    if types.is_decimal(kind):
        return _decimal(kind.precision, kind.scale)
    if types.is_timestamp(kind):
        return _instant if kind.tz is not None else _local_time
    plain = {"bool": _boolean, "float": _single, "double": _double, "date32[day]": _date, "binary": _bytes}
    return plain.get(str(kind), text)


def _nested_form(kind: Any, text: Form) -> Form:
    from pyarrow import types

    if types.is_map(kind):
        return _map(_form(kind.key_type, text), _form(kind.item_type, text))
    if types.is_struct(kind):
        return _struct({one.name: _form(one.type, text) for one in kind})
    return _list(_form(kind.value_type, text))


def _boolean(value: Any) -> Any:
    if type(value) is not bool:
        raise ValueError("it is a BOOLEAN")
    return value


def _integer(bits: int) -> Form:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1

    def form(value: Any) -> Any:
        if type(value) is not int:
            raise ValueError(f"it is an integer of {bits} bits")
        if not least <= value <= most:
            raise ValueError(f"it does not fit into {bits} bits")
        return value

    return form


def _double(value: Any) -> Any:
    if type(value) not in (float, int):
        raise ValueError("it is a floating-point number")
    try:
        return float(value) + 0.0
    except OverflowError:
        raise ValueError("it is too large for a DOUBLE") from None


def _single(value: Any) -> Any:
    try:
        return float(struct.unpack("<f", struct.pack("<f", _double(value)))[0])
    except (OverflowError, struct.error):
        raise ValueError("it is too large for a FLOAT") from None


def _decimal(precision: int, scale: int) -> Form:
    step = Decimal(1).scaleb(-scale)

    def form(value: Any) -> Any:
        if type(value) not in (Decimal, int):
            raise ValueError(f"it is a DECIMAL({precision}, {scale}), a decimal.Decimal")
        given = Decimal(value)
        try:
            found = given.quantize(step, context=_WIDE)
        except InvalidOperation:
            found = Decimal("NaN")
        if found != given or len(found.as_tuple().digits) > precision:
            raise ValueError(f"it does not fit into DECIMAL({precision}, {scale})")
        return found or abs(found)

    return form


def _date(value: Any) -> Any:
    if type(value) is not date:
        raise ValueError("it is a datetime.date")
    return value


def _instant(value: Any) -> Any:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise ValueError("it is a datetime.datetime with a time zone")
    try:
        return value.astimezone(UTC).replace(fold=0)
    except OverflowError:
        raise ValueError("it is outside the years 1 to 9999") from None


def _local_time(value: Any) -> Any:
    if not isinstance(value, datetime) or value.tzinfo is not None:
        raise ValueError("it is a datetime.datetime without a time zone")
    return value.replace(fold=0)


def _bytes(value: Any) -> Any:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise ValueError("it is BINARY: bytes")
    return bytes(value)


def _text(value: Any) -> Any:
    if type(value) is not str:
        raise ValueError("it is a STRING")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("it is not UTF-8") from None
    return value


def _text_in(view: View) -> Form:
    """The form of a text that this view can hold."""

    def form(value: Any) -> Any:
        text = _text(value)
        reason = unheld_text(view, text)
        if reason is not None:
            raise ValueError(f"it has {reason}, which {view.place} cannot hold")
        return text

    return form


def _inner(form: Form, value: Any) -> Any:
    value = _plain(value)
    return None if value is None else form(value)


def _list(inner: Form) -> Form:
    def form(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise ValueError("it is an ARRAY: a list")
        return [_inner(inner, one) for one in value]

    return form


def _map(key: Form, inner: Form) -> Form:
    def form(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise ValueError("it is a MAP: a dict")
        if any(_plain(one) is None for one in value):
            raise ValueError("a key of its MAP is None")
        found = {_inner(key, one): _inner(inner, other) for one, other in value.items()}
        return {one: found[one] for one in sorted(found, key=lambda one: (type(one).__name__, one))}

    return form


def _struct(inner: Mapping[str, Form]) -> Form:
    def form(value: Any) -> Any:
        if not isinstance(value, Mapping) or value.keys() != inner.keys():
            raise ValueError(f"it is a STRUCT: a dict of {', '.join(inner)}")
        return {name: _inner(one, value[name]) for name, one in inner.items()}

    return form


def _for_arrow(value: Any, kind: Any) -> Any:
    """A checked value as Arrow takes it: maps as pairs."""
    from pyarrow import types

    if value is None or not types.is_nested(kind):
        return value
    if types.is_map(kind):
        return [(key, _for_arrow(one, kind.item_type)) for key, one in value.items()]
    if types.is_struct(kind):
        return {one.name: _for_arrow(value[one.name], one.type) for one in kind}
    return [_for_arrow(one, kind.value_type) for one in value]
