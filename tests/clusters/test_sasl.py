"""Our own client logs in to Apache Kafka over TLS, with each mechanism, in everything that goes over the wire.

And where it cannot: each reason is one sentence, soon, and the password is in none of them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from clusters.apache_kafka import MECHANISMS, PASSWORD, USER, ApacheKafka
from clusters.kafka_tools import tool_command
from pyspark.sql import SparkSession

import foldlog
import foldlog.spark as fl
from client.wire.localhost_certificate import PEM
from client.wire.test_cluster_reads import read
from foldlog.cli.main import main
from foldlog.client.wire import links as cluster_links
from foldlog.client.wire.cluster import Cluster
from foldlog.client.wire.connection import WireConnection
from foldlog.client.wire.logins.sasl import Credentials, authenticate
from foldlog.client.wire.properties import ClusterProperties
from foldlog.clock import SystemClock
from foldlog.errors import AuthenticationFailed, BrokerUnreachable, GroupNotEmpty
from foldlog.records.loops import pack
from foldlog.spark.folds.declaration import load_folds

SOON = {"retry.backoff.ms": "50", "socket.connection.setup.timeout.ms": "5000", "request.timeout.ms": "5000"}


class Command:
    """The command line, run in this process. `told` is all that it has printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.told = ""

    def __call__(self, *arguments: object) -> str:
        code = main([str(argument) for argument in arguments])
        printed = self._capsys.readouterr()
        self.told += printed.out + printed.err
        assert code == 0, printed.err
        return printed.out


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("tls") / "localhost.pem"
    file.write_text(PEM, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def known(certificate: Path) -> dict[str, str]:
    """All properties of a user, but for the mechanism."""
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(certificate),
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }


@pytest.fixture(scope="module")
def client_config(tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> Path:
    """client.properties as Kafka's tools have it, but for the certificates, which librdkafka reads."""
    file = tmp_path_factory.mktemp("client") / "client.properties"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    file.write_text(
        "bootstrap.servers=elsewhere:9092\nsecurity.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={module} required username="{USER}" \\\n    password="{PASSWORD}";\n'
        f"ssl.ca.location={certificate}\n",
        encoding="utf-8",
    )
    return file


def one_record(value: bytes) -> bytearray:
    """A batch of now: an older one would be expired by the topic's retention."""
    return pack([(SystemClock().now_ms(), None, value, ())])


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_client_writes_and_reads_with_each_mechanism(
    apache_kafka: ApacheKafka, known: dict[str, str], mechanism: str
) -> None:
    topic = f"sasl.{mechanism.lower()}"
    with Cluster.open(apache_kafka.sasl_bootstrap, {**known, "sasl.mechanism": mechanism}) as cluster:
        cluster.create_topic(topic, 2)
        with cluster.producer() as producer:
            for number in range(40):
                producer.send(topic, number % 2, one_record(b"%d" % number * 40_000))
        found = [read(cluster, topic, 0, 20, partition) for partition in (0, 1)]
        cluster.commit(topic, topic, {0: 20, 1: 7})
        assert {place.partition: at.offset for place, at in cluster.committed(topic).items()} == {0: 20, 1: 7}
    with foldlog.connect(apache_kafka.url) as log:
        for partition in (0, 1):
            assert [one.value for one in log.read(topic, partition)] == [one.value for one in found[partition]]
            begins = [b"%d" % partition, b"%d" % (partition + 2)]
            assert [one.value[:1] for one in found[partition][:2]] == begins


def test_a_password_that_saslprep_would_change_is_the_one_that_kafkas_tools_have_set(
    apache_kafka: ApacheKafka, known: dict[str, str]
) -> None:
    """Neither Kafka's tools nor its brokers prepare a password: one with a ligature and a no-break space is itself.

    A name is ASCII for them, and '=' and ',' in it are written otherwise on the wire.
    """
    user, password = "jurgen=a,b", "\ufb01ve\u00a0K\u00f6ln"
    command = tool_command(
        "kafka-configs", "--bootstrap-server", apache_kafka.bootstrap, "--alter", "--entity-type", "users",
        "--entity-name", user, "--add-config", f"SCRAM-SHA-256=[iterations=8192,password={password}]",
    )  # fmt: skip
    speaks_utf8 = {**os.environ, "LC_ALL": "C.UTF-8"}
    created = subprocess.run(command, env=speaks_utf8, capture_output=True, text=True, timeout=120, check=False)
    assert created.returncode == 0, created.stderr
    login = {**known, "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": user, "sasl.password": password}
    with Cluster.open(apache_kafka.sasl_bootstrap, login) as cluster:
        assert isinstance(cluster.topics(), list)


def test_a_login_that_ends_is_renewed(
    apache_kafka: ApacheKafka, known: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker gives SCRAM-SHA-256 a second (connections.max.reauth.ms). Three seconds later all is as it was."""
    lifetimes: list[int] = []

    def counted(connection: WireConnection, credentials: Credentials, timeout_s: float) -> int:
        lifetimes.append(authenticate(connection, credentials, timeout_s))
        return lifetimes[-1]

    monkeypatch.setattr(cluster_links, "authenticate", counted)
    with Cluster.open(apache_kafka.sasl_bootstrap, {**known, "sasl.mechanism": "SCRAM-SHA-256"}) as cluster:
        cluster.create_topic("sasl.renewed")
        sent = 0
        with cluster.producer() as producer:
            while len(lifetimes) < 9:
                producer.send("sasl.renewed", 0, one_record(b"%d" % sent))
                producer.flush()
                sent += 1
                assert [one.offset for one in read(cluster, "sasl.renewed", sent - 1, sent)] == [sent - 1]
        assert cluster.bounds("sasl.renewed")[0].end == sent
    assert all(0 < lifetime_ms <= 1000 for lifetime_ms in lifetimes)


# --- everything that goes over our own connections ------------------------------------------------------------------


def test_a_log_moves_and_forgets_a_group_that_has_members(apache_kafka: ApacheKafka, known: dict[str, str]) -> None:
    url = f"kafka://{apache_kafka.sasl_bootstrap}?sasl.mechanism=SCRAM-SHA-256"
    with foldlog.connect(url, properties=known) as log:
        log.create_topic("sasl.moved")
        placed = [log.append("sasl.moved", b"%d" % number) for number in range(3)]
        with log.consumer(["sasl.moved"], group="sasl.fraud", auto_offset_reset="earliest") as consumer:
            seen = 0
            while seen < 3:
                seen += len(consumer.poll(timeout_ms=1000))
            consumer.commit()
            with pytest.raises(GroupNotEmpty):
                log.reset_group("sasl.fraud", {("sasl.moved", 0): "start"})
            log.reset_group("sasl.fraud", {("sasl.moved", 0): "start"}, evict=True)
            again: list[int] = []
            while not again:
                again += [record.offset for record in consumer.poll(timeout_ms=1000)]
        assert again[0] == placed[0].offset
        log.delete_offsets("sasl.fraud", [("sasl.moved", 0)])
        assert log.committed("sasl.fraud") == {}


def test_a_topic_is_copied_from_and_to_a_cluster_with_users(
    apache_kafka: ApacheKafka,
    client_config: Path,
    known: dict[str, str],
    tmp_path: Path,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The password is in a file, and in a variable; nothing that is printed has it."""
    here, back = tmp_path / "data", tmp_path / "back"
    with foldlog.open(here) as log:
        log.create_topic("sasl.copied", partitions=2)
        for number in range(50):
            log.append("sasl.copied", b"%d" % number, key=str(number))
        expected = [[record.value for record in log.read("sasl.copied", partition)] for partition in (0, 1)]
    at = apache_kafka.sasl_bootstrap
    command("copy", "sasl.copied", "--from", here, "--to", f"kafka://{at}", "--to-config", client_config)
    words = {**known, "sasl.mechanism": "PLAIN"}
    monkeypatch.setenv("FOLDLOG_FROM_PROPERTY", " ".join(f"{name}={value}" for name, value in words.items()))
    command("copy", "sasl.copied=back", "--from", at, "--to", back, "--format", "json")
    with foldlog.open(back) as log:
        assert [[record.value for record in log.read("back", partition)] for partition in (0, 1)] == expected
    listed = command("topic", "list", "-b", at, "--command-config", client_config)
    assert "sasl.copied" in listed
    assert PASSWORD not in command.told


# --- Spark and the folds --------------------------------------------------------------------------------------------

FOLDS = """
import foldlog.spark as fl

orders = fl.topic("sasl.folded", key="tx_id", schema="amount BIGINT")

@fl.fold(orders, into=fl.table("{place}/orders.db", "orders"))
def mirror(rows): return rows
"""


def test_spark_reads_and_writes_with_a_notebooks_options_and_its_plans_hide_the_password(
    apache_kafka: ApacheKafka, spark: SparkSession, known: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    jaas = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{USER}" password="{PASSWORD}";'
    options = {
        "kafka.bootstrap.servers": apache_kafka.sasl_bootstrap,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": jaas,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": known["ssl.ca.location"],
    }
    rows = spark.range(300).selectExpr("cast(id % 7 as string) as key", "cast(id as string) as value")
    rows.write.format("foldlog").options(**options, topic="sasl.spark", createTopic="3").mode("append").save()
    found = spark.read.format("foldlog").options(**options, subscribe="sasl.spark").load()
    assert sorted(int(row.value) for row in found.select("value").collect()) == list(range(300))
    found.explain("extended")
    assert PASSWORD not in capsys.readouterr().out
    for wrong in ("guess-it", ""):
        login = {"kafka.sasl.jaas.config": jaas.replace(PASSWORD, wrong)}
        refused = spark.read.format("foldlog").options(**{**options, **login})
        with pytest.raises(Exception, match=r"does not let user 'orders' in|needs sasl\.password") as caught:
            refused.option("subscribe", "sasl.spark").load().collect()
        assert "guess-it" not in str(caught.value)


def test_a_fold_reads_with_a_password_from_a_file_and_tells_it_nobody(
    apache_kafka: ApacheKafka,
    spark: SparkSession,
    known: dict[str, str],
    client_config: Path,
    tmp_path: Path,
    command: Command,
) -> None:
    with foldlog.connect(apache_kafka.url) as log:
        log.create_topic("sasl.folded", partitions=2)
        for number in range(20):
            log.append("sasl.folded", {"amount": number}, key=f"tx_{number % 10}")
    file = tmp_path / "folds.py"
    file.write_text(FOLDS.format(place=tmp_path), encoding="utf-8")
    at = apache_kafka.sasl_bootstrap
    source = fl.log_at(f"kafka://{at}?sasl.mechanism=SCRAM-SHA-256", properties=known)
    assert PASSWORD not in repr(source)
    (feed,) = fl.run(load_folds(file), source, once=True, spark=spark)
    assert feed.records == 20
    told = command("fold", "status", "-f", file, "--format", "json", "-b", at, "--command-config", client_config)
    (state,) = json.loads(told)
    assert (state["lag"], sum(state["bookmark"].values())) == (0, 20)
    with foldlog.connect(apache_kafka.url) as log:
        told += "".join(str(record.value) for record in log.read("__folds", 0))
    assert PASSWORD not in command.told + told
    assert PASSWORD.encode() not in b"".join(one.read_bytes() for one in tmp_path.rglob("*") if one.is_file())


# --- what goes wrong ------------------------------------------------------------------------------------------------

Opening = Callable[[str, dict[str, str]], object]


def connect(address: str, properties: dict[str, str]) -> object:
    return foldlog.connect(f"kafka://{address}", properties=properties)


@pytest.mark.parametrize("opening", [Cluster.open, connect])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_told_at_once(
    apache_kafka: ApacheKafka, known: dict[str, str], mechanism: str, opening: Opening
) -> None:
    wrong = {**known, "sasl.mechanism": mechanism, "sasl.password": "guess-it"}
    with pytest.raises(AuthenticationFailed, match="Authentication failed") as caught:
        opening(apache_kafka.sasl_bootstrap, wrong)
    assert f"does not let user 'orders' in with sasl.mechanism={mechanism}: Auth" in str(caught.value)
    assert "guess-it" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_mechanism_that_kafka_does_not_offer_is_told_with_those_it_does(
    apache_kafka: ApacheKafka, known: dict[str, str]
) -> None:
    tls = ClusterProperties.parse({**known, "sasl.mechanism": "PLAIN"}).tls
    host, _, port = apache_kafka.sasl_bootstrap.rpartition(":")
    connection = WireConnection(WireConnection.dial(host, int(port), 10, tls), apache_kafka.sasl_bootstrap, is_tls=True)
    connection.negotiate(10)
    with pytest.raises(AuthenticationFailed, match=r"it offers .*SCRAM-SHA-256.*; say one of them with"):
        authenticate(connection, Credentials("GSSAPI", USER, PASSWORD), 10)
    connection.close()


def wrong_ways(kafka: ApacheKafka, known: dict[str, str]) -> dict[str, tuple[str, dict[str, str], str]]:
    """(where, with what, what is said)."""
    user = {**known, "sasl.mechanism": "PLAIN"}
    unencrypted = {**user, "security.protocol": "SASL_PLAINTEXT"}
    tls, plain = kafka.sasl_bootstrap, kafka.bootstrap
    without_ca = {name: value for name, value in user.items() if name != "ssl.ca.location"}
    return {
        "another authority": (tls, without_ca, r"is not trusted here.*; set ssl\.ca\.location to "),
        "TLS to a plain port": (plain, user, r"speaks no TLS.*; set security\.protocol=SASL_PLAINTEXT, "),
        "plain to a TLS port": (tls, unencrypted, r"speaks TLS.*; set security\.protocol=SASL_SSL, "),
        "nobody to a TLS port": (tls, {}, r"speaks TLS.*; set security\.protocol=SSL, or SASL_SSL"),
        "TLS without a user": (tls, {**user, "security.protocol": "SSL"}, r"; set security\.protocol=SASL_SSL instead"),
        "a user where there are none": (plain, unencrypted, r"say security\.protocol=PLAINTEXT, or SSL$"),
    }


@pytest.mark.parametrize("opening", [Cluster.open, connect])
def test_every_way_to_miss_the_listener_is_one_sentence_soon(
    apache_kafka: ApacheKafka, known: dict[str, str], opening: Opening
) -> None:
    for way, (address, properties, said) in wrong_ways(apache_kafka, known).items():
        with pytest.raises((BrokerUnreachable, AuthenticationFailed)) as caught:
            opening(address, {**SOON, **properties})
        sentence = str(caught.value)
        assert re.search(said, sentence), (way, sentence)
        assert PASSWORD not in sentence
        assert "\n" not in sentence
