"""The TLS settings of one listener, as one value: Kafka's ssl.* names, checked.

`listener.name.{name}.ssl.*` goes before `ssl.*`. On listeners that log their clients in (SASL_SSL), and on those of
HTTP, ssl.client.auth counts only with such a prefix, as in Kafka: there a certificate is asked for besides.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from foldlog.errors import InvalidConfig, brief_repr
from foldlog.server.tls.principals import DEFAULT_RULES, PrincipalMapper

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
PROTOCOL_NAMES: Final = ("TLS", *VERSIONS)
CLIENT_AUTHS: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
STORE_TYPES: Final = ("PEM", "JKS", "PKCS12")

_SUITES_13: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
_SUITES_12: Final = {
    f"TLS_ECDHE_{key}_WITH_{java}": f"ECDHE-{key}-{openssl}"
    for key in ("ECDSA", "RSA")
    for java, openssl in (
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
        ("AES_256_CBC_SHA384", "AES256-SHA384"),
        ("AES_128_CBC_SHA256", "AES128-SHA256"),
    )
}
"""Java's names of the cipher suites of TLS 1.2 that are served, with OpenSSL's: those with forward secrecy."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """TLS of the listener `name`. Texts are PEM; what is secret is not shown."""

    name: str
    keystore_type: str = "PEM"
    keystore_location: str | None = None
    certificate_chain: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    truststore_type: str = "PEM"
    truststore_location: str | None = None
    truststore_certificates: str | None = field(default=None, repr=False)
    client_auth: str = "none"
    versions: tuple[str, ...] = tuple(VERSIONS)
    ciphers: tuple[str, ...] = ()
    """OpenSSL's names for TLS 1.2; empty: the defaults."""
    suites: tuple[str, ...] = ()
    """Of TLS 1.3; empty: the defaults."""
    mapper: PrincipalMapper = field(default_factory=PrincipalMapper, repr=False, compare=False)

    @classmethod
    def parse(
        cls, name: str, values: Mapping[str, Any], own: Mapping[str, Any], *, is_http_or_sasl: bool = False
    ) -> TlsSettings:
        """From the values that are set for all listeners, and those of this one's `own`. Raises InvalidConfig."""
        together = {**values, **own}
        client_auth = (own if is_http_or_sasl else together).get("ssl.client.auth", "none")
        names = together.get("ssl.cipher.suites", ())
        ciphers, suites = _cipher_suites(names)
        usable = {"TLSv1.2": not names or bool(ciphers), "TLSv1.3": not names or bool(suites)}
        versions = tuple(each for each in _enabled_versions(together) if usable[each])
        if not versions:
            raise InvalidConfig(f"ssl.cipher.suites has none for {', '.join(_enabled_versions(together))}; add some")
        settings = cls(
            name,
            together.get("ssl.keystore.type", "PEM"),
            together.get("ssl.keystore.location"),
            together.get("ssl.keystore.certificate.chain"),
            together.get("ssl.keystore.key"),
            together.get("ssl.key.password"),
            together.get("ssl.truststore.type", "PEM"),
            together.get("ssl.truststore.location"),
            together.get("ssl.truststore.certificates"),
            client_auth,
            versions,
            ciphers,
            suites,
            PrincipalMapper(together.get("ssl.principal.mapping.rules") or DEFAULT_RULES),
        )
        settings._check()
        return settings

    def _check(self) -> None:
        is_inline = self.certificate_chain is not None or self.key is not None
        if self.keystore_location is None and not is_inline:
            raise InvalidConfig(
                f"the listener {self.name} speaks TLS and has no certificate; set ssl.keystore.location to a PEM file"
                " with its private key and its certificates"
            )
        if self.keystore_location is not None and is_inline:
            raise InvalidConfig(
                "ssl.keystore.location and ssl.keystore.key are two places for the private key of the listener"
                f" {self.name}; set one of them"
            )
        if is_inline and (self.certificate_chain is None or self.key is None):
            raise InvalidConfig(
                f"the listener {self.name} has one of ssl.keystore.key and ssl.keystore.certificate.chain; set both"
            )
        if self.truststore_location is not None and self.truststore_certificates is not None:
            raise InvalidConfig(
                "ssl.truststore.location and ssl.truststore.certificates are two places for the authorities of the"
                f" listener {self.name}; set one of them"
            )
        if self.client_auth != "none" and self.truststore_location is None and self.truststore_certificates is None:
            raise InvalidConfig(
                f"ssl.client.auth={self.client_auth} needs authorities whose certificates are taken; set"
                f" ssl.truststore.location to a PEM file with them (listener {self.name})"
            )

    @property
    def authenticates(self) -> bool:
        """Whether nobody is let in without a certificate."""
        return self.client_auth == "required"


def _enabled_versions(values: Mapping[str, Any]) -> tuple[str, ...]:
    enabled: tuple[str, ...] = values.get("ssl.enabled.protocols") or tuple(VERSIONS)
    for name in enabled:
        if name not in VERSIONS:
            raise InvalidConfig(
                f"{brief_repr(name)} in ssl.enabled.protocols is not served; {' and '.join(VERSIONS)} are, and older"
                " ones are broken"
            )
    if values.get("ssl.protocol") == "TLSv1.2":  # Java's name of an engine that knows nothing newer
        enabled = ("TLSv1.2",)
    return tuple(name for name in VERSIONS if name in enabled)


def _cipher_suites(names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """OpenSSL's names for TLS 1.2 and those of TLS 1.3. Raises InvalidConfig for unknown and for weak ones."""
    ciphers: list[str] = []
    suites: list[str] = []
    for name in names:
        if name in _SUITES_13:
            suites.append(name)
        elif name in _SUITES_12 or name in _SUITES_12.values():
            ciphers.append(_SUITES_12.get(name, name))
        else:
            raise InvalidConfig(
                f"{brief_repr(name)} in ssl.cipher.suites is unknown or too weak to be served; there are"
                f" {', '.join((*_SUITES_13, *_SUITES_12))}"
            )
    if suites and set(suites) != set(_SUITES_13) and not hasattr(ssl.SSLContext, "set_ciphersuites"):
        raise InvalidConfig(
            "ssl.cipher.suites has some of TLS 1.3 and not all, and this Python cannot choose among"
            f" {', '.join(_SUITES_13)}; name all three, or none of them for TLS 1.2 alone"
        )
    return tuple(ciphers), tuple(suites)
