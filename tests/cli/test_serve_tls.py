"""`foldlog serve` with TLS, as people run it: its line, its signals, and those who have no certificate."""

from __future__ import annotations

import re
import signal
import socket
import ssl
import stat
import urllib.request
from pathlib import Path

import pytest

import foldlog
from certificates import Authority, client_context
from cli.command import WAIT_S
from cli.command import foldlog as run
from cli.serving import Serving, serving
from foldlog.broker.data_directory import writer_of
from foldlog.files.holder import LOCAL_SOCKET
from foldlog.files.posix import PosixFiles
from foldlog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from server.raw_client import RawClient, batch, produce, produced

PRODUCE_VERSION = 9
BROKER_RESOURCE = 4
URL = re.compile(r"\((metrics|console) (https://[^)]*)\)")


class Site:
    """Certificates in files, and the flags that name them."""

    def __init__(self, path: Path) -> None:
        self.authority = Authority()
        self.data = path / "data"
        self.keystore = self.authority.broker().write(path / "broker.pem")
        self.truststore = self.authority.write(path / "authority.pem")
        self.client = self.authority.client("billing").write(path / "client.pem")
        self.flags = (
            *("--listen", "SSL://127.0.0.1:0", "-X", "ssl.client.auth=required"),
            *("-X", f"ssl.keystore.location={self.keystore}", "-X", f"ssl.truststore.location={self.truststore}"),
        )

    @property
    def context(self) -> ssl.SSLContext:
        return client_context(self.authority, self.client)

    def connect(self, broker: Serving) -> RawClient:
        return RawClient(broker.address, tls=self.context)

    def shown_certificate(self, broker: Serving) -> bytes:
        with self.context.wrap_socket(
            socket.create_connection(broker.address), server_hostname="127.0.0.1"
        ) as connected:
            return connected.getpeercert(binary_form=True) or b""


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_it_serves_and_a_hangup_reads_the_certificates_again(site: Site) -> None:
    with serving(str(site.data), *site.flags, "--create", "orders") as broker:
        assert broker.ready == f"foldlog is serving {site.data} on 127.0.0.1:{broker.address[1]} (SSL)\n"
        client = site.connect(broker)
        renewed = site.authority.broker("renewed")
        renewed.write(site.keystore.with_suffix(".new")).rename(site.keystore)
        broker.process.send_signal(signal.SIGHUP)
        while site.shown_certificate(broker) != renewed.der:
            assert broker.process.poll() is None
        assert produced(client.ask(produce(batch(b"still here")), PRODUCE_VERSION)) == (0, 0)
        site.keystore.write_text("broken")
        broker.process.send_signal(signal.SIGHUP)
        assert broker.process.stderr is not None
        # Who connects is in the audit log, between them.
        told = (line for line in broker.process.stderr if " audit: " not in line)
        read_again, kept = next(told), next(told)
        assert site.shown_certificate(broker) == renewed.der
        assert broker.end() == 0
    assert "INFO    server: SSL: its certificates were read again: CN=renewed, valid until" in read_again
    assert "WARNING server: SSL: its new certificates cannot be used, and the old ones are kept: " in kept
    assert [line.split(" ", 1)[1] for line in broker.errors if " audit: " not in line] == [
        "INFO    serve: SIGTERM: answering the requests under way, then stopping",
        f"INFO    serve: {site.data} is closed",
    ]


def test_other_processes_use_the_socket_in_the_directory(site: Site) -> None:
    """They have no certificate: that they may write the directory is enough."""
    with serving(str(site.data), *site.flags, "--create", "orders") as broker:
        local = site.data / LOCAL_SOCKET
        assert stat.S_IMODE(local.stat().st_mode) == 0o600
        writer = writer_of(PosixFiles(), str(site.data))
        assert writer is not None
        assert writer.address == f"127.0.0.1:{broker.address[1]}"
        with foldlog.open(site.data) as log:
            log.append("orders", b"from here")
            with log.producer() as producer:
                producer.send("orders", b"and here")
            assert [record.value for record in log.read("orders")] == [b"from here", b"and here"]
            log.create_topic("clicks", partitions=2)
            with log.consumer("orders", group="billing", auto_offset_reset="earliest") as consumer:
                assert len(consumer.poll(timeout_ms=WAIT_S * 1000)) > 0
        listed = run("topic", "list", "-d", str(site.data))
        assert "clicks" in listed.stdout.decode()
        secure = {
            "security.protocol": "SSL",
            "ssl.ca.location": site.truststore,
            "ssl.certificate.location": site.client,
            "ssl.key.location": site.client,
        }
        options = [part for name, value in secure.items() for part in ("-X", f"{name}={value}")]
        listed = run("topic", "list", "-b", f"127.0.0.1:{broker.address[1]}", *options)
        assert "clicks" in listed.stdout.decode()
        broker.process.kill()
        broker.process.wait(WAIT_S)
    # What a killed broker left hinders nobody: neither those who write for a moment, nor the next one.
    with foldlog.open(site.data) as log:
        log.append("orders", b"alone")
    with serving(str(site.data), *site.flags) as broker, foldlog.open(site.data) as log:
        assert log.append("orders", b"again").offset == 3
        assert broker.end() == 0


def test_a_directory_with_a_long_path_has_a_socket_too(site: Site, tmp_path: Path) -> None:
    """The system's addresses of sockets have room for about a hundred bytes."""
    data = tmp_path / ("d" * 100) / ("e" * 100)
    data.parent.mkdir()
    with serving(str(data), *site.flags, "--create", "orders") as broker:
        with foldlog.open(data) as log:
            assert log.append("orders", b"x").offset == 0
        assert broker.end() == 0


def test_console_and_metrics_over_tls(site: Site) -> None:
    addresses = ("--console", "https://127.0.0.1:0", "--metrics", "https://127.0.0.1:0")
    plain = client_context(site.authority)
    with serving(str(site.data), *site.flags, *addresses) as broker:
        urls = dict(URL.findall(broker.ready))
        with urllib.request.urlopen(urls["metrics"], timeout=WAIT_S, context=plain) as answer:
            assert b"foldlog_" in answer.read()
        with urllib.request.urlopen(f"{urls['console']}api/overview", timeout=WAIT_S, context=plain) as answer:
            assert b"topics" in answer.read()
        with pytest.raises(OSError):  # it is closed: this is no HTTP without TLS
            urllib.request.urlopen(urls["metrics"].replace("https", "http"), timeout=WAIT_S)
        assert broker.end() == 0
    assert any("it looks like HTTP without TLS, on a listener with TLS: use https" in line for line in broker.errors)


def test_certificates_that_cannot_be_used_are_one_sentence_and_nothing_is_made(site: Site) -> None:
    site.keystore.write_text(site.authority.pem)
    refused = run("serve", str(site.data), *site.flags)
    assert refused.returncode == 2
    assert b"has 1 certificates and 0 private keys; it needs one private key" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert not site.data.exists()


def test_secrets_are_shown_nowhere_and_a_file_that_others_can_read_is_named(site: Site, tmp_path: Path) -> None:
    password = "correct horse battery staple"
    issued = site.authority.broker("inline")
    lines = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": issued.certificate_pem.strip().replace("\n", "\\\n "),
        "ssl.keystore.key": issued.key_pem(password).strip().replace("\n", "\\n"),
        "ssl.key.password": password,
    }
    config = tmp_path / "server.properties"
    config.write_text("\n".join(f"{name}={text}" for name, text in lines.items()))
    config.chmod(0o644)
    with serving(str(site.data), "--config", str(config), "--log-level", "debug") as broker:
        client = RawClient(broker.address, tls=client_context(site.authority))
        resource = DescribeConfigsResource(resource_type=BROKER_RESOURCE, resource_name="1")
        answer = client.ask(DescribeConfigsRequest(resources=[resource]), 4)
        described = {row.name: row.value for row in answer.results[0].configs}
        assert broker.end() == 0
    assert described["ssl.keystore.key"] is described["ssl.key.password"] is None
    assert f"{config} has ssl.keystore.certificate.chain and is open to others (mode 0644)" in broker.errors[0]
    said = "\n".join([*broker.errors, broker.ready, repr(described)])
    assert password not in said
    assert "PRIVATE" not in said
