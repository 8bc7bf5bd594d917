"""Our own connections to the cluster that librdkafka talks to, for what it has no call for or would do slowly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from foldlog.client.cluster import Cluster
from foldlog.client.cluster_links import ClusterLinks
from foldlog.client.cluster_properties import ClusterProperties
from foldlog.client.kafka.handles import CALL_PROPERTY
from foldlog.client.kafka.url import KafkaUrl
from foldlog.errors import InvalidConfig
from foldlog.limits import KAFKA_CALL_MS, KAFKA_DELIVERY_MS

_OTHER_NAMES: Final = {
    "message.timeout.ms": "delivery.timeout.ms",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "ssl.ca.pem": "ssl.truststore.certificates",
}
"""What our connections call what librdkafka has its own name for."""

_NOT_SPOKEN: Final = frozenset(
    {"ssl.certificate.pem", "ssl.key.pem", "ssl.engine.location", "ssl.ca.certificate.stores", "ssl.crl.location"}
)
"""How librdkafka can be told who is who, and our connections cannot."""


def wire_properties(url: KafkaUrl) -> ClusterProperties:
    """The same settings for our connections. InvalidConfig if they cannot connect in the way that librdkafka does."""
    given = {CALL_PROPERTY: str(KAFKA_CALL_MS), "delivery.timeout.ms": str(KAFKA_DELIVERY_MS)}
    for name, value in url.properties.items():
        given[_OTHER_NAMES.get(name, name)] = value
    for name in _NOT_SPOKEN & given.keys():
        raise InvalidConfig(f"{name} is not taken by the connections that are not librdkafka's; name files instead")
    if given.get("enable.ssl.certificate.verification", "true").lower() == "false":
        raise InvalidConfig("connections that are not librdkafka's always verify certificates; set ssl.ca.location")
    return ClusterProperties.parse(given)


def speaks_wire(url: KafkaUrl) -> bool:
    """Whether our connections can be made as librdkafka's are: they know most ways to log in, and not all."""
    try:
        wire_properties(url)
    except InvalidConfig:
        return False
    return True


@contextmanager
def wired(url: KafkaUrl) -> Iterator[ClusterLinks]:
    """Connections for one call; InvalidConfig if there can be none."""
    links = ClusterLinks(url.addresses, wire_properties(url))
    try:
        links.open(has_answered=True)
        yield links
    finally:
        links.close()


@contextmanager
def wired_cluster(url: KafkaUrl) -> Iterator[Cluster]:
    """The same, as a cluster that records are fetched from and sent to."""
    with wired(url) as links:
        yield Cluster(links)
