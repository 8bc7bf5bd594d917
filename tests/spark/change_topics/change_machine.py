"""A small runner of two folds behind one another, without Spark, that can die between any two steps of a range.

`orders` → `Stage("doubled")` → the changes topic `doubled` → `Stage("kept")` → the changes topic `kept`. A stage reads
the committed records of its topic from its view's bookmark, folds them in plain Python and applies the change. Both
are compared with a recompute that knows only the first log. What a dying process would not do is not done: a
transaction that it began is left open.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from foldlog.client.log import Log
from foldlog.client.transactions import Transaction
from foldlog.spark.change_topics.changes import ChangesTopic, changes
from foldlog.spark.origins.origin import OriginSpec
from foldlog.views.bookmark import Bookmark, Position
from foldlog.views.contract import Delta, Shape

COLUMNS = pa.schema([("id", pa.string()), ("amount", pa.int64())])
SHAPE = Shape(COLUMNS, record_key="id", key=("id",))
META = pa.schema(
    [
        ("_topic", pa.string()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", pa.timestamp("us", "UTC")),
        ("_deleted", pa.bool_()),
    ]
)
Amount = int | None
"""None: the key has no row."""


class Crash(BaseException):
    """The process dies here."""


@contextmanager
def dying(patch: pytest.MonkeyPatch, step: int | None) -> Iterator[None]:
    """Inside, the process dies at one of its steps: each record that is sent, and each commit, is one before and one
    after. A dead process ends no transaction."""
    left = [step]
    send, commit, leave = Transaction.send, Transaction.commit, Transaction.__exit__

    def reached() -> None:
        if left[0] is not None:
            left[0] -= 1
            if left[0] < 0:
                raise Crash

    def sends(self: Transaction, *given: Any, **named: Any) -> Any:
        reached()
        sent = send(self, *given, **named)
        sent.result()
        reached()
        return sent

    def commits(self: Transaction) -> None:
        reached()
        commit(self)
        reached()

    def leaves(self: Transaction, kind: Any, error: Any, trace: Any) -> None:
        if not isinstance(error, Crash):
            leave(self, kind, error, trace)

    with patch.context() as inside:
        inside.setattr(Transaction, "send", sends)
        inside.setattr(Transaction, "commit", commits)
        inside.setattr(Transaction, "__exit__", leaves)
        yield


@dataclass
class Stage:
    """One fold: what it makes of an amount; None filters the row out."""

    reads: str
    writes: str
    function: Callable[[int], Amount]
    spec: OriginSpec
    old: bool = False
    partitions: int = 2

    def view(self) -> ChangesTopic:
        view = changes(self.writes, old=self.old, partitions=self.partitions)
        view.bind(self.spec)
        return view

    def start(self, log: Log) -> Bookmark:
        topic = log.topic(self.reads)
        numbers = range(topic.partition_count)
        return Bookmark(self.reads, topic.topic_id, {n: Position(0) for n in numbers}, dict.fromkeys(numbers, 0))

    def run(self, log: Log, share: float, view: ChangesTopic) -> None:
        """Fold some of what there is, of each partition the same share."""
        at = view.prepare(SHAPE, self.start(log))
        ends = {n: end for n, (_, end) in log.offsets(self.reads, isolation="read_committed").items()}
        ranges = {
            n: (p.offset, p.offset + max(1, round((ends[n] - p.offset) * share)) if ends[n] > p.offset else p.offset)
            for n, p in at.positions.items()
        }
        delta = self.delta(log, ranges)
        view.apply(delta, at, at.advanced({n: Position(stop) for n, (_, stop) in ranges.items()}))

    def delta(self, log: Log, ranges: Mapping[int, tuple[int, int]]) -> Delta:
        rows: list[dict[str, Any]] = []
        for number, (first, stop) in ranges.items():
            if first == stop:
                continue
            for record in log.read(self.reads, number, start=first, stop=stop, isolation="read_committed"):
                assert record.key is not None
                given = row_of(record.value)
                made = None if given is None else self.function(given["amount"])
                rows.append(
                    {
                        "id": record.key.decode(),
                        "amount": made,
                        "_topic": self.reads,
                        "_partition": number,
                        "_offset": record.offset,
                        "_timestamp": record.timestamp_ms * 1000,
                        "_deleted": made is None,
                    }
                )
        return Delta(pa.Table.from_pylist(rows, schema=pa.schema([*COLUMNS, *META])), dict(ranges))

    def is_behind(self, log: Log, view: ChangesTopic) -> bool:
        at = view.bookmark()
        ends = log.offsets(self.reads, isolation="read_committed")
        return at is None or any(end > (at.offset(n) or 0) for n, (_, end) in ends.items())


def row_of(value: bytes | None) -> dict[str, Any] | None:
    """Of a record with a row, or with old and new."""
    found = None if value is None else json.loads(value)
    return found["new"] if found is not None and "new" in found else found


def committed(log: Log, topic: str) -> list[tuple[str, dict[str, Any] | None]]:
    """Every committed record of a topic, in the order of each key."""
    if topic not in log.topics():
        return []
    return [
        ((record.key or b"").decode(), None if record.value is None else json.loads(record.value))
        for number in log.offsets(topic)
        for record in log.read(topic, number, isolation="read_committed")
    ]


def check_changes(
    log: Log, topic: str, wanted: Mapping[str, Amount], *, old: bool = False, is_compacted: bool = False
) -> None:
    """The newest record of each key is the row; and no record says what the one before it has said already. A topic
    that was compacted may begin with a tombstone."""
    now: dict[str, dict[str, Any]] = {}
    for key, value in committed(log, topic):
        if old and value is not None:
            assert value["old"] == now.get(key), "old is what was there before"
            value = value["new"]
            if value is None:
                del now[key]
                continue
        may_repeat = value is None and (old or is_compacted)
        assert value != now.get(key) or may_repeat, f"a change of {key} was written twice"
        if value is None:
            now.pop(key, None)
        else:
            now[key] = value
    assert now == {key: {"id": key, "amount": amount} for key, amount in wanted.items() if amount is not None}


def recomputed(records: Sequence[tuple[str, Amount]], *functions: Callable[[int], Amount]) -> dict[str, Amount]:
    """The newest amount of each key of the first log, through all functions."""
    found: dict[str, Amount] = dict(records)
    for function in functions:
        found = {key: None if amount is None else function(amount) for key, amount in found.items()}
    return {key: amount for key, amount in found.items() if amount is not None}
