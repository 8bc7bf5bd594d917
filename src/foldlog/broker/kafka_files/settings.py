"""Topic settings from the metadata log of a KRaft cluster.

Every broker keeps a replica of it, in `__cluster_metadata-0`: snapshots (`<end offset>-<epoch>.checkpoint`), and
batches since then. A record's value is a frame around one message, in Kafka's flexible encoding:

    uvarint 1 · uvarint message · uvarint version · fields
    message 2, a topic      string name · 16 bytes id
    message 4, a setting    int8 kind (2: of a topic) · string topic name · string name · string? value
    message 9, a deletion   16 bytes topic id

Other messages are skipped. The settings only decide how a copy of a topic is set up: if the log cannot be read, or does
not exist, every topic has our defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from foldlog.broker.kafka_files.bytes import BytesReader
from foldlog.broker.kafka_files.directory import METADATA_TOPIC, KafkaDirectory
from foldlog.errors import FoldlogError
from foldlog.files.base import Files, read_file
from foldlog.limits import READ_CHUNK_BYTES
from foldlog.log.foreign import ForeignPartition, ForeignState
from foldlog.records.loops import decode

_TOPIC_MESSAGE: Final = 2
_SETTING_MESSAGE: Final = 4
_DELETION_MESSAGE: Final = 9
_OF_TOPIC: Final = 2
_FRAME_VERSION: Final = 1
_MESSAGES_AT: Final = 1  # in a frame: version and number are below 128, one byte each
_SNAPSHOT: Final = re.compile(r"(?P<end>\d{20})-\d{10}\.checkpoint")


class TopicSettings:
    """The explicit settings of every topic, as of the messages applied so far. One thread."""

    def __init__(self) -> None:
        self.by_topic: dict[str, dict[str, str]] = {}
        self._names: dict[bytes, str] = {}

    def apply(self, value: bytes | None) -> None:
        """Apply a record of the metadata log. Raises MalformedBytes if a message of a known type is broken."""
        if not value or value[0] != _FRAME_VERSION or len(value) <= _MESSAGES_AT:
            return
        message = value[_MESSAGES_AT]
        if message not in (_TOPIC_MESSAGE, _SETTING_MESSAGE, _DELETION_MESSAGE):
            return
        reader = BytesReader(value, "record of the metadata log")
        for _ in range(3):  # frame, message, version: newer versions only added fields behind these
            reader.uvarint()
        if message == _TOPIC_MESSAGE:
            name = reader.string(compact=True)
            self._names[reader.uuid()] = name
            self.by_topic[name] = {}
        elif message == _DELETION_MESSAGE:
            self.by_topic.pop(self._names.pop(reader.uuid(), ""), None)
        elif reader.int8() == _OF_TOPIC:
            settings = self.by_topic.setdefault(reader.string(compact=True), {})
            name, text = reader.string(compact=True), reader.nullable_string(compact=True)
            settings.pop(name, None)
            if text is not None:
                settings[name] = text


def read_topic_settings(files: Files, kafka: KafkaDirectory) -> dict[str, dict[str, str]]:
    """The settings of each topic; empty if there is no readable metadata log."""
    directory = f"{kafka.path}/{METADATA_TOPIC}-0"
    found = TopicSettings()
    if kafka.alone or not files.exists(directory):
        return {}
    try:
        for value in _values(files, directory):
            found.apply(value)
    except (FoldlogError, OSError):
        return {}  # `foldlog check` reports what is wrong
    return found.by_topic


def _values(files: Files, directory: str) -> Iterator[bytes | None]:
    """The values of the newest snapshot, and of the records since."""
    since = 0
    snapshots = [found for entry in files.entries(directory) if (found := _SNAPSHOT.fullmatch(entry.name))]
    if snapshots:
        newest = max(snapshots, key=lambda found: found[0])
        since = int(newest["end"])
        yield from _decoded(read_file(files, f"{directory}/{newest[0]}"), 0)
    log = ForeignPartition(files, directory, ForeignState(files, directory, lambda: 0), (METADATA_TOPIC, 0))
    try:
        offset = max(since, log.log_start_offset)
        while offset < log.high_watermark:
            data, next_offset, _ = log.read(offset, READ_CHUNK_BYTES)
            if next_offset == offset:
                break
            yield from _decoded(data, offset)
            offset = next_offset
    finally:
        log.close()


def _decoded(data: bytes | memoryview, start_offset: int) -> Iterable[bytes | None]:
    records, _ = decode(data, METADATA_TOPIC, 0, start_offset=start_offset)
    return [record.value for record in records]
