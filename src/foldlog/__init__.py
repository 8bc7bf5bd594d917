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
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from foldlog.broker.groups.committed import OffsetAndMetadata
    from foldlog.client.consumer.consumer import Consumer
    from foldlog.client.descriptions import ConfigEntry, GroupDescription, MemberDescription, Topic
    from foldlog.client.handle_types import RecordMetadata, SendFuture
    from foldlog.client.log import Log
    from foldlog.client.log import Log as KafkaLog
    from foldlog.client.positions import TopicPartition
    from foldlog.client.producer import Producer
    from foldlog.client.queue.queue import Queue
    from foldlog.client.transactions import Transaction
    from foldlog.clock import Clock
    from foldlog.files.base import Files
    from foldlog.log.compaction import CompactionReport
    from foldlog.log.doctor.recompression import RecompressionReport
    from foldlog.records.loops import Record

__version__ = "0.1.0"

_HOMES = {
    "CompactionReport": ("foldlog.log.compaction", "CompactionReport"),
    "ConfigEntry": ("foldlog.client.descriptions", "ConfigEntry"),
    "Consumer": ("foldlog.client.consumer.consumer", "Consumer"),
    "GroupDescription": ("foldlog.client.descriptions", "GroupDescription"),
    "KafkaLog": ("foldlog.client.log", "Log"),  # what connect() gave before there was one Log
    "Log": ("foldlog.client.log", "Log"),
    "MemberDescription": ("foldlog.client.descriptions", "MemberDescription"),
    "OffsetAndMetadata": ("foldlog.broker.groups.committed", "OffsetAndMetadata"),
    "Producer": ("foldlog.client.producer", "Producer"),
    "Queue": ("foldlog.client.queue.queue", "Queue"),
    "RecompressionReport": ("foldlog.log.doctor.recompression", "RecompressionReport"),
    "Record": ("foldlog.records.loops", "Record"),
    "RecordMetadata": ("foldlog.client.handle_types", "RecordMetadata"),
    "SendFuture": ("foldlog.client.handle_types", "SendFuture"),
    "Topic": ("foldlog.client.descriptions", "Topic"),
    "TopicPartition": ("foldlog.client.positions", "TopicPartition"),
    "Transaction": ("foldlog.client.transactions", "Transaction"),
}


def open(  # noqa: A001 foldlog.open is the way in
    path: str | PathLike[str],
    mode: str = "w",
    *,
    listen: bool | str | Sequence[str] = False,
    insecure: bool = False,
    clock: Clock | None = None,
    files: Files | None = None,
    background: bool = True,
    isolation_level: str = "read_uncommitted",
    init: bool = False,
    journal: bool = True,
    tier: str | None = None,
) -> Log:
    """Open the log in the directory `path`, made if it is not there; ":memory:" for one that lives in memory.
    DirectoryNotEmpty if the directory holds something else, unless `init=True` asks for a log beside it.

    With `mode="w"` this process becomes the directory's one writer. If another process is, and listens (`foldlog
    serve`, or `listen` here), the log works all the same: it is read from the files, and what is written goes to that
    process. If it does not listen, DirectoryLocked names its pid. `mode="r"` reads beside whoever writes, in any number
    of processes.

    `listen=True` lets other processes, and every Kafka client on this machine, reach this one at `log.bootstrap`, on a
    free port; "127.0.0.1:9092" or a list of addresses says where. Where another process writes the log already,
    `listen=True` changes nothing, and an address is refused. Addresses that other machines reach need `insecure=True`.

    `isolation_level="read_committed"` is what readers of this log get that do not say: no records of aborted
    transactions, and none behind the oldest open one. The default is "read_uncommitted", as in Kafka.

    `path` may be the URL of a store, with `mode="r"`: sealed segments are read from there, without the log's directory.

    A directory of Apache Kafka's, or of one partition of its, is read with `mode="r"`, and never written.

    Small appends of all partitions are synced together, in a journal of the directory, once there are many of them.
    `journal=False` syncs each partition itself, and promises the same (docs/guarantees.md#the-journal).

    `tier="s3://bucket/prefix"`, or "file:///directory", is the store for sealed segments of topics that set
    remote.storage.enable; the directory remembers it (docs/tiers.md). Needs `pip install 'foldlog[tier]'`.

    `background=False` runs retention and compaction only on request. `clock` and `files` are for tests.

    >>> import foldlog
    >>> with foldlog.open(":memory:") as log:
    ...     log.topics()
    []
    """
    from foldlog.client.log import open_log

    if listen is not False:
        # Before the lock is taken: who finds it taken waits for an address.
        import_module("foldlog.server.embedded")
    log = open_log(
        path,
        mode,
        clock=clock,
        files=files,
        background=background,
        isolation_level=isolation_level,
        init=init,
        journal=journal,
        tier=tier,
    )
    if listen is not False:
        from foldlog.server.embedded import listen_on

        listen_on(log, listen, insecure=insecure)
    return log


def connect(url: str, *, properties: Mapping[str, object] | None = None) -> Log:
    """The log of a Kafka cluster, ours or any other: the methods, values and errors of `open`'s, over the network.

    `url` is `kafka://host:port,host2:port`, and after a "?" Kafka client properties, joined by "&" and percent-encoded:
    `kafka://kafka1:9093?security.protocol=SASL_SSL&sasl.mechanism=PLAIN&sasl.username=app`. `properties` are more of
    them, as they are: the place for passwords. Needs confluent-kafka: `pip install 'foldlog[kafka]'`.

    BrokerUnreachable if no broker answers within seconds. docs/clusters.md says where a cluster cannot do what a
    directory does.

    >>> import foldlog
    >>> from foldlog.testing import KafkaBroker
    >>> with KafkaBroker.launch() as broker, foldlog.connect(f"kafka://{broker}") as log:
    ...     log.topics()
    []
    """
    from foldlog.client.log import connect_log

    return connect_log(url, properties)


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
    "CompactionReport",
    "ConfigEntry",
    "Consumer",
    "FoldlogError",
    "GroupDescription",
    "KafkaLog",
    "Log",
    "MemberDescription",
    "OffsetAndMetadata",
    "Producer",
    "Queue",
    "RecompressionReport",
    "Record",
    "RecordMetadata",
    "SendFuture",
    "Topic",
    "TopicPartition",
    "Transaction",
    "__version__",
    "connect",
    "errors",
    "open",
]
