"""A broker on real files, served on a free port, one for each module; topics and groups with names of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from clients.aiokafka_client import AiokafkaClient
from clients.any_client import AnyClient
from clients.confluent_client import ConfluentClient
from clients.kafka_python_client import KafkaPythonClient
from foldlog.broker.broker import Broker
from foldlog.client.backends.local import LocalBackend
from foldlog.client.log import Log
from foldlog.server.config.settings import ServerSettings
from foldlog.server.server import Server

CLIENTS: tuple[type[AnyClient], ...] = (ConfluentClient, KafkaPythonClient, AiokafkaClient)

NewTopic = Callable[..., str]

_numbers = count(1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker.open(str(tmp_path_factory.mktemp("served"))) as opened:
        yield opened


@pytest.fixture(scope="module")
def server(broker: Broker) -> Iterator[Server]:
    with Server.start(broker, ServerSettings.parse({"listeners": "127.0.0.1:0"})) as started:
        yield started


@pytest.fixture(scope="module")
def log(broker: Broker) -> Log:
    """The broker's directory, embedded. It is not closed: the broker closes."""
    return Log(LocalBackend(broker))


@pytest.fixture(params=CLIENTS, ids=lambda kind: kind.name)
def client(request: pytest.FixtureRequest, server: Server) -> Iterator[AnyClient]:
    """Each of the clients in turn."""
    made: AnyClient = request.param(server.bootstrap)
    yield made
    made.close()


@pytest.fixture
def clients(server: Server) -> Iterator[list[AnyClient]]:
    """All of them together."""
    made = [kind(server.bootstrap) for kind in CLIENTS]
    yield made
    for one in made:
        one.close()


@pytest.fixture
def new_topic(broker: Broker) -> NewTopic:
    """Make a topic that no other test has; its name."""

    def make(partitions: int = 1, **config: object) -> str:
        name = f"topic-{next(_numbers)}"
        settings = {setting.replace("_", "."): value for setting, value in config.items()}
        broker.create_topic(name, partitions, settings)
        return name

    return make


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    """A topic with one partition."""
    return new_topic()


@pytest.fixture
def group() -> str:
    """The name of a group that no other test has."""
    return f"group-{next(_numbers)}"
