"""One conversation with one broker: what is asked is sent in the version at hand, and every answer is kept.

Where Kafka is not ready for a question (a coordinator that loads, a transaction whose end is still being written), it
is asked again, as clients do. Of a question that only looks, the answer may also come to be the one expected a moment
later: Kafka's brokers learn of a change after its controller has answered.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from conversations.comparing import CLOSED, Names, plain
from conversations.messages import KEYS, made
from foldlog.records.loops import pack
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.frames import response_of
from foldlog.wire.messages import APIS, NAMES
from foldlog.wire.messages.api_versions import ApiVersionsRequest
from foldlog.wire.schema import Message, Request
from server.raw_client import RawClient

BOUND_S: Final = 60
"""Nothing takes so long, on a machine that is busy with other things too."""

STAMP_MS: Final = int(time.time() * 1000)
"""The time of every record: of now, so that none is too old to be kept."""

NOT_YET: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
"""What clients repeat a question after."""

LOOKS: Final = frozenset(
    {
        "ConsumerGroupDescribe", "DescribeCluster", "DescribeConfigs", "DescribeGroups", "DescribeLogDirs",
        "DescribeProducers", "DescribeQuorum", "DescribeShareGroupOffsets", "DescribeTopicPartitions",
        "DescribeTransactions", "FindCoordinator", "ListConfigResources", "ListGroups", "ListOffsets",
        "ListPartitionReassignments", "ListTransactions", "Metadata", "OffsetFetch", "OffsetForLeaderEpoch",
        "ShareGroupDescribe",
    }
)  # fmt: skip
"""APIs that change nothing, and so may be asked again."""


@dataclass(frozen=True)
class Exchange:
    """A question and its answer: `told` is what is compared."""

    step: str
    api: str
    version: int
    told: Any
    is_refused: bool


@dataclass
class Side:
    """A broker, with the versions of each API that both brokers have."""

    address: str
    versions: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def connect(self) -> RawClient:
        host, _, port = self.address.rpartition(":")
        return RawClient((host, int(port)))

    def advertised(self) -> dict[int, tuple[int, int]]:
        link = self.connect()
        answer = link.ask(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 4)
        link.close()
        return {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}


class Talk:
    """What a conversation asks with. Topics, groups and ids are named by `name`, so that no two conversations meet.

    `settles` says of an answer whether it can stay; where it cannot, and the question only looks, it is asked again.
    """

    def __init__(
        self, side: Side, prefix: str, versions: Mapping[str, int], settles: Callable[[Exchange], bool]
    ) -> None:
        self.side = side
        self.versions = versions
        self.names = Names(prefix)
        self.exchanges: list[Exchange] = []
        self._settles = settles
        self._link = side.connect()
        self._links = [self._link]
        self._steps: dict[str, int] = {}
        self.ids: dict[str, bytes] = {}
        """The ids of topics, by their words."""

    # --- asking ---

    def version(self, api: str) -> int:
        """The version in which an API is asked here: the one at hand, or the newest that both have."""
        return self.versions.get(api, self.side.versions[api][1])

    def ask(
        self,
        api: str,
        step: str = "",
        *,
        version: int | None = None,
        on: RawClient | None = None,
        mine: bool = False,
        settling: bool | None = None,
        **fields: Any,
    ) -> Any:
        """Ask, keep the answer for the comparison, and return it; None if the connection was closed instead."""
        number = self.version(api) if version is None else version
        return self.put(made(api, fields), number, step, on=on, mine=mine, settling=settling)

    def put(
        self,
        request: Request,
        number: int,
        step: str = "",
        *,
        on: RawClient | None = None,
        mine: bool = False,
        settling: bool | None = None,
    ) -> Any:
        """Ask what is made already."""
        api = NAMES[request.API_KEY]
        self._know(request)
        label = self._label(step or api)
        until = time.monotonic() + BOUND_S
        while True:
            names = self.names.copy()
            answer = self._answer(request, number, on)
            exchange = self._exchange(label, api, number, answer, names, mine=mine)
            is_not_yet = answer is not None and bool(codes_in(answer) & NOT_YET)
            can_stay = not (api in LOOKS if settling is None else settling) or self._settles(exchange)
            if (can_stay and not is_not_yet) or time.monotonic() > until:
                self.names = names
                self.exchanges.append(exchange)
                return answer

    def quiet(self, api: str, *, version: int | None = None, **fields: Any) -> Any:
        """Ask without a word in the comparison: what the conversation only needs."""
        number = self.side.versions[api][1] if version is None else version
        return self.until(
            lambda: self._link.ask(made(api, fields), number), lambda answer: not codes_in(answer) & NOT_YET
        )

    def begin(self, api: str, *, on: RawClient | None = None, **fields: Any) -> Callable[[str], Any]:
        """Ask without waiting: the answer is kept by the call of what is returned, with the name of the step."""
        number, request, link = self.version(api), made(api, fields), on or self._link
        self._know(request)
        sent = link.send(request, number)

        def end(step: str) -> Any:
            correlation_id, answer = link.receive(response_of(type(request)), number)
            assert correlation_id == sent
            exchange = self._exchange(self._label(step), api, number, answer, self.names)
            self.exchanges.append(exchange)
            return answer

        return end

    def send_and_forget(self, api: str, *, on: RawClient, **fields: Any) -> None:
        """Ask what has no answer."""
        on.send(made(api, fields), self.version(api))

    def tell(self, step: str, value: Any) -> None:
        """Something else than an answer that both brokers have to agree on."""
        told = value if isinstance(value, dict) else {"": value}
        self.exchanges.append(Exchange(self._label(step), "", -1, told, is_refused=False))

    def send_raw(self, step: str, api: str, version: int, body: bytes) -> None:
        """A request of any version with any body, on a connection of its own: its answer's bytes, or that it ends."""
        link = self.side.connect()
        header = struct.pack(">hhih", KEYS[api], version, 7, -1)
        flexible_from = APIS[KEYS[api]].flexible_from
        if flexible_from is not None and version >= flexible_from:
            header += b"\0"
        frame = header + body
        link.socket.sendall(struct.pack(">i", len(frame)) + frame)
        told: Any
        try:
            told = link.receive_frame()[4:6].hex()  # behind the correlation id: an error code, in all that answer here
        except ConnectionError:
            told = CLOSED
        link.close()
        self.exchanges.append(Exchange(self._label(step), "", version, {"": told}, is_refused=True))

    def until(self, ask: Callable[[], Any], is_enough: Callable[[Any], bool]) -> Any:
        """Ask until the answer is enough, without a word in the comparison."""
        deadline_s = time.monotonic() + BOUND_S
        while True:
            answer = ask()
            if is_enough(answer):
                return answer
            assert time.monotonic() < deadline_s, f"still {answer}"

    def link(self) -> RawClient:
        """A connection more, as another client has it."""
        self._links.append(self.side.connect())
        return self._links[-1]

    def close(self) -> None:
        for link in self._links:
            link.close()

    def _answer(self, request: Request, version: int, on: RawClient | None) -> Any:
        link = on or self._link
        try:
            return link.ask(request, version)
        except ConnectionError:
            if on is None:
                self._link = self.link()
            return None

    def _exchange(
        self, label: str, api: str, version: int, answer: Any, names: Names, *, mine: bool = False
    ) -> Exchange:
        if answer is None:
            return Exchange(label, api, version, {"": CLOSED}, is_refused=True)
        is_mine = (lambda name: name.startswith(names.prefix)) if mine else None
        told = plain(answer, version, names, is_mine)
        return Exchange(label, api, version, told, is_refused=bool(codes_in(answer) - {0}))

    def _label(self, step: str) -> str:
        """The name of a step; one that comes again has a number."""
        self._steps[step] = self._steps.get(step, 0) + 1
        return step if self._steps[step] == 1 else f"{step} {self._steps[step]}"

    def _know(self, message: Message) -> None:
        """A member id that a client has chosen is called what it is."""
        for one in strings_in(message, "member_id"):
            self.names.know(self.names.plain(one), self.names.plain(one))

    # --- what conversations need ---

    def name(self, word: str) -> str:
        return self.names.prefix + word

    def topic(self, word: str = "orders", partitions: int = 1, **configs: str) -> str:
        """Make a topic, and wait until it can be written."""
        name = self.name(word)
        settings = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": settings}
        (made_,) = self.quiet("CreateTopics", topics=[topic], timeout_ms=30_000).topics
        assert not made_.error_code, made_
        self.names.know(bytes(made_.topic_id), f"id of {word}")
        self.ids[word] = bytes(made_.topic_id)
        places = [{"partition_index": number, "timestamp": -1} for number in range(partitions)]
        self.until(
            lambda: self.quiet("ListOffsets", replica_id=-1, topics=[{"name": name, "partitions": places}]),
            lambda answer: codes_in(answer) == {0},
        )
        return name

    def shared_topic(self, word: str = "orders", partitions: int = 1) -> str:
        """Make a topic, and wait until the coordinator of groups has heard of it: in Kafka that is later."""
        name = self.topic(word, partitions)
        group: dict[str, Any] = {
            "group_id": f"probe.{name}",
            "member_id": "probe",
            "topic_partitions": [],
            "rebalance_timeout_ms": 30_000,
        }
        self.until(
            lambda: self.quiet("ConsumerGroupHeartbeat", **group, member_epoch=0, subscribed_topic_names=[name]),
            lambda answer: answer.assignment is not None and len(answer.assignment.topic_partitions) > 0,
        )
        self.quiet("ConsumerGroupHeartbeat", **group, member_epoch=-1)
        return name

    def write(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """Some records, durable."""
        answer = self.quiet("Produce", version=9, **produce(topic, batch(*values), partition=partition))
        assert codes_in(answer) == {0}, answer


def steps(table: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Steps by their names, with what each one sends."""
    return table.items()


def produce(
    topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1, topic_id: bytes = bytes(16), **more: Any
) -> dict[str, Any]:
    """The fields of a Produce request for one partition."""
    data = [{"index": partition, "records": records}]
    return {"acks": acks, "timeout_ms": 30_000, **more} | {
        "topic_data": [{"name": topic, "topic_id": topic_id, "partition_data": data}]
    }


def batch(*values: bytes | None, key: bytes | None = b"k", stamp_ms: int = STAMP_MS, **fields: Any) -> bytes:
    return bytes(pack([(stamp_ms, key, value, ()) for value in values], **fields))


def codes_in(answer: Message) -> set[int]:
    """Every error code anywhere in an answer."""
    return set(_values_in(answer, lambda name: name.endswith("error_code")))


def strings_in(message: Message, name: str) -> set[str]:
    return {one for one in _values_in(message, lambda found: found == name) if isinstance(one, str)}


def _values_in(message: Message, is_wanted: Callable[[str], bool]) -> Iterator[Any]:
    for found in message.SCHEMA:
        value = getattr(message, found.name)
        if is_wanted(found.name):
            yield value
        elif found.item is not None and value is not None:
            for one in value if found.is_array else [value]:
                yield from _values_in(one, is_wanted)
