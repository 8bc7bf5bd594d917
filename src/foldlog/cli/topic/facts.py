"""What is known of a topic without reading its records: bounds and sizes of its partitions, and its settings.

Sizes on disk are known for a directory, even if a broker serves it; a cluster does not report them. A damaged partition
does not hide the others: it has an error where they have numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from foldlog.broker.topics.names import is_internal
from foldlog.cli.units import parse_duration_ms, parse_size_bytes, size_text
from foldlog.cli.wording import damage_text
from foldlog.durations import duration_text
from foldlog.errors import InvalidArgument, StorageError, UnknownTopic, brief_repr

if TYPE_CHECKING:
    from foldlog.client.log import Log


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """One partition. Its readable offsets are [start, end); sizes are None if unknown."""

    partition: int
    start: int | None = None
    end: int | None = None
    size_bytes: int | None = None
    segments: int | None = None
    error: str | None = None
    stable: int | None = None
    """Where committed records end, if that is before the end."""
    held_by: tuple[str, ...] = ()
    """The transactional ids that have a transaction open there."""

    @property
    def offsets(self) -> int | None:
        return None if self.start is None or self.end is None else self.end - self.start

    def row(self) -> dict[str, object]:
        return {
            "partition": self.partition,
            "start": self.start,
            "end": self.end,
            "offsets": self.offsets,
            "size_bytes": self.size_bytes,
            "segments": self.segments,
            "error": self.error,
            "stable": self.stable,
            "held_by": list(self.held_by),
        }


def partitions_of(log: Log, topic: str) -> list[PartitionFacts]:
    """Every partition of a topic; UnknownTopic."""
    from foldlog.client.backends.directory import is_directory

    if is_directory(log):
        return [_on_disk(log, topic, number) for number in range(log.topic(topic).partition_count)]
    written = log.offsets(topic)
    stable = log.offsets(topic, isolation="read_committed")
    return [
        PartitionFacts(number, start, end, stable=_if_held(stable[number][1], end))
        for number, (start, end) in sorted(written.items())
    ]


def with_holders(log: Log, topic: str, partitions: Sequence[PartitionFacts]) -> list[PartitionFacts]:
    """With the transactional ids that keep committed records from being read. Asked for only where there are some."""
    from foldlog.client.backends.backend import backend_of

    if all(one.stable is None for one in partitions):
        return list(partitions)
    open_ones = backend_of(log).list_transactions()
    return [
        one
        if one.stable is None
        else replace(
            one,
            held_by=tuple(found.transactional_id for found in open_ones if (topic, one.partition) in found.partitions),
        )
        for one in partitions
    ]


def _if_held(stable: int, end: int) -> int | None:
    return stable if stable < end else None


def _on_disk(log: Any, topic: str, number: int) -> PartitionFacts:
    from foldlog.client.backends.directory import broker_of

    try:
        partition = broker_of(log).partition(topic, number)
        end = partition.acknowledged_end()
        start = min(partition.log_start_offset, end)
        stable = _if_held(partition.last_stable_offset, end)
        return PartitionFacts(number, start, end, partition.size_bytes, partition.segment_count, stable=stable)
    except StorageError as error:
        return PartitionFacts(number, error=damage_text(error))


def total(numbers: Iterable[int | None]) -> int | None:
    """
    >>> total([1, 2]), total([1, None])
    (3, None)
    """
    known = list(numbers)
    return None if None in known else sum(number for number in known if number is not None)


def chosen_topics(log: Log, patterns: Iterable[str], *, include_internal: bool = False) -> list[str]:
    """Topics whose names match a pattern, or all. A pattern without * ? [ is a name, and has to exist."""
    given = list(patterns)
    known = log.topics(include_internal=True)
    if not given:
        return [name for name in known if include_internal or not is_internal(name)]
    for name in given:
        if not any(sign in name for sign in "*?[") and name not in known:
            raise UnknownTopic(name, log.topics())
    return [name for name in known if any(fnmatchcase(name, pattern) for pattern in given)]


# --- settings -------------------------------------------------------------------------------------------------------


def parse_settings(assignments: Iterable[str]) -> dict[str, str | None]:
    """`-c name=value` of the command line; an empty value is None, which means the default.

    >>> parse_settings(["retention.ms=7d", "segment.bytes=64MiB", "retention.bytes="])
    {'retention.ms': '604800000', 'segment.bytes': '67108864', 'retention.bytes': None}
    """
    settings: dict[str, str | None] = {}
    for text in assignments:
        name, sign, value = text.partition("=")
        name = name.strip()
        if not sign or not name:
            raise InvalidArgument(f"-c {brief_repr(text)} is not -c NAME=VALUE, such as -c retention.ms=7d")
        settings[name] = _canonical(name, value.strip()) if value.strip() else None
    return settings


def _canonical(name: str, value: str) -> str:
    """A time or a size as the number that the setting takes. Numbers, even -1, stay as they are."""
    if value.lstrip("+-").isdecimal():
        return value
    if name.endswith(".ms"):
        return str(parse_duration_ms(value, f"{name}="))
    if name.endswith(".bytes"):
        return str(parse_size_bytes(value, f"{name}="))
    return value


def setting_text(name: str, value: str) -> str:
    """A value, and its form for people.

    >>> setting_text("retention.ms", "604800000"), setting_text("retention.bytes", "-1")
    ('604800000 (7d)', '-1 (no limit)')
    """
    if value == "-1" and name.startswith("retention."):
        return "-1 (no limit)"
    if not value.isdecimal() or int(value) < 1000 or int(value) >= 1 << 62:
        return value
    told = None
    if name.endswith(".ms"):
        told = duration_text(int(value))
    elif name.endswith(".bytes") and parse_size_bytes(size_text(int(value))) == int(value):
        told = size_text(int(value))
    return value if told in (None, f"{value}ms", f"{value} B") else f"{value} ({told})"


def limit_text(name: str, value: int) -> str:
    """A retention limit for a table, short.

    >>> limit_text("retention.ms", 604_800_000), limit_text("retention.bytes", -1)
    ('7d', 'no limit')
    """
    if value < 0:
        return "no limit"
    return duration_text(value) if name.endswith(".ms") else size_text(value)


def settings_rows(log: Log, topic: str) -> list[dict[str, object]]:
    """Every setting in force, with its documentation if it is known."""
    from foldlog.broker.topics.config import TOPIC_SETTINGS

    rows: list[dict[str, object]] = []
    for name, entry in sorted(log.topic_config(topic).items()):
        known = TOPIC_SETTINGS.get(name)
        rows.append(
            {
                "name": name,
                "value": entry.value,
                "is_default": entry.is_default,
                "text": setting_text(name, entry.value),
                "about": known.doc if known else None,
            }
        )
    return rows


def setting_value(config: Mapping[str, Any], name: str) -> str | None:
    """The value in force; None if the cluster has no such setting."""
    entry = config.get(name)
    return None if entry is None else str(entry.value)
