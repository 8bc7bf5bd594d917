"""Certificates for tests: an authority of their own, made when they are needed, in files that only the owner reads.

Elliptic curves: a key takes a tenth of a millisecond. Nothing of this is checked in.
"""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Issued:
    """A certificate with its key, as PEM."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def key_pem(self, password: str | None = None) -> str:
        """In PKCS #8, as Kafka wants it."""
        encryption = (
            serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        )
        form = serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(serialization.Encoding.PEM, form, encryption).decode()

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

    def write(self, path: Path, password: str | None = None) -> Path:
        """One file with key and certificate."""
        path.touch(mode=0o600)
        path.write_text(self.key_pem(password) + self.certificate_pem)
        return path


def name_of(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


class Authority:
    """Signs certificates of brokers and clients."""

    def __init__(self, name: str = "Test Authority") -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        self.name = name_of(name)
        self.issued = Issued(_signed(self.name, key, self.name, key, is_authority=True), key)

    @property
    def pem(self) -> str:
        return self.issued.certificate_pem

    def write(self, path: Path) -> Path:
        path.write_text(self.pem)
        return path

    def broker(self, name: str = "broker", begins: timedelta = -DAY, ends: timedelta = 365 * DAY) -> Issued:
        """For 127.0.0.1, ::1 and localhost."""
        return self._issue(name_of(name), ExtendedKeyUsageOID.SERVER_AUTH, begins, ends)

    def client(self, name: str | x509.Name = "client", begins: timedelta = -DAY, ends: timedelta = 365 * DAY) -> Issued:
        subject = name_of(name) if isinstance(name, str) else name
        return self._issue(subject, ExtendedKeyUsageOID.CLIENT_AUTH, begins, ends)

    def _issue(self, subject: x509.Name, use: x509.ObjectIdentifier, begins: timedelta, ends: timedelta) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        return Issued(_signed(subject, key, self.name, self.issued.key, use=use, begins=begins, ends=ends), key)


def _signed(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    use: x509.ObjectIdentifier | None = None,
    is_authority: bool = False,
    begins: timedelta = -DAY,
    ends: timedelta = 365 * DAY,
) -> x509.Certificate:
    now = datetime.now(UTC)
    addresses = [x509.IPAddress(ipaddress.ip_address(each)) for each in ("127.0.0.1", "::1")]
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if is_authority:
        builder = builder.add_extension(_SIGNS, critical=True)
    if use is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.DNSName("localhost"), *addresses]), critical=False
        )
    return builder.sign(issuer_key, hashes.SHA256())


_SIGNS = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def client_context(authority: Authority, client: Path | None = None) -> ssl.SSLContext:
    """For a client that trusts this authority, with the certificate in that file if there is one."""
    context = ssl.create_default_context(cadata=authority.pem)
    if client is not None:
        context.load_cert_chain(client)
    return context
