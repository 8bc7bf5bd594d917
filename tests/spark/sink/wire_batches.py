"""A micro-batch by wire, without Spark: what its tasks stage, what its driver commits, and what readers then see."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from foldlog.client.wire.cluster import Cluster
from foldlog.records.loops import decode
from foldlog.spark.origins.origin import OriginSpec
from foldlog.spark.sink import by_wire
from foldlog.spark.sink.options import SinkOptions
from foldlog.spark.sink.wire_committing import WireCommitter
from foldlog.spark.sink.wire_staging import StagedAttempt

TOPIC = "orders"
PARTITIONS = 3
QUERY = "0d9f3a2c"
TASKS = 2
ROWS = 12


def options(bootstrap: str, **properties: str) -> SinkOptions:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return SinkOptions(OriginSpec(bootstrap=bootstrap, properties=named), topic=TOPIC)


def rows_of(batch: int) -> list[list[str]]:
    """The values of each task of a micro-batch."""
    return [[f"{batch}/{task}/{number:03d}" for number in range(ROWS)] for task in range(TASKS)]


def expected(*batches: int) -> list[str]:
    return sorted(value for batch in batches for rows in rows_of(batch) for value in rows)


def stage(told: SinkOptions, batch: int) -> list[StagedAttempt]:
    """What the tasks of a micro-batch do. The rows of each go to all partitions."""
    partitions = pa.array([number % PARTITIONS for number in range(ROWS)], pa.int32())
    return [
        by_wire.stage(told, task, [pa.record_batch({"value": values, "partition": partitions})])
        for task, values in enumerate(rows_of(batch))
    ]


def write(told: SinkOptions, batch: int, query: str = QUERY) -> None:
    """What Spark does with a micro-batch, at first or again."""
    WireCommitter(told).commit(stage(told, batch), query, query, batch)


def read(bootstrap: str, isolation: str = "read_committed", *, is_of_one_query: bool = False) -> list[str]:
    """The values of all partitions, sorted."""
    found: list[str] = []
    with Cluster.open(bootstrap, {"isolation.level": isolation}) as cluster:
        for number, bounds in cluster.bounds(TOPIC).items():
            values: list[str] = []
            for fetched in cluster.fetch_range(TOPIC, number, bounds.start, bounds.end):
                for piece in fetched.pieces:
                    values += [(one.value or b"").decode() for one in decode(piece, TOPIC, number)[0]]
            if is_of_one_query:
                _check_order(values)
            found += values
    return sorted(found)


def _check_order(values: list[str]) -> None:
    """The batches stand in their order, and the rows of each task in theirs."""
    by_task: dict[str, list[str]] = {}
    for value in values:
        by_task.setdefault(value.rpartition("/")[0], []).append(value)
    for task, rows in by_task.items():
        assert rows == sorted(rows), f"the rows of task {task} are not in their order"
    batches = [int(value.partition("/")[0]) for value in values]
    assert batches == sorted(batches), "the batches are not in their order"


def differences(found: list[str], wanted: list[str]) -> str:
    """In words, for who reads the failure of a long run."""
    more, less = Counter(found) - Counter(wanted), Counter(wanted) - Counter(found)
    return f"{sum(more.values())} too many, such as {list(more)[:3]}; {sum(less.values())} missing: {list(less)[:3]}"
