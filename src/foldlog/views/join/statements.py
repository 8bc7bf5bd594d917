"""The SQL of a join: how a change of one side changes the joined table.

With L and R as stored, a change dL changes the join by dL joined with R; afterwards L holds dL. A later dR is joined
with that L, and so with dL, too: dL joined with R, L with dR, and dL with dR are each counted once, in whatever order
the sides come, as long as one transaction at a time changes a side. Every statement names the records that change, and
looks them up by an index.

An as-of join is changed by a right row for the left rows between its time and the next right row's: those are found,
and joined anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from foldlog.views.contract import OFFSET, PARTITION, RECORD
from foldlog.views.join.spec import LEFT, NO_PARTNER, ON, RIGHT, TIME, JoinSpec
from foldlog.views.join.state import JoinState
from foldlog.views.sql.names import TableName, quoted, quoted_list

UNTIL: Final = "_until"
_NO_PARTNER: Final = f"'{NO_PARTNER}'"


@dataclass(frozen=True)
class JoinTables:
    """The names: the joined table, its sides, and the temporary tables of one change.

    `records` has the records that change, `touched` what was joined on before, `affected` the left rows to join anew.
    """

    joined: TableName
    temporary_schema: str

    @property
    def left(self) -> TableName:
        return self.joined.beside("__left")

    @property
    def right(self) -> TableName:
        return self.joined.beside("__right")

    def side(self, number: int) -> TableName:
        return (self.left, self.right)[number]

    @property
    def records(self) -> TableName:
        return TableName("_foldlog_records", self.temporary_schema)

    @property
    def touched(self) -> TableName:
        return TableName("_foldlog_touched", self.temporary_schema)

    @property
    def affected(self) -> TableName:
        return TableName("_foldlog_affected", self.temporary_schema)


@dataclass(frozen=True)
class JoinStatements:
    """The statements for one state of a join. `has_lateral`: a subquery may look at the rows before it."""

    tables: JoinTables
    state: JoinState
    has_lateral: bool

    @property
    def spec(self) -> JoinSpec:
        return self.state.spec

    def before(self, side: int) -> Iterator[str]:
        """To run before the rows of the records of a side are replaced."""
        t = self.tables
        if side == 0:
            yield self._unjoined(LEFT, t.records)
        elif self.spec.how == "asof":
            yield f"INSERT INTO {t.touched.sql} ({ON}, {TIME}) {self._touched()}"
        else:
            if self.spec.how == "left":
                old = f"SELECT DISTINCT {ON} FROM {t.right.sql} WHERE {_is_in(RECORD, t.records)} AND {ON} IS NOT NULL"
                yield f"INSERT INTO {t.touched.sql} ({ON}) {old}"
            yield self._unjoined(RIGHT, t.records)

    def removed(self, side: int) -> str:
        """Removes the rows of the records from their side."""
        return f"DELETE FROM {self.tables.side(side).sql} WHERE {_is_in(RECORD, self.tables.records)}"

    def after(self, side: int) -> Iterator[str]:
        """To run once the side has its new rows."""
        t = self.tables
        if side == 0:
            yield self._joined(f"WHERE {_is_in(f'l.{RECORD}', t.records)}")
        elif self.spec.how == "asof":
            yield from self._rejoined()
        else:
            yield self._joined(f"WHERE {_is_in(f'r.{RECORD}', t.records)}", is_inner=True)
            if self.spec.how == "left":
                yield from self._partners_changed()

    def all(self) -> Iterator[str]:
        """Joins the sides as they are."""
        yield f"DELETE FROM {self.tables.joined.sql}"
        yield self._joined("")

    def _unjoined(self, column: str, records: TableName) -> str:
        return f"DELETE FROM {self.tables.joined.sql} WHERE {_is_in(column, records)}"

    def _joined(self, where: str, *, is_inner: bool = False) -> str:
        t = self.tables
        left, right = (self.state.side(number, str(t.joined)) for number in (0, 1))
        mine, others = left.own.names, self.spec.right_columns(right.own)
        columns = quoted_list([*mine, *others, LEFT, RIGHT])
        partner = f"coalesce(r.{RECORD}, {_NO_PARTNER})"
        selected = ", ".join(
            [*(f"l.{quoted(name)}" for name in mine), *(f"r.{quoted(name)}" for name in others), f"l.{RECORD}", partner]
        )
        return f"INSERT INTO {t.joined.sql} ({columns}) SELECT {selected} FROM {self._pairs(is_inner)} {where}"

    def _pairs(self, is_inner: bool) -> str:
        t = self.tables
        if self.spec.how == "asof":
            newest = (
                f"FROM {t.right.sql} x WHERE x.{ON} = l.{ON} AND x.{TIME} <= l.{TIME}{self._is_recent('x', 'l')}"
                f" ORDER BY x.{TIME} DESC, x.{PARTITION} DESC, x.{OFFSET} DESC LIMIT 1"
            )
            if self.has_lateral:
                return f"{t.left.sql} l LEFT JOIN LATERAL (SELECT x.* {newest}) r ON TRUE"
            return f"{t.left.sql} l LEFT JOIN {t.right.sql} r ON r.{RECORD} = (SELECT x.{RECORD} {newest})"
        kind = "JOIN" if is_inner or self.spec.how == "inner" else "LEFT JOIN"
        return f"{t.left.sql} l {kind} {t.right.sql} r ON r.{ON} = l.{ON}"

    def _is_recent(self, right: str, left: str) -> str:
        width = self.spec.width
        return "" if width is None else f" AND {right}.{TIME} >= {left}.{TIME} - {width}"

    def _partners_changed(self) -> Iterator[str]:
        """Left rows that have found their first partner, and those that have lost their last."""
        t = self.tables
        found = (
            f"SELECT l.{RECORD} FROM {t.right.sql} r JOIN {t.left.sql} l ON l.{ON} = r.{ON}"
            f" WHERE {_is_in(f'r.{RECORD}', t.records)}"
        )
        yield f"DELETE FROM {t.joined.sql} WHERE {RIGHT} = {_NO_PARTNER} AND {LEFT} IN ({found})"
        has_partner = f"EXISTS (SELECT 1 FROM {t.right.sql} p WHERE p.{ON} = l.{ON})"
        yield self._joined(f"WHERE {_is_in(f'l.{ON}', t.touched, ON)} AND NOT {has_partner}")

    def _touched(self) -> str:
        t = self.tables
        return (
            f"SELECT DISTINCT {ON}, {TIME} FROM {t.right.sql} WHERE {_is_in(RECORD, t.records)}"
            f" AND {ON} IS NOT NULL AND {TIME} IS NOT NULL"
        )

    def _rejoined(self) -> Iterator[str]:
        """Join anew the left rows between each touched time, of before or of now, and the next right row's.

        A left row whose last time before it, of all that are there or were, is not touched has the partner it had.
        """
        t = self.tables
        yield f"INSERT INTO {t.touched.sql} ({ON}, {TIME}) {self._touched()}"
        mine = t.touched.name
        later = f"(SELECT min({TIME}) FROM {{}} n WHERE n.{ON} = {mine}.{ON} AND n.{TIME} > {mine}.{TIME})"
        now, then = later.format(t.right.sql), later.format(t.touched.sql)
        yield (
            f"UPDATE {t.touched.sql} SET {UNTIL} = CASE WHEN {now} < {then} THEN {now} ELSE coalesce({then}, {now}) END"
        )
        # A CROSS JOIN: otherwise SQLite, which does not know that few times are touched, walks through the left side.
        near = "" if self.spec.width is None else f" AND l.{TIME} <= t.{TIME} + {self.spec.width}"
        yield (
            f"INSERT INTO {t.affected.sql} ({RECORD}) SELECT DISTINCT l.{RECORD} FROM {t.touched.sql} t"
            f" CROSS JOIN {t.left.sql} l WHERE l.{ON} = t.{ON} AND l.{TIME} >= t.{TIME}"
            f" AND (t.{UNTIL} IS NULL OR l.{TIME} < t.{UNTIL}){near}"
        )
        yield self._unjoined(LEFT, t.affected)
        yield self._joined(f"WHERE {_is_in(f'l.{RECORD}', t.affected)}")


def _is_in(column: str, records: TableName, named: str = RECORD) -> str:
    return f"{column} IN (SELECT {named} FROM {records.sql})"
