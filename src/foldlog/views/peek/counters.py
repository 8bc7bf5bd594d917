"""A peek into counters: their newest windows, groups that contain some text, and a chart of a measure over time."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any, Final

from foldlog.errors import InvalidArgument, ViewUnavailable, brief_repr
from foldlog.limits import PEEK_COUNT_ROWS_MAX, PEEK_SERIES_ROWS_MAX
from foldlog.views.counters.settings import CounterSettings
from foldlog.views.counters.windows import DAY_MS, WINDOW_START, Window
from foldlog.views.peek.peek import Page, Peek, Series, checked_limit
from foldlog.views.peek.sources import Source, pattern_of
from foldlog.views.peek.values import number_of, shown
from foldlog.views.sql.bookmarks import Run
from foldlog.views.sql.names import TableName
from foldlog.views.table.shape import load_pyarrow

SERIES_WINDOWS: Final = 60
"""How many windows a chart shows, back from the newest."""

SERIES_MAX: Final = 8
"""Distinguishable lines of a chart; the largest groups are shown."""

_MONTH_MS: Final = 31 * DAY_MS

_SKIPPED_MAX: Final = 100_000


class CountersPeek(Peek):
    """See `Peek`."""

    kind = "counters"

    def __init__(self, source: Source) -> None:
        load_pyarrow()  # now: importing is slow, and a look has a time limit
        self._source = source

    def rows(self, limit: int = 50, after: str | None = None) -> Page:
        count, skipped = checked_limit(limit), _skipped(after)
        with self._source.reading() as run:
            table, settings = self._found(run)
            found = self._select(run, table, settings, "", [], count + 1, skipped)
            total = self._source.count(run, table, PEEK_COUNT_ROWS_MAX)
        following = str(skipped + count) if len(found) > count else None
        return _page(settings, found[:count], total, following)

    def search(self, text: str, limit: int = 50) -> Page:
        count = checked_limit(limit)
        with self._source.reading() as run:
            table, settings = self._found(run)
            like = f"{self._source.like} {self._source.mark} ESCAPE '!'"
            names = settings.aggregation.by
            any_of = " OR ".join(f"{self._source.text(name)} {like}" for name in names)
            if not names:
                raise InvalidArgument(f"{self._source.location} are counted by nothing, so there is no text to find")
            values: list[object] = [pattern_of(text)] * len(names)
            found = self._select(run, table, settings, f"WHERE {any_of}", values, count, 0)
        return _page(settings, found, None, None)

    def series(self, measure: str | None = None) -> list[Series] | None:
        with self._source.reading() as run:
            table, settings = self._found(run)
            window = settings.aggregation.window
            chosen = _chosen(settings, measure)
            if not isinstance(window, Window) or chosen is None:
                return None
            step_ms = window.step_ms or window.months * _MONTH_MS
            start = self._source.name(WINDOW_START)
            # With a value, as in every statement here: without one, the driver treats percent signs differently.
            newest = run(
                f"SELECT {', '.join(map(self._source.name, settings.stored().names))} FROM {self._source.sql(table)}"
                f" WHERE {start} IS NOT NULL ORDER BY {start} DESC LIMIT {self._source.mark}",
                1,
            )
            if not newest:
                return []
            ((latest,),) = self._source.batch(newest, settings.stored()).select([WINDOW_START]).to_pydict().values()
            since = latest - timedelta(milliseconds=step_ms * (SERIES_WINDOWS - 1))
            ending = f"WHERE {start} >= {self._source.mark}"
            found = self._select(run, table, settings, ending, [self._source.moment(since)], PEEK_SERIES_ROWS_MAX, 0)
        return _series(found, settings, chosen)

    def _found(self, run: Run) -> tuple[TableName, CounterSettings]:
        """The table with the partial results, and its settings."""
        table, stored = self._source.entry(run)
        try:
            fields = json.loads(stored)
            number, settings = int(fields["number"]), CounterSettings.from_json(fields["counters"])
        except (ValueError, KeyError, TypeError) as error:
            raise ViewUnavailable(
                self._source.location, f"what is stored of its columns cannot be understood ({error})"
            ) from error
        return table.beside(f"__{number}"), settings

    def _select(
        self,
        run: Run,
        table: TableName,
        settings: CounterSettings,
        ending: str,
        values: list[object],
        count: int,
        skipped: int,
    ) -> list[dict[str, Any]]:
        """Rows as a reader sees them, newest windows first."""
        mark, stored = self._source.mark, settings.stored()
        groups = [self._source.name(name) for name in settings.aggregation.by]
        if settings.aggregation.window is not None:
            groups.insert(0, f"{self._source.name(WINDOW_START)} DESC")
        order = f" ORDER BY {', '.join(groups)}" if groups else ""
        rows = run(
            f"SELECT {', '.join(map(self._source.name, stored.names))} FROM {self._source.sql(table)} {ending}{order}"
            f" LIMIT {mark} OFFSET {mark}",
            *values,
            count,
            skipped,
        )
        found: list[dict[str, Any]] = settings.show(self._source.batch(rows, stored)).to_pylist()
        return found


def _skipped(after: str | None) -> int:
    if after is None:
        return 0
    if not after.isascii() or not after.isdigit() or int(after) > _SKIPPED_MAX:
        raise InvalidArgument(f"after={brief_repr(after)} is not where a page has ended")
    return int(after)


def _page(settings: CounterSettings, found: list[dict[str, Any]], total: int | None, following: str | None) -> Page:
    columns = tuple(settings.shown().names)
    return Page(columns, [[shown(row[name]) for name in columns] for row in found], total, following)


def _chosen(settings: CounterSettings, measure: str | None) -> str | None:
    """The measure to draw: the named one, or the first that is numeric."""
    from pyarrow import types

    kinds = {name: settings.shown().field(name).type for name in settings.visible()}
    numbers = [
        name
        for name, kind in kinds.items()
        if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    ]
    if measure is None:
        return numbers[0] if numbers else None
    if measure not in numbers:
        raise InvalidArgument(f"{brief_repr(measure)} is no number that is counted; there are {', '.join(numbers)}")
    return measure


def _series(found: list[dict[str, Any]], settings: CounterSettings, measure: str) -> list[Series]:
    """A line for each of the largest groups, and one for all others, if the measure can be added up."""
    lines: dict[str, dict[int, int | float]] = defaultdict(dict)
    for row in found:
        number = number_of(row[measure])
        if number is not None:
            named = " · ".join(str(shown(row[name])) for name in settings.aggregation.by) or measure
            lines[named][_ms(row[WINDOW_START])] = number
    by_size = sorted(lines, key=lambda name: (-sum(map(abs, lines[name].values())), name))
    series = [Series(name, sorted(lines[name].items())) for name in by_size[:SERIES_MAX]]
    if len(by_size) > SERIES_MAX and settings.aggregation.measures[measure].kind in ("count", "sum"):
        others: dict[int, int | float] = defaultdict(int)
        for name in by_size[SERIES_MAX:]:
            for at_ms, number in lines[name].items():
                others[at_ms] += number
        count = len(by_size) - SERIES_MAX
        series.append(Series("1 other" if count == 1 else f"{count} others", sorted(others.items())))
    return series


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)
