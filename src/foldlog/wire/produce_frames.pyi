"""Types of `produce_frames.pyx`, for the checker."""

from typing import Any

from foldlog.records.kernels import ProducedBatches

class ProduceFrames:
    batches: ProducedBatches
    version: int
    acks: int
    timeout_ms: int
    transactional_id: bytes | None
    topics: list[bytes]
    @property
    def names_topics_by_id(self) -> bool: ...
    @property
    def correlation_id(self) -> int: ...
    @property
    def end(self) -> int: ...
    def read(
        self, buffer: Any, position: int, end: int, frame_bytes_max: int, frames_max: int, run_bytes_max: int
    ) -> int: ...
    def answers(self) -> bytes: ...
