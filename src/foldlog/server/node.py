"""State shared by all connections of a broker: the log, the settings, and calls between the loop and other threads."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from foldlog.broker.access.acls import Identity
from foldlog.broker.registry.store import SchemaStore
from foldlog.environment import PURE_PYTHON
from foldlog.errors import DescriptorsExhausted, FoldlogError, StorageError
from foldlog.limits import SYNC_THREADS
from foldlog.server.access.audit import RefusedLogins
from foldlog.server.access.logins import Logins
from foldlog.server.access.tokens import TokenChecker
from foldlog.server.authorizer import AclAuthorizer, AllowEverything, Authorizer
from foldlog.server.config.live_settings import LiveSettings
from foldlog.server.features import Features
from foldlog.server.fetches.fast_path import FetchFastPath
from foldlog.server.fetches.sessions import FetchSessions
from foldlog.server.fold_guard import FoldGuard
from foldlog.server.folds_reader import ServedFoldRuns
from foldlog.server.groups import GroupDriver, address_in_acls
from foldlog.server.net.append_queues import Appenders
from foldlog.server.net.connections import Connections
from foldlog.server.net.memory import RECEIVE_BYTES, MemoryBudget, ReadPool, StrangersBudget
from foldlog.server.net.produce_throttle import ProduceThrottle
from foldlog.server.net.purgatory import FetchPurgatory, Syncs
from foldlog.server.net.quotas import NodeQuotas
from foldlog.server.net.turns import LoopTurns
from foldlog.server.partitions import Openings
from foldlog.server.process_log import INTERVAL_MS, REMEMBERED_MAX, RepeatedLines
from foldlog.server.produce_fast_path import ProduceFastPath
from foldlog.server.schema_guard import SchemaGuard
from foldlog.server.shares import ShareDriver
from foldlog.server.transactions import EarlyCommits

if TYPE_CHECKING:
    from foldlog.broker.broker import Broker
    from foldlog.log.partition import Partition
    from foldlog.server.call import Interceptor
    from foldlog.server.config.settings import ServerSettings
    from foldlog.server.metrics.metrics import Metrics
    from foldlog.server.telemetry.clients import ClientTelemetry

logger = logging.getLogger("foldlog.server")

Result = TypeVar("Result")

_WORKERS: Final = 8
"""Threads for work that waits for the disk: opening partitions, creating topics, cold reads."""

_STORE_READERS: Final = 4
"""Threads for reads of segments in a store."""


class BrokerNode:
    """One broker, as its handlers see it. Event loop only, except for `soon` and where a docstring says any thread."""

    def __init__(
        self,
        broker: Broker,
        settings: ServerSettings,
        metrics: Metrics,
        loop: asyncio.AbstractEventLoop,
        authorizer: Authorizer | None = None,
    ) -> None:
        self.broker = broker
        self.metrics = metrics
        self.loop = loop
        self.clock = broker.clock
        self._acl_authorizer = self._begin_acls(settings) if authorizer is None else None
        self.authorizer: Authorizer = authorizer or self._acl_authorizer or AllowEverything()
        self.has_authorizer = not isinstance(self.authorizer, AllowEverything)
        self.cluster_id = broker.directory_id
        self.topic_ids = TopicIds(broker)
        self.fold_guard = FoldGuard(broker.path, broker.clock, accepts_unproven=settings.folds_accept_unproven)
        self.memory = MemoryBudget(settings.queued_max_request_bytes, settings.socket_request_max_bytes)
        self.strangers = StrangersBudget()
        self.features = Features(broker.dynamic_settings)
        self.early_commits = EarlyCommits()
        self.telemetry = self._begin_telemetry() if settings.client_telemetry else None
        self.receive_buffer = memoryview(bytearray(RECEIVE_BYTES))
        self.quotas = NodeQuotas(
            broker.access, settings, metrics, loop.time, lambda: self.soon(self.connections.quotas_changed)
        )
        self.connections = Connections(settings, metrics, self.quotas)
        self.live_settings = LiveSettings(broker, settings, self._use)
        self.fetch_purgatory = FetchPurgatory(self.soon)
        self.syncs = Syncs(loop, self.soon, self.fetch_purgatory)
        self.appenders = Appenders(self._holding)
        self.produce_throttle = ProduceThrottle(loop)
        self.fetch_sessions = FetchSessions(settings.max_incremental_fetch_session_cache_slots, broker.clock)
        self.read_pool = ReadPool()
        self.produce_fast_path = ProduceFastPath(self)
        self.fetch_fast_path = FetchFastPath(self)
        self.openings = Openings(broker, self)
        self.turns = LoopTurns(loop)
        self.fold_runs = ServedFoldRuns(broker, self.holding, self.fold_guard)
        self.schemas = SchemaStore(broker)
        self.schema_guard = SchemaGuard(self.schemas, is_served=settings.registry is not None)
        self.lines = RepeatedLines(broker.clock)
        self.refused_logins = RefusedLogins(broker.clock, INTERVAL_MS, REMEMBERED_MAX)
        self.groups = GroupDriver(self)
        self.shares = ShareDriver(self)
        self.logins = Logins(
            broker.access,
            settings.login_settings(),
            loop,
            self.run,
            broker.clock,
            self._login_refused,
            _token_checker(settings),
        )
        self.interceptor: Interceptor | None = None  # if there is one, no request takes the fast path
        self.is_audited = settings.knows_clients
        self.is_leaving = False
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="foldlog-worker")
        self._store_readers = ThreadPoolExecutor(_STORE_READERS, thread_name_prefix="foldlog-store")
        self._calls: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._is_scheduled = False
        self._loop_thread = get_ident()  # a node is created on its loop's thread
        self._sync_event = self._lend_sync_threads()

    def _begin_telemetry(self) -> ClientTelemetry:
        from foldlog.server.telemetry.clients import ClientTelemetry  # few have it on, and a start imports little

        return ClientTelemetry(self.broker.dynamic_settings, self.clock)

    def _begin_acls(self, settings: ServerSettings) -> AclAuthorizer | None:
        verdicts = settings.verdicts()
        return None if verdicts is None else AclAuthorizer(self.broker.access, verdicts)

    def _use(self, settings: ServerSettings) -> None:
        """Any thread: whoever reads `settings` gets the old value or the new one, whole."""
        self.settings = settings
        self.connections.settings = settings

    def _lend_sync_threads(self) -> int | None:
        """Lend the log compiled sync threads; returns their eventfd, or None if there are none."""
        if PURE_PYTHON:
            return None
        try:
            from foldlog.files.sync_threads import SyncThreads

            threads = SyncThreads(SYNC_THREADS)
        except (ImportError, OSError):
            return None  # not built, not for this system, or no descriptor left: the log has its own threads
        settle = self.broker.lend_sync_threads(threads)
        if settle is None:
            threads.close()  # another node of the same broker has lent its own
            return None
        self.loop.add_reader(threads.event, self._settle_syncs, settle)
        return threads.event

    def _settle_syncs(self, settle: Callable[[], None]) -> None:
        """Settle what the lent threads have finished, and send the answers at once: who waits for a sync is told by
        `soon`, and a turn of the loop for that, and another one for the answers, would delay every request."""
        self._is_scheduled = True  # what `soon` is given meanwhile, on any thread, is called below
        try:
            settle()
        finally:
            self._run_calls()

    def run(self, function: Callable[..., Result], *arguments: Any) -> asyncio.Future[Result]:
        """Call it on a thread: for work that may wait for the disk or a lock."""
        return self.loop.run_in_executor(self._workers, function, *arguments)

    def run_slowly(self, function: Callable[..., Result], *arguments: Any) -> asyncio.Future[Result]:
        """As `run`, for work that may wait for a store: one that does not answer holds up nobody else."""
        return self.loop.run_in_executor(self._store_readers, function, *arguments)

    def soon(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Call it on the event loop, from any thread. Calls that come together share one wake-up of the loop."""
        self._calls.append((callback, arguments))
        if not self._is_scheduled:
            self._is_scheduled = True
            try:
                if get_ident() == self._loop_thread:
                    self.loop.call_soon(self._run_calls)  # it is awake: no wake-up is needed
                else:
                    self.loop.call_soon_threadsafe(self._run_calls)
            except RuntimeError:
                pass  # the loop is closed, and with it every connection that could be answered

    def _run_calls(self) -> None:
        # Before the first call is taken: one that is added from here on schedules another run.
        self._is_scheduled = False
        calls = self._calls
        while calls:
            callback, arguments = calls.popleft()
            try:
                callback(*arguments)
            except Exception:
                # The other calls in the queue are unrelated, and would not be called again.
                logger.exception("a call from another thread failed")

    def _holding(self, by_bytes: int) -> None:
        self.soon(self.memory.change, by_bytes)

    @contextmanager
    def holding(self, size_bytes: int) -> Iterator[None]:
        """Count `size_bytes` against the memory budget inside the block. Any thread but the loop's."""
        self._holding(size_bytes)
        try:
            yield
        finally:
            self._holding(-size_bytes)

    def open_partition(self, topic: str, number: int) -> Partition | None:
        """The partition if it is open already; None if it has to be opened, on a thread, by `partition`."""
        return cast("Partition | None", self.broker.opened_partition(topic, number))

    def partition(self, topic: str, number: int) -> Partition:
        """The partition, opened now if it is not yet, which may access the disk. Any thread.

        Raises UnknownTopic, UnknownPartition, CorruptLog. Never a reader's: the broker is the directory's writer.
        """
        return cast("Partition", self.broker.partition(topic, number))

    def has_partition(self, topic: str, number: int) -> bool:
        """Whether the topic has a partition of that number, open or not."""
        known = self.broker.find_topic(topic)
        return known is not None and 0 <= number < known.partition_count

    def storage_failed(self, doing: str, topic: str, number: int, error: FoldlogError) -> None:
        """Log that a client is refused because of `error`, if that is a storage error. Any thread."""
        if isinstance(error, StorageError):
            # One cause for all partitions, so one line.
            where = () if isinstance(error, DescriptorsExhausted) else (doing, topic, number)
            self.lines.warn(("storage", *where), f"{topic}-{number}: {doing} is refused: {error}")

    def _login_refused(self, host: str, refusal: Exception) -> None:
        """Log that somebody is not let in, once in a while for an address."""
        self.lines.warn((host, "login"), f"{host}: login refused: {refusal}")
        self._note_refused(host, str(refusal))
        self.metrics.connection_refused("login")

    def certificate_refused(self, host: str, why: str) -> None:
        """Write down that a client was not let in for its certificate, or for having none."""
        if self.is_audited:
            self._note_refused(host, why)

    def _note_refused(self, host: str, why: str) -> None:
        self.refused_logins.add(Identity("", address_in_acls(host) if host else "this machine"), why)

    def close(self) -> None:
        """End every thread. What they have written is synced: the log stays open, and its readers have to see it."""
        self.live_settings.close()
        self.quotas.close()
        if self._acl_authorizer is not None:
            self._acl_authorizer.close()
        if self._sync_event is not None:
            self.loop.remove_reader(self._sync_event)
            self.broker.return_sync_threads()
        self.shares.close()
        self.openings.close()
        self._workers.shutdown(wait=True, cancel_futures=True)
        self._store_readers.shutdown(wait=False, cancel_futures=True)  # a store that does not answer delays no end
        self.appenders.close()
        self._run_calls()
        self.syncs.finish()


def _token_checker(settings: ServerSettings) -> TokenChecker | None:
    tokens = settings.token_settings()
    return None if tokens is None else TokenChecker(tokens)


class TopicIds:
    """Topics by the id that newer clients use: 16 bytes on the wire, hex in the catalog. Any thread."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def name_of(self, topic_id: bytes) -> str | None:
        """The topic's name, or None if there is no topic with that id any more."""
        topic = self._broker.topic_with_id(topic_id.hex())
        return None if topic is None else topic.name
