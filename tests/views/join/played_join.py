"""A join under test: ranges of its two topics, rewinds and rebuilds, and what was read into it."""

from __future__ import annotations

from collections.abc import Iterator

from foldlog.views.bookmark import Bookmark, Position
from foldlog.views.contract import View
from foldlog.views.join.side import JoinSide
from foldlog.views.join.spec import JoinSpec
from views.join.join_model import Event, Read, after, delta_of, opened, pieces, shape_of, start


class Played:
    """A join under test, and what was read into it."""

    def __init__(self, view: View, spec: JoinSpec, are_keyed: tuple[bool, bool]) -> None:
        self.view, self.spec, self.are_keyed = view, spec, are_keyed
        self.read = Read(([], []), are_keyed)
        self.sides = self.open()
        self.at = [self.prepared(side) for side in (0, 1)]

    def open(self) -> tuple[JoinSide, JoinSide]:
        made = self.view.joined(self.are_keyed)
        assert made is not None
        return opened(made, self.spec)

    def prepared(self, side: int) -> Bookmark:
        return self.sides[side].prepare(shape_of(side, self.are_keyed), start(side))

    def apply(self, side: int, events: list[Event]) -> None:
        new = after(self.at[side], events)
        self.sides[side].apply(delta_of(events, side), self.at[side], new)
        self.at[side] = new
        self.read.events[side].extend(sorted(events))

    def rewind(self, side: int, to: int) -> None:
        back = {number: Position(min(to, at.offset)) for number, at in self.at[side].positions.items()}
        moved = self.at[side].moved(back)
        self.sides[side].move(self.at[side], moved)
        self.at[side] = moved

    def rebuild(self, both: tuple[list[Event], list[Event]], sizes: Iterator[int]) -> None:
        """What was read, in other pieces, into a shadow that is joined at the end; and a late piece after that."""
        shadows = [one.shadow("rebuild") for one in self.sides]
        marks = [one.prepare(shape_of(n, self.are_keyed), start(n, 9), loading=True) for n, one in enumerate(shadows)]
        until = [{n: at.offset for n, at in one.positions.items()} for one in self.at]
        wanted = [[event for event in log if event.offset < until[n][event.partition]] for n, log in enumerate(both)]
        late = False
        while True:
            left = [pieces(log, marks[n], next(sizes)) for n, log in enumerate(wanted)]
            if not any(left) or (late is False and not left[0]):
                if late:
                    break
                late = True
                shadows[0].finish_loading()
                continue
            for side, events in enumerate(left):
                if events:
                    new = after(marks[side], events)
                    shadows[side].apply(delta_of(events, side), marks[side], new)
                    marks[side] = new
        self.sides[0].swap(shadows[0])
        self.at = marks
        for side, log in enumerate(wanted):
            self.read.events[side][:] = log

    def close(self) -> None:
        for one in self.sides:
            one.close()
