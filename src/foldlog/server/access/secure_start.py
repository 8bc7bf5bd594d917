"""`foldlog serve --secure`: what a broker needs to be put on a network, made when it is first served so.

Certificates (`own_certificates.py`), and a user `admin`, who may do everything, with a password that is shown once.
What is there already stays.
"""

from __future__ import annotations

import json
import secrets
import shlex
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from foldlog.broker.access.users import credentials_for
from foldlog.broker.broker import MEMORY_PATH
from foldlog.errors import InvalidConfig
from foldlog.files.paths import exists
from foldlog.server.access.mechanisms import PLAIN, SCRAM
from foldlog.server.access.own_certificates import SecureFiles, require_cryptography
from foldlog.server.config.configuration import Configuration, Given
from foldlog.server.net.listeners import parse_http_listener

if TYPE_CHECKING:
    from foldlog.broker.access.store import Access, AccessStore

ADMIN: Final = "admin"
_SECURE: Final = "--secure"
_KEYSTORE: Final = "ssl.keystore.location"
_PASSWORD_BYTES: Final = 18
_LOGIN_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


def secured(configuration: Configuration, path: str) -> Configuration:
    """The configuration with what --secure stands for, where it is not set: TLS and logins on every listener, ACLs, and
    `admin` for a super user."""
    if path == MEMORY_PATH:
        raise InvalidConfig("--secure keeps its certificate and users in the directory; give one instead of :memory:")
    given = dict(configuration.given)
    files = SecureFiles(path)
    if _KEYSTORE not in given and "ssl.keystore.key" not in given and not exists(files.broker):
        # Said before the directory is made: one that cannot be served helps nobody.
        require_cryptography("serve --secure")
    texts = given.pop("listen", None) or given.pop("listeners", None) or Given("127.0.0.1:9092", _SECURE)
    addresses = texts.value if isinstance(texts.value, list | tuple) else str(texts.value).split(",")
    if any("://" in address for address in addresses):
        raise InvalidConfig("--secure says which protocol listeners have; give HOST:PORT without a name before it")
    names = [f"SECURE_{number}" if number > 1 else "SECURE" for number in range(1, len(addresses) + 1)]
    given["listeners"] = Given([f"{name}://{one}" for name, one in zip(names, addresses, strict=True)], texts.origin)
    given["listener.security.protocol.map"] = Given([f"{name}:SASL_SSL" for name in names], _SECURE)
    if "ssl.keystore.key" not in given:
        given.setdefault(_KEYSTORE, Given(files.broker, _SECURE))
    for name in ("foldlog.metrics", "foldlog.console", "foldlog.registry"):
        if name in given:
            given[name] = _with_tls(given[name], name)
    for name, value in (
        ("sasl.enabled.mechanisms", ",".join((*SCRAM, PLAIN))),
        ("authorizer.class.name", "foldlog"),
        ("super.users", f"User:{ADMIN}"),
    ):
        given.setdefault(name, Given(value, _SECURE))
    return replace(configuration, given=given)


def _with_tls(given: Given, setting: str) -> Given:
    """The address of an HTTP listener with https where other machines reach it, unless it says which."""
    text = given.value
    if not isinstance(text, str) or not text.strip() or "://" in text or parse_http_listener(text, setting).is_loopback:
        return given
    return Given(f"https://{text.strip()}", given.origin)


@dataclass(frozen=True, slots=True)
class NewAdmin:
    """The user that was just made."""

    name: str
    password: str = field(repr=False)


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


def _rights_text(super_users: str, directory: str) -> str:
    """
    >>> _rights_text("User:admin;User:ops", "data")
    'may do everything'
    """
    if f"User:{ADMIN}" in super_users.split(";"):
        return "may do everything"
    return (
        "may do what ACLs allow, since super.users does not name it; to let it give others rights:"
        f" 'foldlog acl create {ADMIN} all cluster -d {shlex.quote(directory)}'"
    )


def client_settings(
    bootstrap: str, ca: str, admin: NewAdmin | None, metrics: str | None, directory: str, super_users: str
) -> str:
    """What to tell clients, for people to copy. `ca`: the file with the authority; `metrics`: the URL of /metrics."""
    password = admin.password if admin is not None else "PASSWORD"
    told = (
        f"the user {admin.name} was made; its password is shown only now: {admin.password}\n"
        f"{admin.name} {_rights_text(super_users, directory)}"
        if admin is not None
        else "there are users already; 'foldlog user list' names them, and 'foldlog user password' sets new passwords"
    )
    return f"""\
{told}
clients need a copy of {ca}, which is no secret, and its path in their settings

Python (foldlog; confluent-kafka takes the same properties):
  log = foldlog.connect("kafka://{bootstrap}", properties={{
      "security.protocol": "SASL_SSL", "ssl.ca.location": {json.dumps(ca, ensure_ascii=False)},
      "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "{ADMIN}", "sasl.password": "{password}"}})

Java, Kafka's tools and ours (client.properties):
  bootstrap.servers={bootstrap}
  security.protocol=SASL_SSL
  ssl.truststore.type=PEM
  ssl.truststore.location={_in_properties(ca)}
  sasl.mechanism=SCRAM-SHA-512
  sasl.jaas.config={_LOGIN_MODULE} required username="{ADMIN}" password="{password}";

The command line, with that file:
  foldlog topic list -b {bootstrap} --command-config client.properties
{"" if metrics is None else _scrape_config(metrics, ca, directory)}"""


def _in_properties(path: str) -> str:
    r"""As a value in Java's properties, where a backslash begins an escape: the same ones as in JSON.

    >>> print(_in_properties("/srv/Köln\\a/ca.pem"))
    /srv/K\u00f6ln\\a/ca.pem
    """
    return json.dumps(path)[1:-1]


def _scrape_config(metrics: str, ca: str, directory: str) -> str:
    """For Prometheus, as a user of its own who may see numbers and nothing else."""
    scheme, _, target = metrics.partition("://")
    tls = f"\n      tls_config: {{ca_file: {json.dumps(ca, ensure_ascii=False)}}}" if scheme == "https" else ""
    return f"""
Prometheus, as a user of its own; its password is in a file for both, prometheus.txt:
  foldlog user create prometheus -d {shlex.quote(directory)} --password-file prometheus.txt
  foldlog acl create prometheus describe cluster -d {shlex.quote(directory)}

  scrape_configs:
    - job_name: foldlog
      scheme: {scheme}{tls}
      basic_auth: {{username: prometheus, password_file: prometheus.txt}}
      static_configs: [{{targets: ["{target}"]}}]
"""
