"""Restricts clients' writes to `__folds` to records that prove knowledge of the directory's secret.

The topic determines which views the console opens and what runners do, and every client may produce. See `fold_proof`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from foldlog.broker.broker import MEMORY_PATH, Broker
from foldlog.client.fold_bulletin import FOLDS_TOPIC, MADE_BY_FOLDS, is_made_otherwise, mending
from foldlog.client.fold_proof import KEPT_FOR_FOLDS, KEY_FILE, UNPROVEN, FoldsKey, Headers
from foldlog.errors import FoldlogError, InvalidArgument
from foldlog.limits import FOLD_PROOF_AGE_MS
from foldlog.records.batch import Compression, codec_of
from foldlog.records.loops import decode, validate

if TYPE_CHECKING:
    from foldlog.clock import Clock
    from foldlog.wire.schema import Records

_log = logging.getLogger("foldlog.server")


class FoldGuard:
    """The key of one directory, as its broker knows it. Any thread."""

    def __init__(self, path: str, clock: Clock, *, accepts_unproven: bool = False) -> None:
        self._path = None if path == MEMORY_PATH else path
        self._clock = clock
        self._accepts_unproven = accepts_unproven
        self._key = FoldsKey.made_up() if self._path is None else None

    def key(self) -> FoldsKey:
        """The key, created now if there is none yet; call it on a thread. Raises StorageError."""
        if self._key is None:
            self._key = FoldsKey.of_directory(self._path or "")
        return self._key

    def known_key(self) -> FoldsKey | None:
        """The key if there is one: if it was never created, no record can be proven. Reads a small file, once."""
        if self._key is None and self._path is not None:
            try:
                self._key = FoldsKey.read(f"{self._path}/{KEY_FILE}")
            except (OSError, InvalidArgument):
                return None
        return self._key

    def is_proven(self, key: bytes | None, value: bytes | None, headers: Headers) -> bool:
        """Whether the record's writer knew the key, at whatever time."""
        known = self.known_key()
        return known is not None and known.proven_ms(key, value, headers) is not None

    def change_refusal(self, topic: str) -> str | None:
        """Why a client may not delete or change the topic, or delete its records; None if it may. That would undo the
        runners' records without the proof that writing them takes."""
        return None if topic != FOLDS_TOPIC or self._accepts_unproven else KEPT_FOR_FOLDS

    def creation_refusal(self, topic: str, partitions: int, settings: Mapping[str, str]) -> str | None:
        """Why a client may not create the topic like that; None if it may."""
        return MADE_BY_FOLDS if not self._accepts_unproven and is_made_otherwise(topic, partitions, settings) else None

    def mend_topic(self, broker: Broker) -> None:
        """Reset settings that an older broker let a client choose, before any client is served. Raises StorageError."""
        topic = None if self._accepts_unproven else broker.find_topic(FOLDS_TOPIC)
        changes = {} if topic is None else mending(topic.config.settings)
        if changes:
            broker.alter_topic(FOLDS_TOPIC, changes)
            _log.warning("topic %s had settings that stop the folds: %s changed back", FOLDS_TOPIC, ", ".join(changes))

    def refusal(self, records: Records) -> str | None:
        """Why a client's batch may not go into `__folds`; None if it may."""
        if self._accepts_unproven:
            return None
        if codec_of(records) != Compression.NONE:
            return f"a batch for {FOLDS_TOPIC} is not compressed: its records are looked at"
        try:
            headers = validate(records, max_batch_bytes=len(records), decompressed_limit=len(records))
            found = decode(records, FOLDS_TOPIC, 0)[0]
        except FoldlogError as error:
            return f"a batch for {FOLDS_TOPIC} cannot be read: {error}"
        # A batch whose base offset hides its records from `decode` would still be appended.
        if len(found) != sum(header.record_count for header in headers):
            return f"a batch for {FOLDS_TOPIC} cannot be read: its base offset is not 0"
        known, now_ms = self.known_key(), self._clock.now_ms()
        for record in found:
            made_ms = None if known is None else known.proven_ms(record.key, record.value, record.headers)
            if made_ms is None:
                return UNPROVEN
            if abs(now_ms - made_ms) > FOLD_PROOF_AGE_MS:
                seconds = (now_ms - made_ms) // 1000
                return f"the proof of a record for {FOLDS_TOPIC!r} is {seconds} s old; set the clocks of both machines"
        return None
