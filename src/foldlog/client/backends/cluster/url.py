"""kafka://host:port,host2:port?property=value: where a cluster is, and how to talk to it. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote

from foldlog.client.wire.logins.sasl import MECHANISMS, with_jaas_read
from foldlog.client.wire.properties import Address, parse_addresses
from foldlog.client.wire.property_names import refuse_unknown, with_one_name
from foldlog.errors import InvalidArgument, InvalidConfig, brief_repr

SCHEME: Final = "kafka://"

CALL_PROPERTY: Final = "default.api.timeout.ms"
"""How long one call may take."""

_ACKS: Final = ("all", "-1", "0", "1")

_SAID_ELSEWHERE: Final = {
    "bootstrap.servers": "name the brokers in the URL: kafka://host:port,host2:port",
    "metadata.broker.list": "name the brokers in the URL: kafka://host:port,host2:port",
    "group.id": "set a consumer's group with consumer(group=...)",
    "group.instance.id": "it is said with consumer(group_instance_id=...)",
    "enable.auto.commit": "it is said with consumer(auto_commit=...)",
    "auto.commit.interval.ms": "it is said with consumer(auto_commit_interval_ms=...)",
    "enable.auto.offset.store": "control commits with consumer(auto_commit=...) and commit()",
    "auto.offset.reset": "it is said with consumer(auto_offset_reset=...)",
    "partition.assignment.strategy": "it is said with consumer(assignor=...)",
    "max.poll.interval.ms": "it is said with consumer(max_poll_interval_ms=...)",
    "enable.partition.eof": "foldlog handles the ends of partitions itself",
    "compression.type": "it is said with producer(compression=...)",
    "compression.codec": "it is said with producer(compression=...)",
    "partitioner": "it is said with producer(partitioner=...)",
    "linger.ms": "it is said with producer(linger_ms=...)",
    "queue.buffering.max.ms": "it is said with producer(linger_ms=...)",
    "batch.size": "it is said with producer(batch_bytes=...)",
    "batch.num.messages": "it is said with producer(batch_records=...)",
    "queue.buffering.max.kbytes": "it is said with producer(buffer_bytes=...)",
    "transactional.id": "it is said with log.transaction(...)",
}
"""Properties that an argument of the library stands for: one place to say a thing, the same as for a directory."""

_CALLBACK: Final = "_cb"
_OBJECTS: Final = frozenset({"logger", "on_commit", "on_delivery", "default.topic.config", "opaque", "interceptors"})
"""What confluent-kafka and librdkafka take as functions and objects beside properties. Where a text is given for one,
the former raises what it happens to, if anything."""


class KafkaUrl(NamedTuple):
    """The brokers to begin with, and the properties, each under one name, sasl.jaas.config as the user and the password
    in it. `str` and `repr` leave the properties out: passwords are there.
    """

    addresses: tuple[Address, ...]
    properties: Mapping[str, str]

    @property
    def bootstrap(self) -> str:
        return ",".join(map(str, self.addresses))

    def __str__(self) -> str:
        return SCHEME + self.bootstrap

    def __repr__(self) -> str:
        return f"KafkaUrl({str(self)!r})"


def parse_url(url: object, properties: Mapping[str, object] | None = None) -> KafkaUrl:
    """The parts of a URL; `properties` come on top, unquoted, and win. InvalidArgument, InvalidConfig.

    >>> str(parse_url("kafka://one:9092,two:9092?client.id=ingest"))
    'kafka://one:9092,two:9092'
    >>> parse_url("kafka://one:9092?ssl.ca.location=%2Fetc%2Fca.pem").properties
    {'ssl.ca.location': '/etc/ca.pem'}
    """
    if not isinstance(url, str) or not url.startswith(SCHEME):
        shown = url.partition("?")[0] if isinstance(url, str) else url  # a password may be among the properties
        raise InvalidArgument(
            f"{brief_repr(shown)} is not the URL of a cluster, which is like kafka://host:9092,host2:9092; a directory"
            " is opened with foldlog.open()"
        )
    addresses, _, query = url.removeprefix(SCHEME).partition("?")
    addresses = addresses.removesuffix("/")
    if "/" in addresses or "@" in addresses:
        shown = SCHEME + addresses.rpartition("@")[2]
        raise InvalidArgument(
            f"{brief_repr(shown)} has more than brokers in front of its '?'; topics are named in calls, and users as"
            " properties: ?security.protocol=SASL_SSL&sasl.username=..."
        )
    given = _properties_in(query)
    if properties is not None and not isinstance(properties, Mapping):
        raise InvalidArgument(
            f"properties are a dict such as {{'client.id': 'ingest'}}, not a {type(properties).__name__}"
        )
    for name, value in (properties or {}).items():
        name = _checked_name(name)
        given[name] = _text(name, value)
    refuse_unknown(given)
    given = with_one_name(given)
    _check_mechanism(given)
    return KafkaUrl(parse_addresses(addresses), with_jaas_read(_with_acks_read(given)))


def _check_mechanism(given: Mapping[str, str]) -> None:
    """librdkafka takes none for GSSAPI, which it is mostly built without, and then talks of compilers."""
    protocol = given.get("security.protocol", "").upper()
    if protocol.startswith("SASL") and not given.get("sasl.mechanism"):
        raise InvalidConfig(
            f"security.protocol={protocol} needs sasl.mechanism, which is one of {', '.join(MECHANISMS)}; GSSAPI is"
            " taken where librdkafka has it"
        )


def _with_acks_read(given: dict[str, str]) -> dict[str, str]:
    """Only acks=all goes with sequence numbers, so another one switches them off where nobody asked for them, as in
    Java's client.

    >>> _with_acks_read({"acks": "1"})
    {'acks': '1', 'enable.idempotence': 'false'}
    """
    acks = given.get("acks")
    if acks is None:
        return given
    if acks not in _ACKS:
        raise InvalidConfig(f"acks={brief_repr(acks)} is not known; it is one of {', '.join(_ACKS)}")
    if acks in ("all", "-1"):
        return given
    if given.get("enable.idempotence", "false").lower() == "true":
        raise InvalidConfig(f"acks={acks} does not go with enable.idempotence=true; set acks=all, or leave one out")
    return {**given, "enable.idempotence": "false"}


def _properties_in(query: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, pair in enumerate(filter(None, query.split("&")), 1):
        name, equals, value = pair.partition("=")
        name = unquote(name)
        if not equals:  # it may be the end of a password, so it is not shown
            raise InvalidConfig(
                f"part {number} of the properties in a cluster's URL is not property=value; an & within a value is"
                " written as %26"
            )
        if name in found:
            raise InvalidConfig(f"{name} is twice in a cluster's URL; give it once")
        found[_checked_name(name)] = unquote(value)
    return found


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidConfig(f"{brief_repr(name)} is not the name of a Kafka client property")
    elsewhere = _SAID_ELSEWHERE.get(name)
    if elsewhere is not None:
        raise InvalidConfig(f"{name} cannot be set as a property: {elsewhere}")
    if name.endswith(_CALLBACK) or name in _OBJECTS:
        raise InvalidConfig(f"{name} cannot be set as a property: it is a function or an object, and not offered here")
    return name


def _text(name: str, value: object) -> str:
    """
    >>> _text("socket.keepalive.enable", True), _text("retries", 5)
    ('true', '5')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    # It may be a password, so it is not shown.
    raise InvalidConfig(f"{name} is a {type(value).__name__}; a Kafka client property is a str, a number or a bool")
