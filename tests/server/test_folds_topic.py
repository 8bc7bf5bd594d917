"""The topic `__folds` is made with its own settings or not at all: by a runner, `fold pause` or the console, never with
what somebody else thought of. A directory where an older broker let a client choose is mended."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

import foldlog
from foldlog.broker.broker import Broker
from foldlog.client.fold_bulletin import FOLDS_CONFIG, FOLDS_TOPIC
from foldlog.client.fold_proof import KEY_FILE
from foldlog.errors import InvalidTopicName
from foldlog.server.config.settings import ServerSettings
from foldlog.server.server import Server
from foldlog.spark.folds.bulletin import latest
from foldlog.spark.folds.commands import ask
from foldlog.spark.origins.origin import open_origin, origin_spec
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.produce import ProduceResponse
from server.raw_client import RawClient, batch, produce, produced

HOSTILE = {"max.message.bytes": "1", "retention.ms": "1", "cleanup.policy": "delete"}
SAID = "topic '__folds' is made by the folds themselves"


def create(server: Server, partitions: int, config: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    for done in admin.create_topics([NewTopic(FOLDS_TOPIC, partitions, 1, config=config)]).values():
        done.result(10)


@contextmanager
def served(broker: Broker, **more: object) -> Iterator[Server]:
    """As `foldlog serve` does: processes that open the directory find it."""
    with Server.start(broker, ServerSettings.parse({"listeners": "127.0.0.1:0", **more})) as server:
        broker.publish_address(*server.addresses[0])
        yield server
        broker.withdraw_address()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker.open(str(tmp_path / "data")) as broker:
        yield broker


@pytest.mark.parametrize("by_wire", [True, False])
@pytest.mark.parametrize(("partitions", "config"), [(1, HOSTILE), (1, {}), (2, FOLDS_CONFIG)])
def test_a_client_cannot_make_it_first_with_settings_of_its_own(
    broker: Broker, partitions: int, config: dict[str, str], by_wire: bool
) -> None:
    with served(broker) as server:
        with pytest.raises(KafkaException, match=SAID):
            create(server, partitions, config)
        with foldlog.connect(f"kafka://{server.bootstrap}") as log, pytest.raises(InvalidTopicName, match=SAID):
            log.create_topic(FOLDS_TOPIC, partitions, config)
        with foldlog.open(broker.path) as log, pytest.raises(InvalidTopicName, match=SAID):
            log.create_topic(FOLDS_TOPIC, partitions, config)
        assert broker.find_topic(FOLDS_TOPIC) is None
        ask("mirror", server.bootstrap if by_wire else broker.path, "pause", folds_key=broker.path)
        assert latest(open_origin(origin_spec(broker.path)))[1]["mirror"].verb == "pause"


def test_nor_can_a_program_that_opens_the_directory(tmp_path: Path) -> None:
    with foldlog.open(tmp_path) as log:
        with pytest.raises(InvalidTopicName, match=SAID):
            log.create_topic(FOLDS_TOPIC, 1, HOSTILE)
        assert log.create_topic(FOLDS_TOPIC, 1, FOLDS_CONFIG).config.settings == FOLDS_CONFIG


def test_it_can_where_the_broker_accepts_what_is_unproven(broker: Broker) -> None:
    with served(broker, **{"foldlog.folds.accept.unproven": "true"}) as server:
        create(server, 1, HOSTILE)
    assert broker.topic(FOLDS_TOPIC).config.settings["max.message.bytes"] == "1"


@pytest.mark.parametrize("is_served", [True, False])
def test_one_that_was_made_with_other_settings_is_mended(tmp_path: Path, is_served: bool) -> None:
    with Broker.open(str(tmp_path)) as broker:
        broker.create_topic(FOLDS_TOPIC, 1, {**HOSTILE, "segment.bytes": "1048576"})
        if is_served:
            with served(broker):
                ask("mirror", broker.path, "pause")
    if not is_served:
        ask("mirror", str(tmp_path), "pause")
    with foldlog.open(tmp_path, mode="r") as log:
        settings = log.topic(FOLDS_TOPIC).config.settings
        assert settings == {"cleanup.policy": "compact", "retention.ms": "1", "segment.bytes": "1048576"}
        assert len(list(log.read(FOLDS_TOPIC, 0))) == 1


def test_a_pipe_in_the_place_of_the_key_holds_up_nobody(tmp_path: Path) -> None:
    """An open of a pipe waits for its other end, and the whole broker would wait with it."""
    with Broker.open(str(tmp_path / "data")) as broker:
        broker.create_topic(FOLDS_TOPIC, 1, FOLDS_CONFIG)
        broker.create_topic("orders", 1)
        os.mkfifo(tmp_path / "data" / KEY_FILE)
        with served(broker) as server:
            client = RawClient(server.addresses[0])
            client.send(produce(batch(b"pause"), topic=FOLDS_TOPIC), 9)
            other = RawClient(server.addresses[0])
            assert produced(other.ask(produce(batch(b"paid")), 9)) == (ErrorCode.NONE, 0)
            assert produced(client.receive(ProduceResponse, 9)[1])[0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            for one in (client, other):
                one.close()
