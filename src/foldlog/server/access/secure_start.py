"""`foldlog serve --secure`: what a broker needs to be put on a network, made when it is first served so.

In the directory: `ca.pem`, the certificate of an authority of its own, which clients are given; `broker.pem`, the
broker's key and certificate, for its owner's eyes only. And a user `admin`, who may do everything, with a password that
is shown once. What is there already stays.
"""

from __future__ import annotations

import ipaddress
import secrets
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from foldlog.broker.access.users import credentials_for
from foldlog.broker.broker import MEMORY_PATH
from foldlog.errors import InvalidConfig, MissingDependency
from foldlog.files.paths import exists, write_secret, written
from foldlog.server.access.mechanisms import PLAIN, SCRAM
from foldlog.server.config.configuration import Configuration, Given

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography import x509

    from foldlog.broker.access.store import Access, AccessStore

CA_NAME: Final = "ca.pem"
BROKER_NAME: Final = "broker.pem"
ADMIN: Final = "admin"
_AUTHORITY_DAYS: Final = 3650
_BROKER_DAYS: Final = 825
"""What browsers and systems take at most."""

_PASSWORD_BYTES: Final = 18
_LOGIN_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


def secured(configuration: Configuration, path: str) -> Configuration:
    """The configuration with what --secure stands for, where it is not set: TLS and logins on every listener, ACLs, and
    `admin` for a super user."""
    if path == MEMORY_PATH:
        raise InvalidConfig("--secure keeps its certificate and users in the directory; give one instead of :memory:")
    if not exists(secure_files(path).broker) and find_spec("cryptography") is None:
        # Said before the directory is made: one that cannot be served helps nobody.
        raise MissingDependency("serve --secure", "cryptography", "secure")
    given = dict(configuration.given)
    texts = given.pop("listen", None) or given.pop("listeners", None) or Given("127.0.0.1:9092", "--secure")
    addresses = texts.value if isinstance(texts.value, list | tuple) else str(texts.value).split(",")
    if any("://" in address for address in addresses):
        raise InvalidConfig("--secure says which protocol listeners have; give HOST:PORT without a name before it")
    names = [f"SECURE_{number}" if number > 1 else "SECURE" for number in range(1, len(addresses) + 1)]
    given["listeners"] = Given([f"{name}://{one}" for name, one in zip(names, addresses, strict=True)], texts.origin)
    given["listener.security.protocol.map"] = Given([f"{name}:SASL_SSL" for name in names], "--secure")
    for name, value in (
        ("ssl.keystore.location", secure_files(path).broker),
        ("sasl.enabled.mechanisms", ",".join((*SCRAM, PLAIN))),
        ("authorizer.class.name", "foldlog"),
        ("super.users", f"User:{ADMIN}"),
    ):
        given.setdefault(name, Given(value, "--secure"))
    return replace(configuration, given=given)


@dataclass(frozen=True, slots=True)
class SecureFiles:
    """Where the certificates of a directory are."""

    ca: str
    broker: str


@dataclass(frozen=True, slots=True)
class NewAdmin:
    """The user that was just made."""

    name: str
    password: str = field(repr=False)


def secure_files(directory: str) -> SecureFiles:
    """Where the certificates are, or will be."""
    return SecureFiles(f"{directory}/{CA_NAME}", f"{directory}/{BROKER_NAME}")


def prepare_files(directory: str, names: Sequence[str]) -> SecureFiles:
    """The certificates of the directory, made now if there are none. `names`: what clients connect to."""
    found = secure_files(directory)
    if not exists(found.broker):
        authority, broker = make_certificates(names)
        with written(found.ca) as file:  # for everybody: it is what clients are given
            file.write(authority)
        # The key last: if it is there, all of it is.
        write_secret(found.broker, broker)
    return found


def prepare_admin(access: AccessStore) -> NewAdmin | None:
    """Make the user `admin` with a password nobody knows yet; None if there are users."""
    password = secrets.token_urlsafe(_PASSWORD_BYTES)
    made = credentials_for(password)

    def with_admin(before: Access) -> Access:
        if before.users.names:
            return before
        return replace(before, users=before.users.with_credentials(ADMIN, made))

    had_users = bool(access.current.users.names)
    access.change(with_admin)
    return None if had_users else NewAdmin(ADMIN, password)


def make_certificates(names: Sequence[str]) -> tuple[bytes, bytes]:
    """The certificate of a new authority, and a key with a certificate that it signed for these names, both as PEM.

    The authority's own key is not kept: it signs nothing else, so nobody can have it sign for another broker.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    pem = serialization.Encoding.PEM
    now = datetime.now(UTC)
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    titles = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one)]) for one in ("foldlog authority", "foldlog")]

    def begun(which: int, days: int) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(titles[which])
            .issuer_name(titles[0])
            .public_key(keys[which].public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + timedelta(days=days))
        )

    authority = (
        begun(0, _AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(keys[0], hashes.SHA256())
    )
    subjects = [_general_name(one) for one in dict.fromkeys(names)]
    broker = (
        begun(1, _BROKER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(subjects), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(keys[0], hashes.SHA256())
    )
    key = keys[1].private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return authority.public_bytes(pem), key + broker.public_bytes(pem)


def _general_name(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def client_settings(bootstrap: str, files: SecureFiles, admin: NewAdmin | None) -> str:
    """What to tell clients, for people to copy."""
    password = admin.password if admin is not None else "PASSWORD"
    told = (
        f"the user {admin.name} was made, and may do everything; its password is shown only now: {admin.password}"
        if admin is not None
        else "there are users already; 'foldlog user list' names them, and 'foldlog user password' sets new passwords"
    )
    return f"""\
{told}

Python (foldlog; confluent-kafka takes the same properties):
  log = foldlog.connect("kafka://{bootstrap}", properties={{
      "security.protocol": "SASL_SSL", "ssl.ca.location": "{files.ca}",
      "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "{ADMIN}", "sasl.password": "{password}"}})

Java, Kafka's tools and ours (client.properties):
  bootstrap.servers={bootstrap}
  security.protocol=SASL_SSL
  ssl.truststore.type=PEM
  ssl.truststore.location={files.ca}
  sasl.mechanism=SCRAM-SHA-512
  sasl.jaas.config={_LOGIN_MODULE} required username="{ADMIN}" password="{password}";

The command line, with that file:
  foldlog topic list -b {bootstrap} --command-config client.properties
"""
