"""DescribeLogDirs: the data directory, the size of each partition in it, and the free space. Versions 1 to 5.

- 3 adds an error for the whole, 4 the size of the disk (KIP-827), 5 whether the directory takes no new partitions.

A partition that cannot be opened, or is still being recovered, is left out, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.broker import MEMORY_PATH
from foldlog.errors import FoldlogError
from foldlog.files.paths import absolute, disk_space
from foldlog.server.call import Call
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from foldlog.broker.broker import Broker

_UNKNOWN_BYTES: Final = -1


class _Disk(NamedTuple):
    """The disk under the data directory."""

    total_bytes: int
    usable_bytes: int
    error: ErrorCode = ErrorCode.NONE


async def handle(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    if not call.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted = _wanted(call.node.broker, request)
    await call.node.openings.open((name, number) for name, numbers in wanted.items() for number in numbers)
    disk, topics = await call.node.run(_measure, call.node.broker, wanted)
    directory = DescribeLogDirsResult(
        error_code=disk.error,
        log_dir=shown_path(call.node.broker.path),
        topics=topics,
        total_bytes=disk.total_bytes,
        usable_bytes=disk.usable_bytes,
    )
    return DescribeLogDirsResponse(results=[directory])


def _wanted(broker: Broker, request: DescribeLogDirsRequest) -> dict[str, list[int]]:
    """The requested partitions that exist, by topic."""
    wanted: dict[str, set[int]] = {}
    if request.topics is None:
        wanted = {name: set(_numbers(broker, name)) for name in broker.topics(include_internal=True)}
    else:
        for topic in request.topics:
            wanted.setdefault(topic.topic, set()).update(
                set(topic.partitions).intersection(_numbers(broker, topic.topic))
            )
    return {name: sorted(numbers) for name, numbers in wanted.items() if numbers}


def _numbers(broker: Broker, name: str) -> range:
    topic = broker.find_topic(name)
    return range(0 if topic is None else topic.partition_count)


def _measure(broker: Broker, wanted: dict[str, list[int]]) -> tuple[_Disk, list[DescribeLogDirsTopic]]:
    """On a thread."""
    topics = [
        DescribeLogDirsTopic(name=name, partitions=list(_sizes(broker, name, numbers)))
        for name, numbers in wanted.items()
    ]
    return _disk_of(broker.path), [topic for topic in topics if topic.partitions]


def _sizes(broker: Broker, name: str, numbers: Iterable[int]) -> Iterable[DescribeLogDirsPartition]:
    for number in numbers:
        partition = broker.opened_partition(name, number)
        if partition is None:
            continue
        try:
            yield DescribeLogDirsPartition(partition_index=number, partition_size=partition.size_bytes)
        except FoldlogError:
            continue  # deleted meanwhile


def shown_path(path: str) -> str:
    return path if path == MEMORY_PATH else absolute(path)


def _disk_of(path: str) -> _Disk:
    if path == MEMORY_PATH:
        return _Disk(_UNKNOWN_BYTES, _UNKNOWN_BYTES)
    try:
        usage = disk_space(path)
    except OSError:
        return _Disk(_UNKNOWN_BYTES, _UNKNOWN_BYTES, ErrorCode.KAFKA_STORAGE_ERROR)
    return _Disk(usage.size_bytes, usage.free_bytes)
