"""librdkafka, set up: its admin client, and the producers and consumers that a log makes of it.

confluent-kafka is imported here when a cluster is first asked for, and nowhere else in the library. What was made
before a fork cannot be used in the child: librdkafka's threads stay with the parent.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any, Final, TypeVar

from foldlog.client.forks import watch_forks
from foldlog.client.kafka.faults import REFUSES_US, Where, config_fault, fault_of, trouble_of, unreachable
from foldlog.client.kafka.url import KafkaUrl
from foldlog.client.wire_connection import CLIENT_ID
from foldlog.errors import (
    BrokerUnreachable,
    FoldlogError,
    InvalidConfig,
    LogClosed,
    MissingDependency,
    WrongProcess,
    brief_repr,
)
from foldlog.limits import CLUSTER_SEARCH_MS, KAFKA_CALL_MS, KAFKA_CONNECT_MS
from foldlog.records.batch import MAX_INT32

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient

Done = TypeVar("Done")

_TRY_S: Final = 1.0
"""How long one question of `find_cluster` waits: connections are made beside it, and go on from try to try."""

_DEFAULTS: Final[Mapping[str, object]] = {
    "client.id": CLIENT_ID,
    "log_level": 0,  # what connections complain of stands in our errors, and not on the terminal
    "allow.auto.create.topics": "false",  # UnknownTopic, as everywhere in the library
    # Kafka's default, and what a directory does: what is in the log is read.
    "isolation.level": "read_uncommitted",
}


CALL_PROPERTY: Final = "default.api.timeout.ms"
"""Java's name for how long one call may take, which librdkafka has as an argument of each call."""


def _call_ms(url: KafkaUrl) -> int:
    given = url.properties.get(CALL_PROPERTY, str(KAFKA_CALL_MS))
    if not given.isdecimal() or not 1 <= int(given) <= MAX_INT32:
        raise InvalidConfig(f"{CALL_PROPERTY}={brief_repr(given)} is not a whole number from 1 to {MAX_INT32}")
    return int(given)


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


class Handles:
    """The way to one cluster. Any thread."""

    def __init__(self, url: KafkaUrl) -> None:
        self.url: Final = url
        self.trouble: Final = Trouble()
        self.call_s: Final = _call_ms(url) / 1000
        self._refusal: type[LogClosed | WrongProcess] | None = None
        self.kafka_exception: Final[type[Exception]] = confluent().KafkaException
        self._admin: AdminClient | None = self._new_admin()
        watch_forks(self)

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
                    raise unreachable(self.url, why) from error
            else:
                return str(found.cluster_id or "")

    def call(self, future: Future[Done], where: Where = Where()) -> Done:  # noqa: B008 a constant
        """What the cluster answers; the error that a directory's log would have raised."""
        try:
            return future.result(2 * self.call_s)
        except self.kafka_exception as error:
            fault = self.fault(error, where)
            if isinstance(fault, BrokerUnreachable) and self._refusal is None:
                # librdkafka aborts the process if a group's coordinator answers what it has given up (2.16): the
                # handle that asked does not live to hear it.
                self._admin = None
            raise fault from error
        except FutureTimeoutError as error:
            raise unreachable(self.url, f"nobody answered within {2 * self.call_s:.0f} s") from error

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

    def forked(self) -> None:
        """In a forked child: librdkafka's threads are the parent's."""
        self._refusal = WrongProcess
