"""What a join does: which columns have to be equal, which times have to be before which, and what has no partner.

Pure: checked against the columns of both sides once these are known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from foldlog.durations import milliseconds
from foldlog.errors import FoldError, InvalidArgument, brief_repr
from foldlog.views.contract import META, RECORD
from foldlog.views.sql.types import is_key_type

if TYPE_CHECKING:
    import pyarrow as pa

How = Literal["inner", "left", "asof"]

LEFT: Final = "_left"
RIGHT: Final = "_right"
"""The columns of a join that say which records a row is of: see `rows.py`."""

ON: Final = "_on"
TIME: Final = "_time"
"""Columns of a side: what has to be equal, as one text, and the time of an as-of join, as a number."""

NO_PARTNER: Final = ""
"""RIGHT of a left row without a partner."""

SIDES: Final = ("left", "right")

_OWN: Final = (RECORD, LEFT, RIGHT, ON, TIME)


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """`on` and `time` are pairs: a column of the left side, and one of the right side. "asof" takes for each left row
    the newest right row that is not newer, at most `tolerance` older; a left row without one stays, as with "left".
    """

    how: How
    on: tuple[tuple[str, str], ...]
    time: tuple[str, str] | None = None
    tolerance: int | str | None = None

    def to_json(self) -> dict[str, object]:
        """As JSON has it."""
        fields: dict[str, object] = json.loads(json.dumps(asdict(self)))
        return fields

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> JoinSpec:
        """The inverse of `to_json`."""
        time = fields["time"]
        on = tuple((str(left), str(right)) for left, right in fields["on"])
        return cls(fields["how"], on, None if time is None else (str(time[0]), str(time[1])), fields["tolerance"])

    def columns_of(self, side: int) -> tuple[str, ...]:
        """The columns of a side (0 is left) that have to be equal to the other's."""
        return tuple(pair[side] for pair in self.on)

    def time_of(self, side: int) -> str | None:
        return None if self.time is None else self.time[side]

    @property
    def width(self) -> int | None:
        """The tolerance, in microseconds or in the unit of the numbers that are the times."""
        if isinstance(self.tolerance, str):
            found = milliseconds(self.tolerance)
            return None if found is None else found * 1000
        return self.tolerance

    def __str__(self) -> str:
        on = ", ".join(left if left == right else f"{left} = {right}" for left, right in self.on)
        if self.time is None:
            return f"{self.how} join on {on}"
        left, right = self.time
        within = "" if self.tolerance is None else f", within {self.tolerance}"
        return f"as-of join on {left if left == right else f'{left}, {right}'}{f' by {on}' if on else ''}{within}"

    def check_side(self, side: int, columns: pa.Schema, place: str) -> None:
        """FoldError unless a side with these columns can be joined."""
        which = SIDES[side]
        for name in (*self.columns_of(side), *((self.time[side],) if self.time else ())):
            if name not in columns.names:
                raise FoldError(
                    f"{place}: the {which} side of the join has no column {name!r} (it has"
                    f" {', '.join(columns.names)}); keep it in the function, or name another"
                )
        for name in self.columns_of(side):
            if not is_key_type(columns.field(name).type):
                raise FoldError(f"{place}: {name!r} cannot be joined on: {columns.field(name).type} is not exact")
        for name in columns.names:
            if name in META or (name in _OWN and name != RECORD):
                raise FoldError(f"{place}: the {which} side has a column {name!r}, which a join has itself; rename it")
        self._check_time(side, columns, place)

    def _check_time(self, side: int, columns: pa.Schema, place: str) -> None:
        from pyarrow import types

        name = self.time_of(side)
        if name is None:
            return
        kind = columns.field(name).type
        is_time = types.is_timestamp(kind) or types.is_date(kind)
        if not is_time and not types.is_integer(kind):
            raise FoldError(f"{place}: {name!r} is no time but {kind}; an as-of join is on a time, a date or a number")
        if self.tolerance is not None and isinstance(self.tolerance, str) is not is_time:
            fitting = "'1 hour'" if is_time else "3600"
            raise FoldError(f"{place}: tolerance={self.tolerance!r} does not fit {name!r}, {kind}; such as {fitting}")

    def check_both(self, left: pa.Schema, right: pa.Schema, place: str) -> None:
        """FoldError unless sides with these columns fit together."""
        pairs = [*self.on, *((self.time,) if self.time else ())]
        for one, other in pairs:
            kinds = left.field(one).type, right.field(other).type
            if kinds[0] != kinds[1]:
                raise FoldError(
                    f"{place}: {one!r} of the left side is {kinds[0]}, {other!r} of the right {kinds[1]};"
                    " cast one of them in the function"
                )
        lower = {name.lower(): name for name in left.names if name != RECORD}
        for name in self.right_columns(right):
            if name.lower() in lower:
                raise FoldError(
                    f"{place}: both sides of the join have a column {name!r}; rename one in the function,"
                    f" as in withColumnRenamed({name!r}, 'right_{name}')"
                )

    def right_columns(self, right: pa.Schema) -> list[str]:
        """The right side's columns that the join has: all but those that the left side has under the same name, with
        the value that was joined on.
        """
        pairs = [*self.on, *((self.time,) if self.time else ())]
        shared = {other for one, other in pairs if one == other}
        return [name for name in right.names if name not in shared and name != RECORD]


def join_spec(on: object, how: object) -> JoinSpec:
    """The join that a user asks for; InvalidArgument if it is none."""
    if how not in ("inner", "left"):
        advice = "; give the topics in the other order" if how in ("right", "right_outer") else ""
        raise InvalidArgument(f"how={brief_repr(how)} of a join is neither 'inner' nor 'left'{advice}")
    pairs = _pairs(on, "on")
    if not pairs:
        raise InvalidArgument("a join is on at least one column: on='customer_id'")
    return JoinSpec(how, pairs)


def asof_spec(on: object, by: object, tolerance: object) -> JoinSpec:
    """The as-of join that a user asks for; InvalidArgument if it is none."""
    times = _pairs(on, "on")
    if len(times) != 1:
        raise InvalidArgument(f"an as-of join is on one time: on='at', or on={{'at': 'quoted_at'}}, not {on!r}")
    if isinstance(tolerance, str):
        if milliseconds(tolerance) is None:
            raise InvalidArgument(f"tolerance={brief_repr(tolerance)} is no duration, such as '1 hour'")
    elif tolerance is not None and (type(tolerance) is not int or tolerance < 0):
        raise InvalidArgument(
            f"tolerance={brief_repr(tolerance)} is neither a duration, such as '1 hour', nor a number"
        )
    return JoinSpec("asof", _pairs(by, "by") if by is not None else (), times[0], tolerance)


def _pairs(given: object, what: str) -> tuple[tuple[str, str], ...]:
    pairs: Sequence[tuple[object, object]] = ()
    if isinstance(given, str):
        pairs = [(given, given)]
    elif isinstance(given, Mapping):
        pairs = list(given.items())
    elif isinstance(given, list | tuple):
        pairs = [(name, name) for name in given]
    found = [(one, other) for one, other in pairs if isinstance(one, str) and isinstance(other, str) and one and other]
    if not found or len(found) != len(pairs) or len(set(found)) != len(found):
        raise InvalidArgument(
            f"{what}={brief_repr(given)} names no columns; give one, a list of them, or a mapping from the left side's"
            " to the right side's: {'customer': 'id'}"
        )
    return tuple(found)
