"""A bookmark in Delta's `txn` actions, which hold one number per name for applications.

    foldlog              the number of commits for the fold; every commit raises it, so two concurrent ones conflict
    foldlog/layout       which of the layouts in the table's description is current (topic, topic id, keys)
    foldlog/epoch, foldlog/skipped, foldlog/partitions
    foldlog/0            the next offset of partition 0, and so on for each partition
    foldlog/0/epoch      the leader epoch of the record before it
    foldlog/0/origin     where the view began
    foldlog/0/reached    how far it once had read, if it was rewound since
    foldlog/logic, foldlog/logic/versions, foldlog/logic/mixes
                         what the view was made with: see `Logic`
    foldlog/old          one more than the version that the last swap replaced; 0 once that is gone

They are part of the table's state: checkpoints contain them, and log clean-up does not remove them. A commit lists only
the numbers that change. The text in a table's log (`userMetadata`) is for people.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Final

from foldlog.views.bookmark import Bookmark, Logic, Position

COMMITS: Final = "foldlog"
OLD: Final = "foldlog/old"
_LAYOUT: Final = "foldlog/layout"
_EPOCH: Final = "foldlog/epoch"
_SKIPPED: Final = "foldlog/skipped"
_PARTITIONS: Final = "foldlog/partitions"
_LOGIC: Final = ("foldlog/logic", "foldlog/logic/versions", "foldlog/logic/mixes")
_ABSENT: Final = -1
"""For a partition that an older bookmark had and this one has not: a number cannot be removed."""

Numbers = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Layout:
    """What stays the same from range to range: the topic, and the keys."""

    topic: str
    topic_id: str
    record_key: str | None
    key: tuple[str, ...]


def to_numbers(bookmark: Bookmark, layout: int) -> dict[str, int]:
    """
    >>> numbers = to_numbers(Bookmark("orders", "ab12", {0: Position(7, 2)}, {0: 5}), 0)
    >>> numbers["foldlog/0"], numbers["foldlog/0/epoch"], numbers["foldlog/0/origin"]
    (7, 2, 5)
    """
    partitions = {*bookmark.positions, *bookmark.origins}
    numbers = {
        _LAYOUT: layout,
        _EPOCH: bookmark.epoch,
        _SKIPPED: bookmark.skipped,
        _PARTITIONS: max(partitions, default=-1) + 1,
    }
    for partition, position in bookmark.positions.items():
        numbers[f"foldlog/{partition}"] = position.offset
        numbers[f"foldlog/{partition}/epoch"] = position.leader_epoch
    for partition, origin in bookmark.origins.items():
        numbers[f"foldlog/{partition}/origin"] = origin
    for partition, offset in bookmark.reached.items():
        numbers[f"foldlog/{partition}/reached"] = offset
    if bookmark.logic is not None:
        numbers.update(zip(_LOGIC, bookmark.logic, strict=True))
    return numbers


def from_numbers(look_up: Callable[[str], int | None], layouts: list[Layout]) -> tuple[Bookmark, int]:
    """The bookmark, and the number of its layout."""

    def number(name: str) -> int:
        found = look_up(name)
        return _ABSENT if found is None else found

    positions: dict[int, Position] = {}
    origins: dict[int, int] = {}
    reached: dict[int, int] = {}
    for partition in range(number(_PARTITIONS)):
        offset, origin = number(f"foldlog/{partition}"), number(f"foldlog/{partition}/origin")
        if offset != _ABSENT:
            positions[partition] = Position(offset, number(f"foldlog/{partition}/epoch"))
        if origin != _ABSENT:
            origins[partition] = origin
        if (furthest := number(f"foldlog/{partition}/reached")) != _ABSENT:
            reached[partition] = furthest
    layout = number(_LAYOUT)
    of = layouts[layout]
    logic = Logic(*map(number, _LOGIC))
    bookmark = Bookmark(
        of.topic,
        of.topic_id,
        positions,
        origins,
        number(_EPOCH),
        number(_SKIPPED),
        reached,
        None if logic.plan == _ABSENT else logic,
    )
    return bookmark, layout


def changes(old: Numbers, new: Numbers) -> dict[str, int]:
    """The numbers that a commit has to set to get from `old` to `new`."""
    gone = {name: _ABSENT for name in old if name not in new}
    return gone | {name: value for name, value in new.items() if old.get(name) != value}


def describe(mode: str, layouts: list[Layout]) -> str:
    """The table's description: every layout it ever had, since a swap may bring another one."""
    return json.dumps({"foldlog": {"mode": mode, "layouts": [asdict(layout) for layout in layouts]}}, sort_keys=True)


def read_description(text: str | None) -> tuple[str, list[Layout]] | None:
    """The inverse of `describe`: the mode and the layouts; None if the text is not a fold's."""
    try:
        fields = json.loads(text or "")["foldlog"]
        layouts = [
            Layout(found["topic"], found["topic_id"], found["record_key"], tuple(found["key"]))
            for found in fields["layouts"]
        ]
        return str(fields["mode"]), layouts
    except (ValueError, KeyError, TypeError):
        return None
