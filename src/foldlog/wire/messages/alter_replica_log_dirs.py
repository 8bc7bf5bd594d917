"""AlterReplicaLogDirs, generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.wire.schema import Message, Request, Response, field


class AlterReplicaLogDirTopic(Message):
    name: str = field("string", 1, 2, default="")
    partitions: Sequence[int] = field("int32", 1, 2, is_array=True, default=())


class AlterReplicaLogDir(Message):
    path: str = field("string", 1, 2, default="")
    topics: Sequence[AlterReplicaLogDirTopic] = field(AlterReplicaLogDirTopic, 1, 2, is_array=True, default=())


class AlterReplicaLogDirsRequest(Request, api_key=34, versions=(1, 2), flexible_from=2):
    dirs: Sequence[AlterReplicaLogDir] = field(AlterReplicaLogDir, 1, 2, is_array=True, default=())


class AlterReplicaLogDirPartitionResult(Message):
    partition_index: int = field("int32", 1, 2, default=0)
    error_code: int = field("int16", 1, 2, default=0)


class AlterReplicaLogDirTopicResult(Message):
    topic_name: str = field("string", 1, 2, default="")
    partitions: Sequence[AlterReplicaLogDirPartitionResult] = field(
        AlterReplicaLogDirPartitionResult, 1, 2, is_array=True, default=()
    )


class AlterReplicaLogDirsResponse(Response, api_key=34, versions=(1, 2), flexible_from=2):
    throttle_time_ms: int = field("int32", 1, 2, default=0)
    results: Sequence[AlterReplicaLogDirTopicResult] = field(
        AlterReplicaLogDirTopicResult, 1, 2, is_array=True, default=()
    )


REQUEST = AlterReplicaLogDirsRequest
RESPONSE = AlterReplicaLogDirsResponse
