"""Where a log can be, for tests that one API has to pass everywhere: in this process, beside its writer, on a cluster.

Another cluster, such as Apache Kafka's, is one more entry of PLACES. Topics and groups of a test get names of their
own, since a place may be shared by all tests and outlive them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import foldlog
from foldlog.client.backends.backend import backend_of
from foldlog.client.backends.cluster.backend import ClusterBackend
from foldlog.client.backends.cluster.handles import Handles
from foldlog.testing import KafkaBroker

WAIT_MS = 60_000
"""How long a test waits for a record; nothing is expected to take this long."""

IN_A_HURRY = {
    "heartbeat.interval.ms": 200,  # with which members hear of a rebalance: 3 s apart in Kafka
    "topic.metadata.refresh.interval.ms": 500,  # with which they hear of new partitions, and of deleted topics: 5 min
}
"""How soon a client notices what others do. No test is about how long that takes."""


@contextmanager
def embedded(path: Path) -> Iterator[foldlog.Log]:
    """A directory that this process writes."""
    with foldlog.open(path) as log:
        yield log


@contextmanager
def beside(path: Path) -> Iterator[foldlog.Log]:
    """A directory that another log writes and serves."""
    with foldlog.open(path, listen=True), foldlog.open(path) as log:
        assert log.is_remote
        yield log


@contextmanager
def cluster(path: Path) -> Iterator[foldlog.Log]:
    """Our own broker, reached as any cluster is."""
    with KafkaBroker.launch(path=path) as broker, foldlog.connect(f"kafka://{broker}", properties=IN_A_HURRY) as log:
        yield log


PLACES: dict[str, Callable[[Path], AbstractContextManager[foldlog.Log]]] = {
    "embedded": embedded,
    "beside": beside,
    "cluster": cluster,
}


def handles_of(log: foldlog.Log) -> Handles:
    """What a cluster's log asks librdkafka with."""
    backend = backend_of(log)
    assert isinstance(backend, ClusterBackend)
    return backend._handles


def polled(consumer: foldlog.Consumer, count: int) -> list[foldlog.Record]:
    """The next `count` records, however many polls they take."""
    records: list[foldlog.Record] = []
    while len(records) < count:
        found = consumer.poll(timeout_ms=WAIT_MS)
        assert found, f"only {len(records)} of {count} records came"
        records += found
    return records
