"""What a consumer can be told, checked before it does anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from foldlog.client.assignors import ASSIGNORS
from foldlog.client.cursors import checked_reset
from foldlog.client.positions import checked_count
from foldlog.client.serializers import Deserializer
from foldlog.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """What `Log.consumer` was given, checked. Defaults as in Kafka, but for the assignor, which is sticky."""

    group: str | None = None
    auto_offset_reset: str = "latest"
    auto_commit: bool = True
    auto_commit_interval_ms: int = 5000
    assignor: str | None = None
    max_records: int = 500
    key_deserializer: Deserializer | str | None = None
    value_deserializer: Deserializer | str | None = None
    max_poll_interval_ms: int = 300_000
    group_instance_id: str | None = None

    def __post_init__(self) -> None:
        group: Any = self.group
        if group is not None and (not isinstance(group, str) or not group):
            raise InvalidArgument(f"group={group!r} is not a name; give a str that is not empty")
        if self.assignor is not None and self.assignor not in ASSIGNORS:
            raise InvalidArgument(f"no assignor {self.assignor!r}; there are {', '.join(map(repr, ASSIGNORS))}")
        checked_reset(self.auto_offset_reset)
        checked_count("auto_commit_interval_ms", self.auto_commit_interval_ms)
        checked_count("max_records", self.max_records)
        checked_count("max_poll_interval_ms", self.max_poll_interval_ms)

    @property
    def assignors(self) -> tuple[str, ...]:
        """What the member offers: the one it was told, or all, the default first."""
        return tuple(ASSIGNORS) if self.assignor is None else (self.assignor,)
