"""How to reach a Kafka cluster: bootstrap addresses, and properties by the names that Kafka's clients give them."""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from foldlog.client.wire.connection import CLIENT_ID
from foldlog.client.wire.logins import sasl
from foldlog.client.wire.logins.sasl import Credentials
from foldlog.client.wire.property_names import OnlyLibrdkafka, refuse_unknown, with_one_name
from foldlog.errors import InvalidArgument, InvalidConfig, brief_repr
from foldlog.files.paths import exists
from foldlog.limits import CLUSTER_FETCH_BYTES
from foldlog.records.batch import MAX_INT32

_log = logging.getLogger("foldlog")

_ADDRESS: Final = re.compile(
    r"(?:[0-9a-zA-Z._-]*://)?(?:\[(?P<v6>[0-9a-fA-F:.%]+)\]|(?P<host>[^\s\[\]:/]+)):(?P<port>\d+)"
)
"""As Java's clients read it: a protocol in front says nothing, since security.protocol does."""

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ISOLATION_LEVELS: Final = {"read_uncommitted": 0, "read_committed": 1}

_NUMBERS: Final = {
    "request.timeout.ms": (1, 30_000),
    "default.api.timeout.ms": (1, 60_000),
    "delivery.timeout.ms": (1, 120_000),
    "socket.connection.setup.timeout.ms": (1, 10_000),
    "retry.backoff.ms": (0, 100),
    "retry.backoff.max.ms": (0, 1000),
    "fetch.max.wait.ms": (0, 500),
    "fetch.min.bytes": (0, 1),
    "fetch.max.bytes": (1, 50 << 20),
    "max.partition.fetch.bytes": (1, CLUSTER_FETCH_BYTES),
}
"""The least that is allowed, and the default: Kafka's, but for max.partition.fetch.bytes."""

_FILES: Final = (
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.crl.location",
)
_PROBE: Final = "probe"
"""What librdkafka takes for: look where systems have their authorities."""

_LIBRDKAFKAS_ALONE: Final = ("ssl.certificate.pem", "ssl.key.pem", "ssl.engine.location", "ssl.ca.certificate.stores")

_WORDS: Final = (
    frozenset(
        {
            "client.id",
            "security.protocol",
            "isolation.level",
            "ssl.ca.location",
            "ssl.certificate.location",
            "ssl.key.location",
            "ssl.key.password",
            "ssl.truststore.location",
            "ssl.truststore.type",
            "ssl.keystore.location",
            "ssl.keystore.type",
            "ssl.truststore.certificates",
            "ssl.endpoint.identification.algorithm",
            "ssl.crl.location",
            "enable.ssl.certificate.verification",
        }
    )
    | sasl.PROPERTIES
)


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(bootstrap: str) -> tuple[Address, ...]:
    """What bootstrap.servers lists, in its order.

    >>> [str(one) for one in parse_addresses("kafka1:9092, [::1]:9093")]
    ['kafka1:9092', '[::1]:9093']
    """
    if not isinstance(bootstrap, str):
        raise InvalidArgument(f"bootstrap.servers={brief_repr(bootstrap)} is not a string such as 'host:9092'")
    found: list[Address] = []
    for text in filter(None, (part.strip() for part in bootstrap.split(","))):
        match = _ADDRESS.fullmatch(text)
        if match is not None and not 0 < int(match["port"]) < 1 << 16:
            raise InvalidArgument(
                f"bootstrap.servers names {brief_repr(text)}, whose port is out of range: ports are 1 to 65535"
            )
        if match is None:
            # What stands before an @ is taken for a user and a password, and not shown.
            raise InvalidArgument(
                f"bootstrap.servers names {brief_repr(text.rpartition('@')[2])}, which is not HOST:PORT"
            )
        found.append(Address(match["v6"] or match["host"], int(match["port"])))
    if not found:
        raise InvalidArgument("bootstrap.servers names no broker; give one or more as HOST:PORT, with commas between")
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class ClusterProperties:
    """What was asked for, checked. `tls` is None without TLS, `credentials` where nobody logs in; `isolation_level` is
    Kafka's number.
    """

    client_id: str
    security_protocol: str
    tls: ssl.SSLContext | None
    credentials: Credentials | None
    isolation_level: int
    request_timeout_ms: int
    default_api_timeout_ms: int
    delivery_timeout_ms: int
    socket_connection_setup_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    fetch_max_wait_ms: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> ClusterProperties:
        """InvalidConfig for a value that cannot be, and for a name that no Kafka client knows. Names that mean nothing
        here are passed over: the properties of a notebook that reads another way work unchanged.
        """
        refuse_unknown(properties)
        properties = with_one_name(properties)
        unused = sorted(name for name in properties if name not in _NUMBERS and name not in _WORDS)
        if unused:
            _log.debug("these Kafka client properties have no effect here: %s", ", ".join(unused))
        protocol = str(properties.get("security.protocol", "PLAINTEXT")).upper()
        if protocol not in _PROTOCOLS:
            raise InvalidConfig(
                f"security.protocol={brief_repr(properties['security.protocol'])} is not known; it is one of"
                f" {', '.join(_PROTOCOLS)}"
            )
        isolation = str(properties.get("isolation.level", "read_uncommitted"))
        if isolation not in _ISOLATION_LEVELS:
            raise InvalidConfig(
                f"isolation.level={brief_repr(isolation)} is not known; it is one of {', '.join(_ISOLATION_LEVELS)}"
            )
        credentials = Credentials.parse(properties, protocol) if protocol.startswith("SASL") else None
        return cls(
            client_id=str(properties.get("client.id") or CLIENT_ID),
            security_protocol=protocol,
            tls=_tls_context(properties, protocol) if protocol.endswith("SSL") else None,
            credentials=credentials,
            isolation_level=_ISOLATION_LEVELS[isolation],
            **{name.replace(".", "_"): _number(properties, name) for name in _NUMBERS},
        )


def _number(properties: Mapping[str, str], name: str) -> int:
    least, default = _NUMBERS[name]
    given = properties.get(name)
    if given is None:
        return default
    try:
        value = int(str(given).strip())
    except ValueError:
        value = least - 1
    if not least <= value <= MAX_INT32:
        raise InvalidConfig(f"{name}={brief_repr(given)} is not a whole number from {least} to {MAX_INT32}")
    return value


def _check_tls_files(properties: Mapping[str, str]) -> None:
    """InvalidConfig where certificates are not in files, or these are not there."""
    for name in ("ssl.keystore.key", "ssl.keystore.certificate.chain"):
        if properties.get(name):
            raise InvalidConfig(
                f"{name} cannot be given as text; put it into a file, and name that in ssl.keystore.location"
            )
    for name in _LIBRDKAFKAS_ALONE:
        if name in properties:
            raise OnlyLibrdkafka(f"{name} works only with librdkafka's connections; name files instead")
    for name in _FILES:
        path = properties.get(name)
        if path and path != _PROBE and not exists(path):
            raise InvalidConfig(f"{name} names {path}, and there is no such file; check the path")


def _tls_context(properties: Mapping[str, str], protocol: str) -> ssl.SSLContext:
    """librdkafka's names of PEM files; Java's stores where they are of type PEM, and the authorities as text."""
    _check_tls_files(properties)
    given = properties.get("ssl.ca.location")
    authorities = None if given == _PROBE else given or _pem_store(properties, "ssl.truststore")
    revoked = properties.get("ssl.crl.location")
    keystore = _pem_store(properties, "ssl.keystore")
    certificate = properties.get("ssl.certificate.location") or keystore
    key = properties.get("ssl.key.location") or keystore
    try:
        context = ssl.create_default_context(cafile=authorities, cadata=properties.get("ssl.truststore.certificates"))
        if revoked is not None:
            context.load_verify_locations(revoked)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        if certificate is not None:
            # A function, since without any the module asks on the terminal.
            context.load_cert_chain(certificate, key, password=lambda: properties.get("ssl.key.password") or "")
    except OSError as error:  # ssl.SSLError is one
        files = [str(path) for path in (authorities, revoked, certificate, key) if path is not None]
        given = ", ".join(files) or "ssl.truststore.certificates"
        raise InvalidConfig(
            f"the certificates for security.protocol={protocol} cannot be used ({given}): {error}"
        ) from error
    if properties.get("ssl.endpoint.identification.algorithm", "https").strip().lower() in ("", "none"):
        context.check_hostname = False
    if properties.get("enable.ssl.certificate.verification", "true").strip().lower() == "false":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _pem_store(properties: Mapping[str, str], name: str) -> str | None:
    location = properties.get(f"{name}.location")
    kind = properties.get(f"{name}.type", "").upper()
    if location is not None and kind != "PEM":
        # Where no type is said librdkafka takes a keystore for PKCS #12, which our connections cannot read.
        is_librdkafkas = name == "ssl.keystore" and kind in ("", "PKCS12")
        raise (OnlyLibrdkafka if is_librdkafkas else InvalidConfig)(
            f"{name}.location={brief_repr(location)} is a Java keystore, which only Java reads; export it as PEM and"
            f" set {name}.type=PEM, or ssl.ca.location and ssl.certificate.location"
        )
    return location
