"""What was read ahead is used by exactly those folds, at exactly that place, for which it was begun; else it goes.

A rewind, a fold that leaves its group and one that joins all make it stale. Nothing here needs Spark: what is asked is
which read a runner takes.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, cast

import pytest

from foldlog.spark.folds import runner as running
from foldlog.spark.folds.runner import Runner
from foldlog.views.bookmark import Bookmark, Position


class SomeFeed:
    """Stands for a feed, which the runner tells from others by which object it is."""


def at(offset: int) -> Bookmark:
    return Bookmark("payments", "id", {0: Position(offset)}, {0: 0})


def standing(feed: SomeFeed, offset: int) -> running._Standing:
    return running._Standing(cast(Any, feed), at(offset), at(offset))


def begun(*standings: running._Standing) -> running._Batch:
    return running._Batch(standings, (), {}, 0.0, Future())


def taken(batch: running._Batch, *standings: running._Standing) -> bool:
    """Whether a runner that has `batch` read ahead uses it for these; whatever it decides, it is not kept."""
    runner = Runner(cast(Any, None), cast(Any, None), cast(Any, None))
    runner._ahead.append(batch)
    found = runner._read_ahead(standings)
    assert found in (batch, None)
    assert runner._ahead == []
    assert batch.outcome.cancelled() == (found is None)
    return found is batch


FIRST, SECOND = SomeFeed(), SomeFeed()

STALE = {
    "rewound": [standing(FIRST, 5), standing(SECOND, 10)],
    "all rewound": [standing(FIRST, 5), standing(SECOND, 5)],
    "moved on": [standing(FIRST, 11), standing(SECOND, 11)],
    "one left": [standing(FIRST, 10)],
    "one joined": [standing(FIRST, 10), standing(SECOND, 10), standing(SomeFeed(), 10)],
    "another took its place": [standing(FIRST, 10), standing(SomeFeed(), 10)],
}


@pytest.mark.parametrize("how", STALE)
def test_what_was_read_ahead_for_another_place_or_others_is_dropped(how: str) -> None:
    assert not taken(begun(standing(FIRST, 10), standing(SECOND, 10)), *STALE[how])


def test_what_was_read_ahead_for_this_place_is_used() -> None:
    assert taken(begun(standing(FIRST, 10), standing(SECOND, 10)), standing(FIRST, 10), standing(SECOND, 10))
