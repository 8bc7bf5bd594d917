"""What a runner writes into the log beside reading it: its bookmarks as a group's, dead letters, status.

Reading goes through `Origin`; this is the little that goes the other way, from the driver only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from foldlog.spark.origins.origin import OriginSpec

Headers = tuple[tuple[str, bytes], ...]


class Entry(NamedTuple):
    """One record to append; the key decides its partition."""

    key: bytes
    value: bytes | None
    headers: Headers = ()


class Ledger(Protocol):
    """Writes of the driver. Each call is durable on return; any of foldlog's errors means that nothing is sure."""

    def ensure_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Make a topic unless it exists."""
        ...

    def append(self, topic: str, entries: Iterable[Entry]) -> None:
        """In order."""
        ...

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """The group's committed offsets, for tools that show lag. The group has no members."""
        ...

    def delete_group(self, group: str) -> None:
        """Forget a group; nothing happens if there is none."""
        ...

    def close(self) -> None: ...


def open_ledger(spec: OriginSpec) -> Ledger:
    """The ledger of the log that `spec` names."""
    if spec.path is not None:
        from foldlog.spark.origins.ledger_by_path import PathLedger

        return PathLedger.open(spec)
    from foldlog.spark.origins.ledger_by_wire import WireLedger

    return WireLedger.open(spec)
