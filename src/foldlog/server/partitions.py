"""The partitions that a request names: checked, opened, synced up to what was acknowledged, and as metadata.

`Openings` opens the partitions that answers need, many at a time, on a few threads. A leader epoch is only known for an
open partition (an unclean open raises it), and clients compare epochs; so partitions are opened before an answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.groups.committed import TopicPartition
from foldlog.broker.storage import AnyPartition, Key
from foldlog.broker.topics.catalog import CatalogTopic
from foldlog.broker.topics.names import KAFKA_OWN_TOPICS, check_topic_name
from foldlog.errors import FoldlogError, InvalidTopicName, StorageError, WaitTimeout
from foldlog.wire.error_codes import ErrorCode, code_of

if TYPE_CHECKING:
    from foldlog.broker.storage import Key
    from foldlog.log.partition import Partition
    from foldlog.server.call import Call
    from foldlog.server.node import BrokerNode

logger = logging.getLogger("foldlog.server")

Result = TypeVar("Result")

_THREADS: Final = 4
"""Half of the node's workers, so that a directory full of long recoveries leaves some for the rest."""

WAIT_MS: Final = 2000
"""How long an answer waits. A clean partition opens in 0.1 ms: only a recovery takes longer, and clients ask again."""


class OpensPartitions(Protocol):
    """The part of a broker that `Openings` needs."""

    def opened_partition(self, topic: str, number: int) -> AnyPartition | None: ...

    def partition(self, topic: str, number: int) -> AnyPartition: ...


class Runs(Protocol):
    """The part of a node that `Openings` needs: worker threads, calls on the loop, reports of storage errors."""

    def run(self, function: Callable[..., Result], *arguments: Any) -> asyncio.Future[Result]: ...

    def soon(self, callback: Callable[..., None], *arguments: Any) -> None: ...

    def storage_failed(self, doing: str, topic: str, number: int, error: FoldlogError) -> None: ...


class Openings:
    """Event loop only. A partition that many requests need is opened once, even if none waits for it any more."""

    def __init__(self, broker: OpensPartitions, node: Runs) -> None:
        self._broker = broker
        self._node = node
        self._under_way: dict[Key, asyncio.Future[FoldlogError | None]] = {}
        self._queue: deque[Key] = deque()
        self._threads = 0

    async def open(self, keys: Iterable[Key], wait_ms: int = WAIT_MS) -> dict[Key, FoldlogError]:
        """Open these. Returns the errors of those that failed, WaitTimeout if it takes over `wait_ms`."""
        waiting = {key: self._begin(key) for key in keys if self._broker.opened_partition(*key) is None}
        if not waiting:
            return {}
        await asyncio.wait(waiting.values(), timeout=wait_ms / 1000)
        failed: dict[Key, FoldlogError] = {}
        for key, opening in waiting.items():
            error = opening.result() if opening.done() else WaitTimeout(f"{key[0]}-{key[1]} is still being recovered")
            if error is not None:
                failed[key] = error
        return failed

    def _begin(self, key: Key) -> asyncio.Future[FoldlogError | None]:
        opening = self._under_way.get(key)
        if opening is None:
            opening = self._under_way[key] = asyncio.get_running_loop().create_future()
            self._queue.append(key)
            if self._threads < _THREADS:
                self._threads += 1
                self._node.run(self._open_queued).add_done_callback(self._thread_ended)
        return opening

    def _open_queued(self) -> None:
        """On a thread: open one after the other until none is left."""
        while True:
            try:
                key = self._queue.popleft()
            except IndexError:
                return
            self._node.soon(self._opened, key, self._error_of_opening(key))

    def _error_of_opening(self, key: Key) -> FoldlogError | None:
        try:
            self._broker.partition(*key)
        except FoldlogError as error:
            self._node.storage_failed("its opening", *key, error)
            return error
        except Exception as error:
            # Not an error that opening is known to raise; the waiting requests need an answer all the same.
            logger.exception("%s-%d could not be opened", *key)
            return StorageError(f"{key[0]}-{key[1]} could not be opened ({error!r})")
        return None

    def _opened(self, key: Key, error: FoldlogError | None) -> None:
        opening = self._under_way.pop(key)
        if not opening.done():
            opening.set_result(error)

    def _thread_ended(self, done: asyncio.Future[None]) -> None:
        self._threads -= 1
        if self._queue and not done.cancelled():
            # One was added after the last look at the queue, while this thread was still counted.
            self._threads += 1
            self._node.run(self._open_queued).add_done_callback(self._thread_ended)

    def close(self) -> None:
        """Open no more partitions."""
        self._queue.clear()


# --- what is checked of a partition that a request names, before anything is done with it -----------------------------

NO_EPOCH: Final = -1
"""The client does not give, or the broker does not know, a leader epoch."""


def described_topic(call: Call, name: str) -> CatalogTopic | ErrorCode:
    """The topic, or the error code if the caller may not see it or it does not exist."""
    if not call.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = call.node.broker.find_topic(name)
    if topic is not None:
        return topic
    try:
        check_topic_name(name)
    except InvalidTopicName:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def partition_refusal(call: Call, operation: AclOperation | None, topic: str, number: int) -> ErrorCode:
    """Why this caller may not do that to a partition; NONE if it may and the partition exists. Without an operation it
    may do it to all."""
    if operation is not None and not call.allows(operation, ResourceType.TOPIC, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE if call.node.has_partition(topic, number) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def open_allowed(
    call: Call, operation: AclOperation | None, keys: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Open the partitions for which this caller may do that. Returns for each the error code, or NONE."""
    errors = {key: partition_refusal(call, operation, *key) for key in keys}
    failed = await call.node.openings.open(key for key, error in errors.items() if error is ErrorCode.NONE)
    for key, error in failed.items():
        # A long recovery: clients ask again, as they do when Kafka elects a leader.
        errors[key] = ErrorCode.LEADER_NOT_AVAILABLE if isinstance(error, WaitTimeout) else code_of(error)
    return errors


async def catch_up(call: Call, keys: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
    """Wait until everything acknowledged in these open partitions is durable: an answer with the end of the log must
    not deny it. Returns the error code of each that failed."""
    opened = {key: call.node.open_partition(*key) for key in keys}
    failed = await call.node.syncs.catch_up({one for one in opened.values() if one is not None})
    errors: dict[TopicPartition, ErrorCode] = {}
    for key, partition in opened.items():
        if partition is not None and partition in failed:
            call.node.storage_failed("the end of the log", *key, failed[partition])
            errors[key] = code_of(failed[partition])
    return errors


def epoch_refusal(partition: Partition, current_leader_epoch: int) -> ErrorCode:
    """The error code for a client's leader epoch; NONE if it is the partition's or not given."""
    if current_leader_epoch in (NO_EPOCH, partition.leader_epoch):
        return ErrorCode.NONE
    if current_leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH


# --- leaders of partitions: this broker, unless a partition cannot be opened ------------------------------------------

_NOBODY: Final = -1


class PartitionMetadata(NamedTuple):
    """A partition as in Metadata."""

    error_code: int
    partition: int
    leader_id: int
    leader_epoch: int
    offline_replicas: Sequence[int]


def is_internal_to_kafka(name: str) -> bool:
    """Whether clients should take it for the broker's own. Kafka has these three; any other name is a user's."""
    return name in KAFKA_OWN_TOPICS


async def leaders_of(node: BrokerNode, wanted: Iterable[tuple[CatalogTopic, range]]) -> list[list[PartitionMetadata]]:
    """For each topic the leaders of the wanted partitions. Waits for partitions to open, but not for a long recovery.

    A partition that is still being recovered, or is damaged, has no leader: clients ask again. The replica of a damaged
    one is offline, as for Kafka's partitions in a failed directory.
    """
    wanted = list(wanted)
    failed = await node.openings.open((topic.name, number) for topic, numbers in wanted for number in numbers)
    return [[_leader(node, topic.name, number, failed) for number in numbers] for topic, numbers in wanted]


def _leader(node: BrokerNode, topic: str, number: int, failed: Mapping[Key, FoldlogError]) -> PartitionMetadata:
    partition = node.broker.opened_partition(topic, number)
    if partition is not None:
        return PartitionMetadata(ErrorCode.NONE, number, node.settings.node_id, partition.leader_epoch, ())
    is_damaged = isinstance(failed.get((topic, number)), StorageError)
    offline = (node.settings.node_id,) if is_damaged else ()
    return PartitionMetadata(ErrorCode.LEADER_NOT_AVAILABLE, number, _NOBODY, NO_EPOCH, offline)
