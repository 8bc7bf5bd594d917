"""A broker in memory with its console, served for real, and a client that asks it as a browser or a script does."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

from foldlog.broker.broker import Broker
from foldlog.client.fold_proof import FoldsKey
from foldlog.log.partition import Partition
from foldlog.records.loops import pack
from foldlog.server.config.settings import ServerSettings
from foldlog.server.server import Server

WAIT_S = 60
"""For what is certain to come: only a hang is longer."""

WRITE_HEADERS = {"Content-Type": "application/json", "X-Foldlog": "1"}


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Event(NamedTuple):
    name: str
    data: Any


class ConsoleSite:
    """What a client sees of a console."""

    def __init__(self, broker: Broker, server: Server) -> None:
        assert server.console_address is not None
        self.broker = broker
        self.server = server
        self.host, self.port = server.console_address

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        with closing(http.client.HTTPConnection(self.host, self.port, timeout=WAIT_S)) as connection:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())

    def get(self, path: str, **headers: str) -> Any:
        """The JSON of an answer that has to be a good one."""
        answer = self.ask("GET", path, headers=headers)
        assert answer.status == 200, answer.body
        return answer.json

    def post(self, path: str, value: Any, **headers: str) -> Answer:
        return self.ask("POST", path, json.dumps(value).encode(), WRITE_HEADERS | headers)

    def posted(self, path: str, value: Any) -> Any:
        answer = self.post(path, value)
        assert answer.status == 200, answer.body
        return answer.json

    @contextmanager
    def events(self) -> Iterator[Iterator[Event]]:
        """The stream, event by event; comments are left out."""
        with closing(http.client.HTTPConnection(self.host, self.port, timeout=WAIT_S)) as connection:
            connection.request("GET", "/api/events")
            response = connection.getresponse()
            assert response.status == 200
            yield _events(response)

    def append(
        self,
        topic: str,
        number: int,
        *records: tuple[bytes | None, bytes | None],
        at_ms: int = 1000,
        folds_key: FoldsKey | None = None,
    ) -> int:
        """One batch of keys and values, with the proof of a runner if there is a key for it; the offset after it."""
        partition = self.broker.partition(topic, number)
        assert isinstance(partition, Partition)
        packed = [
            (at_ms, key, value, () if folds_key is None else (folds_key.proof(key, value, at_ms),))
            for key, value in records
        ]
        appended = partition.append(pack(packed))
        partition.wait_acknowledged(appended.next_offset)
        return appended.next_offset


def _events(response: http.client.HTTPResponse) -> Iterator[Event]:
    name = ""
    while line := response.readline():
        field, _, value = line.decode().rstrip("\n").partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield Event(name, json.loads(value))


@contextmanager
def console(broker: Broker | None = None, **settings: object) -> Iterator[ConsoleSite]:
    """Serve it; `settings` are the console's own, so read_only=True is foldlog.console.read.only."""
    properties: dict[str, object] = {"listeners": "127.0.0.1:0", "foldlog.console": "127.0.0.1:0"}
    properties |= {f"foldlog.console.{name.replace('_', '.')}": value for name, value in settings.items()}
    opened = broker if broker is not None else Broker.open(":memory:")
    try:
        with Server.start(opened, ServerSettings.parse(properties)) as server:
            yield ConsoleSite(opened, server)
    finally:
        if broker is None:
            opened.close()
