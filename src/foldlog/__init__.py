"""foldlog: one durable log; everything else is a fold over it.

>>> import foldlog
>>> with foldlog.open(":memory:") as log:
...     _ = log.create_topic("orders", partitions=3)
...     placed = log.append("orders", {"tx_id": "tx_001", "amount_paise": 1999900}, key="tx_001")
...     [record.json()["amount_paise"] for record in log.read("orders", placed.partition)]
[1999900]

Importing this imports next to nothing; what is used is imported then.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from foldlog import errors
from foldlog.errors import FoldlogError

if TYPE_CHECKING:
    from foldlog.broker.bookmarks import OffsetAndMetadata
    from foldlog.client.consumer import Consumer
    from foldlog.client.handle_types import RecordMetadata, SendFuture
    from foldlog.client.log import Log
    from foldlog.client.log import open_log as open  # noqa: A004 foldlog.open is the way in
    from foldlog.client.positions import TopicPartition
    from foldlog.client.producer import Producer
    from foldlog.records.loops import Record

__version__ = "0.1.0"

_HOMES = {
    "Consumer": ("foldlog.client.consumer", "Consumer"),
    "Log": ("foldlog.client.log", "Log"),
    "OffsetAndMetadata": ("foldlog.broker.bookmarks", "OffsetAndMetadata"),
    "Producer": ("foldlog.client.producer", "Producer"),
    "Record": ("foldlog.records.loops", "Record"),
    "RecordMetadata": ("foldlog.client.handle_types", "RecordMetadata"),
    "SendFuture": ("foldlog.client.handle_types", "SendFuture"),
    "TopicPartition": ("foldlog.client.positions", "TopicPartition"),
    "open": ("foldlog.client.log", "open_log"),
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'foldlog' has no attribute {name!r}")
    module, attribute = home
    found = getattr(import_module(module), attribute)
    globals()[name] = found  # the next look finds it without coming here
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


__all__ = [
    "Consumer",
    "FoldlogError",
    "Log",
    "OffsetAndMetadata",
    "Producer",
    "Record",
    "RecordMetadata",
    "SendFuture",
    "TopicPartition",
    "__version__",
    "errors",
    "open",
]
