"""Where a broker listens and what its clients are told: every way to write it, and everything that is refused.

The refusals matter most: without security, an address that other machines reach has to be asked for by name.
"""

from __future__ import annotations

import pytest

from foldlog.errors import InvalidConfig
from foldlog.server.config.settings import ServerSettings
from foldlog.server.net.listeners import Listener, is_loopback, parse_listener


def refusal(**properties: object) -> str:
    with pytest.raises(InvalidConfig) as caught:
        parse(**properties)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def parse(**properties: object) -> ServerSettings:
    return ServerSettings.parse({name.replace("_", "."): value for name, value in properties.items()})


@pytest.mark.parametrize(
    ("text", "name", "host", "port"),
    [
        ("127.0.0.1:9092", "", "127.0.0.1", 9092),
        ("localhost:9092", "", "127.0.0.1", 9092),
        ("LOCALHOST:0", "", "127.0.0.1", 0),
        ("[::1]:9092", "", "::1", 9092),
        ("[fe80::1%eth0]:9092", "", "fe80::1%eth0", 9092),
        (":9092", "", "", 9092),
        ("PLAINTEXT://:65535", "PLAINTEXT", "", 65535),
        ("plaintext://broker-1.example.com:9092", "PLAINTEXT", "broker-1.example.com", 9092),
        ("  PLAINTEXT://[::]:9092 ", "PLAINTEXT", "::", 9092),
    ],
)
def test_a_listener_is_written_as_kafka_writes_it_or_shorter(text: str, name: str, host: str, port: int) -> None:
    assert parse_listener(text, "listeners", {})[:3] == (name, host, port)


@pytest.mark.parametrize(
    "text",
    ["", "9092", "host", "host:", "host:x", "host:65536", "host:-1", "::1:9092", "[::1]", "[::1:9092", "[1.2.3.4]:1",
     "a b:1", "http://", "//host:1", "host:9092/path", "-host:1", "[:::]:1", "héte:1", "host:٣"],
)  # fmt: skip
def test_what_is_no_address_is_refused_and_shown(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"is no address; it is HOST:PORT"):
        parse_listener(text, "listeners", {})


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("127.0.0.1", True), ("127.8.9.10", True), ("::1", True), ("0:0:0:0:0:0:0:1", True), ("localhost", True),
     ("::ffff:127.0.0.1", True), ("", False), ("0.0.0.0", False), ("::", False), ("10.0.0.1", False),
     ("127.example.com", False), ("localhost.example.com", False), ("::ffff:10.0.0.1", False), ("fe80::1", False)],
)  # fmt: skip
def test_loopback_is_told_from_what_only_looks_like_it(host: str, is_local: bool) -> None:
    assert is_loopback(host) == is_local


def test_listeners_without_a_name_get_one_each() -> None:
    settings = parse(listen=["127.0.0.1:0", "[::1]:0", "127.0.0.1:0"])
    assert [listener.name for listener in settings.listeners] == ["PLAINTEXT", "PLAINTEXT_2", "PLAINTEXT_3"]
    assert str(settings.listeners[1]) == "PLAINTEXT_2://[::1]:0"


def test_a_name_needs_a_protocol() -> None:
    settings = parse(
        listeners="INTERNAL://127.0.0.1:9092,external://127.0.0.1:9093",
        listener_security_protocol_map="INTERNAL:PLAINTEXT, EXTERNAL:PLAINTEXT",
    )
    assert [listener.name for listener in settings.listeners] == ["INTERNAL", "EXTERNAL"]
    assert "listener.security.protocol.map=INTERNAL:PLAINTEXT" in refusal(listeners="INTERNAL://127.0.0.1:9092")
    assert "is not NAME:PROTOCOL" in refusal(listener_security_protocol_map="OUT:TLS")
    assert "is not NAME:PROTOCOL" in refusal(listener_security_protocol_map="OUT")


@pytest.mark.parametrize("listener", ["PLAINTEXT://127.0.0.1:1", "SSL://127.0.0.1:1", "OUT://127.0.0.1:1"])
@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_a_listener_with_tls_needs_a_certificate(listener: str, protocol: str) -> None:
    name = listener.partition(":")[0]
    text = refusal(listeners=listener, listener_security_protocol_map=f"{name}:{protocol}")
    assert f"the listener {name} speaks TLS and has no certificate; set ssl.keystore.location" in text


def test_a_listener_carries_its_protocol() -> None:
    settings = parse(
        listeners="127.0.0.1:1,SASL_PLAINTEXT://127.0.0.1:2,IN://127.0.0.1:3",
        listener_security_protocol_map="IN:SASL_SSL",
        advertised_listeners="IN://broker.example.com:3",
        ssl_keystore_location="/etc/broker.pem",
    )
    assert [one.protocol for one in settings.listeners] == ["PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL"]
    assert settings.advertised(settings.listeners[2], 3).protocol == "SASL_SSL"
    assert list(settings.tls) == ["IN"]


def test_what_other_machines_reach_has_to_know_who_they_are() -> None:
    """Without --insecure: certificates are required, or passwords are encrypted."""
    tls = {"ssl_keystore_location": "/etc/broker.pem", "ssl_truststore_location": "/etc/authority.pem"}
    out = {"advertise": "SSL://broker.example.com:9092"}
    asked = parse(listen="SSL://10.1.2.3:9092", ssl_client_auth="required", **tls, **out)
    assert asked.tls["SSL"].authenticates
    for client_auth in ("none", "requested"):
        text = refusal(listen="SSL://10.1.2.3:9092", ssl_client_auth=client_auth, **tls, **out)
        assert "it does not ask who its clients are" in text
        assert "set ssl.client.auth=required" in text
    assert parse(listen="SASL_SSL://10.1.2.3:9092", **tls).listeners[0].protocol == "SASL_SSL"
    text = refusal(listen="SASL_PLAINTEXT://10.1.2.3:9092")
    assert "passwords and records can be read on the way; listen with SASL_SSL, or add --insecure" in text
    assert parse(listen="SASL_PLAINTEXT://10.1.2.3:9092", foldlog_insecure=True).listeners


def test_on_listeners_with_a_login_certificates_are_asked_for_by_name_only() -> None:
    """As Kafka does: ssl.client.auth=required for SSL would lock out those who have a password."""
    tls = {"ssl.keystore.location": "/etc/broker.pem", "ssl.truststore.location": "/etc/authority.pem"}
    listeners = {"listeners": "SSL://127.0.0.1:1,SASL_SSL://127.0.0.1:2", "ssl.client.auth": "required"}
    settings = ServerSettings.parse({**tls, **listeners, "foldlog.metrics": "https://127.0.0.1:3"})
    assert {name: each.client_auth for name, each in settings.tls.items()} == {
        "SSL": "required",
        "SASL_SSL": "none",
        "METRICS": "none",
    }
    named = {"listener.name.sasl_ssl.ssl.client.auth": "requested", "listener.name.ssl.ssl.client.auth": "none"}
    settings = ServerSettings.parse({**tls, **listeners, **named})
    assert {name: each.client_auth for name, each in settings.tls.items()} == {"SSL": "none", "SASL_SSL": "requested"}


def test_http_has_tls_where_its_address_is_a_url_of_https() -> None:
    tls = {"ssl.keystore.location": "/etc/broker.pem"}
    settings = ServerSettings.parse(
        {**tls, "foldlog.console": "https://localhost:8443/", "foldlog.metrics": "http://127.0.0.1:1"}
    )
    assert settings.console == Listener("https", "127.0.0.1", 8443, "SSL")
    assert settings.metrics == Listener("", "127.0.0.1", 1)
    assert list(settings.tls) == ["CONSOLE"]
    assert "no certificate" in refusal(foldlog_metrics="https://127.0.0.1:1")
    exposed = {**tls, "ssl.truststore.location": "/etc/a.pem", "foldlog.metrics": "https://10.1.2.3:1"}
    with pytest.raises(InvalidConfig, match="does not ask who its clients are"):
        ServerSettings.parse(exposed)
    assert ServerSettings.parse({**exposed, "listener.name.metrics.ssl.client.auth": "required"}).metrics


def test_two_listeners_cannot_share_a_name_or_an_address() -> None:
    assert "names PLAINTEXT twice" in refusal(listeners="PLAINTEXT://127.0.0.1:1,PLAINTEXT://[::1]:1")
    assert "127.0.0.1:1 twice" in refusal(listeners="127.0.0.1:1,localhost:1")
    assert "listeners is empty" in refusal(listeners=" , ")
    assert "listeners is empty" in refusal(listeners="CONTROLLER://:9093", controller_listener_names="CONTROLLER")


@pytest.mark.parametrize("address", [":9092", "0.0.0.0:0", "[::]:9092", "10.1.2.3:9092", "broker.example.com:9092"])
def test_a_listener_that_other_machines_reach_is_refused_and_says_why(address: str) -> None:
    text = refusal(listen=address)
    assert "no authentication and no encryption" in text
    assert "read, write and delete everything" in text
    assert "--insecure" in text
    told = parse(listen=address, advertise="broker.example.com:9092", foldlog_insecure=True)
    assert told.advertised(told.listeners[0], 5000).address == "broker.example.com:9092"


def test_one_exposed_listener_among_others_is_refused() -> None:
    assert "10.1.2.3:9092" in refusal(listen="127.0.0.1:9092,10.1.2.3:9092")


def test_metrics_beyond_loopback_are_refused_likewise() -> None:
    refused = refusal(foldlog_metrics="0.0.0.0:9464")
    assert "--insecure" in refused
    assert "see the names of topics and groups" in refused
    assert "write" not in refused
    for unnamed in ("9464", "NAME://127.0.0.1:9464"):
        assert "is no address; it is HOST:PORT or [IPV6]:PORT with" in refusal(foldlog_metrics=unnamed)
    settings = parse(foldlog_metrics="localhost:9464")
    assert settings.metrics == Listener("", "127.0.0.1", 9464)
    assert parse(foldlog_metrics="0.0.0.0:9464", foldlog_insecure="true").metrics is not None
    assert parse(foldlog_metrics="").metrics is None


def test_every_interface_is_no_address_to_tell_clients() -> None:
    for address in (":9092", "0.0.0.0:9092", "[::]:9092"):
        assert "--advertise" in refusal(listen=address, foldlog_insecure=True)
        text = refusal(listen=address, foldlog_insecure=True, advertise="0.0.0.0:9092")
        assert "no client can connect to" in text


def test_clients_are_told_the_address_that_is_listened_on_unless_another_is_given() -> None:
    settings = parse(listen="localhost:0,[::1]:0", advertise="PLAINTEXT_2://proxy:19092")
    first, second = settings.listeners
    assert settings.advertised(first, 5000).address == "127.0.0.1:5000"
    assert settings.advertised(second, 5001).address == "proxy:19092"


def test_an_advertised_port_of_zero_is_the_port_that_was_chosen() -> None:
    settings = parse(listen="127.0.0.1:0", advertise="broker:0")
    assert settings.advertised(settings.listeners[0], 5000).address == "broker:5000"


def test_advertised_addresses_without_a_name_go_to_the_listeners_in_order() -> None:
    settings = parse(listen="127.0.0.1:1,127.0.0.1:2", advertise=["a:10", "b:20"])
    assert [settings.advertised(listener, 0).address for listener in settings.listeners] == ["a:10", "b:20"]


def test_an_advertised_address_needs_its_listener() -> None:
    assert "there is no listener for it" in refusal(advertise="a:1,b:2")
    assert "nothing says what that is" in refusal(advertise="OTHER://a:1")
    assert "two addresses" in refusal(advertise="a:1,PLAINTEXT://b:2")


@pytest.mark.parametrize(
    ("host", "local"), [("", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("10.0.0.1", "10.0.0.1")]
)
def test_processes_of_the_machine_have_an_address_too(host: str, local: str) -> None:
    assert Listener("PLAINTEXT", host, 1).local_host == local


def test_an_advertised_name_is_told_as_it_was_given() -> None:
    settings = ServerSettings.parse({"listeners": "localhost:9092", "advertised.listeners": "localhost:9092"})
    assert [one.host for one in settings.listeners] == ["127.0.0.1"]
    assert [one.host for one in settings.advertised_listeners] == ["localhost"]
