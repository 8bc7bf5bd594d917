"""A broker in memory that lets in only who logs in, with one user of each kind of password."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

from foldlog.broker.access.users import Credentials, credentials_for
from foldlog.broker.broker import MEMORY_PATH, Broker
from foldlog.server.authorizer import Authorizer
from foldlog.server.config.settings import ServerSettings
from foldlog.server.server import Server

USER = "a,l=ice ü"
SIMPLE_USER = "bob"
"""For kafka-python, which sends ',' and '=' in a name as they are."""

PASSWORD = "pa,ss=wörd "
MECHANISMS = "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN"


@cache
def credentials(password: str) -> Credentials:
    """With as few iterations as there can be: every test hashes."""
    return credentials_for(password, 4096)


def set_password(broker: Broker, name: str, password: str | None) -> None:
    kept = {} if password is None else credentials(password)
    broker.access.change(lambda access: replace(access, users=access.users.with_credentials(name, kept)))


@contextmanager
def sasl_broker(
    settings: dict[str, Any] | None = None, authorizer: Authorizer | None = None
) -> Iterator[tuple[Broker, Server]]:
    given = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": MECHANISMS,
        "connection.failed.authentication.delay.ms": 0,
        **(settings or {}),
    }
    with Broker.open(MEMORY_PATH) as broker:
        broker.create_topic("orders", 1)
        set_password(broker, USER, PASSWORD)
        set_password(broker, SIMPLE_USER, PASSWORD)
        with Server.start(broker, ServerSettings.parse(given), authorizer=authorizer) as server:
            yield broker, server


def refused_logins(server: Server) -> float:
    """As the broker counts them: a client that gives up for its time alone was not refused."""
    families = {family.name: family for family in server.metrics.families()}
    samples = families["foldlog_connections_refused_total"].samples
    return sum(one.value for one in samples if "login" in dict(one.labels).values())
