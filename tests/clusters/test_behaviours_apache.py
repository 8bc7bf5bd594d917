"""What the texts promise of a log holds on a cluster, too: the behaviour tests that ask nothing of a directory.

They are the tests of tests/behaviours that take a log and nothing else, run against our own broker and against Apache
Kafka, each over `foldlog.connect`. What Apache Kafka cannot do is in NOT_HERE with its reason, and has its row in
docs/clusters.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType

import pytest

import foldlog
from behaviours import (
    test_append_and_order,
    test_durability_and_batching,
    test_groups_and_commits,
    test_offsets,
    test_partitions_and_keys,
    test_readers,
    test_reads,
    test_replay,
)
from client.log_places import IN_A_HURRY
from foldlog.testing import KafkaBroker

MODULES = (
    test_append_and_order,
    test_durability_and_batching,
    test_groups_and_commits,
    test_offsets,
    test_partitions_and_keys,
    test_readers,
    test_reads,
    test_replay,
)

NOT_HERE = {
    "test_a_paused_reader_does_not_hold_up_the_producer": "foldlog.segment.records is a setting of ours",
    "test_readers_in_threads_see_a_growing_log_without_a_gap": "Kafka takes no segment.bytes below 1 MiB",
}


@pytest.fixture(scope="module", params=["our broker", "Apache Kafka"])
def cluster(request: pytest.FixtureRequest) -> Iterator[foldlog.Log]:
    if request.param == "our broker":
        with KafkaBroker.launch() as broker, foldlog.connect(f"kafka://{broker}", properties=IN_A_HURRY) as log:
            yield log
    else:
        with foldlog.connect(request.getfixturevalue("apache_kafka").url, properties=IN_A_HURRY) as log:
            yield log


@pytest.fixture
def log(cluster: foldlog.Log) -> Iterator[foldlog.Log]:
    """A log that nothing is in: the tests share names, and each leaves nothing behind."""
    topics, groups = set(cluster.topics()), set(cluster.groups())
    with foldlog.connect(cluster.path, properties=IN_A_HURRY) as connected:
        yield connected
    for name in set(cluster.groups()) - groups:
        cluster.delete_group(name)
    for name in set(cluster.topics()) - topics:
        cluster.delete_topic(name)


def takes_only_a_log(test: object) -> bool:
    parameters = set(inspect.signature(test).parameters)  # type: ignore[arg-type]
    marks = getattr(test, "pytestmark", [])
    given = {name.strip() for mark in marks if mark.name == "parametrize" for name in _names(mark.args[0])}
    return parameters - given == {"log"}


def _names(argument: str | tuple[str, ...] | list[str]) -> list[str]:
    return argument.split(",") if isinstance(argument, str) else list(argument)


def shared_tests(module: ModuleType) -> dict[str, object]:
    return {
        name: test
        for name, test in vars(module).items()
        if name.startswith("test_") and inspect.isfunction(test) and takes_only_a_log(test) and name not in NOT_HERE
    }


for _module in MODULES:
    globals().update(shared_tests(_module))


def test_there_are_behaviours_to_share() -> None:
    """A change of their arguments would take them away from here without a word."""
    assert all(len(shared_tests(module)) > 2 for module in MODULES)
    assert all(any(hasattr(module, name) for module in MODULES) for name in NOT_HERE)
