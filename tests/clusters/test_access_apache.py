"""Who may do what: every API, for every identity at every protocol, answered as Apache Kafka's StandardAuthorizer does.

The cells, and how an identity comes in, are in `server.access_matrix`. Each cell has topics, groups and transactional
ids of its own, in both brokers, and the same ACLs. Compared is whether there is an answer, and which authorization
errors it has; what an answer hides is compared by whether it names the group or the id.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from clusters.apache_kafka import ApacheKafka
from clusters.maven import JarsUnavailable

from server.access_matrix import (
    ALL_ROWS,
    ANONYMOUS_RULES,
    CELLS,
    FIRST_CELLS,
    IDENTITIES,
    LAST_CELLS,
    MAPPING_RULES,
    PASSWORD,
    PROTOCOLS,
    SUPER,
    SUPER_USERS,
    USERS,
    Answers,
    Certificates,
    Side,
    ask_all,
    our_answers,
)

_USERS = " ".join(f'user_{user}="{PASSWORD}"' for user in USERS)
_JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    f' username="{SUPER}" password="{PASSWORD}" {_USERS};'
)
_PROTOCOLS = ("CONTROLLER:SASL_PLAINTEXT", *(f"{protocol}:{protocol}" for protocol in PROTOCOLS))


def properties(certificates: Certificates) -> dict[str, object]:
    """Brokers and controllers log in as well: whoever comes by PLAINTEXT may do nothing."""
    names = ("controller", *map(str.lower, PROTOCOLS))
    logins = {f"listener.name.{name}.plain.sasl.jaas.config": _JAAS for name in names}
    return {
        **logins,
        "listener.security.protocol.map": ",".join(_PROTOCOLS),
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "connection.failed.authentication.delay.ms": 0,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": certificates.keystore,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates.truststore,
        "ssl.client.auth": "requested",
        "ssl.principal.mapping.rules": MAPPING_RULES,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": SUPER_USERS,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        "share.coordinator.state.topic.num.partitions": 1,
    }


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    """What Kafka answered. It is started once, and once more for who is a super user without a login."""
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    wanted = properties(certificates)
    try:
        launched = ApacheKafka.launch(tmp_path_factory.mktemp("kafka"), properties=wanted, listeners=PROTOCOLS[1:])
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    with launched as kafka:
        node = kafka.brokers[0]
        found = ask_all(Side(node.ports, certificates), FIRST_CELLS)
        node.kill()
        text = node.properties.read_text(encoding="utf-8")
        node.properties.write_text(text.replace(SUPER_USERS, ANONYMOUS_RULES), encoding="utf-8")
        node.start()
        yield found | ask_all(Side(node.ports, certificates), LAST_CELLS)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    return our_answers(tmp_path_factory.mktemp("ours"))


@pytest.mark.parametrize("identity", IDENTITIES)
def test_every_api_answers_an_identity_as_kafka_does(kafkas: Answers, ours: Answers, identity: str) -> None:
    differing = {
        f"{row.api} v{row.version}, {row.asked_for}, {cell.protocol}": (kafkas[number, cell], ours[number, cell])
        for cell in CELLS
        if cell.identity == identity
        for number, row in enumerate(ALL_ROWS)
        if kafkas[number, cell] != ours[number, cell]
    }
    assert not differing, f"(Kafka's, ours): {differing}"
