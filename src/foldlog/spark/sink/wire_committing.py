"""Writing by wire, on the driver: the rows that the tasks have staged are appended in one transaction, once.

The steps of a commit:

1. the driver becomes the one producer of the transactional id that its query has. Whoever was it before, a driver that
   was killed or that nobody misses yet, is fenced, and what it left open is aborted; what it had decided is finished;
2. a batch that its query has committed before is dropped, and nothing else happens: wire_commits.py knows;
3. the topics are compared with those that the rows were packed for;
4. the staged batches are read, a few megabytes at a time, and appended in the transaction;
5. a record is appended that says which batch of the query this is;
6. the transaction is committed. The broker's durable decision is the point of no return: before it readers of committed
   records see nothing of the batch, after it they see all of it, whatever becomes of driver and broker.

Why the rows pass the driver. A transaction of Kafka's is one producer's, and a producer numbers its batches in each
partition, so tasks that run at the same time cannot share one. With a producer and a transaction for each task nothing
would have to be sent twice, but many transactions do not end as one: a driver that is killed between two of the ends,
and not started again within transaction.timeout.ms, leaves a batch of which the cluster has committed one part and
aborted another, for good. Here there is one transaction, and so nothing to be repaired. The price is that rows are sent
to the cluster twice, and read once; they stay packed, so the driver looks into none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from foldlog.client.wire.cluster import Cluster
from foldlog.clock import Clock, SystemClock
from foldlog.errors import (
    BrokerUnreachable,
    FoldlogError,
    InvalidTransactionTimeout,
    TransactionError,
    UnknownTopic,
)
from foldlog.spark.sink.by_wire import by_requests, open_cluster
from foldlog.spark.sink.options import SinkOptions
from foldlog.spark.sink.wire_commits import commit_record, ensure_commits, last_version
from foldlog.spark.sink.wire_staging import StagedAttempt, ensure_staging, staged_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foldlog.client.wire.transactions.produce import WireTransaction

TRANSACTIONAL_ID_PREFIX: Final = "foldlog-sink-"
"""Of the transactional ids of all sinks, for whoever gives permissions."""

_INSTEAD: Final = "option exactlyOnce=false writes without transactions, and then rows may be written twice"


class WireCommitter:
    """Commits to one cluster. Any number of processes may; those of one sender fence each other."""

    def __init__(self, told: SinkOptions, clock: Clock | None = None) -> None:
        self._told = told
        self._clock = clock or SystemClock()

    def check(self, job: str, sender: str | None = None) -> None:
        """Before any row is packed: make the topics that a commit needs, and see that the broker has transactions."""
        with open_cluster(self._told) as cluster:
            ensure_staging(cluster)
            if sender is not None:
                ensure_commits(cluster)
            with self._transaction(cluster, job, sender):
                pass

    def commit(
        self, staged: Sequence[StagedAttempt], job: str, sender: str | None = None, version: int | None = None
    ) -> None:
        """Append the staged rows in one transaction. Committed, and durable, on return.

        With a `sender`, a version that is not above its last one is dropped. After UndecidedTransaction all rows are in
        the log or none, and a commit of the same version does what is left to do; after any other error none are.
        """
        record_count = sum(one.record_count for one in staged)
        if not record_count:
            return
        with open_cluster(self._told, has_answered=True) as cluster:
            if sender is not None:
                ensure_commits(cluster)
            with self._transaction(cluster, job, sender) as transaction:
                # Not before: only the id's one producer knows that what other drivers of the query began is decided.
                if sender is not None and version is not None:
                    done = last_version(cluster, sender)
                    if done is not None and version <= done:
                        return
                _check_targets(cluster, staged)
                for together in by_requests(staged_batches(cluster, staged)):
                    transaction.send_all((one.topic, one.partition, one.buffer) for one in together)
                if sender is not None and version is not None:
                    record = commit_record(sender, version, record_count, self._clock.now_ms())
                    transaction.send_all([(record.topic, record.partition, record.buffer)])
                transaction.commit()

    @contextmanager
    def _transaction(self, cluster: Cluster, job: str, sender: str | None) -> Iterator[WireTransaction]:
        # One id for all jobs of a sender: of two that run at the same time, the one that came first is fenced.
        transactional_id = TRANSACTIONAL_ID_PREFIX + (job if sender is None else sender)
        try:
            opened = cluster.transaction(transactional_id, self._told.transaction_timeout_ms)
        except BrokerUnreachable:
            raise
        except FoldlogError as error:
            raise _refused(error, self._told.transaction_timeout_ms) from error
        with opened as transaction:
            yield transaction


def _refused(error: FoldlogError, timeout_ms: int) -> FoldlogError:
    if isinstance(error, InvalidTransactionTimeout):
        return InvalidTransactionTimeout(
            f"the broker does not let a transaction take transaction.timeout.ms={timeout_ms}: {error}; set"
            " kafka.transaction.timeout.ms to at most its transaction.max.timeout.ms"
        )
    return TransactionError(
        f"rows are written exactly once in a transaction, and the broker begins none: {error}; {_INSTEAD}"
    )


def _check_targets(cluster: Cluster, staged: Sequence[StagedAttempt]) -> None:
    """UnknownTopic if a topic is another one than the rows were packed for: it may have fewer partitions."""
    for name, topic_id in sorted({pair for one in staged for pair in one.topics.items()}):
        if cluster.topic(name).topic_id.hex() != topic_id:
            raise UnknownTopic(name)
