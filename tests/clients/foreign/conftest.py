"""kcat and KafkaJS, where they are installed, at the broker of the other clients' tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from clients.foreign.kafkajs import MODULES, NEEDED, KafkaJs
from clients.foreign.kcat import Kcat
from foldlog.server.server import Server

INSTALL = "sh scripts/install_foreign_clients.sh"


def kcat_program() -> str:
    """Where it is; skips the test if it is nowhere."""
    program = shutil.which("kcat")
    if program is None:
        pytest.skip(f"kcat is not installed; enable with: {INSTALL}")
    return program


def node_program() -> str:
    """Node.js, with KafkaJS installed for it; skips the test if one of them is not there."""
    program = shutil.which("node")
    if program is None or not all((MODULES / name).is_dir() for name in NEEDED):
        pytest.skip(f"KafkaJS is not installed; enable with: {INSTALL}")
    return program


@pytest.fixture
def kcat(server: Server) -> Iterator[Kcat]:
    made = Kcat(kcat_program(), server.bootstrap)
    yield made
    made.close()


@pytest.fixture(scope="module")
def node_process(server: Server) -> Iterator[KafkaJs]:
    """One Node.js for the module: it takes a second to start."""
    with KafkaJs(node_program(), server.bootstrap) as started:
        yield started


@pytest.fixture
def kafkajs(node_process: KafkaJs) -> Iterator[KafkaJs]:
    """KafkaJS, without what an earlier test opened."""
    yield node_process
    node_process.disconnect_all()
