"""Which topics a fold reads: one, those of a list, or those whose names match a pattern."""

from __future__ import annotations

import re
from typing import Final

from foldlog.errors import FoldError
from foldlog.spark.folds.declaration import DeclaredTopic, Fold
from foldlog.spark.origins.origin import Origin
from foldlog.views.bookmark import Bookmark
from foldlog.views.topic_lists import listed, topics_in

_DEAD_LETTERS: Final = ".dead"


def reads_topic(topic: DeclaredTopic, name: str) -> bool:
    """Whether a topic of this name is read. A pattern is of the whole name, and no pattern means dead letters: a fold
    of `orders.*` would read its own.
    """
    if topic.pattern is None:
        return name in (topic.names or (topic.name,))
    return re.fullmatch(topic.pattern, name) is not None and not name.endswith(_DEAD_LETTERS)


def source_name(fold: Fold, origin: Origin, stored: Bookmark | None) -> str:
    """The name by which an origin reads what a fold reads: that of its topic, or a list of them, first those that its
    view has met, in their order, and then the new ones: see `foldlog.views.topic_lists`.

    FoldError if the view has rows of a topic that is gone, or that the fold no longer reads, or if nothing matches.
    """
    topic = fold.topic
    if not topic.is_several:
        return topic.name
    met = [] if stored is None else topics_in(stored.topic)
    gone = _gone(topic, origin, met)
    if gone:
        raise FoldError(
            f"fold {fold.name!r} cannot go on: {gone_text(topic, gone)}; build the view anew from what the log holds:"
            f" foldlog fold rebuild {fold.name} --accept-loss"
        )
    return _named(fold, met, _read_now(topic, origin))


def source_left(fold: Fold, origin: Origin, stored: Bookmark) -> str:
    """`source_name` of a view that is built anew: without topics that are gone, or that the fold no longer reads."""
    topic = fold.topic
    if not topic.is_several:
        return topic.name
    met = topics_in(stored.topic)
    gone = _gone(topic, origin, met)
    return _named(fold, [name for name in met if name not in gone], _read_now(topic, origin))


def gone_topics(fold: Fold, origin: Origin, stored: Bookmark) -> str:
    """Why a view cannot be reproduced from the topics that there are; empty if it can."""
    gone = _gone(fold.topic, origin, topics_in(stored.topic)) if fold.topic.is_several else []
    return gone_text(fold.topic, gone) if gone else ""


def gone_text(topic: DeclaredTopic, gone: list[str]) -> str:
    return (
        f"the view has rows of topic {gone[0]!r}, which was deleted, or is not among those that the fold now reads"
        f" ({topic.name})"
    )


def _named(fold: Fold, met: list[str], now: list[str]) -> str:
    names = [*met, *(name for name in now if name not in met)]
    if not names:
        raise FoldError(
            f"no topic matches {fold.topic.pattern!r}, the pattern of fold {fold.name!r}; create one, or mend the"
            " pattern"
        )
    return listed(names)


def _gone(topic: DeclaredTopic, origin: Origin, met: list[str]) -> list[str]:
    if not met:
        return []
    there = {*origin.topics(), *(name for name in topic.names if name.startswith("__"))}  # internal ones are not told
    return [name for name in met if name not in there or not reads_topic(topic, name)]


def _read_now(topic: DeclaredTopic, origin: Origin) -> list[str]:
    if topic.pattern is None:
        return list(topic.names)
    return [name for name in origin.topics() if reads_topic(topic, name)]
