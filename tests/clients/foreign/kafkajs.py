"""KafkaJS in a Node.js process that does what it is told over a pipe; see kafkajs_driver.js."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Self

BOUND_S = 60.0
"""When something that should come has not come: far more than a busy machine needs."""

HERE = Path(__file__).resolve().parent
MODULES = HERE.parents[2] / "build" / "kafkajs" / "node_modules"
"""Where scripts/install_foreign_clients.sh puts it."""

NEEDED = ("kafkajs", "kafkajs-snappy", "lz4js")

GZIP, SNAPPY, LZ4 = 1, 2, 3
"""CompressionTypes of KafkaJS."""

QUICK_CONSUMER = {"heartbeatInterval": 200, "sessionTimeout": 10_000, "maxWaitTimeInMs": 100}


class KafkaJsError(Exception):
    """What a call was rejected with. `kind` is Kafka's name of an error, if the broker's answer was one."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['name']}: {error['message']}")
        self.name: str = error["name"]
        self.kind: str | None = error.get("type")
        self.code: int | None = error.get("code")
        self.kinds: list[str] = error["kinds"]
        """`kind` of each part of a request, where the client tells them apart."""


class Received(NamedTuple):
    """A record that a consumer was given."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, Any]


class Client:
    """A producer, consumer or admin of KafkaJS. Its methods are called by their names, and waited for."""

    def __init__(self, process: KafkaJs, name: str) -> None:
        self._process = process
        self.name = name
        self.records: queue.Queue[Received] = queue.Queue()
        self.received = threading.Event()
        self.assignments: queue.Queue[dict[str, list[int]]] = queue.Queue()
        """What each rebalance gave this consumer: partitions by topic."""

    def begin(self, method: str, *parameters: Any) -> Future[Any]:
        return self._process.begin(on=self.name, call=method, **{"with": list(parameters)})

    def call(self, method: str, *parameters: Any) -> Any:
        return self.begin(method, *parameters).result(BOUND_S)

    def transaction(self, name: str) -> Client:
        """A transaction of this producer."""
        self.call("transaction", name)
        return Client(self._process, name)

    def take(self, number: int) -> list[Received]:
        """The next records that this consumer is given."""
        return [self.records.get(timeout=BOUND_S) for _ in range(number)]

    def wait_record(self, timeout_s: float) -> None:
        """Until it was given its first record, or for that long."""
        self.received.wait(timeout_s)

    def wait_assigned(self, topic: str, number: int) -> None:
        """Until a rebalance gave it that many partitions of the topic."""
        while len(self.assignments.get(timeout=BOUND_S).get(topic, ())) != number:
            pass

    def disconnect(self) -> None:
        self._process.forget(self)


class KafkaJs:
    """The process. Use it from one thread; a thread of its own reads what comes."""

    def __init__(self, node: str, bootstrap: str, **config: Any) -> None:
        """`config` is what else goes to `new Kafka`."""
        self._process = subprocess.Popen(
            [node, str(HERE / "kafkajs_driver.js"), bootstrap, str(MODULES), json.dumps(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"KAFKAJS_NO_PARTITIONER_WARNING": "1"},
        )
        self._numbers = count(1)
        self._asked: dict[int, Future[Any]] = {}
        self._clients: dict[str, Client] = {}
        self._reader = threading.Thread(target=self._read, name="kafkajs", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line, object_hook=_revive)
            if "from" in said:
                self._deliver(said)
            elif "error" in said:
                self._asked.pop(said["id"]).set_exception(KafkaJsError(said["error"]))
            else:
                self._asked.pop(said["id"]).set_result(said["result"])
        for unanswered in self._asked.values():
            unanswered.set_exception(ConnectionError("Node.js ended"))

    def _deliver(self, said: dict[str, Any]) -> None:
        client = self._clients.get(said["from"])
        if client is None:
            return  # it was just disconnected
        if "record" in said:
            client.records.put(_received(said["record"]))
            client.received.set()
        elif "joined" in said:
            client.assignments.put(said["joined"])

    def begin(self, **request: Any) -> Future[Any]:
        number = next(self._numbers)
        answer = self._asked[number] = Future()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": number, **request}, default=_as_buffer) + "\n")
        self._process.stdin.flush()
        return answer

    def ask(self, **request: Any) -> Any:
        return self.begin(**request).result(BOUND_S)

    def _make(self, kind: str, options: dict[str, Any]) -> Client:
        name = f"{kind}-{next(self._numbers)}"
        client = self._clients[name] = Client(self, name)
        self.ask(make=kind, options=options, **{"as": name})
        return client

    def producer(self, **options: Any) -> Client:
        return self._make("producer", options)

    def admin(self) -> Client:
        return self._make("admin", {})

    def consumer(self, group: str, topic: str, *, is_from_start: bool = True, **run: Any) -> Client:
        """A consumer that runs, in that group. `run` is what goes to its `run`, such as autoCommit."""
        client = self._make("consumer", {"groupId": group, **QUICK_CONSUMER})
        client.call("subscribe", {"topics": [topic], "fromBeginning": is_from_start})
        client.call("run", run)
        return client

    def forget(self, client: Client) -> None:
        self.ask(forget=client.name)
        del self._clients[client.name]

    def disconnect_all(self) -> None:
        for client in list(self._clients.values()):
            self.forget(client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(BOUND_S)
            self._reader.join(BOUND_S)


def _revive(found: dict[str, Any]) -> Any:
    return bytes(found["data"]) if found.get("type") == "Buffer" else found


def _as_buffer(value: object) -> dict[str, Any]:
    if not isinstance(value, bytes):
        raise TypeError(f"{type(value).__name__} has no form in JSON")
    return {"type": "Buffer", "data": list(value)}


def _received(record: dict[str, Any]) -> Received:
    return Received(
        record["topic"],
        record["partition"],
        int(record["offset"]),
        int(record["timestamp"]),
        record["key"],
        record["value"],
        record["headers"],
    )


def messages(values: Iterable[bytes | None], **every: Any) -> list[dict[str, Any]]:
    """Messages for `send`, one for each value."""
    return [{"value": value, **every} for value in values]
