"""Whether the broker can do its work, in one sentence. From memory, on the event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foldlog.errors import LogClosed
from foldlog.log.partition import Partition

if TYPE_CHECKING:
    from foldlog.broker.broker import Broker


def problem_of(broker: Broker) -> str | None:
    """What is wrong that a restart would mend; None if nothing is.

    A poisoned partition takes no records until the log is opened again. A refused one is not told here: its damage is
    on the disk, a restart does not help, and the other partitions are served. It is in the metrics and the warnings.
    """
    try:
        broker.check_open()
    except LogClosed as error:
        return str(error)
    poisoned = sorted(
        partition.label
        for partition in broker.opened_partitions()
        if isinstance(partition, Partition) and partition.is_poisoned
    )
    if not poisoned:
        return None
    topic, number = poisoned[0]
    others = f" and {len(poisoned) - 1} more" if len(poisoned) > 1 else ""
    return f"{topic}-{number}{others} cannot be written since a sync failed; restart the broker to recover"
