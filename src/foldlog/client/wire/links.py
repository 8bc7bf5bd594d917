"""The brokers of a cluster: connections to them, and who leads which partition as far as is known.

Everything that is asked of a cluster goes through `ClusterLinks.retried`: a lost connection, a new leader or a busy
coordinator is met by asking again, of whoever it is then, until the backoff of the call ends.
"""

from __future__ import annotations

import math
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeVar, cast

from foldlog.broker.topics.names import is_internal
from foldlog.client.forks import watch_forks
from foldlog.client.wire.connection import Answer, WireConnection
from foldlog.client.wire.logins.sasl import authenticate
from foldlog.client.wire.properties import Address, ClusterProperties
from foldlog.client.wire.questions import Coordinator, Question, TransactionalIdCoordinator, Whom, find_coordinator
from foldlog.client.wire.refusals import Passing, check_code
from foldlog.client.wire.retries import Backoff, LinkLost
from foldlog.errors import FoldlogError, LogClosed, MalformedBytes, UnknownPartition, UnknownTopic
from foldlog.limits import CLUSTER_ANSWER_BYTES_MAX, CLUSTER_SEARCH_MS, KAFKA_CONNECT_MS
from foldlog.wire.error_codes import ErrorCode, exception_of
from foldlog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from foldlog.wire.schema import ZERO_UUID, Request

Done = TypeVar("Done")

_UNKNOWN_TRIES = 3
"""How often a topic that was there is looked for: a broker that has just started may not have heard of all."""


class Leader(NamedTuple):
    """Which broker leads a partition, since which epoch (-1 if the broker does not say); `error` if none does."""

    node_id: int
    epoch: int
    error: int


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic as a broker described it. The id is zero where the cluster has none."""

    name: str
    topic_id: bytes
    is_internal: bool
    leaders: Mapping[int, Leader]

    @property
    def partition_count(self) -> int:
        return len(self.leaders)

    def version_limit(self, last_by_name: int) -> int | None:
        """The last version of a request that names topics, for one without an id; None for no limit."""
        return last_by_name if self.topic_id == ZERO_UUID else None


class PartitionLeader(NamedTuple):
    """Where requests about a partition go."""

    address: Address
    topic: TopicMetadata
    epoch: int


class _CallTime(threading.local):
    """When the call that this thread makes is over, and why then; what has last gone wrong in it."""

    until_s = math.inf
    limit = ""
    problem: Exception | None = None

    def reason(self, error: Exception) -> Exception:
        """What to tell of a try that failed. One that was cut short by the end of the call's time says nothing of the
        brokers: what went wrong before it does."""
        if isinstance(error, LinkLost) and error.is_cut_short:
            return self.problem or error
        self.problem = error
        return error


class ClusterLinks:
    """Connections to one cluster. Any thread.

    A connection is lent to one user at a time and kept when it comes back in good state. In a forked child the kept
    ones are let go of: it makes its own.
    """

    def __init__(self, bootstrap: tuple[Address, ...], properties: ClusterProperties) -> None:
        self.properties = properties
        self._bootstrap = bootstrap
        self._idle: dict[Address, list[WireConnection]] = {}
        self._brokers: dict[int, Address] = {}
        self._controller_id = -1
        self.cluster_id = ""
        """As the broker that answered last says; "" if it says nothing."""
        self._topics: dict[str, TopicMetadata] = {}
        self._seen: set[str] = set()
        self._preferred: Address | None = None
        self._is_closed = False
        self._describing = threading.Lock()
        self._call = _CallTime()
        watch_forks(self.forked)

    def open(self, *, has_answered: bool = False) -> None:
        """Find a broker that answers. Where all addresses refuse or hang, and nobody has answered there before, it is
        given up sooner than any later call."""
        limit_ms = self.properties.default_api_timeout_ms
        if has_answered:
            self.retried(lambda: self._refresh([]))
            return
        connect_ms = min(KAFKA_CONNECT_MS, limit_ms)
        with self._within(connect_ms, f"{connect_ms} ms" if connect_ms < limit_ms else self._call_limit):
            self.retried(lambda: self._refresh([]), min(CLUSTER_SEARCH_MS, limit_ms))

    def close(self) -> None:
        self._is_closed = True
        self._let_go(WireConnection.close)

    def forked(self) -> None:
        """In a forked child: the connections are the parent's, and so are the threads that hold locks."""
        self._describing = threading.Lock()
        self._let_go(WireConnection.abandon)

    def _let_go(self, how: Callable[[WireConnection], None]) -> None:
        idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                how(connection)

    # --- connections ----------------------------------------------------------------------------------------------

    @property
    def addresses(self) -> tuple[Address, ...]:
        """All that are known, the one that answered last first."""
        preferred = () if self._preferred is None else (self._preferred,)
        return tuple(dict.fromkeys((*preferred, *self._bootstrap, *self._brokers.values())))

    def borrow(self, address: Address) -> WireConnection:
        """A connection on which nothing is under way, for the caller alone until `give_back`. LinkLost if there is
        none to be had."""
        if self._is_closed:
            raise LogClosed("the connection to the cluster is closed; open it again")
        while (connection := self._kept(address)) is not None:
            if not connection.is_expiring and not connection.is_closed_there():
                return connection
            connection.close()
        return self._connect(address)

    def _kept(self, address: Address) -> WireConnection | None:
        try:
            return self._idle[address].pop()
        except (KeyError, IndexError):  # another thread may be quicker
            return None

    def give_back(self, address: Address, connection: WireConnection) -> None:
        """Only if nothing is under way on it."""
        self._idle.setdefault(address, []).append(connection)
        if self._is_closed:  # looked at last: whoever closes meanwhile has not seen it
            self._let_go(WireConnection.close)

    def _connect(self, address: Address) -> WireConnection:
        properties = self.properties
        try:
            timeout_s = self._at_most_s(properties.socket_connection_setup_timeout_ms)
            sock = WireConnection.dial(address.host, address.port, timeout_s, properties.tls)
        except (OSError, UnicodeError, OverflowError) as error:  # a broker may advertise any host and port
            over = self._limit_reached()
            limit = over or f"socket.connection.setup.timeout.ms={properties.socket_connection_setup_timeout_ms}"
            raise LinkLost(
                address,
                _said(error, f"it cannot be reached within {limit}"),
                is_odd=isinstance(error, ssl.SSLCertVerificationError),
                is_cut_short=over is not None,
            ) from error
        connection = WireConnection(
            sock,
            str(address),
            client_id=properties.client_id,
            answer_bytes_max=CLUSTER_ANSWER_BYTES_MAX,
            timeout_ms=properties.request_timeout_ms,
            is_tls=properties.tls is not None,
        )
        with self.blaming(address, connection):
            timeout_s = self._at_most_s(properties.request_timeout_ms)
            connection.negotiate(timeout_s)
            if properties.credentials is not None:
                connection.expire_after(authenticate(connection, properties.credentials, timeout_s))
        return connection

    @contextmanager
    def blaming(self, address: Address, connection: WireConnection) -> Iterator[None]:
        """What goes wrong inside is the connection's fault: it is closed, and LinkLost says whose it was."""
        try:
            yield
        except (OSError, MalformedBytes) as error:
            connection.close()
            over = self._limit_reached()
            limit = over or f"request.timeout.ms={self.properties.request_timeout_ms}"
            raise LinkLost(
                address,
                _said(error, f"it did not answer within {limit}"),
                is_odd=isinstance(error, MalformedBytes),
                is_cut_short=over is not None,
            ) from error
        except BaseException:
            connection.close()
            raise

    def call(self, address: Address, request: Request, answer: type[Answer], at_most: int | None = None) -> Answer:
        """Ask one broker once. LinkLost if it cannot be asked, or does not answer."""
        connection = self.borrow(address)
        with self.blaming(address, connection):
            version = connection.version_of(type(request), at_most)
            timeout_s = self._at_most_s(self.properties.request_timeout_ms)
            found = connection.call_in(request, answer, version, timeout_s)
        self.give_back(address, connection)
        return found

    def call_any(self, request: Request, answer: type[Answer]) -> Answer:
        """Ask whichever broker answers, each once."""
        problems: list[LinkLost] = []
        for address in self.addresses:
            try:
                found = self.call(address, request, answer)
            except LinkLost as error:
                problems.append(error)
            else:
                self._preferred = address
                return found
        raise _one_of(problems)

    def call_all(self, request: Request, answer: type[Answer]) -> list[Answer]:
        """Ask all brokers that the cluster has now, each once. LinkLost if one of them cannot be asked."""
        self._refresh([])
        return [self.call(address, request, answer) for address in self._brokers.values()]

    def call_each(self, request: Request, answer: type[Answer]) -> list[Answer]:
        """Ask all brokers that the cluster has now, each once: what those say that are there."""
        self._refresh([])
        found: list[Answer] = []
        problems: list[LinkLost] = []
        for address in self._brokers.values():
            try:
                found.append(self.call(address, request, answer))
            except LinkLost as error:
                problems.append(error)
        if not found:
            raise _one_of(problems)
        return found

    # --- asking again ---------------------------------------------------------------------------------------------

    def ask(self, question: Question[Answer, Done]) -> Done:
        """See `questions.Asker`: of whichever broker it is for, until it is answered or the call's time is over.

        Where the answer of an earlier try may have been lost, being told that it is done already is success.
        """
        is_repeated = False

        def attempt() -> Done:
            nonlocal is_repeated
            try:
                return question.read(self._put(question))
            except FoldlogError as error:
                done = question.done_shows_as
                if is_repeated and done is not None and isinstance(error, done):
                    return cast("Done", None)  # a change has no other answer
                raise
            finally:
                is_repeated = True

        return self.retried(attempt)

    def _put(self, question: Question[Answer, Done]) -> Answer:
        """Ask once whom it is for."""
        if isinstance(question.to, Coordinator | TransactionalIdCoordinator):
            address = self.coordinator(question.to)
            return self.call(address, question.request, question.answer, question.at_most)
        if question.to is Whom.CONTROLLER:
            return self.call_controller(question.request, question.answer)
        if question.to is Whom.LEADERS:
            raise ValueError("leaders are asked each for its own partitions: see admin.py")
        return self.call_any(question.request, question.answer)

    def coordinator(self, of: Coordinator | TransactionalIdCoordinator) -> Address:
        """Which broker it is, as of now. Asked once."""
        question = find_coordinator(of)
        return Address(*question.read(self.call_any(question.request, question.answer)))

    def backoff(self, limit_ms: float | None = None) -> Backoff:
        """For one call; with math.inf, for who goes on whenever the cluster is back."""
        limit_ms = self.properties.default_api_timeout_ms if limit_ms is None else limit_ms
        return Backoff(self.properties, lambda: self.addresses, limit_ms)

    def retried(self, attempt: Callable[[], Done], limit_ms: int | None = None) -> Done:
        """What `attempt` gives in the end. What is known of leaders is learned anew between two tries."""
        with self._within(self.properties.default_api_timeout_ms, self._call_limit):
            left_ms = max(0, round((self._call.until_s - time.monotonic()) * 1000))
            backoff = self.backoff(left_ms if limit_ms is None else min(limit_ms, left_ms))
            while True:
                try:
                    return attempt()
                except (Passing, OSError, MalformedBytes) as error:
                    backoff.wait(self._call.reason(error))
                self.forget_leaders()

    @contextmanager
    def _within(self, limit_ms: int, limit: str) -> Iterator[None]:
        """No request of this thread is waited for longer than that, or than the call may take that this is part of."""
        call = self._call
        outer = call.until_s, call.limit, call.problem
        until_s = time.monotonic() + limit_ms / 1000
        if until_s < call.until_s:
            call.until_s, call.limit = until_s, limit
        try:
            yield
        finally:
            call.until_s, call.limit, call.problem = outer

    @property
    def _call_limit(self) -> str:
        return f"default.api.timeout.ms={self.properties.default_api_timeout_ms}"

    def _at_most_s(self, limit_ms: int) -> float:
        return max(0.001, min(limit_ms / 1000, self._call.until_s - time.monotonic()))

    def _limit_reached(self) -> str | None:
        """What the call's own time is, if that is over."""
        return None if time.monotonic() < self._call.until_s else self._call.limit

    # --- topics and leaders ---------------------------------------------------------------------------------------

    def metadata(self) -> MetadataResponse:
        """What a broker says of all topics, those that it cannot describe among them."""
        return self.retried(lambda: self._refresh(None))

    def all_topics(self) -> list[TopicMetadata]:
        """Those that there are now, and that this client may see."""
        topics = self.metadata().topics
        return [_topic_of(one) for one in topics if not one.error_code and one.name is not None]

    def topic(self, name: str) -> TopicMetadata:
        """As of now. UnknownTopic names those that there are."""
        tries = 0

        def attempt() -> TopicMetadata:
            nonlocal tries
            tries += 1
            (described,) = self._refresh([name]).topics
            if described.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                if name in self._seen and tries < _UNKNOWN_TRIES:
                    raise Passing(UnknownTopic(name))
                self._seen.discard(name)
                raise UnknownTopic(name, [one.name for one in self.all_topics() if not is_internal(one.name)])
            check_code(described.error_code, topic=name)
            return _topic_of(described)

        return self.retried(attempt)

    def leader(self, topic: str, partition: int) -> PartitionLeader:
        """Who leads a partition, as far as is known. Passing if nobody does at the moment."""
        known = self._topics.get(topic) or self._described(topic)
        leader = known.leaders.get(partition)
        if leader is None:
            raise UnknownPartition(topic, partition, known.partition_count)
        address = self._brokers.get(leader.node_id)
        if address is None:
            code = leader.error or ErrorCode.LEADER_NOT_AVAILABLE
            raise Passing(exception_of(code, "it has no leader now", topic=topic, partition=partition))
        return PartitionLeader(address, known, leader.epoch)

    def _described(self, topic: str) -> TopicMetadata:
        """One asks, where several threads want to know."""
        with self._describing:
            return self._topics.get(topic) or self.topic(topic)

    def reach(self, topic: str, partition: int) -> tuple[PartitionLeader, WireConnection]:
        """Who leads a partition, and a connection there: see `leader` and `borrow`."""
        leader = self.leader(topic, partition)
        return leader, self.borrow(leader.address)

    def give_back_to(self, reached: tuple[PartitionLeader, WireConnection]) -> None:
        """What `reach` gave, and nobody used."""
        leader, connection = reached
        self.give_back(leader.address, connection)

    def leaders(self, topic: str, partitions: Iterable[int]) -> dict[Address, dict[int, PartitionLeader]]:
        """Who leads each of several partitions, by broker."""
        found: dict[Address, dict[int, PartitionLeader]] = {}
        for partition in partitions:
            leader = self.leader(topic, partition)
            found.setdefault(leader.address, {})[partition] = leader
        return found

    def forget_topic(self, name: str) -> None:
        """It was deleted: that nobody knows it is no surprise."""
        self._topics.pop(name, None)
        self._seen.discard(name)

    def forget_leaders(self) -> None:
        """Somebody else leads than was thought: ask again before the next request."""
        self._topics.clear()

    def call_controller(self, request: Request, answer: type[Answer]) -> Answer:
        """Ask the broker that makes topics. Newer brokers all pass such requests on."""
        self._refresh([])
        address = self._brokers.get(self._controller_id)
        return self.call_any(request, answer) if address is None else self.call(address, request, answer)

    def _refresh(self, names: list[str] | None) -> MetadataResponse:
        """Ask for the brokers and these topics, or all; remember what is sound."""
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        answer = self.call_any(MetadataRequest(topics=topics, allow_auto_topic_creation=False), MetadataResponse)
        if answer.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._brokers, self._preferred = {}, None
            raise Passing(exception_of(answer.error_code, None))
        check_code(answer.error_code)
        if names is not None and [one.name for one in answer.topics] != names:
            raise MalformedBytes("Metadata response", "it is not about the topics that were asked for", 0)
        self._brokers = {one.node_id: Address(one.host, one.port) for one in answer.brokers}
        self._controller_id = answer.controller_id
        self.cluster_id = answer.cluster_id or ""
        for described in answer.topics:
            if not described.error_code and described.name is not None:
                self._topics[described.name] = _topic_of(described)
                self._seen.add(described.name)
        return answer


def _topic_of(described: MetadataResponseTopic) -> TopicMetadata:
    leaders = {
        one.partition_index: Leader(one.leader_id, one.leader_epoch, one.error_code) for one in described.partitions
    }
    return TopicMetadata(described.name or "", described.topic_id, described.is_internal, dict(sorted(leaders.items())))


def _one_of(problems: list[LinkLost]) -> ConnectionError:
    """What nobody's answer comes to. Brokers that there was no time left for say nothing."""
    telling = [problem for problem in problems if not problem.is_cut_short] or problems[:1]
    if len(telling) == 1:
        return telling[0]
    return ConnectionError("; ".join(str(problem) for problem in telling))


def _said(error: Exception, if_late: str) -> str:
    if isinstance(error, TimeoutError):
        return if_late
    reason = error.strerror if isinstance(error, OSError) else None
    return reason or str(error) or type(error).__name__
