"""What a log on a cluster refuses before, or instead of, asking the brokers: one of our errors, one sentence each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import foldlog
from foldlog import errors
from foldlog.client.kafka.handles import Handles
from foldlog.testing import KafkaBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker.launch() as launched:
        yield launched


@pytest.fixture(scope="module")
def log(broker: KafkaBroker) -> Iterator[foldlog.KafkaLog]:
    with foldlog.connect(f"kafka://{broker}") as connected:
        yield connected


# --- topics of the cluster's own --------------------------------------------------------------------------------------


def changes_of(log: foldlog.KafkaLog) -> list[Callable[[str], object]]:
    return [
        log.delete_topic,
        lambda name: log.grow_topic(name, 3),
        lambda name: log.alter_topic(name, {"retention.ms": 1}),
        lambda name: log.delete_records(name, {0: "end"}),
    ]


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", "__share_group_state"])
def test_what_kafka_keeps_for_itself_is_refused_before_anything_is_sent(
    log: foldlog.KafkaLog, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handles, "retried", lambda *_: pytest.fail("a broker was asked"))
    for change in changes_of(log):
        with pytest.raises(errors.InvalidTopicName, match=f"^topic '{name}' is made and kept by the log itself; "):
            change(name)


def test_what_else_a_cluster_says_is_its_own_is_refused_too(
    log: foldlog.KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its metadata tells: here of a topic that our broker has, and is made to call its own."""
    log.create_topic("_schemas", partitions=2)
    monkeypatch.setattr("foldlog.server.leaders._INTERNAL", frozenset({"_schemas"}))
    for change in changes_of(log):
        with pytest.raises(errors.InvalidTopicName, match=r"^topic '_schemas' is made and kept by the log itself; "):
            change("_schemas")
    monkeypatch.undo()
    assert log.partition_count("_schemas") == 2
    log.delete_topic("_schemas")
