"""Bookmarks: what moving them keeps in mind, and that every form they are stored in gives them back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foldlog.views.bookmark import Bookmark, Position
from foldlog.views.lake import delta_bookmark
from foldlog.views.lake.delta_bookmark import Layout

offsets = st.dictionaries(st.integers(0, 4), st.integers(0, 1000), min_size=1)
steps = st.lists(st.tuples(st.booleans(), offsets), max_size=8)


def after_steps(begin: dict[int, int], moves: list[tuple[bool, dict[int, int]]]) -> tuple[Bookmark, dict[int, int]]:
    """A bookmark that went on and was rewound, and the furthest it ever was in each partition."""
    bookmark = Bookmark("t", "id", {number: Position(at, 1) for number, at in begin.items()}, dict.fromkeys(begin, 0))
    furthest = dict(begin)
    for is_rewind, targets in moves:
        moved: dict[int, Position] = {}
        for number in begin:
            at, target = bookmark.positions[number].offset, targets.get(number, 0)
            moved[number] = Position(min(at, target) if is_rewind else at + target, 1)
            furthest[number] = max(furthest[number], moved[number].offset)
        bookmark = bookmark.moved(moved) if is_rewind else bookmark.advanced(moved)
    return bookmark, furthest


@given(offsets, steps)
def test_a_bookmark_knows_where_the_view_is_ahead_of_it(
    begin: dict[int, int], moves: list[tuple[bool, dict[int, int]]]
) -> None:
    bookmark, furthest = after_steps(begin, moves)
    ahead = {number: at for number, at in furthest.items() if at > bookmark.positions[number].offset}
    assert bookmark.reached == ahead


@given(offsets, steps)
def test_every_stored_form_gives_the_same_bookmark_back(
    begin: dict[int, int], moves: list[tuple[bool, dict[int, int]]]
) -> None:
    bookmark, _ = after_steps(begin, moves)
    assert Bookmark.from_json(bookmark.to_json()) == bookmark
    before = delta_bookmark.to_numbers(after_steps(begin, [(False, {0: 7}), (True, {})])[0], 0)
    numbers = {**before, **delta_bookmark.changes(before, delta_bookmark.to_numbers(bookmark, 0))}
    found, _ = delta_bookmark.from_numbers(numbers.get, [Layout("t", "id", None, ())])
    assert found == bookmark


def test_a_bookmark_that_was_stored_before_rewinds_were_kept_in_mind_is_understood() -> None:
    text = '{"epoch":1,"origins":{"0":0},"positions":{"0":[7,0]},"skipped":0,"topic":"t","topic_id":"id"}'
    assert Bookmark.from_json(text) == Bookmark("t", "id", {0: Position(7, 0)}, {0: 0}, epoch=1)
