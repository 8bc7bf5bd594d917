"""What `json_screen.pyx` offers, for type checkers."""

from typing import Any

Description = tuple[str, str, bool, int, int, tuple[Any, ...]]

class Screen:
    def __init__(self, description: Description) -> None: ...
    def doubts(self, offsets: memoryview, data: memoryview | None) -> bytearray: ...

def broken_depth(value: bytes) -> int: ...
