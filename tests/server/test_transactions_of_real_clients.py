"""A transactional producer is told that there are no transactions, and not that it may not have them."""

from __future__ import annotations

import asyncio
import logging

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import UnsupportedVersionError
from confluent_kafka import KafkaException, Producer
from kafka import KafkaProducer
from kafka.errors import KafkaError

from foldlog.server.server import Server
from foldlog.wire.error_codes import ErrorCode
from server.group_readers import BOUND_S


def test_librdkafka_says_that_the_broker_does_not_support_it(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Its log says so at once, and again and again; `init_transactions` raises it when its time is up."""
    lines: list[str] = []
    listening = logging.getLogger("server.transactions")
    listening.setLevel(logging.DEBUG)
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    listening.addHandler(handler)
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "tx"}, logger=listening)
    with pytest.raises(KafkaException, match="API version not supported") as refusal:
        producer.init_transactions(1)
    assert refusal.value.args[0].code() == ErrorCode.UNSUPPORTED_VERSION
    producer.poll(0)
    assert any("API version not supported" in line for line in lines)
    assert not [line for line in lines if "authoriz" in line.lower()]
    listening.removeHandler(handler)
    assert "this broker has no transactions; remove it" in caplog.text


def test_kafka_python_says_at_once_that_the_broker_does_not_support_it(server: Server) -> None:
    producer = KafkaProducer(bootstrap_servers=server.bootstrap, transactional_id="tx")
    with pytest.raises(KafkaError, match="UnsupportedVersionError"):
        producer.init_transactions()
    producer.close(timeout=1)


def test_aiokafka_says_at_once_that_the_broker_does_not_support_it(server: Server) -> None:
    async def start() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=server.bootstrap, transactional_id="tx")
        with pytest.raises(UnsupportedVersionError):
            await asyncio.wait_for(producer.start(), BOUND_S)
        await producer.stop()

    asyncio.run(start())
