"""What a person may say about how to reach a cluster: each address and property that is right, and each that is not.

A wrong one is told in one sentence before anything is connected.
"""

from __future__ import annotations

import ctypes
import logging
import re
import ssl
from pathlib import Path

import confluent_kafka
import pytest

from foldlog.client.wire.properties import Address, ClusterProperties, parse_addresses
from foldlog.client.wire.property_names import LIBRDKAFKA
from foldlog.errors import InvalidArgument, InvalidConfig


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a:1", [Address("a", 1)]),
        (" a:1 , b.c:65535,,a:1", [Address("a", 1), Address("b.c", 65535)]),
        ("[::1]:9092", [Address("::1", 9092)]),
        ("SSL://kafka_1:9093", [Address("kafka_1", 9093)]),
    ],
)
def test_addresses_are_read_as_javas_clients_read_them(text: str, found: list[Address]) -> None:
    assert list(parse_addresses(text)) == found


@pytest.mark.parametrize(
    "text", ["", " , ", "kafka", "kafka:", ":9092", "kafka:0", "kafka:65536", "kafka:x", "::1:9", "a b:1"]
)
def test_what_is_no_address_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"bootstrap\.servers names"):
        parse_addresses(text)


def test_an_address_of_version_six_is_shown_as_it_was_written() -> None:
    assert str(parse_addresses("[fe80::2]:9092")[0]) == "[fe80::2]:9092"


def test_defaults_are_those_of_kafkas_clients() -> None:
    properties = ClusterProperties.parse({})
    assert properties.client_id == "foldlog"
    assert properties.request_timeout_ms == 30_000
    assert properties.default_api_timeout_ms == 60_000
    assert properties.fetch_max_wait_ms == 500
    assert properties.max_partition_fetch_bytes == 1 << 20
    assert properties.isolation_level == 0
    assert properties.tls is None


def test_properties_are_taken_by_their_kafka_names() -> None:
    properties = ClusterProperties.parse(
        {"request.timeout.ms": " 7 ", "isolation.level": "read_committed", "client.id": "folds", "fetch.max.bytes": "9"}
    )
    assert (properties.request_timeout_ms, properties.isolation_level) == (7, 1)
    assert (properties.client_id, properties.fetch_max_bytes) == ("folds", 9)


@pytest.mark.parametrize("value", ["", "soon", "0", "-1", "1.5", str(1 << 31)])
def test_a_number_out_of_range_is_refused(value: str) -> None:
    with pytest.raises(InvalidConfig, match=r"request\.timeout\.ms=.* is not a whole number from 1 to"):
        ClusterProperties.parse({"request.timeout.ms": value})


def test_an_unknown_isolation_level_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="read_uncommitted, read_committed"):
        ClusterProperties.parse({"isolation.level": "serializable"})


@pytest.mark.parametrize("protocol", ["TLS", "SASL", ""])
def test_another_protocol_is_refused_by_naming_those_that_there_are(protocol: str) -> None:
    with pytest.raises(InvalidConfig, match="is not known; it is one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"):
        ClusterProperties.parse({"security.protocol": protocol})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("security.protocl", "security.protocol"),
        ("Security.Protocol", "security.protocol"),
        ("ssl.ca.locaiton", "ssl.ca.location"),
        ("sasl.user.name", "sasl.username"),
        ("isolation.levels", "isolation.level"),
        ("fetch.min.byte", "fetch.min.bytes"),
    ],
)
def test_a_misspelled_property_is_refused_with_the_name_that_was_meant(name: str, meant: str) -> None:
    """Passed over, the first of them would connect in the clear."""
    with pytest.raises(InvalidConfig) as caught:
        ClusterProperties.parse({name: "secret"})
    assert str(caught.value) == f"there is no Kafka client property {name!r}; did you mean {meant}?"


def test_a_property_that_is_like_none_is_refused_too() -> None:
    with pytest.raises(InvalidConfig, match=r"^there is no Kafka client property 'colour'; names are those of Java's"):
        ClusterProperties.parse({"colour": "blue"})


def test_every_property_of_librdkafka_is_known(tmp_path: Path) -> None:
    """Its own list of them, as of the version that is installed."""
    assert confluent_kafka.libversion()[0], "it is loaded"
    (path,) = set(re.findall(r"\S*librdkafka\S*", Path("/proc/self/maps").read_text()))
    library = ctypes.CDLL(path)
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    listing = tmp_path / "properties.md"
    stream = ctypes.c_void_p(libc.fopen(bytes(listing), b"w"))
    library.rd_kafka_conf_properties_show(stream)
    libc.fclose(stream)
    listed = set(re.findall(r"^([a-z0-9_.]+) +\|", listing.read_text(), re.MULTILINE)) - {"property"}
    assert len(listed) > 100
    no_text = {name for name in listed if re.search(r"_cb$|^ssl_|^interceptors$|^opaque$|_cmp$|_conf$|^internal", name)}
    assert listed - no_text == LIBRDKAFKA


def test_what_only_other_clients_know_is_no_misspelling() -> None:
    others = [
        "config.providers.vault.param.address",
        "sasl.login.callback.handler.class",
        "fetch.min.bytes",
        "ssl.crl.location",
        "ssl.key.pem",
        "fetch.wait.max.ms",
        "group.id",
        "client.rack",
        "acks",
    ]
    ClusterProperties.parse(dict.fromkeys(others, "1"))


def test_properties_that_mean_nothing_here_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="foldlog"):
        ClusterProperties.parse({"auto.offset.reset": "latest", "group.id": "g", "client.id": "c"})
    assert caplog.messages == ["these Kafka client properties have no effect here: auto.offset.reset, group.id"]
    assert [record.levelname for record in caplog.records] == ["DEBUG"]


# --- TLS --------------------------------------------------------------------------------------------------------------


def test_tls_checks_the_brokers_name_unless_told_not_to() -> None:
    checked = ClusterProperties.parse({"security.protocol": "SSL"}).tls
    assert checked is not None
    assert checked.check_hostname
    unchecked = ClusterProperties.parse({"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": ""}).tls
    assert unchecked is not None
    assert not unchecked.check_hostname
    assert unchecked.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("name", ["ssl.ca.location", "ssl.certificate.location"])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path, name: str, is_there: bool) -> None:
    file = tmp_path / "it.pem"
    if is_there:
        file.write_text("not a certificate")
    with pytest.raises(InvalidConfig, match=r"it\.pem"):
        ClusterProperties.parse({"security.protocol": "SSL", name: str(file)})


def test_certificates_as_text_are_authorities_and_nothing_else() -> None:
    with pytest.raises(InvalidConfig, match=r"\(ssl\.truststore\.certificates\)"):
        ClusterProperties.parse({"security.protocol": "SSL", "ssl.truststore.certificates": "not a certificate"})
    with pytest.raises(InvalidConfig, match=r"ssl\.keystore\.key cannot be given as text"):
        ClusterProperties.parse({"security.protocol": "SSL", "ssl.keystore.key": "a secret"})


@pytest.mark.parametrize("store", ["ssl.truststore", "ssl.keystore"])
def test_a_java_keystore_is_refused_with_the_way_out(store: str) -> None:
    with pytest.raises(InvalidConfig, match=r"export it as PEM"):
        ClusterProperties.parse({"security.protocol": "SSL", f"{store}.location": "trust.jks"})
