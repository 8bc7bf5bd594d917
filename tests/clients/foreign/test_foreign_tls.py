"""kcat and KafkaJS over TLS, with certificates of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clients.foreign.conftest import kcat_program, node_program
from clients.foreign.kafkajs import KafkaJs, messages
from clients.foreign.kcat import Kcat
from clients.secure_site import SecureSite
from foldlog.broker.broker import Broker


@pytest.fixture(scope="module")
def site(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureSite]:
    with SecureSite(broker, tmp_path_factory.mktemp("certificates")) as made:
        yield made


def test_kcat(site: SecureSite, topic: str, group: str) -> None:
    kcat = Kcat(
        kcat_program(),
        site.bootstrap,
        security_protocol="SSL",
        ssl_ca_location=str(site.authority_file),
        ssl_certificate_location=str(site.client_file),
        ssl_key_location=str(site.client_file),
    )
    kcat.produce(topic, b"one\ntwo\n")
    assert [record.value for record in kcat.consume(topic)] == ["one", "two"]
    assert [record.value for record in kcat.take(group, topic, 2)] == ["one", "two"]


def test_kafkajs(site: SecureSite, topic: str, group: str) -> None:
    own = site.client_file.read_text()
    with KafkaJs(
        node_program(), site.bootstrap, ssl={"ca": [site.authority_file.read_text()], "cert": own, "key": own}
    ) as kafkajs:
        kafkajs.producer().call("send", {"topic": topic, "messages": messages([b"one", b"two"])})
        consumer = kafkajs.consumer(group, topic)
        assert [record.value for record in consumer.take(2)] == [b"one", b"two"]
        kafkajs.disconnect_all()
