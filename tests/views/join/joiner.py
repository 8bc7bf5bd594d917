"""The process that a test kills: it reads a few records, now of one topic, now of the other, into an as-of join.

Its arguments are the place and the name of the table, and a seed. It says something after each range.
"""

from __future__ import annotations

import random
import sys

from foldlog.views.table.table import table
from views.join.join_model import ASOF, after, delta_of, event_at, opened, shape_of, start

KEYED = (True, True)


def main() -> None:
    place, name, seed = sys.argv[1:]
    pair = table(place, name).joined(KEYED)
    assert pair is not None
    sides, rng = opened(pair, ASOF), random.Random(int(seed))
    marks = [side.prepare(shape_of(number, KEYED), start(number)) for number, side in enumerate(sides)]
    for turn in range(100_000):
        number = turn % 2
        here = marks[number].offset(0) or 0
        events = [event_at(number, offset) for offset in range(here, here + rng.randrange(1, 6))]
        new = after(marks[number], events)
        sides[number].apply(delta_of(events, number), marks[number], new)
        marks[number] = new
        print(new.offset(0), flush=True)


if __name__ == "__main__":
    main()
