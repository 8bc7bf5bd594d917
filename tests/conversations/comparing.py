"""Answers of two brokers, field by field: what is left out of the comparison, and what differs.

Two brokers cannot have everything in common. Numbers and ids that a broker makes up are replaced by a name that says
when they were first seen ("member 1"), times and sizes by their sign, and sentences by whether there is one.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from foldlog.records.loops import decode, walk
from foldlog.wire.schema import ZERO_UUID, Field, Message

LEFT_OUT: Final = {
    "throttle_time_ms": "no quota is set, and who is slow is told nothing",
    "host": "each listens on its own address",
    "port": "each listens on its own address",
    "cluster_id": "made up",
    "log_dir": "each has its own directory",
    "listeners": "each listens on its own address",
    "documentation": "each has its own words",
}
"""Fields that are not compared, with the reason."""

ONLY_THE_SIGN: Final = {
    "finalized_features_epoch": "counts records of a log of metadata, which only Kafka has",
    "last_fetch_timestamp": "a time",
    "last_caught_up_timestamp": "a time",
    "transaction_start_time_ms": "a time",
    "last_timestamp": "a time",
    "log_append_time_ms": "a time",
    "coordinator_epoch": "each counts on its own",
    "total_bytes": "the size of a disk",
    "usable_bytes": "the size of a disk",
}
"""Numbers of which only the sign is compared, with the reason."""

NAMED: Final = {
    "member_id": "member",
    "leader": "member",
    "producer_id": "producer",
    "session_id": "session",
    "subscription_id": "subscription",
}
"""Fields whose values a broker makes up, and what they are called instead. Topic ids are called after their topic."""

SENTENCES: Final = frozenset({"error_message", "acknowledge_error_message", "batch_index_error_message"})
"""Each side has its own words; where Kafka says why, so must we, and we may say more."""

NO_ERROR: Final = "NONE"
"""Where nothing is wrong, Kafka writes the name of that code where a sentence would be."""

IDENTITIES: Final = (
    "name", "topic", "topic_name", "topic_id", "group_id", "transactional_id", "resource_name", "partition_index",
    "partition", "index", "batch_index", "api_key", "key", "feature", "broker_id", "node_id", "member_id",
    "producer_id", "replica_id", "first_offset",
)  # fmt: skip
"""What tells the elements of an array apart; their order is not promised by the protocol."""

PAIRS: Final = (("name", "source"), ("resource_name", "resource_type"))
"""What tells them apart where one field does not."""

ABSENT: Final = "absent"
"""Stands for an element that only the other side has."""


CLOSED: Final = "the connection is closed"
"""Stands for an answer that does not come."""


class Row(NamedTuple):
    """One field that differs: where it is, and what each side said."""

    path: str
    ours: Any
    kafka: Any


class Names:
    """What a broker made up in one conversation, by the name it has in the comparison."""

    def __init__(self, prefix: str, known: dict[Any, str] | None = None) -> None:
        self.prefix = prefix
        self._known: dict[Any, str] = dict(known or {})

    def copy(self) -> Names:
        return Names(self.prefix, self._known)

    def know(self, value: Any, name: str) -> None:
        self._known.setdefault(value, name)

    def of(self, kind: str, value: Any) -> str:
        if value not in self._known:
            taken = sum(name.startswith(f"{kind} ") for name in self._known.values())
            self._known[value] = f"{kind} {taken + 1}"
        return self._known[value]

    def plain(self, text: str) -> str:
        """Without what tells this conversation's topics and groups from those of others, and with names for ids."""
        text = text.replace(self.prefix, "")
        for value, name in self._known.items():
            if isinstance(value, bytes):
                text = text.replace(uuid_text(value), name)
        return text


def uuid_text(value: bytes) -> str:
    """An id as Kafka writes it into texts."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def plain(message: Message, version: int, names: Names, is_mine: Callable[[str], bool] | None = None) -> Any:
    """An answer as dictionaries and plain values; with `is_mine`, without elements that other conversations made."""
    topic_id = bytes(getattr(message, "topic_id", ZERO_UUID))
    name = getattr(message, "name", None) or getattr(message, "topic_name", None)
    if topic_id != ZERO_UUID and name:
        names.know(topic_id, f"id of {names.plain(name)}")
    found = {}
    for field in message.SCHEMA:
        if field.first <= version <= field.last and field.name not in LEFT_OUT:
            found[field.name] = _plain(field, getattr(message, field.name), version, names, is_mine)
    return found


def _plain(field: Field, value: Any, version: int, names: Names, is_mine: Callable[[str], bool] | None) -> Any:
    if value is None:
        return None
    if field.is_array and field.item is not None:
        return _elements(value, version, names, is_mine)
    if field.item is not None:
        return plain(value, version, names, is_mine)
    if field.is_array:
        return sorted(_scalar(field, one, names) for one in value)
    return _scalar(field, value, names)


def _elements(elements: Iterable[Message], version: int, names: Names, is_mine: Callable[[str], bool] | None) -> Any:
    listed = list(elements)
    if is_mine is not None:
        listed = [one for one in listed if (key := _own_name(one)) is None or is_mine(key)]
    rows = _merged([plain(one, version, names, is_mine) for one in listed])
    for identity in (*((one,) for one in IDENTITIES), *PAIRS):
        keys = [" ".join(str(row[name]) for name in identity) for row in rows if _has(row, identity)]
        if len(keys) == len(rows) == len(set(keys)):
            return dict(zip(keys, rows, strict=True))
    return {str(number): row for number, row in enumerate(rows)}


def _merged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Partitions of one topic together: Kafka may name a topic again where another one came in between."""
    if not rows or "partitions" not in rows[0]:
        return rows
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        key = str({name: value for name, value in row.items() if name != "partitions"})
        known = found.setdefault(key, row)
        if known is not row and isinstance(row["partitions"], dict):
            known["partitions"].update(row["partitions"])
        elif known is not row:
            return rows
    return list(found.values())


def _has(row: dict[str, Any], names: tuple[str, ...]) -> bool:
    return all(row.get(name) is not None for name in names)


def _own_name(message: Message) -> str | None:
    """The name by which an element is some conversation's; None where it has none."""
    for name in ("name", "topic", "group_id", "transactional_id", "resource_name"):
        value = getattr(message, name, None)
        if isinstance(value, str):
            return value
    return None


def _scalar(field: Field, value: Any, names: Names) -> Any:
    if field.name in SENTENCES:
        return "a sentence" if value not in ("", NO_ERROR) else None
    if field.name in ONLY_THE_SIGN:
        return (value > 0) - (value < 0)
    if field.kind == "uuid":
        return "none" if bytes(value) == ZERO_UUID else names.of("id", bytes(value))
    if field.kind == "records":
        return records_in(bytes(value), names)
    if field.name in NAMED and value not in ("", -1) and (value or field.name == "producer_id"):
        return names.of(NAMED[field.name], names.plain(value) if isinstance(value, str) else (field.name, value))
    if isinstance(value, str):
        return names.plain(value)
    return bytes(value) if field.kind == "bytes" else value


def records_in(records: bytes, names: Names) -> Any:
    """Batches as their headers say them, and the records in them, whatever bytes they are packed in."""
    batches = {
        str(header.base_offset): {
            "last_offset": header.last_offset,
            "leader_epoch": header.leader_epoch,
            "is_control": header.is_control,
            "is_transactional": header.is_transactional,
            "producer": names.of("producer", ("producer_id", header.producer_id)) if header.producer_id >= 0 else None,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
        }
        for header in walk(records).headers
    }
    found = [(one.offset, one.key, one.value, tuple(one.headers)) for one in decode(records, "", 0)[0]]
    return {"batches": batches, "records": found}


def differing(ours: Any, kafka: Any, path: str = "") -> Iterator[Row]:
    """The fields that are not the same, with where they are: `topics.orders.partitions.0.error_code`."""
    if isinstance(ours, dict) and isinstance(kafka, dict):
        for key in sorted(ours.keys() | kafka.keys()):
            place = f"{path}.{key}" if path else key
            if key in ours and key in kafka:
                yield from differing(ours[key], kafka[key], place)
            else:
                yield Row(place, ours.get(key, ABSENT), kafka.get(key, ABSENT))
    elif ours != kafka and not (path.rpartition(".")[2] in SENTENCES and kafka is None):
        yield Row(path, ours, kafka)
