"""Every API that is served, with its module here, and the names of all.

Generated from the schemas of Apache Kafka 4.4.0 by scripts/generate_messages.py.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final, NamedTuple


class Api(NamedTuple):
    """An API and the versions of it that the schemas know; `module` is its module in this package.

    From `flexible_from` on its types are compact and its structs have tagged fields.
    """

    key: int
    module: str
    first: int
    last: int
    flexible_from: int | None


APIS: Final = MappingProxyType(
    {
        0: Api(0, "produce", 3, 13, 9),
        1: Api(1, "fetch", 4, 18, 12),
        2: Api(2, "list_offsets", 1, 11, 6),
        3: Api(3, "metadata", 0, 13, 9),
        8: Api(8, "offset_commit", 2, 10, 8),
        9: Api(9, "offset_fetch", 1, 10, 6),
        10: Api(10, "find_coordinator", 0, 6, 3),
        11: Api(11, "join_group", 0, 9, 6),
        12: Api(12, "heartbeat", 0, 4, 4),
        13: Api(13, "leave_group", 0, 5, 4),
        14: Api(14, "sync_group", 0, 5, 4),
        15: Api(15, "describe_groups", 0, 6, 5),
        16: Api(16, "list_groups", 0, 5, 3),
        18: Api(18, "api_versions", 0, 5, 3),
        19: Api(19, "create_topics", 2, 7, 5),
        20: Api(20, "delete_topics", 1, 6, 4),
        21: Api(21, "delete_records", 0, 2, 2),
        22: Api(22, "init_producer_id", 0, 5, 2),
        23: Api(23, "offset_for_leader_epoch", 2, 4, 4),
        32: Api(32, "describe_configs", 1, 4, 4),
        33: Api(33, "alter_configs", 0, 2, 2),
        34: Api(34, "alter_replica_log_dirs", 1, 2, 2),
        35: Api(35, "describe_log_dirs", 1, 5, 2),
        37: Api(37, "create_partitions", 0, 3, 2),
        42: Api(42, "delete_groups", 0, 3, 2),
        43: Api(43, "elect_leaders", 0, 2, 2),
        44: Api(44, "incremental_alter_configs", 0, 1, 1),
        45: Api(45, "alter_partition_reassignments", 0, 1, 0),
        46: Api(46, "list_partition_reassignments", 0, 0, 0),
        47: Api(47, "offset_delete", 0, 0, None),
        55: Api(55, "describe_quorum", 0, 2, 0),
        57: Api(57, "update_features", 0, 2, 0),
        60: Api(60, "describe_cluster", 0, 2, 0),
        61: Api(61, "describe_producers", 0, 0, 0),
        68: Api(68, "consumer_group_heartbeat", 0, 1, 0),
        69: Api(69, "consumer_group_describe", 0, 1, 0),
        71: Api(71, "get_telemetry_subscriptions", 0, 0, 0),
        72: Api(72, "push_telemetry", 0, 0, 0),
        74: Api(74, "list_config_resources", 0, 1, 0),
        75: Api(75, "describe_topic_partitions", 0, 0, 0),
        76: Api(76, "share_group_heartbeat", 1, 1, 1),
        77: Api(77, "share_group_describe", 1, 1, 1),
        78: Api(78, "share_fetch", 1, 2, 1),
        79: Api(79, "share_acknowledge", 1, 2, 1),
        90: Api(90, "describe_share_group_offsets", 0, 1, 0),
        91: Api(91, "alter_share_group_offsets", 0, 0, 0),
        92: Api(92, "delete_share_group_offsets", 0, 0, 0),
    }
)
"""By API key."""

NAMES: Final = MappingProxyType(
    {
        0: "Produce",
        1: "Fetch",
        2: "ListOffsets",
        3: "Metadata",
        8: "OffsetCommit",
        9: "OffsetFetch",
        10: "FindCoordinator",
        11: "JoinGroup",
        12: "Heartbeat",
        13: "LeaveGroup",
        14: "SyncGroup",
        15: "DescribeGroups",
        16: "ListGroups",
        17: "SaslHandshake",
        18: "ApiVersions",
        19: "CreateTopics",
        20: "DeleteTopics",
        21: "DeleteRecords",
        22: "InitProducerId",
        23: "OffsetForLeaderEpoch",
        24: "AddPartitionsToTxn",
        25: "AddOffsetsToTxn",
        26: "EndTxn",
        27: "WriteTxnMarkers",
        28: "TxnOffsetCommit",
        29: "DescribeAcls",
        30: "CreateAcls",
        31: "DeleteAcls",
        32: "DescribeConfigs",
        33: "AlterConfigs",
        34: "AlterReplicaLogDirs",
        35: "DescribeLogDirs",
        36: "SaslAuthenticate",
        37: "CreatePartitions",
        38: "CreateDelegationToken",
        39: "RenewDelegationToken",
        40: "ExpireDelegationToken",
        41: "DescribeDelegationToken",
        42: "DeleteGroups",
        43: "ElectLeaders",
        44: "IncrementalAlterConfigs",
        45: "AlterPartitionReassignments",
        46: "ListPartitionReassignments",
        47: "OffsetDelete",
        48: "DescribeClientQuotas",
        49: "AlterClientQuotas",
        50: "DescribeUserScramCredentials",
        51: "AlterUserScramCredentials",
        52: "Vote",
        53: "BeginQuorumEpoch",
        54: "EndQuorumEpoch",
        55: "DescribeQuorum",
        56: "AlterPartition",
        57: "UpdateFeatures",
        58: "Envelope",
        59: "FetchSnapshot",
        60: "DescribeCluster",
        61: "DescribeProducers",
        62: "BrokerRegistration",
        63: "BrokerHeartbeat",
        64: "UnregisterBroker",
        65: "DescribeTransactions",
        66: "ListTransactions",
        67: "AllocateProducerIds",
        68: "ConsumerGroupHeartbeat",
        69: "ConsumerGroupDescribe",
        70: "ControllerRegistration",
        71: "GetTelemetrySubscriptions",
        72: "PushTelemetry",
        73: "AssignReplicasToDirs",
        74: "ListConfigResources",
        75: "DescribeTopicPartitions",
        76: "ShareGroupHeartbeat",
        77: "ShareGroupDescribe",
        78: "ShareFetch",
        79: "ShareAcknowledge",
        80: "AddRaftVoter",
        81: "RemoveRaftVoter",
        82: "UpdateRaftVoter",
        83: "InitializeShareGroupState",
        84: "ReadShareGroupState",
        85: "WriteShareGroupState",
        86: "DeleteShareGroupState",
        87: "ReadShareGroupStateSummary",
        88: "StreamsGroupHeartbeat",
        89: "StreamsGroupDescribe",
        90: "DescribeShareGroupOffsets",
        91: "AlterShareGroupOffsets",
        92: "DeleteShareGroupOffsets",
        93: "StreamsGroupTopologyDescriptionUpdate",
        94: "UnregisterController",
    }
)
"""Kafka's name for each API key, served or not."""
