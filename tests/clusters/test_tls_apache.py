"""Java at our TLS listeners, and Java's word on names: what a principal is has to be the same, letter by letter."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters.kafka_tools import run_tool
from clusters.maven import JarsUnavailable

from certificates import Authority
from foldlog.broker.broker import Broker
from foldlog.server.config.settings import ServerSettings
from foldlog.server.server import Server
from foldlog.server.tls.certificates import parse_certificate
from server.tls.conftest import Principals
from server.tls.subjects import SUBJECTS

PRINT_NAMES = """
import java.io.*;
import java.security.cert.*;

public class PrintNames {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        InputStream file = new FileInputStream(arguments[0]);
        for (Certificate each : CertificateFactory.getInstance("X.509").generateCertificates(file))
            out.println(((X509Certificate) each).getSubjectX500Principal().getName());
    }
}
"""
"""What Kafka's DefaultKafkaPrincipalBuilder takes for a client's name."""


class JavaSite:
    """A broker that requires certificates, and the properties of a Java client that has one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        authority = Authority()
        client = authority.client("java, the client")
        self.principals = Principals()
        self.broker = Broker.open(":memory:")
        self.broker.create_topic("orders")
        settings = {
            "listeners": "SSL://127.0.0.1:0",
            "ssl.keystore.location": str(authority.broker().write(path / "broker.pem")),
            "ssl.truststore.certificates": authority.pem,
            "ssl.client.auth": "required",
        }
        self.server = Server.start(self.broker, ServerSettings.parse(settings), authorizer=self.principals)
        self.properties = path / "client.properties"
        self.properties.write_text(
            "security.protocol=SSL\n"
            "ssl.truststore.type=PEM\n"
            f"ssl.truststore.location={authority.write(path / 'authority.pem')}\n"
            "ssl.keystore.type=PEM\n"
            f"ssl.keystore.location={client.write(path / 'client.pem')}\n"
        )

    def run(self, tool: str, option: str, *words: str, text: str | None = None) -> str:
        """Run a tool of Kafka's with these properties; what it printed."""
        where = ("--bootstrap-server", self.server.bootstrap, option, str(self.properties))
        try:
            done = run_tool(tool, *where, *words, text=text)
        except JarsUnavailable as missing:
            pytest.skip(str(missing))
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def close(self) -> None:
        self.server.stop()
        self.broker.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[JavaSite]:
    made = JavaSite(tmp_path)
    yield made
    made.close()


def test_javas_clients_with_certificates_of_their_own(site: JavaSite) -> None:
    site.run("kafka-console-producer", "--command-config", "--topic", "orders", text="one\ntwo\n")
    reading = ("--topic", "orders", "--from-beginning", "--max-messages", "2", "--timeout-ms", "60000")
    assert site.run("kafka-console-consumer", "--command-config", *reading) == "one\ntwo\n"
    assert site.principals.seen == {r"User:CN=java\, the client"}


def test_javas_clients_take_a_certificate_that_is_renewed_under_them(site: JavaSite) -> None:
    assert "orders" in site.run("kafka-topics", "--command-config", "--list")
    site.server.reload_certificates()
    assert "orders" in site.run("kafka-topics", "--command-config", "--list")


def test_names_are_those_of_java(tmp_path: Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("there is no Java; install a JDK")
    authority = Authority()
    issued = [authority.client(name) for name, _ in SUBJECTS.values()]
    file, program = tmp_path / "all.pem", tmp_path / "PrintNames.java"
    file.write_text("".join(each.certificate_pem for each in issued))
    program.write_text(PRINT_NAMES)
    printed = subprocess.run(["java", str(program), str(file)], capture_output=True, check=True, timeout=120).stdout
    names = printed.decode().splitlines()
    assert names == [expected for _, expected in SUBJECTS.values()]
    assert names == [parse_certificate(each.der).subject for each in issued]
