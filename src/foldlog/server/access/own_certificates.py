"""Certificates that `foldlog serve --secure` makes: an authority of the directory's own, and the broker's, renewed by
itself.

In the directory: `ca.pem`, the authority's certificate, which clients are given; `ca-key.pem`, its key, and
`broker.pem`, the broker's key and certificate, for the owner's eyes only. The authority stays, so that what clients
trust stays. The broker's certificate lasts BROKER_DAYS; it is made anew, with a new key, RENEWED_DAYS before its end,
and when clients reach the broker by a name that is not in it.

`ca-key.pem` has the authority's certificate too, and is written first: after a power cut, `ca.pem` and `broker.pem` are
made to agree with it by the next look.
"""

from __future__ import annotations

import ipaddress
import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from foldlog.errors import FoldlogError, InvalidConfig, MissingDependency
from foldlog.files.base import replace_file
from foldlog.files.paths import exists, read_bytes
from foldlog.files.posix import PosixFiles
from foldlog.limits import PEM_BYTES_MAX
from foldlog.server.tls.certificates import certificates_of, parse_certificate

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

logger = logging.getLogger("foldlog.server")

CA_NAME: Final = "ca.pem"
CA_KEY_NAME: Final = "ca-key.pem"
BROKER_NAME: Final = "broker.pem"

AUTHORITY_DAYS: Final = 3650
BROKER_DAYS: Final = 90
RENEWED_DAYS: Final = 30
"""A broker that is started once a month is never late."""

_CLOCK_SLACK: Final = timedelta(minutes=5)
_COMMAND: Final = "foldlog certificate renew {directory}"


@dataclass(frozen=True, slots=True)
class SecureFiles:
    """Where the certificates of a directory are, or will be."""

    directory: str

    @property
    def ca(self) -> str:
        return f"{self.directory}/{CA_NAME}"

    @property
    def ca_key(self) -> str:
        return f"{self.directory}/{CA_KEY_NAME}"

    @property
    def broker(self) -> str:
        return f"{self.directory}/{BROKER_NAME}"


@dataclass(frozen=True, slots=True)
class _Authority:
    """What signs certificates."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def require_cryptography(what: str) -> None:
    """MissingDependency if certificates cannot be made here."""
    if find_spec("cryptography") is None:
        raise MissingDependency(what, "cryptography", "secure")


class OwnCertificates:
    """The certificates of a directory, kept good for `names`: what clients connect to. One thread at a time."""

    def __init__(self, files: SecureFiles, names: Sequence[str]) -> None:
        self._files = files
        self._names = names
        self._told = ""

    def look(self, now: datetime | None = None) -> None:
        """Make certificates if there are none, or if others are needed. Where that cannot be, and there is one to go on
        with, the log has one line about it."""
        files, now = self._files, now or datetime.now(UTC)
        if not exists(files.broker) and not exists(files.ca_key):
            renew_certificates(files, self._names, with_authority=True, now=now)
            return
        try:
            why = _why_anew(files, self._names, now)
            if why is not None:
                renew_certificates(files, self._names, now=now)
                logger.info("the broker's certificate was renewed: %s", why)
        except (FoldlogError, OSError) as error:
            if not exists(files.broker):
                raise
            if self._told != str(error):
                logger.warning("the broker's certificate cannot be renewed, and stays as it is: %s", error)
            self._told = str(error)


def _why_anew(files: SecureFiles, names: Sequence[str], now: datetime) -> str | None:
    """Why the broker needs another certificate; None if it does not."""
    if not exists(files.broker):
        return "there was none"
    current = parse_certificate(certificates_of(read_bytes(files.broker, PEM_BYTES_MAX).decode("ascii", "replace"))[0])
    if now > current.not_after - timedelta(days=RENEWED_DAYS):
        return f"it ends on {current.not_after:%Y-%m-%d}"
    if not exists(files.ca_key) or find_spec("cryptography") is None:
        return None  # it cannot be looked at more closely, nor made anew
    authority, certificate = _read_authority(files), _read_certificate(files.broker)
    if not exists(files.ca) or _read_certificate(files.ca) != authority.certificate:
        return f"{CA_NAME} was not the authority's"
    if certificate.issuer != authority.certificate.subject or not _is_signed_by(certificate, authority):
        return "another authority had signed it"
    missing = [name for name in names if _general_name(name) not in _names_in(certificate)]
    return f"clients reach the broker by {', '.join(missing)}" if missing else None


def renew_certificates(
    files: SecureFiles, names: Sequence[str] = (), *, with_authority: bool = False, now: datetime | None = None
) -> tuple[datetime, list[str]]:
    """Make the broker's certificate anew, for `names` and those in the one before; `with_authority`: that too, so that
    clients need the new ca.pem. Returns until when it is good, and for which names."""
    require_cryptography("a certificate")
    now = now or datetime.now(UTC)
    known = _names_in(_read_certificate(files.broker)) if exists(files.broker) else ()
    subjects = list(dict.fromkeys([*(_general_name(name) for name in names), *known]))
    if not subjects:
        raise InvalidConfig(
            f"{files.directory} has no certificate of foldlog's; foldlog serve {files.directory} --secure makes one"
        )
    disk = PosixFiles()
    if with_authority:
        made = _new_authority(now)
        replace_file(disk, files.ca_key, _pem(made.key) + _certificate_pem(made.certificate), private=True)
    elif not exists(files.ca_key):
        raise InvalidConfig(
            f"the key of the authority is not in {files.directory}, so its certificate cannot be renewed;"
            f" {_COMMAND.format(directory=files.directory)} --authority makes both, and clients need the new {CA_NAME}"
        )
    authority = _read_authority(files)
    replace_file(disk, files.ca, _certificate_pem(authority.certificate))
    key, certificate = _new_certificate(authority, subjects, now)
    replace_file(disk, files.broker, _pem(key) + _certificate_pem(certificate), private=True)
    return certificate.not_valid_after_utc, [str(one.value) for one in subjects]


# --- making them ------------------------------------------------------------------------------------------------------


def _new_authority(now: datetime) -> _Authority:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    # A name of its own: a client may trust the authorities of several directories.
    name = _name(f"foldlog authority {secrets.token_hex(4)}")
    certificate = (
        _begun(name, name, key, now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(is_authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _Authority(key, certificate)


def _new_certificate(
    authority: _Authority, subjects: Sequence[x509.GeneralName], now: datetime
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key = ec.generate_private_key(ec.SECP256R1())
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    certificate = (
        _begun(_name("foldlog"), authority.certificate.subject, key, now, BROKER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(subjects), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(_key_usage(is_authority=False), critical=True)
        .add_extension(identifier, critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return key, certificate


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SLACK)
        .not_valid_after(now + timedelta(days=days))
        # Clients that verify strictly, as Python's do from 3.13 on, want the identifiers and the uses of keys.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _names_in(certificate: x509.Certificate) -> x509.SubjectAlternativeName:
    from cryptography import x509

    return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value


def _is_signed_by(certificate: x509.Certificate, authority: _Authority) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(authority.certificate)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


# --- as PEM -----------------------------------------------------------------------------------------------------------


def _read_authority(files: SecureFiles) -> _Authority:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(read_bytes(files.ca_key, PEM_BYTES_MAX), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("a key of another kind")
    except (ValueError, TypeError):
        raise InvalidConfig(
            f"{files.ca_key} has no key of an authority that foldlog made; restore it from a backup, or make all anew:"
            f" {_COMMAND.format(directory=files.directory)} --authority"
        ) from None
    return _Authority(key, _read_certificate(files.ca_key))


def _read_certificate(path: str) -> x509.Certificate:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(read_bytes(path, PEM_BYTES_MAX))
    except ValueError:
        raise InvalidConfig(f"{path} has no certificate that can be read; restore it from a backup") from None


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _certificate_pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)
