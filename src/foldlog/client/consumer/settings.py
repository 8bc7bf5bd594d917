"""The settings of a consumer, checked before it does anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from foldlog.broker.groups.messages import TIMEOUT_MAX_MS, check_group_name
from foldlog.client.consumer.assignors import ASSIGNORS, ROUND_ROBIN
from foldlog.client.consumer.cursors import checked_reset
from foldlog.client.isolation import checked_isolation
from foldlog.client.positions import checked_count
from foldlog.client.serializers import Deserializer
from foldlog.errors import InvalidArgument, brief_repr


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """The checked arguments of `Log.consumer`. Defaults as in Kafka, but for the assignor, which is sticky."""

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
    isolation: str | None = None

    def __post_init__(self) -> None:
        if self.group is not None:
            check_group_name(self.group)
        given: Any = self.group_instance_id
        if given is not None and (not isinstance(given, str) or not given):
            raise InvalidArgument(f"group_instance_id={brief_repr(given)} is not a name; give a str that is not empty")
        if self.assignor == "round_robin":  # as the partitioner of that name is spelled
            object.__setattr__(self, "assignor", ROUND_ROBIN)
        if self.assignor is not None and self.assignor not in tuple(ASSIGNORS):
            known = ", ".join(map(repr, ASSIGNORS))
            raise InvalidArgument(f"no assignor {brief_repr(self.assignor)}; there are {known}")
        if type(self.auto_commit) is not bool:
            raise InvalidArgument(f"auto_commit={brief_repr(self.auto_commit)} is neither True nor False")
        checked_reset(self.auto_offset_reset)
        checked_isolation(self.isolation)
        checked_count("auto_commit_interval_ms", self.auto_commit_interval_ms)
        checked_count("max_records", self.max_records)
        if checked_count("max_poll_interval_ms", self.max_poll_interval_ms) > TIMEOUT_MAX_MS:
            raise InvalidArgument(
                f"max_poll_interval_ms={brief_repr(self.max_poll_interval_ms)} is too long; at most {TIMEOUT_MAX_MS}"
            )

    @property
    def committed(self) -> bool | None:
        """Whether only committed records are read; None leaves it to how the log was opened."""
        return checked_isolation(self.isolation)

    @property
    def assignors(self) -> tuple[str, ...]:
        """The assignors that the member offers: the given one, or all, the default first."""
        return tuple(ASSIGNORS) if self.assignor is None else (self.assignor,)
