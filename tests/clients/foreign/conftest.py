"""A broker on real files, served on a free port, one for each module; kcat and KafkaJS where they are installed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from clients.foreign.kafkajs import MODULES, NEEDED, KafkaJs
from clients.foreign.kcat import Kcat
from foldlog.broker.broker import Broker
from foldlog.client.backends.local import LocalBackend
from foldlog.client.log import Log
from foldlog.server.config.settings import ServerSettings
from foldlog.server.server import Server

INSTALL = "sh scripts/install_foreign_clients.sh"

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


@pytest.fixture
def new_topic(broker: Broker) -> NewTopic:
    """Make a topic that no other test has; its name."""

    def make(partitions: int = 1, **config: object) -> str:
        name = f"topic-{next(_numbers)}"
        broker.create_topic(name, partitions, {setting.replace("_", "."): value for setting, value in config.items()})
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


@pytest.fixture
def kcat(server: Server) -> Iterator[Kcat]:
    program = shutil.which("kcat")
    if program is None:
        pytest.skip(f"kcat is not installed; enable with: {INSTALL}")
    made = Kcat(program, server.bootstrap)
    yield made
    made.close()


@pytest.fixture(scope="module")
def node_process(server: Server) -> Iterator[KafkaJs]:
    """One Node.js for the module: it takes a second to start."""
    program = shutil.which("node")
    if program is None or not all((MODULES / name).is_dir() for name in NEEDED):
        pytest.skip(f"KafkaJS is not installed; enable with: {INSTALL}")
    with KafkaJs(program, server.bootstrap) as started:
        yield started


@pytest.fixture
def kafkajs(node_process: KafkaJs) -> Iterator[KafkaJs]:
    """KafkaJS, without what an earlier test opened."""
    yield node_process
    node_process.disconnect_all()
