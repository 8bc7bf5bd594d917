"""Folds on given records, for tests: what the view holds after them, and whether the fold obeys the law.

A function that needs no Spark runs without it (`arrow_folds`). For the others, the records are written into a log in a
temporary directory, decoded as a runner decodes them, and given to the function by Spark: a function of DataFrames
means what Spark makes of it. The view is a model in plain Python of what every view promises (`views.contract`), so
that neither a database is needed nor the fold's own view touched.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from foldlog.errors import InvalidArgument, brief_repr
from foldlog.testing.arrow_folds import (
    NeedsSpark,
    contents_without_spark,
    current_counts,
    states_after,
    unexpired,
    with_new_columns,
)
from foldlog.testing.fold_law import ADVICE, STEP_ADVICE, GivenRecord, Row, Step, check_law, whole
from foldlog.views.contract import DELETED, META, OFFSET, PARTITION, RECORD, Delta, Shape
from foldlog.views.table.expiry import check_ttl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from foldlog.spark.folds.declaration import DeclaredTopic, Fold
    from foldlog.spark.folds.reading import TopicFrames
    from foldlog.spark.origins.origin import OffsetRange
    from foldlog.views.counters.measures import Aggregation
    from foldlog.views.versions.settings import VersionSettings

Given = Mapping[str, Any] | tuple[Any, Any] | GivenRecord
"""A record as a test gives it: its columns, with that of the key among them; (key, value); or a GivenRecord."""

_PARTITIONS: Final = 2


@contextmanager
def spark_for_tests() -> Iterator[Callable[[], SparkSession]]:
    """A function that returns the active Spark session, or starts one, which is stopped at the end of the block."""
    started: list[SparkSession] = []

    def session() -> SparkSession:
        from pyspark.sql import SparkSession as Spark

        from foldlog.spark.session import fold_session

        active = Spark.getActiveSession()
        if active is not None:
            return active
        started.append(fold_session("local[2]", settings={"spark.sql.shuffle.partitions": "2"}))
        return started[-1]

    try:
        yield session
    finally:
        for one in started:
            one.stop()


class FoldTester:
    """The fixture `foldlog_fold`: runs folds on given records. One thread.

    Records are dicts of the topic's columns, with that of the key; or (key, value), where a value of None is a
    tombstone; or GivenRecord, which also has a partition and a time. Without a partition, records with a key are spread
    over two by their key, the others in turn.
    """

    def __init__(self, session: Callable[[], SparkSession] | None = None) -> None:
        """`session` starts Spark when it is first needed; without it, only folds that need no Spark are run."""
        self._session = session or _no_session

    def __call__(self, fold: Fold, records: Iterable[Given]) -> list[dict[str, Any]]:
        """The rows of the fold's view after these records, sorted by their columns. UnlawfulFold if its plan is."""
        fold = _of_one_topic(fold)
        given = given_records(fold.topic, records)
        with self._contents(fold, given) as contents:
            return sorted((dict(row) for row in contents(given, whole(given))), key=_order)

    def rows(self, source: DeclaredTopic | Fold, records: Iterable[Given]) -> DataFrame:
        """The records as a fold's function gets them: the topic's columns, and `_topic, _partition, _offset,
        _timestamp, _deleted`. A frame of its own, which stays valid."""
        from foldlog.spark.folds.declaration import Fold

        topic = one_topic(source.topic if isinstance(source, Fold) else source)
        with self._written(topic, given_records(topic, records)) as (frames, ranges):
            rows = frames.rows(ranges, None, needs_key=False)
            return self._session().createDataFrame(rows.collect(), rows.schema)

    def check_law(self, fold: Fold, records: Iterable[Given], *, tries: int = 10, seed: int = 0) -> None:
        """Fold the records `tries` times, split, ordered and interrupted at random. LawBroken, with the fewest records
        and steps that show it, if one gives another view than all records at once; UnlawfulFold if the plan shows it.
        """
        if type(tries) is not int or tries < 1:
            raise InvalidArgument(f"tries={brief_repr(tries)} is not a number from 1 on")
        fold = _of_one_topic(fold)
        given = given_records(fold.topic, records)
        if not given:
            raise InvalidArgument(f"fold {fold.name!r} cannot be tried on no records; give some")
        with self._contents(fold, given) as contents:
            advice = ADVICE if fold.view.reduction is None else STEP_ADVICE
            check_law(fold.name, contents, given, tries=tries, seed=seed, advice=advice)

    def needs_spark(self, fold: Fold, records: Iterable[Given]) -> bool:
        """Whether the fold is run by Spark: not if its function returns its rows, or uses functions of Arrow."""
        fold = _of_one_topic(fold)
        given = given_records(fold.topic, records)
        try:
            contents_without_spark(fold)(given, whole(given))
        except NeedsSpark:
            return True
        return False

    @contextmanager
    def _contents(
        self, fold: Fold, given: Sequence[GivenRecord]
    ) -> Iterator[Callable[[Sequence[GivenRecord], Sequence[Step]], list[Row]]]:
        """Folds runs, without Spark if it is not needed for the given records."""
        if not self.needs_spark(fold, given):
            yield contents_without_spark(fold)
            return
        with self._spark_contents(fold) as contents:
            yield contents

    @contextmanager
    def _spark_contents(self, fold: Fold) -> Iterator[Callable[[Sequence[GivenRecord], Sequence[Step]], list[Row]]]:
        """Folds runs. Runs over the same records share a log: writing and planning take longer than folding."""
        from foldlog.spark.folds.deltas import prepare
        from foldlog.spark.folds.reference import long_deltas

        known: list[tuple[list[GivenRecord], TopicFrames, Shape]] = []
        with ExitStack() as logs:

            def contents(records: Sequence[GivenRecord], steps: Sequence[Step]) -> list[Row]:
                if not known or known[0][0] != list(records):
                    logs.close()
                    frames, _ = logs.enter_context(self._written(fold.topic, records))
                    shape = known[0][2] if known else prepare(fold, frames).shape
                    known[:] = [(list(records), frames, shape)]
                _, frames, shape = known[0]
                # All of them, in their order: a function that remembers something has seen the lost ones too.
                deltas = long_deltas(fold, frames, shape, [_ranges(fold.topic.name, records, step) for step in steps])
                stored = [delta for step, delta in zip(steps, deltas, strict=True) if not step.is_lost]
                return held(fold, shape, stored)

            yield contents

    @contextmanager
    def _written(
        self, topic: DeclaredTopic, records: Sequence[GivenRecord]
    ) -> Iterator[tuple[TopicFrames, list[OffsetRange]]]:
        """A log with these records, as Spark reads it."""
        import foldlog
        from foldlog.spark.folds.reading import TopicFrames
        from foldlog.spark.origins.origin import OffsetRange, open_origin, origin_spec

        session = self._session()
        with tempfile.TemporaryDirectory(prefix="foldlog_fold") as directory:
            with foldlog.open(directory) as log:
                log.create_topic(topic.name, max((one.partition for one in records), default=0) + 1)
                with log.producer() as producer:
                    for one in records:
                        producer.send(
                            topic.name, one.value, one.key, partition=one.partition, timestamp_ms=one.timestamp_ms
                        )
            origin = open_origin(origin_spec(directory))
            try:
                frames = TopicFrames(session, topic, origin.spec, origin.topic(topic.name).topic_id)
                bounds = origin.bounds(topic.name)
                yield frames, [OffsetRange(topic.name, number, 0, one.end) for number, one in bounds.items()]
            finally:
                origin.close()


def one_topic(topic: DeclaredTopic) -> DeclaredTopic:
    """Of several topics that are read as one, the first: all records are written there."""
    if not topic.is_several:
        return topic
    name = topic.names[0] if topic.names else "records"
    return replace(topic, name=name, names=(name,), pattern=None)


def _of_one_topic(fold: Fold) -> Fold:
    """InvalidArgument for a join, of which only a side can be tried on records of one topic."""
    if len(fold.parts) > 1:
        raise InvalidArgument(
            f"fold {fold.name!r} joins two topics; try each side by itself, on records of its topic:"
            f" foldlog_fold({fold.name}.parts[0], ...) and {fold.name}.parts[1]"
        )
    if not fold.topic.is_several:
        return fold
    tested = copy(fold)
    tested.topic = one_topic(fold.topic)
    return tested


def _no_session() -> SparkSession:
    raise InvalidArgument(
        "only Spark can run this fold's function; give FoldTester a session, FoldTester(lambda: spark), or use the"
        " pytest fixture foldlog_fold"
    )


def given_records(topic: DeclaredTopic, records: Iterable[Given]) -> list[GivenRecord]:
    """The records as they are written, each with its partition."""
    found: list[GivenRecord] = []
    given: Iterable[object] = records  # as people give them: anything may come
    for number, one in enumerate(given):
        if isinstance(one, GivenRecord):
            found.append(one)
            continue
        if isinstance(one, Mapping):
            value = dict(one)
            made = GivenRecord(value, _popped_key(topic, value, number))
        elif isinstance(one, tuple) and len(one) == 2:
            made = GivenRecord(one[1], one[0])
        else:
            raise InvalidArgument(
                f"record {number} is {brief_repr(one)}; give a dict of columns, (key, value) or a GivenRecord"
            )
        spread = number if made.key is None else sum(str(made.key).encode())
        found.append(made._replace(partition=spread % _PARTITIONS))
    return found


def _popped_key(topic: DeclaredTopic, value: dict[str, Any], number: int) -> bytes | str | None:
    """The record's key, taken out of its columns, as its writer would have written it."""
    found = {name: value.pop(name, None) for name in topic.keys}
    if topic.key_format == "json":
        return json.dumps(found)
    if topic.key_format is not None:
        raise InvalidArgument(
            f"record {number} needs its key as bytes: topic {topic.name!r} has {topic.key_format} keys"
        )
    key = next(iter(found.values()), None)
    return key if key is None or isinstance(key, bytes) else str(key)


def _ranges(topic: str, records: Sequence[GivenRecord], step: Step) -> list[OffsetRange]:
    from foldlog.spark.origins.origin import OffsetRange

    offsets: dict[int, int] = {}
    seen: dict[int, int] = {}
    for number, record in enumerate(records):
        offsets[number] = seen.get(record.partition, 0)
        seen[record.partition] = offsets[number] + 1
    found: dict[int, tuple[int, int]] = {}
    for number in step.numbers:
        start, _ = found.get(records[number].partition, (offsets[number], 0))
        found[records[number].partition] = (start, offsets[number] + 1)
    return [OffsetRange(topic, partition, start, stop) for partition, (start, stop) in found.items()]


# --- the model of a view ----------------------------------------------------------------------------------------------


def held(fold: Fold, shape: Shape, deltas: Iterable[Delta]) -> list[Row]:
    """The rows of a view that stored these changes, one after the other, as a reader sees them."""
    if fold.view.reduction is not None:
        return states_after(fold.view.reduction, fold.topic.key or "", (delta.rows for delta in deltas))
    if fold.view.aggregation is not None:
        return _counters(fold.view.aggregation, shape, deltas)
    from foldlog.views.versions.view import VersionsView

    if isinstance(fold.view, VersionsView):
        return _versions(fold.view.settings_for(shape), deltas)
    rows = [row for delta in deltas for row in delta.rows.to_pylist()]
    kept = with_new_columns(fold, _kept(fold, shape, rows))
    if fold.view.ttl is None:
        return kept
    check_ttl(fold.view.ttl, shape.columns, fold.view.place)
    return unexpired(fold.view.ttl, rows, kept)


def _kept(fold: Fold, shape: Shape, rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The rows of a table or a lake none of whose rows expire."""
    if not fold.view.is_keyed:
        return [_shown(row) for row in rows if not row[DELETED]]
    if shape.keeps_rows:
        return _own_keyed(fold, shape, rows)
    return current_counts(fold, _newest_rows(shape, rows))


def _newest_rows(shape: Shape, rows: Iterable[Mapping[str, Any]]) -> list[Row]:
    newest: dict[Any, tuple[tuple[int, int], list[Row]]] = {}
    for row in rows:
        coordinate = (row[PARTITION], row[OFFSET])
        key = row[shape.record_key or ""]
        if key not in newest or newest[key][0] != coordinate:
            newest[key] = (coordinate, [])
        if not row[DELETED]:
            newest[key][1].append(_shown(row))
    return [row for _, rows_of_key in newest.values() for row in rows_of_key]


def _own_keyed(fold: Fold, shape: Shape, rows: Iterable[Mapping[str, Any]]) -> list[Row]:
    """The newest row of each key of its own; a tombstone, which has no such key, withdraws what its record wrote."""
    kept: dict[str, tuple[Any, Row]] = {}
    for row in rows:
        own = [row[name] for name in fold.view.filled(shape)]
        at, owner = json.dumps(own, default=str), row[shape.record_key or ""]
        if row[DELETED] and None in own:
            kept = {other: found for other, found in kept.items() if found[0] != owner}
        elif row[DELETED]:
            kept.pop(at, None)
        else:
            kept[at] = (owner, _shown(row))
    return [row for _, row in kept.values()]


def _versions(settings: VersionSettings, deltas: Iterable[Delta]) -> list[Row]:
    import pyarrow as pa

    kept = settings.partial_columns().empty_table()
    for delta in deltas:
        kept = settings.merged(pa.concat_tables([kept, settings.fitted(delta.rows, "the view")]))
    return list(settings.shown_rows(settings.versions_of(kept).to_pylist()))


def _shown(row: Mapping[str, Any]) -> Row:
    return {name: value for name, value in row.items() if name not in META and name != RECORD}


def _counters(aggregation: Aggregation, shape: Shape, deltas: Iterable[Delta]) -> list[Row]:
    import pyarrow as pa

    from foldlog.views.counters.merging import merged
    from foldlog.views.counters.settings import CounterSettings

    settings = CounterSettings(aggregation, shape.columns)
    kept = settings.partial_columns().empty_table()
    for delta in deltas:
        rows = settings.fitted(delta.rows.select(shape.columns.names), "the view")
        kept = merged(pa.concat_tables([kept, rows]), aggregation)
    stored = settings.to_stored(kept).combine_chunks()
    return [row for batch in stored.to_batches() for row in settings.show(batch).to_pylist()]


def _order(row: Mapping[str, Any]) -> str:
    return json.dumps(row, default=str)
