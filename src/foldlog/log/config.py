"""One partition's settings, typed. Kafka's names and their parsing live with the topics, not here."""

from __future__ import annotations

from dataclasses import dataclass

DAY_MS = 24 * 60 * 60 * 1000
AS_PRODUCED = -1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Kafka's defaults, but for flush_messages: unset means sync before acknowledging."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_records: int = 0  # 0: no roll by count
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * DAY_MS  # -1: no limit
    retention_bytes: int = -1
    delete: bool = True
    compact: bool = False
    min_cleanable_dirty_ratio: float = 0.5
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_message_bytes: int = 1048588
    flush_messages: int = 1
    flush_ms: int = (1 << 63) - 1
    log_append_time: bool = False
    compression: int = AS_PRODUCED

    @property
    def acks_when_written(self) -> bool:
        """Whether the topic gave up syncing before each acknowledgement."""
        return self.flush_messages > 1
