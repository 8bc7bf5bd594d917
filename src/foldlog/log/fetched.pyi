"""Types of `fetched.pyx`, for the checker."""

from typing import Any

CHECKS_UNLOCKED: bool

class FetchedPartition:
    def __init__(self, partition: Any) -> None: ...
