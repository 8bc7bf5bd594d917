"""The targets of `foldlog check`: a log, one partition of it, or single files, such as Kafka's own."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from foldlog.broker.data_directory import open_for_reading
from foldlog.broker.kafka_files.directory import KAFKA_PROPERTIES, KafkaDirectory, partition_label, read_log_starts
from foldlog.broker.topics.catalog import CATALOG_NAME, Catalog, CatalogTopic
from foldlog.broker.topics.names import is_partition_directory, partition_directory
from foldlog.errors import InvalidArgument, LogNotFound, MalformedBytes, UnknownTopic
from foldlog.files.base import DirectoryEntry, Files
from foldlog.log.layout import read_layout

_SEGMENT: Final = re.compile(r"(?P<base>\d{20})\.log")


@dataclass(frozen=True, slots=True)
class CheckTarget:
    """One partition of the log in `log_path`, or a single directory, in which `only` may select one segment."""

    name: str
    directory: str
    topic: CatalogTopic | None = None
    number: int = 0
    only: int | None = None
    log_start: int = 0


@dataclass(frozen=True, slots=True)
class Targets:
    """What to check. `catalog` is None if it is not a foldlog log; `is_all`: everything there is."""

    path: str
    catalog: Catalog | None
    chosen: tuple[CheckTarget, ...]
    is_all: bool = False
    is_kafkas: bool = False


def find_targets(files: Files, path: str, topic: str | None) -> Targets:
    """LogNotFound, UnknownTopic or InvalidArgument if there is nothing to check."""
    if os.path.isfile(path):
        return _segment(path, topic)
    if not files.exists(f"{path}/{CATALOG_NAME}") and os.path.isdir(path):
        names = files.entries(path)
        if read_layout(names).logs:
            return _partition(files, path, topic)
        if any(entry.name == KAFKA_PROPERTIES for entry in names):
            found = partitions_in(names)
            wanted = [(name, number) for name, number in found if topic in (None, name)]
            if topic is not None and not wanted:
                raise UnknownTopic(topic, sorted({name for name, _ in found}))
            return _of_kafka(files, path, wanted)
    try:
        catalog = open_for_reading(files, path)
    except LogNotFound:
        raise LogNotFound(f"there is no log in {path}; name the directory that holds its catalog.json") from None
    if topic is not None and topic not in catalog.topics:
        raise UnknownTopic(topic, list(catalog.topics))
    topics = [catalog.topics[name] for name in sorted(catalog.topics) if topic in (None, name)]
    chosen = tuple(_of(path, one, number) for one in topics for number in range(one.partition_count))
    return Targets(path, catalog, chosen, is_all=topic is None)


def _of_kafka(files: Files, path: str, wanted: Iterable[tuple[str, int]]) -> Targets:
    starts = _log_starts(files, KafkaDirectory(path))
    chosen = []
    for topic, number in wanted:
        name = partition_directory(topic, number)
        chosen.append(CheckTarget(name, f"{path}/{name}", log_start=starts.get((topic, number), 0)))
    return Targets(path, None, tuple(chosen), is_kafkas=True)


def _log_starts(files: Files, kafka: KafkaDirectory) -> dict[tuple[str, int], int]:
    try:
        return read_log_starts(files, kafka)
    except MalformedBytes:
        return {}  # Kafka recreates it; the rest is verified all the same


def partitions_in(entries: Iterable[DirectoryEntry]) -> list[tuple[str, int]]:
    """Topic and number of each directory that could be a partition, in order."""
    names = [entry.name for entry in entries if entry.is_directory and is_partition_directory(entry.name)]
    return sorted((name.rpartition("-")[0], int(name.rpartition("-")[2])) for name in names)


def _of(path: str, topic: CatalogTopic, number: int) -> CheckTarget:
    name = partition_directory(topic.name, number)
    return CheckTarget(name, f"{path}/{name}", topic, number)


def _segment(path: str, topic: str | None) -> Targets:
    directory, name = os.path.split(path)
    match = _SEGMENT.fullmatch(name)
    if match is None or topic is not None:
        raise InvalidArgument(f"{path} is no log and no segment of one; foldlog dump shows other files of a log")
    target = CheckTarget(path, directory or ".", only=int(match["base"]))
    return Targets(path, None, (target,))


def _partition(files: Files, path: str, topic: str | None) -> Targets:
    """As a partition of the surrounding log, if its catalog has it; else alone."""
    if topic is not None:
        raise InvalidArgument(f"{path} is one partition; name the directory of its log, or leave --topic out")
    around, name = os.path.split(os.path.abspath(path))
    if os.path.basename(path) == name:
        around = os.path.dirname(path) or "."  # the path as the user wrote it
    if files.exists(f"{around}/{CATALOG_NAME}"):
        catalog = open_for_reading(files, around)
        for known in catalog.topics.values():
            for number in range(known.partition_count):
                if partition_directory(known.name, number) == name:
                    return Targets(around, catalog, (_of(around, known, number),))
    label = partition_label(name)
    start = 0 if label is None else _log_starts(files, KafkaDirectory(path, label)).get(label, 0)
    return Targets(path, None, (CheckTarget(path, path, log_start=start),))
