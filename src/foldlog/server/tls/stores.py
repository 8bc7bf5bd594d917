"""Keys and certificates of a listener: read from PEM files or settings, and read again when the files change.

Kafka's stores of type PEM: the keystore has the private key and the certificates, beginning with the broker's own; the
truststore has the authorities whose clients are let in. A file is read once for each context, so key and certificates
are of one moment.
"""

from __future__ import annotations

import logging
import re
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final

from foldlog.errors import InvalidConfig, MalformedBytes, brief_repr
from foldlog.files.paths import is_special, open_to_others, read_bytes, status_of, unnamed_file
from foldlog.limits import PEM_BYTES_MAX
from foldlog.server.tls.certificates import Certificate, certificates_of, parse_certificate
from foldlog.server.tls.settings import CLIENT_AUTHS, VERSIONS

if TYPE_CHECKING:
    from foldlog.server.tls.settings import TlsSettings

logger = logging.getLogger("foldlog.server")

_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_KEYS: Final = frozenset({"PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"})
_CERTIFICATE: Final = "CERTIFICATE"
_LINE_CHARS: Final = 64
_SOON: Final = timedelta(days=14)
_JKS_STARTS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")

_CONVERT: Final = {
    "PKCS12": "openssl pkcs12 -in {path} -out {path}.pem",
    "JKS": (
        "keytool -importkeystore -srckeystore {path} -destkeystore {path}.p12 -deststoretype PKCS12 && openssl pkcs12"
        " -in {path}.p12 -out {path}.pem"
    ),
}

Blocks = list[tuple[str, str]]
"""The kind of each block of a PEM text, and the block."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A context that was made, and what to tell about it. `certificate` is the broker's own."""

    context: ssl.SSLContext
    certificate: Certificate
    warnings: tuple[str, ...]


class LiveTls:
    """The TLS context of a listener; new connections take the current one. Any thread."""

    def __init__(self, settings: TlsSettings) -> None:
        """InvalidConfig if the certificates cannot be used."""
        self.settings = settings
        self._paths = [path for path in (settings.keystore_location, settings.truststore_location) if path is not None]
        self._lock = Lock()
        self._seen = self._state()
        self._broken: object = None
        self._is_broken_told = False
        self._loaded = load(settings)
        self._tell()

    @property
    def context(self) -> ssl.SSLContext:
        return self._loaded.context

    def look(self) -> None:
        """Read the files again if they changed. What cannot be used leaves the old context, with one warning.

        Not with the first look that finds it broken: files may be half written, or one of two be replaced.
        """
        with self._lock:
            state = self._state()
            if state == self._seen or (state == self._broken and self._is_broken_told):
                return
            try:
                self._take(state)
            except InvalidConfig as error:
                self._is_broken_told = state == self._broken
                self._broken = state
                if self._is_broken_told:
                    self._warn_kept(error)

    def reload(self) -> None:
        """Read the files again, changed or not."""
        with self._lock:
            state = self._state()
            try:
                self._take(state)
            except InvalidConfig as error:
                self._broken, self._is_broken_told = state, True
                self._warn_kept(error)

    def _take(self, state: object) -> None:
        self._loaded = load(self.settings)
        self._seen, self._broken, self._is_broken_told = state, None, False
        certificate = self._loaded.certificate
        logger.info(
            "%s: its certificates were read again: %s, valid until %s",
            self.settings.name,
            certificate.subject,
            _day(certificate.not_after),
        )
        self._tell()

    def _tell(self) -> None:
        for warning in self._loaded.warnings:
            logger.warning("%s: %s", self.settings.name, warning)

    def _warn_kept(self, error: InvalidConfig) -> None:
        logger.warning(
            "%s: its new certificates cannot be used, and the old ones are kept: %s", self.settings.name, error
        )

    def _state(self) -> object:
        """Differs once a file was replaced or written."""
        return [status_of(path) for path in self._paths]


def load(settings: TlsSettings, now: datetime | None = None) -> Loaded:
    """Make the context. InvalidConfig with one sentence about what cannot be used; it never shows a key."""
    now = now or datetime.now(UTC)
    own, key, where = _own_material(settings)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = VERSIONS[settings.versions[0]], VERSIONS[settings.versions[-1]]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    # A client shows its certificate with each connection: a resumed session would outlive the certificate's end.
    context.num_tickets = 0
    if settings.ciphers:
        context.set_ciphers(":".join(settings.ciphers))
    if settings.suites and hasattr(context, "set_ciphersuites"):
        context.set_ciphersuites(":".join(settings.suites))
    _load_own(context, [*own, key], settings.key_password, where)
    certificates = [_parsed(block, where) for block in own]
    warnings = [*_loose(settings), *_ends(certificates[:1], "the certificate", now)]
    if settings.client_auth != "none":
        warnings += _ends(_load_authorities(context, settings), "the authority", now)
    return Loaded(context, certificates[0], tuple(warnings))


def _own_material(settings: TlsSettings) -> tuple[list[str], str, str]:
    """The certificates, the private key, and where they come from."""
    if settings.keystore_location is None:
        where = "ssl.keystore.certificate.chain"
        chain = _blocks(settings.certificate_chain or "", where)
        found = chain + _blocks(settings.key or "", "ssl.keystore.key")
    else:
        where = f"ssl.keystore.location={settings.keystore_location}"
        text = _read("ssl.keystore", settings.keystore_location, settings.keystore_type)
        found = _blocks(text, where)
    certificates = [block for kind, block in found if kind == _CERTIFICATE]
    keys = [block for kind, block in found if kind in _KEYS]
    if not certificates or len(keys) != 1:
        have = f"{len(certificates)} certificates and {len(keys)} private keys"
        raise InvalidConfig(
            f"{where} has {have}; it needs one private key, and the certificates from the broker's own to its authority"
        )
    return certificates, keys[0], where


def _load_own(context: ssl.SSLContext, blocks: list[str], password: str | None, where: str) -> None:
    is_encrypted = "ENCRYPTED" in blocks[-1]
    if is_encrypted and not password:
        raise InvalidConfig(f"the private key of {where} is encrypted; set ssl.key.password")
    try:
        with unnamed_file("\n".join(blocks).encode()) as path:
            # A function, since without any the module asks on the terminal.
            context.load_cert_chain(path, password=lambda: password or "")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "reason", None) or ""
        if reason == "KEY_VALUES_MISMATCH":
            why = "the private key is not that of the first certificate; put both of one broker there, its own first"
        elif is_encrypted:
            why = "ssl.key.password does not open the private key"
        else:
            why = f"OpenSSL says {reason.replace('_', ' ').lower() or 'no more'}"
        raise InvalidConfig(f"{where} cannot be used: {why}") from None


def _load_authorities(context: ssl.SSLContext, settings: TlsSettings) -> list[Certificate]:
    if settings.truststore_location is None:
        where, text = "ssl.truststore.certificates", settings.truststore_certificates or ""
    else:
        where = f"ssl.truststore.location={settings.truststore_location}"
        text = _read("ssl.truststore", settings.truststore_location, settings.truststore_type)
    blocks = [block for kind, block in _blocks(text, where) if kind == _CERTIFICATE]
    if not blocks:
        raise InvalidConfig(f"{where} has no certificate; put those of the authorities there whose clients are let in")
    authorities = [_parsed(block, where) for block in blocks]
    try:
        context.load_verify_locations(cadata="\n".join(blocks))
    except ssl.SSLError as error:
        raise InvalidConfig(f"{where} cannot be used: OpenSSL says {error.reason}") from None
    context.verify_mode = CLIENT_AUTHS[settings.client_auth]
    # Whatever is in a truststore is trusted, as in Java, also if it is signed by somebody who is not in it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return authorities


def _read(setting: str, path: str, kind: str) -> str:
    """The text of a PEM file."""
    name = f"{setting}.location"
    try:
        data = b"" if is_special(path) else read_bytes(path, PEM_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidConfig(
            f"{name} names {path}, which cannot be read: {error.strerror or error}; check the path and its permissions"
        ) from None
    if data.startswith(_JKS_STARTS):
        kind = "JKS"
    elif data[:1] == b"\x30":
        kind = "PKCS12"
    elif b"-----BEGIN " in data:
        kind = "PEM"
    if kind != "PEM":
        raise InvalidConfig(
            f"{name} names {path}, a store of type {kind}, which is not read here; convert it to PEM with:"
            f" {_CONVERT[kind].format(path=path)}; then set {setting}.type=PEM and {name}={path}.pem"
        )
    if len(data) > PEM_BYTES_MAX:
        raise InvalidConfig(f"{name} names {path}, which has over {PEM_BYTES_MAX} bytes; no PEM file has so many")
    return data.decode("utf-8", "replace")


def _blocks(text: str, where: str) -> Blocks:
    """The blocks of a PEM text, with line ends where they belong: settings have blanks or nothing instead."""
    blocks: Blocks = []
    for kind, body in _BLOCK.findall(text):
        if ":" not in body:  # headers of an old form of encrypted keys need their own lines
            digits = "".join(body.split())
            body = "\n".join(digits[at : at + _LINE_CHARS] for at in range(0, len(digits), _LINE_CHARS))
        blocks.append((kind, f"-----BEGIN {kind}-----\n{body.strip()}\n-----END {kind}-----\n"))
    if not blocks:
        raise InvalidConfig(
            f"{where} has nothing in PEM: no -----BEGIN CERTIFICATE-----, and no key; check what it names"
        )
    return blocks


def _parsed(block: str, where: str) -> Certificate:
    try:
        return parse_certificate(certificates_of(block)[0])
    except MalformedBytes as error:
        raise InvalidConfig(f"{where} has a certificate that cannot be read: {error}") from None


def _loose(settings: TlsSettings) -> list[str]:
    path = settings.keystore_location
    mode = None if path is None else open_to_others(path)
    if mode is None:
        return []
    return [f"{path} has a private key and is open to others (mode {mode}); chmod 600 {path}"]


def _ends(certificates: list[Certificate], what: str, now: datetime) -> list[str]:
    warnings = []
    for each in certificates:
        named = f"{what} {brief_repr(each.subject)}"
        if now > each.not_after:
            warnings.append(f"{named} expired on {_day(each.not_after)}: clients refuse it; replace it")
        elif now < each.not_before:
            warnings.append(f"{named} is valid from {_day(each.not_before)} on only: clients refuse it till then")
        elif now > each.not_after - _SOON:
            warnings.append(f"{named} expires on {_day(each.not_after)}; replace it before")
    return warnings


def _day(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")
