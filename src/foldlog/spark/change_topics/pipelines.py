"""Folds of one pipeline that lie behind one another: their graph, their topics, and what the law forbids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from foldlog.client.fold_graphs.graph import FoldGraph, GraphFold
from foldlog.errors import UnknownTopic, UnlawfulFold
from foldlog.spark.change_topics.changes import ChangesTopic
from foldlog.spark.change_topics.changes_log import bookmark_topic
from foldlog.spark.change_topics.joined_changes import JoinedChanges
from foldlog.spark.folds.declaration import DeclaredTopic, Fold, JoinPart
from foldlog.spark.origins.origin import Origin, OriginSpec
from foldlog.spark.topics_read import reads_topic, source_name
from foldlog.views.topic_lists import topics_in

WRITES_A_TOPIC: Final = (ChangesTopic, JoinedChanges)
"""The views that are topics."""


def graph_of(folds: Iterable[Fold]) -> FoldGraph:
    """FoldError if a fold lies behind itself."""
    folds = list(folds)
    written = [topic for topic in map(written_by, folds) if topic is not None]
    return FoldGraph(
        GraphFold(
            fold.name,
            tuple(name for part in fold.parts for name in _read_by(part.topic, written)),
            fold.view.place,
            fold.view.kind,
            written_by(fold),
        )
        for fold in folds
    )


def _read_by(topic: DeclaredTopic, written: Iterable[str]) -> Sequence[str]:
    """The topics that a fold reads, as far as its declaration tells them; a pattern stands for those that it matches,
    except for those that folds write."""
    if topic.pattern is None:
        return topic.names or (topic.name,)
    return [topic.name, *(name for name in written if reads_topic(topic, name))]


def written_by(fold: Fold) -> str | None:
    """The topic that is its view, if it is one."""
    return fold.view.topic if isinstance(fold.view, WRITES_A_TOPIC) else None


def wait_readable(folds: Iterable[Fold], topic: DeclaredTopic) -> None:
    """Until what these folds have committed to a topic can be read."""
    for fold in folds:
        if isinstance(fold.view, WRITES_A_TOPIC) and reads_topic(topic, fold.view.topic):
            fold.view.wait_readable()


def bound(folds: Sequence[Fold], spec: OriginSpec) -> list[Fold]:
    """The folds, upstream first, after telling those that write topics which log it is. FoldError for a circle."""
    for fold in folds:
        if isinstance(fold.view, WRITES_A_TOPIC):
            fold.view.bind(spec)
    known = {fold.name: fold for fold in folds}
    return [known[one.name] for one in graph_of(folds).folds]


def check_topics(folds: Sequence[Fold], origin: Origin) -> None:
    """UnknownTopic if a topic does not exist that none of these folds writes; UnlawfulFold if one adds up changes."""
    written = {fold.view.topic for fold in folds if isinstance(fold.view, WRITES_A_TOPIC)}
    for fold in (part for one in folds for part in one.parts):
        counts = fold.view.adds or (isinstance(fold, JoinPart) and not fold.topic.keys)
        for name in _names(fold, origin, written):
            if name not in written:
                origin.topic(name)
            if counts and (name in written or _is_written_by_a_fold(origin, name)):
                raise counts_changes(fold, name)


def _names(fold: Fold, origin: Origin, written: Iterable[str]) -> Sequence[str]:
    """The topics that there are to read, and those that folds will make."""
    topic = fold.topic
    if topic.pattern is None:
        return topic.names or (topic.name,)
    made = [name for name in written if reads_topic(topic, name)]
    return made or topics_in(source_name(fold, origin, None))


def counts_changes(fold: Fold, topic: str) -> UnlawfulFold:
    return UnlawfulFold(
        fold.name,
        f"it adds up the records of topic {topic!r}, which a fold writes its changes to: how many records"
        " there are of a change depends on how the log was split, and compaction removes the older ones",
        "keep the newest row of each key (fl.table, fl.search, fl.lake(mode='merge')), count those rows"
        " (fl.counters(..., over='current')), or add up the topic that the changes are made of",
    )


def _is_written_by_a_fold(origin: Origin, name: str) -> bool:
    try:
        origin.topic(bookmark_topic(name))
    except UnknownTopic:
        return False
    return True


def ensure_topics(folds: Sequence[Fold], origin: Origin) -> None:
    """Make the topics that these folds write, upstream first, so that those behind them can begin to read."""
    for fold in folds:
        if isinstance(fold.view, WRITES_A_TOPIC):
            fold.view.ensure(origin.topic(source_name(fold, origin, None)).partition_count)
