"""AlterReplicaLogDirs: a partition may only be moved to the one data directory, where it is already. Versions 1 and 2,
which differ only in encoding."""

from __future__ import annotations

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.server.call import Call
from foldlog.server.handlers.describe_log_dirs import shown_path
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def handle(call: Call, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    is_allowed = call.allows(AclOperation.ALTER, ResourceType.CLUSTER)
    here = shown_path(call.node.broker.path)
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for number in topic.partitions:
                if not is_allowed:
                    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                elif directory.path != here:
                    code = ErrorCode.LOG_DIR_NOT_FOUND
                elif not call.node.has_partition(topic.name, number):
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                else:
                    code = ErrorCode.NONE
                result = AlterReplicaLogDirPartitionResult(partition_index=number, error_code=code)
                results.setdefault(topic.name, []).append(result)
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(topic_name=name, partitions=done) for name, done in results.items()]
    )
