"""The metadata of a directory that Apache Kafka wrote: broker, topics, log starts. Reads only.

    meta.properties                     the broker that owns the directory
    <topic>-<partition>/                a partition, if it holds segments or partition.metadata, with the topic's id
    <topic>-<partition>.<id>-delete/    being deleted; -future and -stray: not in use
    log-start-offset-checkpoint         log starts after their first segment; written every minute

The directory of a single partition is read as a log of that one partition.
"""

from __future__ import annotations

import base64
import binascii
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from foldlog.broker.topics.catalog import ABSENT, CATALOG_NAME, Catalog, CatalogTopic
from foldlog.broker.topics.config import DEFAULT_CONFIG, TopicConfig
from foldlog.broker.topics.names import is_partition_directory
from foldlog.errors import ForeignDirectory, InvalidConfig, LogNotFound, MalformedBytes
from foldlog.files.base import Files, own_name, read_file
from foldlog.limits import KAFKA_PARTITIONS_MAX
from foldlog.log.layout import METADATA_NAME, read_layout

KAFKA_PROPERTIES: Final = "meta.properties"
"""In every directory that holds partitions of Kafka."""

METADATA_TOPIC: Final = "__cluster_metadata"
"""Kafka's own catalog, as a log. Its records have a different format, which Kafka's consumers cannot read."""

LOG_STARTS_NAME: Final = "log-start-offset-checkpoint"
_NAMESPACE: Final = uuid.UUID("9b1d4b1c-6f0e-4d43-9c3e-2c1f4f6a0d57")
_CHECKPOINT_VERSION: Final = "0"
_ID_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class KafkaDirectory:
    """A directory that Kafka wrote. `alone`: it is the directory of one partition, (topic, number)."""

    path: str
    alone: tuple[str, int] | None = None

    def partition_path(self, topic: str, number: int) -> str:
        return self.path if self.alone else f"{self.path}/{topic}-{number}"


def find_kafka(files: Files, path: str) -> KafkaDirectory | None:
    """The directory at `path` if it is Kafka's and not a log of ours; else None."""
    if files.exists(f"{path}/{CATALOG_NAME}"):  # first: a listing of thousands of partitions takes milliseconds
        return None
    try:
        entries = files.entries(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if KAFKA_PROPERTIES in {entry.name for entry in entries}:
        return KafkaDirectory(path)
    if not read_layout(entries).logs or files.exists(f"{_around(path)}/{CATALOG_NAME}"):
        return None
    label = partition_label(own_name(path))
    if label is None:
        raise LogNotFound(f"{path} holds segments, but its name is not TOPIC-NUMBER; rename it to what it was")
    return KafkaDirectory(path, label)


def refuse_kafka(files: Files, path: str) -> None:
    """Raises ForeignDirectory if it is Kafka's, before anything is written there."""
    if find_kafka(files, path) is not None:
        raise ForeignDirectory(path)


def partition_label(name: str) -> tuple[str, int] | None:
    """
    >>> partition_label("orders.eu-west-3"), partition_label("orders-0.6f0e-delete"), partition_label("orders-20240101")
    (('orders.eu-west', 3), None, None)
    """
    if not is_partition_directory(name):
        return None
    topic, _, number = name.rpartition("-")
    return (topic, int(number)) if int(number) < KAFKA_PARTITIONS_MAX else None


def read_catalog(files: Files, kafka: KafkaDirectory, settings: Mapping[str, Mapping[str, str]]) -> Catalog:
    """The topics that have partitions here, with their known settings."""
    held = [kafka.alone] if kafka.alone else _labels(files, kafka)
    numbers: dict[str, set[int]] = {}
    for topic, number in held:
        numbers.setdefault(topic, set()).add(number)
    topics: dict[str, CatalogTopic] = {}
    taken = 0
    for name in sorted(numbers):
        if name == METADATA_TOPIC:
            continue
        slots = [ABSENT] * (max(numbers[name]) + 1)
        for number in sorted(numbers[name]):
            slots[number] = taken
            taken += 1
        topic_id = _topic_id(files, kafka.partition_path(name, min(numbers[name])), name)
        topics[name] = CatalogTopic(name, topic_id, _config(settings.get(name, {})), tuple(slots))
    return Catalog(_directory_id(files, kafka), topics)


def read_log_starts(files: Files, kafka: KafkaDirectory) -> dict[tuple[str, int], int]:
    """Log starts that are after the first segment's offset; raises MalformedBytes if the file is malformed."""
    path = f"{_around(kafka.path) if kafka.alone else kafka.path}/{LOG_STARTS_NAME}"
    try:
        text = read_file(files, path).decode("ascii", "replace")
    except FileNotFoundError:
        return {}
    return parse_offset_checkpoint(text)


def parse_offset_checkpoint(text: str) -> dict[tuple[str, int], int]:
    r"""
    >>> parse_offset_checkpoint("0\n1\norders.eu 2 7\n")
    {('orders.eu', 2): 7}
    """
    version, *rest = text.splitlines() or [""]
    found: dict[tuple[str, int], int] = {}
    try:
        for line in rest[1:]:
            topic, number, offset = line.rsplit(" ", 2)
            found[topic, int(number)] = int(offset)
        is_whole = version == _CHECKPOINT_VERSION and int(rest[0]) == len(rest) - 1
    except (ValueError, IndexError):
        is_whole = False
    if not is_whole:
        raise MalformedBytes(LOG_STARTS_NAME, "not a version, a count and so many lines of topic, number, offset", 0)
    return found


def _labels(files: Files, kafka: KafkaDirectory) -> list[tuple[str, int]]:
    found = (partition_label(entry.name) for entry in files.entries(kafka.path) if entry.is_directory)
    return [label for label in found if label is not None and _is_partition(files, kafka.partition_path(*label))]


def _is_partition(files: Files, path: str) -> bool:
    """Whether it has the content of a partition's directory; other directories may have such a name by chance."""
    try:
        return files.exists(f"{path}/{METADATA_NAME}") or bool(read_layout(files.entries(path)).logs)
    except FileNotFoundError:
        return False  # removed meanwhile, or spelled differently, as in orders-00
    except PermissionError:
        return True  # reading it raises the error


def _around(path: str) -> str:
    """The parent directory of `path`."""
    parent, sign, name = path.rpartition("/")
    if name in {".", ".."}:
        return f"{path}/.."
    return parent or ("/" if sign else ".")


def _config(settings: Mapping[str, str]) -> TopicConfig:
    """The settings that foldlog knows, too."""
    config = DEFAULT_CONFIG
    for name, value in settings.items():
        try:
            config = config.with_changes({name: value})
        except InvalidConfig:
            continue
    return config


def _topic_id(files: Files, path: str, name: str) -> str:
    """Kafka's id of the topic; derived from the name if there is none."""
    try:
        text = read_file(files, f"{path}/{METADATA_NAME}").decode("ascii", "replace")
    except FileNotFoundError:
        text = ""
    found = re.search(r"^topic_id: (\S+)$", text, re.MULTILINE)
    given = _uuid_of(found[1]) if found else None
    return (given or uuid.uuid5(_NAMESPACE, name)).hex


def _directory_id(files: Files, kafka: KafkaDirectory) -> str:
    """Kafka's id of the directory, or one derived from cluster and node."""
    if kafka.alone:
        return str(uuid.uuid5(_NAMESPACE, _topic_id(files, kafka.path, kafka.alone[0])))
    text = read_file(files, f"{kafka.path}/{KAFKA_PROPERTIES}").decode("utf-8", "replace")
    properties = dict(re.findall(r"^([^#=\s]+)\s*=\s*(.*?)\s*$", text, re.MULTILINE))
    given = _uuid_of(properties.get("directory.id", ""))
    return str(given or uuid.uuid5(_NAMESPACE, f"{properties.get('cluster.id')} {properties.get('node.id')}"))


def _uuid_of(text: str) -> uuid.UUID | None:
    """Parse an id as Kafka writes it: 16 bytes in URL-safe base64, without padding."""
    try:
        data = base64.urlsafe_b64decode(text + "==")
    except (binascii.Error, ValueError):
        return None
    return uuid.UUID(bytes=data) if len(data) == _ID_BYTES else None
