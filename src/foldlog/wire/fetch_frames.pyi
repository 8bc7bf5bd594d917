"""Types of `fetch_frames.pyx`, for the checker."""

from typing import Any

class WantedPartition:
    topic: str | None
    topic_id: bytes
    key: tuple[str | bytes, int]
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int
    high_watermark: int
    log_start_offset: int

class FetchFrame:
    version: int
    correlation_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    wanted: list[Any]
    forgotten: list[tuple[str | bytes, int]]
    def read(self, buffer: Any, start: int, end: int) -> bool: ...
