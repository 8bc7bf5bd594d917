"""Types of `fetch_pass.pyx`, for the checker."""

from collections.abc import Callable
from typing import Any

from foldlog.log.partition import Partition
from foldlog.wire.codec import Chunk

class FetchPass:
    size_bytes: int
    records: int
    is_final: bool
    is_full: bool
    has_errors: bool
    behind: list[tuple[Partition, int]]
    waits: list[tuple[Partition, int]]
    def __init__(
        self,
        node: Any,
        who: Any,
        limit_bytes: int,
        memory: Callable[[int], bytearray],
        *,
        committed: bool,
        nowait: bool,
        is_last: bool,
    ) -> None: ...
    def read(self, wanted: list[Any], start: int = 0, stop: int = ...) -> bool: ...
    def told(self) -> list[int]: ...
    def has_records(self, index: int) -> bool: ...
    def frame(
        self, version: int, correlation_id: int, error: int, session_id: int, chosen: list[int] | None
    ) -> list[Chunk]: ...
