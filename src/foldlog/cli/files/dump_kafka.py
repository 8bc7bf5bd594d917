"""Files that only Kafka writes: aborted transactions, offset checkpoints, the directory's properties, the quorum's
state; and the records of `__consumer_offsets`, which foldlog writes as well, in words."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from foldlog.broker.groups.consumer.records import StoredCurrent, StoredEpoch, StoredValue, decode_consumer_value
from foldlog.broker.groups.consumer.state import ResolvedRegex
from foldlog.broker.groups.offsets_format import (
    ConsumerKey,
    ConsumerRecord,
    OffsetKey,
    ShareKey,
    ShareRecord,
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from foldlog.broker.kafka_files.directory import KAFKA_PROPERTIES, LOG_STARTS_NAME, parse_offset_checkpoint
from foldlog.broker.share.member_records import (
    StoredShareEpoch,
    StoredShareMember,
    StoredShareProgress,
    StoredShareValue,
    decode_share_value,
)
from foldlog.cli.files.dump_items import Item, Items, damage, named_values, time_text
from foldlog.cli.wording import counted
from foldlog.errors import CorruptGroupRecord, MalformedBytes
from foldlog.log.transactions import ENTRY_BYTES, read_transaction_index

QUORUM_NAME: Final = "quorum-state"
OFFSET_CHECKPOINTS: Final = {
    LOG_STARTS_NAME: "starts at offset",
    "recovery-point-offset-checkpoint": "is synced up to offset",
    "replication-offset-checkpoint": "has its high watermark at offset",
    "cleaner-offset-checkpoint": "is compacted up to offset",
}
"""Kafka's offset checkpoint files, and what their offsets mean for a partition."""

KAFKA_NAMES: Final = (KAFKA_PROPERTIES, QUORUM_NAME, *OFFSET_CHECKPOINTS)

CONTROL_KINDS: Final = {
    0: "abort",
    1: "commit",
    2: "leader change",
    3: "snapshot header",
    4: "snapshot footer",
    5: "KRaft version",
    6: "KRaft voters",
}
"""Kafka's ControlRecordType. Those above 1 are in its metadata log only."""


def items_of_kafkas(name: str, data: bytes) -> Items:
    """The contents of a file in KAFKA_NAMES."""
    if name == KAFKA_PROPERTIES:
        return named_values("properties", data, "=", comment="#")
    return _quorum(data) if name == QUORUM_NAME else _offsets(name, data)


def transaction_items(data: bytes) -> Items:
    """The contents of a .txnindex."""
    entries, problem = read_transaction_index(data)
    for entry in entries:
        text = (
            f"  producer {entry.producer_id}: offsets {entry.first_offset} to {entry.last_offset} aborted, last stable"
            f" offset {entry.last_stable_offset}"
        )
        yield Item("aborted transaction", text, entry._asdict())
    if problem:
        yield damage(len(entries) * ENTRY_BYTES, len(data), problem)


def _quorum(data: bytes) -> Items:
    try:
        fields = json.loads(data)
        text = ", ".join(f"{name} {value}" for name, value in fields.items())
    except (ValueError, AttributeError, RecursionError) as error:
        yield damage(0, len(data), f"it is not a JSON object ({error})")
        return
    yield Item("quorum", f"  {text}", fields)


def _offsets(name: str, data: bytes) -> Items:
    try:
        found = parse_offset_checkpoint(data.decode("ascii", "replace"))
    except MalformedBytes as error:
        yield damage(0, len(data), error.reason)
        return
    for (topic, number), offset in sorted(found.items()):
        fields: dict[str, object] = {"topic": topic, "partition": number, "offset": offset}
        yield Item("partition offset", f"  {topic}-{number} {OFFSET_CHECKPOINTS[name]} {offset}", fields)


def group_item(offset: int, key: bytes | None, value: bytes | None) -> Item | None:
    """A record of `__consumer_offsets` in words; None if it is of an unknown kind."""
    try:
        decoded = decode_key(key or b"")
        fields: dict[str, object] = {"offset": offset, "group": decoded.group}
        if isinstance(decoded, OffsetKey):
            fields |= {"topic": decoded.topic, "partition": decoded.partition}
            about = f"group {decoded.group}: {decoded.topic}-{decoded.partition}"
            if value is None:
                return Item("committed offset", f"      {about} forgotten", {**fields, "committed": None})
            committed = decode_offset_value(key or b"", value)
            fields |= {
                "committed": committed.offset,
                "leader_epoch": committed.leader_epoch,
                "metadata": committed.metadata,
                "commit_timestamp": committed.commit_timestamp_ms,
            }
            told = f" ({committed.metadata!r})" if committed.metadata else ""
            when = time_text(committed.commit_timestamp_ms)
            return Item("committed offset", f"      {about} at {committed.offset}, {when}{told}", fields)
        if isinstance(decoded, ConsumerKey):
            return _consumer_item(fields, key or b"", decoded, value)
        if isinstance(decoded, ShareKey):
            return _share_item(fields, key or b"", decoded, value)
        if value is None:
            return Item("group", f"      group {decoded.group}: deleted", {**fields, "generation": None})
        group = decode_group_value(key or b"", value)
    except CorruptGroupRecord:
        return None
    fields |= {
        "generation": group.generation,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "members": [member.member_id for member in group.members],
    }
    members = counted(len(group.members), "member")
    return Item("group", f"      group {decoded.group}: generation {group.generation}, {members}", fields)


_CONSUMER_PARTS: Final = {
    ConsumerRecord.GROUP: "epoch",
    ConsumerRecord.MEMBER: "member",
    ConsumerRecord.TARGET_EPOCH: "target epoch",
    ConsumerRecord.TARGET: "target of member",
    ConsumerRecord.CURRENT: "current assignment of member",
    ConsumerRecord.REGEX: "regular expression",
}


def _consumer_item(fields: dict[str, object], raw: bytes, key: ConsumerKey, value: bytes | None) -> Item:
    """A part of a consumer group; its value as the coordinator reads it."""
    told = None if value is None else _told(decode_consumer_value(raw, key, value))
    return _part_item("consumer group", fields, key, _CONSUMER_PARTS[key.record], told)


def _part_item(kind: str, fields: dict[str, object], key: ConsumerKey | ShareKey, part: str, told: str | None) -> Item:
    """A part of a group whose parts are records of their own; `told` is None if it was deleted."""
    about = f"      {kind} {key.group}: {part}" + (f" {key.name}" if key.name else "")
    text = f"{about} deleted" if told is None else f"{about}: {told}"
    value = "deleted" if told is None else told
    return Item(kind, text, {**fields, "part": part, "name": key.name or None, "value": value})


_SHARE_PARTS: Final = {
    ShareRecord.GROUP: "epoch",
    ShareRecord.MEMBER: "member",
    ShareRecord.TARGET_EPOCH: "target epoch",
    ShareRecord.TARGET: "target of member",
    ShareRecord.CURRENT: "current assignment of member",
}


def _share_item(fields: dict[str, object], raw: bytes, key: ShareKey, value: bytes | None) -> Item:
    """A part of a share group; its value as the coordinator reads it."""
    told = None if value is None else _told_share(decode_share_value(raw, key, value))
    return _part_item("share group", fields, key, _SHARE_PARTS[key.record], told)


def _told_share(value: StoredShareValue) -> str:
    if isinstance(value, StoredShareEpoch):
        return str(value.epoch)
    if isinstance(value, StoredShareMember):
        return f"client {value.client_id!r} at {value.client_host}, topics {', '.join(value.topics)}"
    if isinstance(value, StoredShareProgress):
        return f"epoch {value.epoch}, {_by_topic(value.assigned)}"
    return str(value) if isinstance(value, int) else _by_topic(value)


def _told(value: StoredValue) -> str:
    if isinstance(value, int):
        return str(value)
    if isinstance(value, frozenset):
        return _by_topic(value)
    if isinstance(value, StoredEpoch):
        return str(value.epoch)
    if isinstance(value, StoredCurrent):
        state = value.state.name.lower().replace("_", " ")
        back = f", gives back {_by_topic(value.revoking)}" if value.revoking else ""
        return f"epoch {value.epoch}, {state}, has {_by_topic(value.assigned)}{back}"
    if isinstance(value, ResolvedRegex):
        return ", ".join(sorted(value.topics)) or "no topic"
    wanted = [*value.topics, *([f"the expression {value.regex}"] if value.regex else [])]
    return f"client {value.client_id or '-'} at {value.client_host or '-'}, wants {', '.join(wanted) or 'nothing'}"


def _by_topic(partitions: Iterable[tuple[bytes, int]]) -> str:
    """The partitions by their topics' ids: the record has no names."""
    numbers: dict[str, list[int]] = {}
    for topic_id, number in sorted(partitions):
        numbers.setdefault(topic_id.hex(), []).append(number)
    return "; ".join(f"{topic} {', '.join(map(str, those))}" for topic, those in numbers.items()) or "nothing"
