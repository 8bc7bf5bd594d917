"""Stock clients over TLS, with certificates of their own: records out and back, and what they are told without one."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError

import foldlog
from clients.any_client import BOUND_S, POLL_S, eventually
from clients.secure_site import SecureSite
from foldlog.broker.broker import Broker
from foldlog.errors import BrokerUnreachable
from foldlog.spark.origins.ledger import LedgerEntry, open_ledger
from foldlog.spark.origins.origin import OriginSpec, open_origin

VALUES = [b"one", b"x" * 300_000, b"three"]


@pytest.fixture(scope="module")
def site(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureSite]:
    with SecureSite(broker, tmp_path_factory.mktemp("certificates")) as made:
        yield made


def librdkafka(site: SecureSite, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": site.bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(site.authority_file),
        "ssl.certificate.location": str(site.client_file),
        "ssl.key.location": str(site.client_file),
        **more,
    }


def test_confluent_kafka(site: SecureSite, topic: str, group: str) -> None:
    producer = confluent_kafka.Producer(librdkafka(site))
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(BOUND_S) == 0
    consumer = confluent_kafka.Consumer(librdkafka(site, **{"group.id": group, "auto.offset.reset": "earliest"}))
    consumer.subscribe([topic])
    found: list[bytes | None] = []

    def has_all() -> bool:
        message = consumer.poll(POLL_S)
        if message is not None:
            assert message.error() is None
            found.append(message.value())
        return len(found) == len(VALUES)

    eventually(has_all, "the records")
    consumer.close()
    assert found == VALUES


def test_librdkafka_without_a_certificate_is_told_so_and_so_are_we(
    site: SecureSite, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[confluent_kafka.KafkaError] = []
    without = {
        name: value for name, value in librdkafka(site).items() if "certificate" not in name and "key" not in name
    }
    producer = confluent_kafka.Producer({**without, "error_cb": errors.append})
    producer.produce(topic, b"value")
    eventually(lambda: producer.poll(POLL_S) > 0 or bool(errors), "an error")
    producer.purge()
    producer.flush(BOUND_S)
    assert "certificate required" in errors[0].str()
    eventually(lambda: "it has no certificate, and ssl.client.auth=required" in caplog.text, "a line in the log")


def test_kafka_python(site: SecureSite, topic: str) -> None:
    secure = {
        "bootstrap_servers": site.bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": str(site.authority_file),
        "ssl_certfile": str(site.client_file),
        "ssl_keyfile": str(site.client_file),
    }
    producer = kafka.KafkaProducer(**secure)
    for value in VALUES:
        producer.send(topic, value).get(BOUND_S)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, **secure, auto_offset_reset="earliest", consumer_timeout_ms=60_000)
    found = [next(consumer).value for _ in VALUES]
    consumer.close()
    assert found == VALUES


def test_aiokafka(site: SecureSite, topic: str) -> None:
    context = ssl.create_default_context(cafile=str(site.authority_file))
    context.load_cert_chain(site.client_file)

    async def run() -> list[bytes]:
        secure = {"bootstrap_servers": site.bootstrap, "security_protocol": "SSL", "ssl_context": context}
        async with AIOKafkaProducer(**secure) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value)
        async with AIOKafkaConsumer(topic, **secure, auto_offset_reset="earliest") as consumer:
            return [(await consumer.getone()).value for _ in VALUES]

    assert asyncio.run(asyncio.wait_for(run(), BOUND_S)) == VALUES


def test_aiokafka_with_another_authority_does_not_take_the_broker(site: SecureSite) -> None:
    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=site.bootstrap, security_protocol="SSL", ssl_context=ssl.create_default_context()
        )
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(KafkaConnectionError):
        asyncio.run(asyncio.wait_for(run(), BOUND_S))


def test_our_own_client(site: SecureSite, topic: str, group: str) -> None:
    """Our own connections, and librdkafka's behind the same log."""
    properties = {name: value for name, value in librdkafka(site).items() if name != "bootstrap.servers"}
    with foldlog.connect(f"kafka://{site.bootstrap}", properties=properties) as log:
        with log.producer() as producer:
            for value in VALUES:
                producer.send(topic, value)
        assert [record.value for record in log.read(topic)] == VALUES
        with log.consumer(topic, group=group, auto_offset_reset="earliest") as consumer:
            found: list[bytes | None] = []
            while len(found) < len(VALUES):
                found += [record.value for record in consumer.poll(timeout_ms=BOUND_S * 1000)]
        assert found == VALUES


def test_spark_reads_through_our_own_connections(site: SecureSite, topic: str) -> None:
    properties = {name: value for name, value in librdkafka(site).items() if name != "bootstrap.servers"}
    ledger = open_ledger(OriginSpec(bootstrap=site.bootstrap, properties=properties))
    ledger.append(topic, [LedgerEntry(b"key", b"value")])
    ledger.close()
    origin = open_origin(OriginSpec(bootstrap=site.bootstrap, properties=properties))
    assert [bounds.end for bounds in origin.bounds(topic).values()] == [1]
    origin.close()


def test_our_own_client_without_a_certificate_says_what_to_set(site: SecureSite) -> None:
    properties = {"security.protocol": "SSL", "ssl.ca.location": str(site.authority_file)}
    with pytest.raises(BrokerUnreachable, match=r"certificate required.*set ssl.certificate.location"):
        foldlog.connect(f"kafka://{site.bootstrap}", properties=properties)
