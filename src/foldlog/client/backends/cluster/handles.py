"""librdkafka, set up: its admin client, and the producers and consumers that a log makes of it.

confluent-kafka is imported here when a cluster is first asked for, and nowhere else in the library. What was made
before a fork cannot be used in the child: librdkafka's threads stay with the parent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from foldlog.client.backends.cluster.faults import (
    REFUSES_US,
    Where,
    config_fault,
    fault_of,
    passes,
    trouble_of,
    unreachable,
)
from foldlog.client.backends.cluster.url import CALL_PROPERTY, KafkaUrl
from foldlog.client.backends.cluster.wire import Wire, check_files, speaks_wire, wire_properties
from foldlog.client.forks import watch_forks
from foldlog.client.wire.connection import CLIENT_ID
from foldlog.client.wire.listener_mistakes import addresses_in, find_mistake
from foldlog.errors import (
    BrokerUnreachable,
    FoldlogError,
    InvalidConfig,
    LogClosed,
    MissingDependency,
    WrongProcess,
    brief_repr,
)
from foldlog.limits import CLUSTER_SEARCH_MS, KAFKA_CALL_MS, KAFKA_CONNECT_MS, KAFKA_LOOK_MS
from foldlog.records.batch import MAX_INT32
from foldlog.wire.error_codes import ErrorCode, exception_of

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient

    from foldlog.client.wire.links import ClusterLinks

Done = TypeVar("Done")

_TRY_S: Final = 1.0
"""How long one question of `find_cluster` waits: connections are made beside it, and go on from try to try."""

_TRIES: Final = 3
"""Into so many parts the time of a call is cut: a broker that hangs without refusing leaves time to ask another."""

_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 1.0
"""Between two tries, and longer each time: Kafka's retry.backoff.ms and retry.backoff.max.ms."""

_DEFAULTS: Final[Mapping[str, object]] = {
    "client.id": CLIENT_ID,
    "log_level": 0,  # what connections complain of stands in our errors, and not on the terminal
    "allow.auto.create.topics": "false",  # UnknownTopic, as everywhere in the library
    # Kafka's default, and what a directory does: what is in the log is read.
    "isolation.level": "read_uncommitted",
}


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
        self.is_final = False
        self.is_all_down = False

    def note(self, error: KafkaError) -> None:
        name = error.name()
        if name == "_ALL_BROKERS_DOWN":
            self.is_all_down = True
        else:
            self.last = trouble_of(error)
            self.is_final = self.is_final or name in REFUSES_US


class Attempt(NamedTuple):
    """One try of a call: whom to ask, how long to wait, and the how-manieth it is.

    From the second on, what is asked for may have been done: the answer of an earlier one may be what was lost.
    """

    admin: AdminClient
    timeout_s: float
    number: int

    @property
    def is_repeated(self) -> bool:
        return self.number > 1


class _Passing(Exception):
    """Another try may end otherwise. `fault` is what the caller is told if none does; `is_lost`: nobody answered."""

    def __init__(self, fault: FoldlogError, *, is_lost: bool) -> None:
        super().__init__(str(fault))
        self.fault = fault
        self.is_lost = is_lost


class Handles:
    """The way to one cluster. Any thread."""

    def __init__(self, url: KafkaUrl) -> None:
        self.url: Final = url
        self.trouble: Final = Trouble()
        self.call_s: Final = _call_ms(url) / 1000
        self.look_s: Final = _look_ms(url) / 1000
        self._refusal: type[LogClosed | WrongProcess] | None = None
        check_files(url)
        self.kafka_exception: Final[type[Exception]] = confluent().KafkaException
        self._admin: AdminClient | None = self._new_admin()
        self.speaks_wire: Final = speaks_wire(url)
        self._wire = Wire(url)
        watch_forks(self.forked)

    # --- handles --------------------------------------------------------------------------------------------------

    @property
    def admin(self) -> AdminClient:
        self.check_usable()
        if self._admin is None:
            self._admin = self._new_admin()
        return self._admin

    def _new_admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        made: AdminClient = self._made(AdminClient, {}, self.trouble)
        return made

    def producer(self, settings: Mapping[str, object], trouble: Trouble) -> Producer:
        made: Producer = self._made(confluent().Producer, settings, trouble)
        return made

    def consumer(self, settings: Mapping[str, object], trouble: Trouble) -> Consumer:
        made: Consumer = self._made(confluent().Consumer, settings, trouble)
        return made

    @contextmanager
    def wire(self) -> Iterator[ClusterLinks]:
        """Our own connections, for one call. InvalidConfig where `speaks_wire` is false."""
        self.check_usable()
        with self._wire.lent(max(1, round(self.call_s * 1000))) as links:
            yield links

    def _made(self, kind: Any, settings: Mapping[str, object], trouble: Trouble) -> Any:
        self.check_usable()
        try:
            return kind(self._settings(settings, trouble))
        except self.kafka_exception as error:
            raise config_fault(error.args[0]) from error

    def _settings(self, settings: Mapping[str, object], trouble: Trouble) -> dict[str, Any]:
        """Ours first, then what the user sets, then what an argument of a call stands for."""
        given = {name: value for name, value in self.url.properties.items() if name != CALL_PROPERTY}
        return {
            **_DEFAULTS,
            **given,
            **settings,
            "bootstrap.servers": self.url.bootstrap,
            "error_cb": trouble.note,
        }

    # --- asking ---------------------------------------------------------------------------------------------------

    def find_cluster(self) -> str:
        """Wait until a broker answers; the cluster's id. Where all addresses refuse, that is told soon."""
        begun_s = time.monotonic()
        while True:
            try:
                found = self.admin.describe_cluster(request_timeout=_TRY_S).result(2 * _TRY_S)
            except (self.kafka_exception, FutureTimeoutError) as error:
                self.admin.poll(0)
                waited_ms = (time.monotonic() - begun_s) * 1000
                limit_ms = min(CLUSTER_SEARCH_MS if self.trouble.is_all_down else KAFKA_CONNECT_MS, self.call_s * 1000)
                if self.trouble.is_final or waited_ms >= limit_ms:
                    why = self.trouble.last or f"nobody answered within {limit_ms:.0f} ms"
                    raise self._unreachable(why) from error
            else:
                return str(found.cluster_id or "")

    def _unreachable(self, why: str) -> FoldlogError:
        """The listeners are asked what they speak: librdkafka says nothing where a broker speaks TLS and we do not."""
        fault = unreachable(self.url, why)
        if not isinstance(fault, BrokerUnreachable) or not self.speaks_wire:
            return fault
        mistake = find_mistake([*addresses_in(why), *self.url.addresses], wire_properties(self.url))
        if mistake is None:
            return fault
        protocol = self.url.properties.get("security.protocol", "PLAINTEXT")
        return BrokerUnreachable(fault.addresses, mistake.why, protocol, mistake.advice)

    def is_cut_off(self, trouble: Trouble) -> bool:
        """Whether nobody answers, where connections have complained of it: librdkafka does not tell that it is over, so
        the cluster is asked."""
        if trouble.is_all_down:
            try:
                self.admin.describe_cluster(request_timeout=_TRY_S).result(2 * _TRY_S)
            except (self.kafka_exception, FutureTimeoutError):
                return True
            trouble.is_all_down = False
        return False

    def ask(self, question: Callable[[Attempt], Future[Done]], where: Where = Where()) -> Done:  # noqa: B008 a constant
        """What the cluster answers; the error that a directory's log would have raised.

        Brokers come and go: what passes is asked again, of those that are there then, until the call's time is over.
        """
        return self.retried(lambda attempt: self.answer(question(attempt), attempt, where))

    def retried(self, attempt: Callable[[Attempt], Done], where: Where = Where()) -> Done:  # noqa: B008 a constant
        """`ask` of a call that waits for its answers by itself: with `answer`, or in librdkafka."""
        deadline_s = time.monotonic() + self.call_s
        pause_s, number = _PAUSE_S, 1
        while True:
            now = Attempt(self.admin, self._try_s(deadline_s), number)
            try:
                try:
                    return attempt(now)
                except self.kafka_exception as error:
                    raise self.told(error, where) from error
            except _Passing as passing:
                if passing.is_lost:
                    self._replace(now.admin)
                if time.monotonic() + pause_s >= deadline_s:
                    raise passing.fault from passing.__cause__
            time.sleep(pause_s)
            pause_s, number = min(2 * pause_s, _PAUSE_MAX_S), number + 1

    def _try_s(self, deadline_s: float) -> float:
        left_s = max(0.001, deadline_s - time.monotonic())
        return min(left_s, max(_TRY_S, self.call_s / _TRIES))

    def answer(self, future: Future[Done], attempt: Attempt, where: Where = Where()) -> Done:  # noqa: B008 a constant
        """What a question of `retried` is answered with."""
        try:
            return future.result(2 * attempt.timeout_s)
        except self.kafka_exception as error:
            raise self.told(error, where) from error
        except FutureTimeoutError as error:
            fault = unreachable(self.url, f"nobody answered within {attempt.timeout_s:.0f} s")
            raise _Passing(fault, is_lost=True) from error

    def told(self, error: Exception, where: Where) -> Exception:
        """What an attempt of `retried` raises for a KafkaException."""
        fault = self.fault(error, where)
        is_lost = isinstance(fault, BrokerUnreachable)
        if self._refusal is None and passes(error.args[0]):
            return _Passing(fault, is_lost=is_lost)
        return fault

    def no_leader(self, where: Where) -> Exception:
        """What an attempt of `retried` raises where nobody leads a partition."""
        why = "nobody leads it at the moment"
        fault = exception_of(ErrorCode.LEADER_NOT_AVAILABLE, why, topic=where.topic, partition=where.partition)
        return _Passing(fault, is_lost=True)

    def _replace(self, admin: AdminClient) -> None:
        """A new handle begins with the addresses of the URL, and with no memory of who led what. librdkafka 2.16 also
        aborts the process if a group's coordinator answers what was given up: the handle that asked does not live to
        hear it, once others that wait for it are done."""
        if self._admin is admin:
            self._admin = None

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

    def fault(self, error: Exception, where: Where = Where(), trouble: Trouble | None = None) -> FoldlogError:  # noqa: B008
        """The error to raise for a KafkaException."""
        admin = self._admin
        if admin is not None and self._refusal is None:
            admin.poll(0)
        return fault_of(error.args[0], self.url, where, (trouble or self.trouble).last)

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
            self._admin = None  # and with it librdkafka's threads and connections
            self._wire.close()

    def forked(self) -> None:
        """In a forked child: librdkafka's threads are the parent's."""
        self._refusal = WrongProcess
