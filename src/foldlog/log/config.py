"""One partition's settings, typed. Kafka's names and their parsing live with the topics, not here."""

from __future__ import annotations

from dataclasses import dataclass, field

from foldlog.limits import DECOMPRESSED_BYTES_MAX, DECOMPRESSED_BYTES_MIN, DECOMPRESSED_RATIO
from foldlog.records.batch import MAX_INT64, NO_TIMESTAMP
from foldlog.records.compression import READ_DECOMPRESSED_BYTES

HOUR_MS = 60 * 60 * 1000
DAY_MS = 24 * HOUR_MS
AS_PRODUCED = -1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Kafka's defaults, but for two: by default a record is synced before it is acknowledged, and kept for ever."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_records: int = 0  # 0: no roll by count
    index_interval_bytes: int = 4096
    retention_ms: int = -1  # no limit
    retention_bytes: int = -1
    remote: bool = False  # sealed segments are copied to the store
    copies: bool = True  # new ones, too (remote.log.copy.disable)
    deletes_remote: bool = False  # what is in the store goes when it is no longer used (remote.log.delete.on.disable)
    local_retention_ms: int = -2  # of what is in the store; -2: as retention_ms
    local_retention_bytes: int = -2
    delete: bool = True
    compact: bool = False
    min_cleanable_dirty_ratio: float = 0.5
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_INT64  # no limit
    max_message_bytes: int = 1048588
    max_decompressed_bytes: int = 0  # 0: a multiple of max_message_bytes
    flush_messages: int = 1
    flush_ms: int = MAX_INT64
    log_append_time: bool = False
    timestamp_before_max_ms: int = MAX_INT64  # no limit
    timestamp_after_max_ms: int = HOUR_MS
    compression: int = AS_PRODUCED
    validates_keys: bool = False  # a server's: it refuses keys, or values, whose schemas are not registered
    validates_values: bool = False
    key_subject_strategy: str = "TopicNameStrategy"  # under which subjects those have to be
    value_subject_strategy: str = "TopicNameStrategy"

    # Derived, and read with every append.
    roll_ms: int = field(init=False, repr=False, compare=False)
    """How old the active segment may get: compaction never touches it, so max.compaction.lag.ms bounds it too."""
    decompressed_limit: int = field(init=False, repr=False, compare=False)
    """The largest expanded size of an appended batch, in bytes."""
    read_decompressed_limit: int = field(init=False, repr=False, compare=False)
    """The largest expanded size of a batch that is read: it may have been appended under other settings."""
    validates_schemas: bool = field(init=False, repr=False, compare=False)
    """Whether every record is looked at for the schema that it names."""
    acks_when_written: bool = field(init=False, repr=False, compare=False)
    """Whether records are acknowledged when written, before they are synced (flush.messages above 1)."""

    def __post_init__(self) -> None:
        usual = min(DECOMPRESSED_RATIO * self.max_message_bytes, DECOMPRESSED_BYTES_MAX)
        limit = self.max_decompressed_bytes or max(usual, self.max_message_bytes, DECOMPRESSED_BYTES_MIN)
        lag_ms = self.max_compaction_lag_ms if self.compact else MAX_INT64
        object.__setattr__(self, "roll_ms", min(self.segment_ms, lag_ms))
        object.__setattr__(self, "decompressed_limit", limit)
        object.__setattr__(self, "read_decompressed_limit", max(limit, READ_DECOMPRESSED_BYTES))
        object.__setattr__(self, "validates_schemas", self.validates_keys or self.validates_values)
        object.__setattr__(self, "acks_when_written", self.flush_messages > 1)

    @property
    def local_limits(self) -> tuple[int, int]:
        """How long, and how many bytes of, segments stay on the disk once they are in the store; -1: for ever."""
        return (
            self.retention_ms if self.local_retention_ms == -2 else self.local_retention_ms,
            self.retention_bytes if self.local_retention_bytes == -2 else self.local_retention_bytes,
        )

    def why_untimely(self, time_ms: int, now_ms: int) -> str | None:
        """Why a record with this time is refused at `now_ms`; None if it is not."""
        if self.log_append_time or time_ms == NO_TIMESTAMP:
            return None
        if time_ms > now_ms + self.timestamp_after_max_ms:
            allowed = f"ahead of the clock, over message.timestamp.after.max.ms={self.timestamp_after_max_ms}"
            return f"the time {time_ms} is {time_ms - now_ms} ms {allowed}"
        if time_ms < now_ms - self.timestamp_before_max_ms:
            allowed = f"behind the clock, over message.timestamp.before.max.ms={self.timestamp_before_max_ms}"
            return f"the time {time_ms} is {now_ms - time_ms} ms {allowed}"
        return None
