"""A transactional producer is told at once that there are no transactions, by each client in its own words."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaException, Producer
from kafka import KafkaProducer
from kafka.errors import KafkaError

from foldlog.server.server import Server
from server.group_readers import BOUND_S


def test_librdkafka_says_at_once_that_there_are_no_transactions(server: Server) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "tx", "log_level": 0})
    with pytest.raises(KafkaException, match=r"this broker has no transactions; remove transactional\.id"):
        producer.init_transactions(BOUND_S)


def test_kafka_python_says_at_once_that_there_are_no_transactions(server: Server) -> None:
    producer = KafkaProducer(bootstrap_servers=server.bootstrap, transactional_id="tx")
    with pytest.raises(KafkaError, match="Could not find a coordinator"):
        producer.init_transactions()
    producer.close(timeout=1)


def test_aiokafka_says_at_once_that_there_are_no_transactions(server: Server) -> None:
    async def start() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=server.bootstrap, transactional_id="tx")
        with pytest.raises(Exception, match="tx"):
            await asyncio.wait_for(producer.start(), BOUND_S)
        await producer.stop()

    asyncio.run(start())
