"""What each API asks the authorizer for: the table that tests, documentation and the comparison with Kafka share.

A row is one request, and one thing that has to be allowed for it, with the code of the answer if it is not. Where two
operations are alternatives, both have to be denied for the refusal. HIDDEN: there is no code, the answer shows less.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

from foldlog.broker.access.acls import AclOperation as Op
from foldlog.broker.access.acls import ResourceType as Kind
from foldlog.records.loops import pack
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.schema import Message, Request
from server.raw_client import batch

TOPIC_FAILED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_FAILED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_FAILED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
ID_FAILED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
HIDDEN: Final = None

Denied = tuple[tuple[Op, Kind], ...]


class Names(NamedTuple):
    """What the requests are about. `new` is a topic that does not exist."""

    topic: str = "orders"
    topic_id: bytes = bytes(16)
    group: str = "app"
    share_group: str = "shared"
    transactional_id: str = "tx"
    new: str = "new"


class Row(NamedTuple):
    """One request of an API, and what it asks for. `fields` are those of its message, nested ones as dicts."""

    api: str
    version: int
    asks: Denied
    code: ErrorCode | None
    fields: Callable[[Names], Mapping[str, Any]]

    @property
    def asked_for(self) -> str:
        """As the documentation has it: `READ` on group."""
        return " or ".join(
            f"`{operation.name}` on {kind.name.lower().replace('_', ' ')}" for operation, kind in self.asks
        )

    def request(self, names: Names) -> Request:
        module = import_module(f"foldlog.wire.messages.{self.api}")
        made = built(module.REQUEST, self.fields(names))
        assert isinstance(made, Request)
        return made


def built(cls: type[Message], fields: Mapping[str, Any]) -> Message:
    """The message with these fields; dicts become the messages that its schema has there."""
    items = {field.name: field for field in cls.SCHEMA}
    made: dict[str, Any] = {}
    for name, value in fields.items():
        item = items[name].item
        if item is None or value is None:
            made[name] = value
        elif items[name].is_array:
            made[name] = [built(item, one) for one in value]
        else:
            made[name] = built(item, value)
    return cls(**made)


def codes(answer: Message) -> set[int]:
    """All error codes anywhere in an answer, but 0."""
    found: set[int] = set()
    for field in type(answer).SCHEMA:
        value = getattr(answer, field.name)
        if field.name.endswith("error_code"):
            found.add(value)
        elif field.item is not None and value:
            for part in value if field.is_array else [value]:
                found |= codes(part)
    return found - {0}


ANY_ACL: Final = {
    "resource_type_filter": Kind.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": Op.ANY,
    "permission_type": 1,
}
NO_ACL: Final = {**ANY_ACL, "principal_filter": "User:nobody-has-this-name"}
ACL: Final = {
    "resource_type": Kind.TOPIC,
    "resource_name": "of-nobody",
    "principal": "User:nobody",
    "host": "*",
    "operation": Op.READ,
    "permission_type": 3,
}


_TRANSACTIONAL: Final = bytes(
    pack([(5, b"k", b"v", ())], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
)
_MEMBER: Final = "AAAAAAAAAAAAAAAAAAAAAQ"


def _partition(name: str, **more: Any) -> dict[str, Any]:
    return {name: 0, **more}


def _txn(names: Names, **more: Any) -> dict[str, Any]:
    return {"transactional_id": names.transactional_id, "producer_id": 1, "producer_epoch": 0, **more}


def _group(names: Names) -> dict[str, Any]:
    return {"group_id": names.group}


def _produce(names: Names) -> dict[str, Any]:
    data = {"name": names.topic, "partition_data": [_partition("index", records=batch(b"x"))]}
    return {"acks": -1, "timeout_ms": 5000, "topic_data": [data]}


def _txn_commit(names: Names) -> dict[str, Any]:
    topic = {"name": names.topic, "partitions": [_partition("partition_index", committed_offset=0)]}
    return {**_txn(names), "group_id": names.group, "topics": [topic]}


def _share_topics(names: Names) -> list[dict[str, Any]]:
    return [{"topic_id": names.topic_id, "partitions": [_partition("partition_index")]}]


def _share_fetch(names: Names) -> dict[str, Any]:
    base = {"group_id": names.share_group, "member_id": _MEMBER, "share_session_epoch": 0, "max_wait_ms": 0}
    return {
        **base,
        "min_bytes": 0,
        "max_bytes": 1000,
        "max_records": 10,
        "batch_size": 10,
        "topics": _share_topics(names),
    }


def _share_acknowledge(names: Names) -> dict[str, Any]:
    return {
        "group_id": names.share_group,
        "member_id": _MEMBER,
        "share_session_epoch": 1,
        "topics": _share_topics(names),
    }


def _heartbeat(group: str, names: Names, **more: Any) -> dict[str, Any]:
    base = {"group_id": group, "member_id": _MEMBER, "member_epoch": 0, "subscribed_topic_names": [names.topic]}
    return {**base, **more}


def _config(kind: int, name: str) -> dict[str, Any]:
    return {"resources": [{"resource_type": kind, "resource_name": name, "configs": []}], "validate_only": True}


def _described(kind: int, name: str) -> dict[str, Any]:
    return {"resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": ["x"]}]}


def _new_topic(names: Names) -> dict[str, Any]:
    topic = {"name": names.new, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    return {"topics": [topic], "timeout_ms": 5000, "validate_only": True}


def _one(topic_field: str, partitions_field: str, names: Names) -> list[dict[str, Any]]:
    return [{topic_field: names.topic, partitions_field: [0]}]


def _altered_offsets(names: Names) -> dict[str, Any]:
    partitions = [_partition("partition_index", start_offset=0)]
    return {"group_id": names.share_group, "topics": [{"topic_name": names.topic, "partitions": partitions}]}


def _deletion(names: Names) -> dict[str, Any]:
    return {"topics": [{"name": names.topic}], "timeout_ms": 30_000}


ROWS: Final[Sequence[Row]] = (
    Row("produce", 9, ((Op.WRITE, Kind.TOPIC),), TOPIC_FAILED, _produce),
    Row(
        "produce",
        9,
        ((Op.WRITE, Kind.TRANSACTIONAL_ID),),
        ID_FAILED,
        lambda n: {
            **_produce(n),
            "transactional_id": n.transactional_id,
            "topic_data": [{"name": n.topic, "partition_data": [_partition("index", records=_TRANSACTIONAL)]}],
        },
    ),
    Row(
        "fetch",
        11,
        ((Op.READ, Kind.TOPIC),),
        TOPIC_FAILED,
        lambda n: {
            "topics": [{"topic": n.topic, "partitions": [{"partition": 0, "partition_max_bytes": 1000}]}],
            "max_bytes": 1000,
        },
    ),
    Row(
        "list_offsets",
        7,
        ((Op.DESCRIBE, Kind.TOPIC),),
        TOPIC_FAILED,
        lambda n: {"topics": [{"name": n.topic, "partitions": [_partition("partition_index", timestamp=-1)]}]},
    ),
    Row("metadata", 9, ((Op.DESCRIBE, Kind.TOPIC),), TOPIC_FAILED, lambda n: {"topics": [{"name": n.topic}]}),
    Row(
        "metadata",
        9,
        ((Op.CREATE, Kind.CLUSTER), (Op.CREATE, Kind.TOPIC)),
        TOPIC_FAILED,
        lambda n: {"topics": [{"name": n.new}], "allow_auto_topic_creation": True},
    ),
    Row(
        "offset_commit",
        9,
        ((Op.READ, Kind.GROUP),),
        GROUP_FAILED,
        lambda n: {
            **_group(n),
            "topics": [{"name": n.topic, "partitions": [_partition("partition_index", committed_offset=0)]}],
        },
    ),
    Row(
        "offset_commit",
        9,
        ((Op.READ, Kind.TOPIC),),
        TOPIC_FAILED,
        lambda n: {
            **_group(n),
            "topics": [{"name": n.topic, "partitions": [_partition("partition_index", committed_offset=0)]}],
        },
    ),
    Row(
        "offset_fetch",
        8,
        ((Op.DESCRIBE, Kind.GROUP),),
        GROUP_FAILED,
        lambda n: {"groups": [{**_group(n), "topics": _one("name", "partition_indexes", n)}]},
    ),
    Row(
        "offset_fetch",
        8,
        ((Op.DESCRIBE, Kind.TOPIC),),
        TOPIC_FAILED,
        lambda n: {"groups": [{**_group(n), "topics": _one("name", "partition_indexes", n)}]},
    ),
    Row(
        "find_coordinator",
        4,
        ((Op.DESCRIBE, Kind.GROUP),),
        GROUP_FAILED,
        lambda n: {"key_type": 0, "coordinator_keys": [n.group]},
    ),
    Row(
        "find_coordinator",
        4,
        ((Op.DESCRIBE, Kind.TRANSACTIONAL_ID),),
        ID_FAILED,
        lambda n: {"key_type": 1, "coordinator_keys": [n.transactional_id]},
    ),
    Row(
        "join_group",
        7,
        ((Op.READ, Kind.GROUP),),
        GROUP_FAILED,
        lambda n: {
            **_group(n),
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
    ),
    Row("heartbeat", 4, ((Op.READ, Kind.GROUP),), GROUP_FAILED, lambda n: {**_group(n), "member_id": "m"}),
    Row(
        "leave_group",
        4,
        ((Op.READ, Kind.GROUP),),
        GROUP_FAILED,
        lambda n: {**_group(n), "members": [{"member_id": "m"}]},
    ),
    Row("sync_group", 4, ((Op.READ, Kind.GROUP),), GROUP_FAILED, lambda n: {**_group(n), "member_id": "m"}),
    Row("describe_groups", 5, ((Op.DESCRIBE, Kind.GROUP),), GROUP_FAILED, lambda n: {"groups": [n.group]}),
    Row("list_groups", 4, ((Op.DESCRIBE, Kind.CLUSTER), (Op.DESCRIBE, Kind.GROUP)), HIDDEN, lambda n: {}),
    Row("create_topics", 7, ((Op.CREATE, Kind.CLUSTER), (Op.CREATE, Kind.TOPIC)), TOPIC_FAILED, _new_topic),
    Row("create_topics", 7, ((Op.DESCRIBE_CONFIGS, Kind.TOPIC),), TOPIC_FAILED, _new_topic),
    Row(
        "delete_records",
        2,
        ((Op.DELETE, Kind.TOPIC),),
        TOPIC_FAILED,
        lambda n: {
            "topics": [{"name": n.topic, "partitions": [_partition("partition_index", offset=0)]}],
            "timeout_ms": 5000,
        },
    ),
    Row(
        "init_producer_id",
        4,
        ((Op.WRITE, Kind.TRANSACTIONAL_ID),),
        ID_FAILED,
        lambda n: {
            "transactional_id": n.transactional_id,
            "transaction_timeout_ms": 10_000,
            "producer_id": -1,
            "producer_epoch": -1,
        },
    ),
    Row(
        "init_producer_id",
        4,
        ((Op.IDEMPOTENT_WRITE, Kind.CLUSTER), (Op.WRITE, Kind.TOPIC)),
        CLUSTER_FAILED,
        lambda n: {"transactional_id": None, "producer_id": -1, "producer_epoch": -1},
    ),
    Row(
        "offset_for_leader_epoch",
        4,
        ((Op.CLUSTER_ACTION, Kind.CLUSTER), (Op.DESCRIBE, Kind.TOPIC)),
        TOPIC_FAILED,
        lambda n: {"replica_id": -1, "topics": [{"topic": n.topic, "partitions": [{"partition": 0}]}]},
    ),
    Row("describe_configs", 4, ((Op.DESCRIBE_CONFIGS, Kind.TOPIC),), TOPIC_FAILED, lambda n: _described(2, n.topic)),
    Row("describe_configs", 4, ((Op.DESCRIBE_CONFIGS, Kind.CLUSTER),), CLUSTER_FAILED, lambda n: _described(4, "1")),
    Row("describe_configs", 4, ((Op.DESCRIBE_CONFIGS, Kind.GROUP),), GROUP_FAILED, lambda n: _described(32, n.group)),
    Row("alter_configs", 2, ((Op.ALTER_CONFIGS, Kind.TOPIC),), TOPIC_FAILED, lambda n: _config(2, n.topic)),
    Row("alter_configs", 2, ((Op.ALTER_CONFIGS, Kind.CLUSTER),), CLUSTER_FAILED, lambda n: _config(4, "1")),
    Row("incremental_alter_configs", 1, ((Op.ALTER_CONFIGS, Kind.TOPIC),), TOPIC_FAILED, lambda n: _config(2, n.topic)),
    Row("incremental_alter_configs", 1, ((Op.ALTER_CONFIGS, Kind.CLUSTER),), CLUSTER_FAILED, lambda n: _config(4, "1")),
    Row(
        "incremental_alter_configs", 1, ((Op.ALTER_CONFIGS, Kind.GROUP),), GROUP_FAILED, lambda n: _config(32, n.group)
    ),
    Row(
        "describe_log_dirs",
        4,
        ((Op.DESCRIBE, Kind.CLUSTER),),
        CLUSTER_FAILED,
        lambda n: {"topics": _one("topic", "partitions", n)},
    ),
    Row(
        "create_partitions",
        3,
        ((Op.ALTER, Kind.TOPIC),),
        TOPIC_FAILED,
        lambda n: {
            "topics": [{"name": n.topic, "count": 2, "assignments": None}],
            "timeout_ms": 5000,
            "validate_only": True,
        },
    ),
    Row(
        "describe_cluster",
        1,
        ((Op.DESCRIBE, Kind.CLUSTER),),
        HIDDEN,
        lambda n: {"include_cluster_authorized_operations": True},
    ),
    Row(
        "describe_producers",
        0,
        ((Op.READ, Kind.TOPIC),),
        TOPIC_FAILED,
        lambda n: {"topics": _one("name", "partition_indexes", n)},
    ),
    Row(
        "describe_topic_partitions",
        0,
        ((Op.DESCRIBE, Kind.TOPIC),),
        TOPIC_FAILED,
        lambda n: {"topics": [{"name": n.topic}]},
    ),
    Row(
        "elect_leaders",
        2,
        ((Op.ALTER, Kind.CLUSTER),),
        CLUSTER_FAILED,
        lambda n: {"election_type": 0, "topic_partitions": _one("topic", "partitions", n), "timeout_ms": 5000},
    ),
    Row(
        "alter_partition_reassignments", 0, ((Op.ALTER, Kind.CLUSTER),), CLUSTER_FAILED, lambda n: {"timeout_ms": 5000}
    ),
    Row(
        "list_partition_reassignments",
        0,
        ((Op.DESCRIBE, Kind.CLUSTER),),
        CLUSTER_FAILED,
        lambda n: {"topics": None, "timeout_ms": 5000},
    ),
    Row(
        "alter_replica_log_dirs",
        2,
        ((Op.ALTER, Kind.CLUSTER),),
        CLUSTER_FAILED,
        lambda n: {"dirs": [{"path": "/nowhere", "topics": _one("name", "partitions", n)}]},
    ),
    Row(
        "describe_quorum",
        1,
        ((Op.DESCRIBE, Kind.CLUSTER),),
        CLUSTER_FAILED,
        lambda n: {"topics": [{"topic_name": "__cluster_metadata", "partitions": [_partition("partition_index")]}]},
    ),
    Row("list_config_resources", 1, ((Op.DESCRIBE_CONFIGS, Kind.CLUSTER),), CLUSTER_FAILED, lambda n: {}),
    Row(
        "update_features",
        1,
        ((Op.ALTER, Kind.CLUSTER),),
        CLUSTER_FAILED,
        lambda n: {"validate_only": True, "timeout_ms": 5000},
    ),
    Row(
        "consumer_group_heartbeat",
        0,
        ((Op.READ, Kind.GROUP),),
        GROUP_FAILED,
        lambda n: _heartbeat(f"{n.group}-consumer", n, rebalance_timeout_ms=10_000, topic_partitions=[]),
    ),
    Row(
        "consumer_group_heartbeat",
        0,
        ((Op.DESCRIBE, Kind.TOPIC),),
        TOPIC_FAILED,
        lambda n: _heartbeat(f"{n.group}-consumer", n, rebalance_timeout_ms=10_000, topic_partitions=[]),
    ),
    Row("consumer_group_describe", 0, ((Op.DESCRIBE, Kind.GROUP),), GROUP_FAILED, lambda n: {"group_ids": [n.group]}),
    Row(
        "add_partitions_to_txn",
        3,
        ((Op.WRITE, Kind.TRANSACTIONAL_ID),),
        ID_FAILED,
        lambda n: {
            "v3_and_below_transactional_id": n.transactional_id,
            "v3_and_below_topics": _one("name", "partitions", n),
        },
    ),
    Row(
        "add_partitions_to_txn",
        3,
        ((Op.WRITE, Kind.TOPIC),),
        TOPIC_FAILED,
        lambda n: {
            "v3_and_below_transactional_id": n.transactional_id,
            "v3_and_below_topics": _one("name", "partitions", n),
        },
    ),
    Row(
        "add_partitions_to_txn",
        4,
        ((Op.CLUSTER_ACTION, Kind.CLUSTER),),
        CLUSTER_FAILED,
        lambda n: {"transactions": [{**_txn(n), "topics": _one("name", "partitions", n)}]},
    ),
    Row("add_offsets_to_txn", 3, ((Op.WRITE, Kind.TRANSACTIONAL_ID),), ID_FAILED, lambda n: {**_txn(n), **_group(n)}),
    Row("add_offsets_to_txn", 3, ((Op.READ, Kind.GROUP),), GROUP_FAILED, lambda n: {**_txn(n), **_group(n)}),
    Row("end_txn", 3, ((Op.WRITE, Kind.TRANSACTIONAL_ID),), ID_FAILED, _txn),
    Row(
        "write_txn_markers",
        1,
        ((Op.ALTER, Kind.CLUSTER), (Op.CLUSTER_ACTION, Kind.CLUSTER)),
        CLUSTER_FAILED,
        lambda n: {"markers": [{"producer_id": 1, "topics": _one("name", "partition_indexes", n)}]},
    ),
    Row("txn_offset_commit", 3, ((Op.WRITE, Kind.TRANSACTIONAL_ID),), ID_FAILED, _txn_commit),
    Row("txn_offset_commit", 3, ((Op.READ, Kind.GROUP),), GROUP_FAILED, _txn_commit),
    Row("txn_offset_commit", 3, ((Op.READ, Kind.TOPIC),), TOPIC_FAILED, _txn_commit),
    Row(
        "describe_transactions",
        0,
        ((Op.DESCRIBE, Kind.TRANSACTIONAL_ID),),
        ID_FAILED,
        lambda n: {"transactional_ids": [n.transactional_id]},
    ),
    Row("list_transactions", 1, ((Op.DESCRIBE, Kind.TRANSACTIONAL_ID),), HIDDEN, lambda n: {}),
    Row("share_group_heartbeat", 1, ((Op.READ, Kind.GROUP),), GROUP_FAILED, lambda n: _heartbeat(n.share_group, n)),
    Row("share_group_heartbeat", 1, ((Op.DESCRIBE, Kind.TOPIC),), TOPIC_FAILED, lambda n: _heartbeat(n.share_group, n)),
    Row(
        "share_group_describe", 1, ((Op.DESCRIBE, Kind.GROUP),), GROUP_FAILED, lambda n: {"group_ids": [n.share_group]}
    ),
    Row("share_fetch", 1, ((Op.READ, Kind.GROUP),), GROUP_FAILED, _share_fetch),
    Row("share_fetch", 1, ((Op.READ, Kind.TOPIC),), TOPIC_FAILED, _share_fetch),
    Row("share_acknowledge", 1, ((Op.READ, Kind.GROUP),), GROUP_FAILED, _share_acknowledge),
    Row("share_acknowledge", 1, ((Op.READ, Kind.TOPIC),), TOPIC_FAILED, _share_acknowledge),
    Row(
        "describe_share_group_offsets",
        0,
        ((Op.DESCRIBE, Kind.GROUP),),
        GROUP_FAILED,
        lambda n: {"groups": [{"group_id": n.share_group, "topics": _one("topic_name", "partitions", n)}]},
    ),
    Row(
        "describe_share_group_offsets",
        0,
        ((Op.DESCRIBE, Kind.TOPIC),),
        TOPIC_FAILED,
        lambda n: {"groups": [{"group_id": n.share_group, "topics": _one("topic_name", "partitions", n)}]},
    ),
    Row("alter_share_group_offsets", 0, ((Op.READ, Kind.GROUP),), GROUP_FAILED, _altered_offsets),
    Row("alter_share_group_offsets", 0, ((Op.READ, Kind.TOPIC),), TOPIC_FAILED, _altered_offsets),
    Row(
        "delete_share_group_offsets",
        0,
        ((Op.DELETE, Kind.GROUP),),
        GROUP_FAILED,
        lambda n: {"group_id": n.share_group, "topics": [{"topic_name": n.topic}]},
    ),
    Row(
        "delete_share_group_offsets",
        0,
        ((Op.READ, Kind.TOPIC),),
        TOPIC_FAILED,
        lambda n: {"group_id": n.share_group, "topics": [{"topic_name": n.topic}]},
    ),
    Row("describe_acls", 3, ((Op.DESCRIBE, Kind.CLUSTER),), CLUSTER_FAILED, lambda n: NO_ACL),
    Row("create_acls", 3, ((Op.ALTER, Kind.CLUSTER),), CLUSTER_FAILED, lambda n: {"creations": [ACL]}),
    Row("delete_acls", 3, ((Op.ALTER, Kind.CLUSTER),), CLUSTER_FAILED, lambda n: {"filters": [NO_ACL]}),
    Row("describe_client_quotas", 1, ((Op.DESCRIBE_CONFIGS, Kind.CLUSTER),), CLUSTER_FAILED, lambda n: {}),
    Row(
        "alter_client_quotas",
        1,
        ((Op.ALTER_CONFIGS, Kind.CLUSTER),),
        CLUSTER_FAILED,
        lambda n: {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "nobody"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1e9}],
                }
            ],
            "validate_only": True,
        },
    ),
    Row(
        "describe_user_scram_credentials",
        0,
        ((Op.DESCRIBE, Kind.CLUSTER),),
        CLUSTER_FAILED,
        lambda n: {"users": [{"name": "nobody"}]},
    ),
    Row(
        "alter_user_scram_credentials",
        0,
        ((Op.ALTER, Kind.CLUSTER),),
        CLUSTER_FAILED,
        lambda n: {"deletions": [{"name": "nobody", "mechanism": 1}]},
    ),
    # The last ones delete what the others are about.
    Row(
        "offset_delete",
        0,
        ((Op.DELETE, Kind.GROUP),),
        GROUP_FAILED,
        lambda n: {**_group(n), "topics": [{"name": n.topic, "partitions": [_partition("partition_index")]}]},
    ),
    Row(
        "offset_delete",
        0,
        ((Op.READ, Kind.TOPIC),),
        TOPIC_FAILED,
        lambda n: {**_group(n), "topics": [{"name": n.topic, "partitions": [_partition("partition_index")]}]},
    ),
    Row("delete_groups", 2, ((Op.DELETE, Kind.GROUP),), GROUP_FAILED, lambda n: {"groups_names": [n.group]}),
    Row("delete_topics", 6, ((Op.DESCRIBE, Kind.TOPIC),), TOPIC_FAILED, _deletion),
    Row("delete_topics", 6, ((Op.DELETE, Kind.TOPIC),), TOPIC_FAILED, _deletion),
)


_JOINED: Final = next(row for row in ROWS if row.api == "share_group_heartbeat")
_LEFT: Final = _JOINED._replace(fields=lambda n: _heartbeat(n.share_group, n, member_epoch=-1))

BEFORE: Final[Mapping[str, Sequence[Row]]] = {
    "share_acknowledge": (_JOINED, next(row for row in ROWS if row.api == "share_fetch")),
    "describe_share_group_offsets": (_JOINED, _LEFT),
    "alter_share_group_offsets": (_JOINED, _LEFT),
    "delete_share_group_offsets": (_JOINED, _LEFT),
}
"""What has to be asked before, with everything allowed, for there to be something to refuse."""

ASKS_NOTHING: Final = {
    "api_versions": "clients ask it before they log in",
    "sasl_handshake": "it is the login",
    "sasl_authenticate": "it is the login",
    "get_telemetry_subscriptions": "about the client itself",
    "push_telemetry": "about the client itself",
}
"""APIs without a row, and why."""
