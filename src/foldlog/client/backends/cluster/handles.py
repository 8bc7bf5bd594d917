"""The way to one cluster: librdkafka's producers and members of groups, and our own connections for everything else.

confluent-kafka is imported here when a cluster is first asked for, and nowhere else in the library. What was made
before a fork cannot be used in the child: librdkafka's threads stay with the parent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeVar

from foldlog.client.backends.cluster.faults import Where, config_fault, fault_of, passes, trouble_of, unreachable
from foldlog.client.backends.cluster.url import CALL_PROPERTY, KafkaUrl
from foldlog.client.backends.cluster.wire import Wire, speaks_wire
from foldlog.client.forks import watch_forks
from foldlog.client.wire.connection import CLIENT_ID
from foldlog.client.wire.property_names import librdkafka_properties
from foldlog.errors import FoldlogError, InvalidConfig, LogClosed, MissingDependency, WrongProcess, brief_repr
from foldlog.limits import KAFKA_CALL_MS, KAFKA_CONNECT_MS, KAFKA_LOOK_MS
from foldlog.records.batch import MAX_INT32

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer

    from foldlog.client.wire.links import ClusterLinks

Done = TypeVar("Done")

_TRY_MS: Final = 1000
"""How long it is waited for an answer where it is only asked whether there is one."""

_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 1.0
"""Between two tries, and longer each time: Kafka's retry.backoff.ms and retry.backoff.max.ms."""

READER_GROUP: Final = "foldlog-reader"
"""What librdkafka wants a consumer to have, also one that only tells of topics. Nothing is asked of that group."""

_DEFAULTS: Final[Mapping[str, object]] = {
    "client.id": CLIENT_ID,
    "log_level": 0,  # what connections complain of stands in our errors, and not on the terminal
    "allow.auto.create.topics": "false",  # UnknownTopic, as everywhere in the library
    # Kafka's default, and what a directory does: what is in the log is read.
    "isolation.level": "read_uncommitted",
}

_NOT_OF_SHARES: Final = frozenset(
    {
        "allow.auto.create.topics",
        "auto.offset.reset",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "group.instance.id",
        "group.protocol",
        "heartbeat.interval.ms",
        "isolation.level",
        "partition.assignment.strategy",
        "session.timeout.ms",
    }
)
"""Properties of consumers that are the group's in a share group: librdkafka refuses them."""


def _call_ms(url: KafkaUrl) -> int:
    given = url.properties.get(CALL_PROPERTY, str(KAFKA_CALL_MS))
    if not given.isdecimal() or not 1 <= int(given) <= MAX_INT32:
        raise InvalidConfig(f"{CALL_PROPERTY}={brief_repr(given)} is not a whole number from 1 to {MAX_INT32}")
    return int(given)


def _look_ms(url: KafkaUrl) -> int:
    """How often it is looked whether topics are as they were, where librdkafka does not tell."""
    given = url.properties.get("topic.metadata.refresh.interval.ms", "")
    return int(given) if given.isdecimal() else KAFKA_LOOK_MS


def confluent() -> Any:
    """The module `confluent_kafka`; MissingDependency where it is not installed."""
    try:
        import confluent_kafka
    except ModuleNotFoundError:
        raise MissingDependency("foldlog.connect()", "confluent-kafka", "kafka") from None
    return confluent_kafka


class Trouble:
    """What the connections of one handle complained of. Written by librdkafka's callbacks, on whatever thread polls."""

    def __init__(self) -> None:
        self.last: str | None = None
        self.is_all_down = False

    def note(self, error: KafkaError) -> None:
        if error.name() == "_ALL_BROKERS_DOWN":
            self.is_all_down = True
        else:
            self.last = trouble_of(error)


class LibraryTopics:
    """What librdkafka itself tells of topics, for logins that only it has: as much as producers and members of groups
    need.

    Any thread; a consumer of librdkafka's lets in one at a time.
    """

    def __init__(self, handles: Handles) -> None:
        self._handles = handles
        self._trouble = Trouble()
        self._lock = Lock()
        self._consumer = handles.consumer({"group.id": READER_GROUP}, self._trouble)

    def cluster_id(self, timeout_s: float) -> str:
        """Asked once; what keeps a broker from answering is raised."""
        try:
            with self._lock:
                return str(self._consumer.list_topics(timeout=timeout_s).cluster_id or "")
        except self._handles.kafka_exception as error:
            raise self._handles.fault(error, Where(), self._trouble) from error

    def partition_count(self, topic: str) -> int:
        """UnknownTopic if there is none of that name."""

        def attempt(left_s: float) -> int:
            with self._lock:
                found = self._consumer.list_topics(topic, timeout=left_s).topics[topic]
            if found.error is not None:
                raise self._handles.kafka_exception(found.error)
            return len(found.partitions)

        return self._handles.patiently(attempt, Where(topic), self._trouble)

    def bounds(self, topic: str, number: int) -> tuple[int, int]:
        """The log start offset and the high watermark."""
        from confluent_kafka import TopicPartition

        def attempt(left_s: float) -> tuple[int, int]:
            with self._lock:
                found = self._consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=left_s)
            if found is None:
                raise TimeoutError
            return found

        return self._handles.patiently(attempt, Where(topic, number), self._trouble)


class Handles:
    """The way to one cluster. Any thread."""

    def __init__(self, url: KafkaUrl) -> None:
        self.url: Final = url
        self.call_s: Final = _call_ms(url) / 1000
        self.look_s: Final = _look_ms(url) / 1000
        self._refusal: type[LogClosed | WrongProcess] | None = None
        self.kafka_exception: Final[type[Exception]] = confluent().KafkaException
        self._wire = Wire(url)
        self.by_library: LibraryTopics | None = None if speaks_wire(url) else LibraryTopics(self)
        watch_forks(self.forked)

    # --- handles --------------------------------------------------------------------------------------------------

    def producer(self, settings: Mapping[str, object], trouble: Trouble) -> Producer:
        made: Producer = self._made(confluent().Producer, settings, trouble)
        return made

    def consumer(self, settings: Mapping[str, object], trouble: Trouble) -> Consumer:
        made: Consumer = self._made(confluent().Consumer, settings, trouble)
        return made

    def share_consumer(self, settings: Mapping[str, object], trouble: Trouble) -> Any:
        """A share consumer; confluent-kafka has no types for it before 2.16."""
        given = self._settings(settings, trouble)
        self.check_usable()
        try:
            return confluent().ShareConsumer({name: given[name] for name in given if name not in _NOT_OF_SHARES})
        except self.kafka_exception as error:
            raise config_fault(error.args[0]) from error
        except ValueError as error:
            raise InvalidConfig(f"a queue of {self.url} cannot be made: {error}") from error

    def _made(self, kind: Any, settings: Mapping[str, object], trouble: Trouble) -> Any:
        self.check_usable()
        try:
            return kind(self._settings(settings, trouble))
        except self.kafka_exception as error:
            raise config_fault(error.args[0]) from error

    def _settings(self, settings: Mapping[str, object], trouble: Trouble) -> dict[str, Any]:
        """Ours first, then what the user sets, then what an argument of a call stands for."""
        return {
            **_DEFAULTS,
            **librdkafka_properties(self.url.properties),
            **settings,
            "bootstrap.servers": self.url.bootstrap,
            "error_cb": trouble.note,
        }

    # --- our own connections --------------------------------------------------------------------------------------

    def find_cluster(self) -> str:
        """Wait until a broker answers; the cluster's id. Where all addresses refuse, that is told soon."""
        if self.by_library is not None:
            return self.by_library.cluster_id(min(KAFKA_CONNECT_MS / 1000, self.call_s))
        with self._wire.lent(has_answered=False) as links:
            return links.cluster_id

    @contextmanager
    def wire(self, committed: bool | None = None) -> Iterator[ClusterLinks]:
        """For one call. `committed`: see `Wire.lent`. InvalidConfig says why there can be none, where there is
        `by_library`."""
        self.check_usable()
        with self._wire.lent(committed=committed) as links:
            yield links

    def check_wire(self) -> None:
        """InvalidConfig where a consumer without a group cannot read: it does so over our own connections alone."""
        if self.by_library is None:
            return
        try:
            with self.wire():
                pass
        except InvalidConfig as error:
            raise InvalidConfig(
                f"a consumer without a group reads over foldlog's own connections, which cannot be made so: {error};"
                " give it a group, group='name', and librdkafka reads for it"
            ) from error

    def is_cut_off(self, trouble: Trouble) -> bool:
        """Whether nobody answers, where connections have complained of it: librdkafka does not tell that it is over, so
        the cluster is asked."""
        if trouble.is_all_down:
            if not self.is_answered():
                return True
            trouble.is_all_down = False
        return False

    def is_answered(self) -> bool:
        """Whether a broker answers, soon."""
        if self.by_library is None:
            return self._wire.is_answered(_TRY_MS)
        try:
            self.by_library.cluster_id(_TRY_MS / 1000)
        except FoldlogError:
            return False
        return True

    # --- what librdkafka is asked ---------------------------------------------------------------------------------

    def patiently(self, attempt: Callable[[float], Done], where: Where, trouble: Trouble) -> Done:
        """What a consumer of librdkafka answers in the end: it looks for brokers by itself, but gives up early.

        `attempt` is told how many seconds are left, and raises TimeoutError when they are over.
        """
        deadline_s = time.monotonic() + self.call_s
        pause_s = _PAUSE_S
        while True:
            self.check_usable()
            try:
                return attempt(max(0.001, deadline_s - time.monotonic()))
            except TimeoutError as error:
                why = trouble.last or f"nobody answered within {self.call_s * 1000:.0f} ms"
                raise unreachable(self.url, why) from error
            except self.kafka_exception as error:
                if not passes(error.args[0]) or time.monotonic() + pause_s >= deadline_s:
                    raise self.fault(error, where, trouble) from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    def fault(self, error: Exception, where: Where, trouble: Trouble) -> FoldlogError:
        """The error to raise for a KafkaException."""
        return fault_of(error.args[0], self.url, where, trouble.last)

    # --- ending ---------------------------------------------------------------------------------------------------

    def check_usable(self) -> None:
        if self._refusal is WrongProcess:
            raise WrongProcess(f"{self.url} was connected to before a fork; connect again in this process")
        if self._refusal is not None:
            raise LogClosed(f"the log at {self.url} is closed; connect again")

    @property
    def is_closed(self) -> bool:
        return self._refusal is not None

    def close(self) -> None:
        if self._refusal is None:
            self._refusal = LogClosed
            self._wire.close()

    def forked(self) -> None:
        """In a forked child: librdkafka's threads are the parent's."""
        self._refusal = WrongProcess
