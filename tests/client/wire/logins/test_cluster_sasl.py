"""Logging in to a cluster: every way to say who one is, every mechanism, and what is told where it does not work.

The brokers are simulated, with a login of their own (login_door.py); tests/clusters/test_sasl.py has Apache Kafka's.
"""

from __future__ import annotations

import base64
import pickle
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.wire.logins.login_door import MECHANISMS, VERSIONS, Login
from client.wire.simulated_cluster import SimulatedCluster
from client.wire.test_cluster_reads import read
from foldlog.client.wire.cluster import Cluster
from foldlog.client.wire.logins.sasl import Credentials, with_jaas_read
from foldlog.client.wire.properties import ClusterProperties
from foldlog.errors import AuthenticationFailed, BrokerUnreachable, FoldlogError, InvalidConfig
from foldlog.records.loops import pack
from foldlog.testing import KafkaBroker
from foldlog.wire.messages.sasl_authenticate import SaslAuthenticateRequest

QUICK = {"retry.backoff.ms": "1", "retry.backoff.max.ms": "2", "fetch.max.wait.ms": "1"}
SECRET = "s3cret, =and\u00a0more"
USER = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "ann", "sasl.password": SECRET}
SCRAM = {**QUICK, **USER, "sasl.mechanism": "SCRAM-SHA-256"}


@pytest.fixture
def login() -> Login:
    return Login({"ann": SECRET})


@pytest.fixture
def simulated(login: Login) -> Iterator[SimulatedCluster]:
    with SimulatedCluster(nodes=2, versions=VERSIONS) as started:
        started.door = login.door
        (partition,) = started.create("orders")
        for number in range(12):
            partition.append(pack([(1, None, b"%d" % number, ())]))
        yield started


def values(cluster: Cluster, count: int = 12) -> list[bytes]:
    return [record.value for record in read(cluster, "orders", 0, count)]


EXPECTED = [b"%d" % number for number in range(12)]


# --- who one is -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_lets_the_user_read_and_write(
    simulated: SimulatedCluster, login: Login, mechanism: str
) -> None:
    with Cluster.open(simulated.address(), {**QUICK, **USER, "sasl.mechanism": mechanism}) as cluster:
        with cluster.producer() as producer:
            producer.send("orders", 0, pack([(1, None, b"12", ())]))
        assert values(cluster, 13) == [*EXPECTED, b"12"]
    assert set(login.logins) == {"ann"}
    assert len(login.logins) == simulated.connections_made


def jaas(module: str = "org.apache.kafka.common.security.scram.ScramLoginModule", user: str = "ann") -> str:
    return f'{module} required username="{user}" password="{SECRET}";'


@pytest.mark.parametrize(
    "said",
    [
        {"sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": SECRET},
        {"sasl.mechanisms": "plain", "sasl.username": "ann", "sasl.password": SECRET},
        {"sasl.mechanism": "PLAIN", "sasl.mechanisms": "PLAIN", "sasl.jaas.config": jaas()},
        {"sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas("kafkashaded.org.apache.PlainLoginModule")},
        {"sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas(), "sasl.username": "ann", "sasl.password": SECRET},
    ],
)
def test_users_are_named_as_librdkafka_or_as_java_does(said: dict[str, str]) -> None:
    for protocol in ("SASL_PLAINTEXT", "sasl_ssl"):
        parsed = ClusterProperties.parse({"security.protocol": protocol, **said})
        assert parsed.credentials == Credentials("PLAIN", "ann", SECRET)
        assert (parsed.tls is None) == (protocol == "SASL_PLAINTEXT")


def test_without_sasl_in_the_protocol_nobody_logs_in() -> None:
    assert ClusterProperties.parse({"sasl.mechanism": "PLAIN", "sasl.username": "ann"}).credentials is None


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            {},
            r"security\.protocol=SASL_SSL needs sasl\.mechanism, which is one of PLAIN, SCRAM-SHA-256, SCRAM-",
        ),
        ({"sasl.mechanism": "GSSAPI"}, r"sasl\.mechanism='GSSAPI' is not spoken here; PLAIN, .* are"),
        ({"sasl.mechanism": "OAUTHBEARER"}, r"sasl\.mechanism=OAUTHBEARER needs sasl\.oauthbearer\.method=oidc with "),
        ({"sasl.mechanism": "PLAIN", "sasl.mechanisms": "SCRAM-SHA-256"}, "two names of one property, and differ"),
        ({"sasl.mechanism": "PLAIN"}, r"needs sasl\.username"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "ann"}, r"needs sasl\.password"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": ""}, r"needs sasl\.password"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "a\0b", "sasl.password": SECRET}, r"sasl\.username has a NUL"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "\udc80"}, r"sasl\.password has a NUL, or"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": "Krb5LoginModule required;"},
            "Krb5LoginModule without username",
        ),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas(), "sasl.username": "bob"}, "passwords; leave one"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas().rstrip(";")}, "does not end with ';'"),
    ],
)
def test_what_is_missing_is_one_sentence_without_the_password(said: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidConfig, match=told) as caught:
        ClusterProperties.parse({"security.protocol": "SASL_SSL", **said})
    assert SECRET not in str(caught.value)


def test_what_jaas_says_is_handed_on_under_librdkafkas_names() -> None:
    given = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas()}
    assert with_jaas_read(given) == {"sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": SECRET}


def test_a_password_is_in_no_repr(simulated: SimulatedCluster) -> None:
    properties = ClusterProperties.parse({**SCRAM, "sasl.jaas.config": jaas()})
    assert "ann" in repr(properties)
    shown = [properties, properties.credentials, SaslAuthenticateRequest(auth_bytes=SECRET.encode())]
    assert not [one for one in shown if "s3cret" in f"{one!r} {one}"]


# --- what goes wrong ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    "wrong", [{"sasl.password": "guess-it"}, {"sasl.username": "bob", "sasl.password": "guess-it"}]
)
def test_a_wrong_password_is_told_at_once_and_once(
    simulated: SimulatedCluster, login: Login, mechanism: str, wrong: dict[str, str]
) -> None:
    """Asking again would lock the account: one try, though the call has a minute and there is another broker."""
    both = f"{simulated.address(1)},{simulated.address(2)}"
    with pytest.raises(AuthenticationFailed) as caught:
        Cluster.open(both, {**QUICK, **USER, "sasl.mechanism": mechanism, **wrong}, has_answered=True)
    user = wrong.get("sasl.username", "ann")
    assert str(caught.value) == (
        f"the broker at {simulated.address(1)} does not let user {user!r} in with sasl.mechanism={mechanism}:"
        " Authentication failed: Invalid username or password; check sasl.username and sasl.password, and that the user"
        " has one for this mechanism"
    )
    assert (caught.value.user, caught.value.mechanism, login.failures) == (user, mechanism, 1)
    assert "guess-it" not in repr(caught.value)


def test_what_a_broker_says_cannot_show_the_password_nor_flood_the_terminal(
    simulated: SimulatedCluster, login: Login
) -> None:
    login.refusal = "no \x1b[31m'guess-it' for you\n" + "!" * 10_000
    with pytest.raises(AuthenticationFailed) as caught:
        Cluster.open(simulated.address(), {**QUICK, **USER, "sasl.mechanism": "PLAIN", "sasl.password": "guess-it"})
    assert "guess-it" not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_mechanism_that_the_broker_does_not_offer_is_told_with_those_that_it_does(
    simulated: SimulatedCluster, login: Login
) -> None:
    login.mechanisms = ("PLAIN", "GSSAPI")
    with pytest.raises(AuthenticationFailed, match=r"it offers PLAIN, GSSAPI; say one of them with sasl\.mechanism$"):
        Cluster.open(simulated.address(), SCRAM)


def test_a_broker_at_which_nobody_logs_in_is_told(kafka_broker: KafkaBroker) -> None:
    with pytest.raises(AuthenticationFailed, match=r"nobody logs in at this listener; say security\.protocol=PLAIN"):
        Cluster.open(kafka_broker, SCRAM)


@pytest.mark.usefixtures("few_tries")
def test_who_does_not_log_in_where_one_must_is_told_after_the_search(simulated: SimulatedCluster) -> None:
    with pytest.raises(BrokerUnreachable, match=r"; set security\.protocol=SASL_PLAINTEXT instead of PLAINTEXT, sasl"):
        Cluster.open(simulated.address(), QUICK)


def test_a_broker_that_does_not_know_the_password_itself_is_not_talked_to(
    simulated: SimulatedCluster, login: Login
) -> None:
    login.tamper = lambda answer: b"v=" + base64.b64encode(bytes(32)) if answer.startswith(b"v=") else answer
    with pytest.raises(AuthenticationFailed, match="it is not the real broker"):
        Cluster.open(simulated.address(), SCRAM)
    assert simulated.count("MetadataRequest") == 0


def test_a_broker_that_wants_endless_hashing_is_refused(simulated: SimulatedCluster, login: Login) -> None:
    login.tamper = lambda answer: answer.replace(b"i=4096", b"i=2000000000")
    with pytest.raises(AuthenticationFailed, match="it wants the password hashed more than 1,000,000 times"):
        Cluster.open(simulated.address(), SCRAM)


@given(st.lists(st.binary(max_size=40), min_size=2, max_size=2))
def test_whatever_a_broker_says_instead_is_one_of_our_errors(said: list[bytes]) -> None:
    answers = iter([*said, b""])
    login = Login({"ann": SECRET}, tamper=lambda answer: next(answers, b""))
    with SimulatedCluster(versions=VERSIONS) as simulated:
        simulated.door = login.door
        with pytest.raises(FoldlogError) as caught:
            Cluster.open(simulated.address(), {**SCRAM, "default.api.timeout.ms": "50"})
        assert "s3cret" not in str(caught.value)


# --- logins that end ------------------------------------------------------------------------------------------------


def test_a_connection_whose_login_ends_soon_is_replaced_between_requests(
    simulated: SimulatedCluster, login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker gives a minute. At 51 seconds everything goes on over connections that have just logged in."""
    login.lifetime_ms = 60_000
    began_s, ahead_s = time.monotonic(), 0.0  # a clock that stands still, however long the test takes
    monkeypatch.setattr("foldlog.client.wire.connection.time.monotonic", lambda: began_s + ahead_s)
    with Cluster.open(simulated.address(), {**SCRAM, "max.partition.fetch.bytes": "1"}) as cluster:
        answers = cluster.fetch_range("orders", 0, 0, 12)
        with cluster.producer() as producer:
            producer.send("orders", 0, pack([(1, None, b"12", ())]))
            producer.flush()
            next(answers)
            made = simulated.connections_made
            ahead_s = 50.0
            producer.send("orders", 0, pack([(1, None, b"13", ())]))
            next(answers)
            assert simulated.connections_made == made
            ahead_s = 51.5
            producer.send("orders", 0, pack([(1, None, b"14", ())]))
            producer.flush()
            next(answers)  # asked for before the time had come
            next(answers)
            assert simulated.connections_made == made + 2
        assert [fetched.next_offset for fetched in answers] == list(range(5, 13))
        assert values(cluster, 15) == [*EXPECTED, b"12", b"13", b"14"]
    assert len(login.logins) == simulated.connections_made


def test_a_user_who_is_removed_is_told_with_the_next_login(simulated: SimulatedCluster, login: Login) -> None:
    login.lifetime_ms = 1
    with Cluster.open(simulated.address(), SCRAM) as cluster:
        login.users.clear()
        asked_until_refused = iter(cluster.topics, None)  # the millisecond may not be over yet
        with pytest.raises(AuthenticationFailed, match="does not let user 'ann' in"):
            list(asked_until_refused)


def test_who_logs_in_travels_to_the_tasks_of_spark() -> None:
    one = Credentials("PLAIN", "ann", SECRET)
    assert pickle.loads(pickle.dumps(one)) == one
