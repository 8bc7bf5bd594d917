"""Where clients log in, /metrics is for who may describe the cluster: by a password, a token or a certificate."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from certificates import Authority, client_context
from foldlog.broker.access.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from foldlog.broker.broker import MEMORY_PATH, Broker
from foldlog.errors import InvalidConfig
from foldlog.server.config.settings import ServerSettings
from foldlog.server.server import Server
from server.access.sasl_broker import PASSWORD, SIMPLE_USER, USER, sasl_broker

METRICS = {"foldlog.metrics": "127.0.0.1:0"}
ACLS = {"authorizer.class.name": "foldlog", "super.users": "User:admin"}
KEYS = {"ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c"}


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def ask(
    server: Server, path: str = "/metrics", headers: dict[str, str] | None = None, tls: ssl.SSLContext | None = None
) -> tuple[int, dict[str, str], str]:
    assert server.metrics_address is not None
    host, port = server.metrics_address
    made: http.client.HTTPConnection = (
        http.client.HTTPConnection(host, port, timeout=60)
        if tls is None
        else http.client.HTTPSConnection("localhost", port, timeout=60, context=tls)
    )
    with closing(made) as connection:
        connection.request("GET", path, headers=headers or {})
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read().decode()


def allow_describe(broker: Broker, principal: str) -> None:
    acl = Acl(
        ResourceType.CLUSTER,
        "kafka-cluster",
        PatternType.LITERAL,
        principal,
        "*",
        AclOperation.DESCRIBE,
        Permission.ALLOW,
    )
    broker.access.change(lambda access: replace(access, acls=access.acls.with_more([acl])))


def test_metrics_are_for_a_user_who_may_describe_the_cluster() -> None:
    with sasl_broker({**METRICS, **ACLS}) as (broker, server):
        status, headers, body = ask(server)
        assert status == 401
        assert headers["www-authenticate"].startswith("Basic ")
        assert "orders" not in body
        assert ask(server, headers=basic(SIMPLE_USER, "wrong"))[0] == 401
        assert ask(server, headers=basic("nobody", PASSWORD))[0] == 401
        status, _, body = ask(server, headers=basic(SIMPLE_USER, PASSWORD))
        assert status == 403
        assert "User:bob describe cluster" in body
        allow_describe(broker, f"User:{SIMPLE_USER}")
        status, _, body = ask(server, headers=basic(SIMPLE_USER, PASSWORD))
        assert status == 200
        assert 'topic="orders"' in body
        assert ask(server, headers=basic(USER, PASSWORD))[0] == 403


def test_without_acls_every_user_may_see_them_and_nobody_else() -> None:
    with sasl_broker(METRICS) as (_, server):
        assert ask(server)[0] == 401
        assert ask(server, headers=basic(SIMPLE_USER, PASSWORD))[0] == 200


def test_everybody_sees_them_where_that_is_said() -> None:
    with sasl_broker({**METRICS, **ACLS, "foldlog.metrics.open": "true"}) as (_, server):
        assert ask(server)[0] == 200


def test_where_nobody_logs_in_acls_decide_what_everybody_sees() -> None:
    """As on the wire, where such clients are User:ANONYMOUS; but a password that is wrong does not let anybody in."""
    settings = {**METRICS, "listeners": "127.0.0.1:0", "authorizer.class.name": "foldlog"}
    with Broker.open(MEMORY_PATH) as broker:
        with Server.start(broker, ServerSettings.parse(settings)) as server:
            assert ask(server)[0] == 401
            allow_describe(broker, "User:ANONYMOUS")
            assert ask(server)[0] == 200
            assert ask(server, headers=basic("nobody", "wrong"))[0] == 401
        with Server.start(broker, ServerSettings.parse({**settings, "super.users": "User:ANONYMOUS"})) as server:
            assert ask(server)[0] == 200


def test_an_acl_for_everybody_does_not_show_them_to_who_has_not_logged_in() -> None:
    with sasl_broker({**METRICS, **ACLS, "super.users": "User:ANONYMOUS"}) as (broker, server):
        allow_describe(broker, "User:*")
        assert ask(server)[0] == 401
        assert ask(server, headers=basic(SIMPLE_USER, PASSWORD))[0] == 200


def test_health_asks_nobody_and_tells_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with sasl_broker(METRICS) as (_, server):
        assert ask(server, "/healthz")[::2] == (200, "ok\n")
        monkeypatch.setattr("foldlog.server.http.status_pages.problem_of", lambda _: "orders-0 cannot be written")
        assert ask(server, "/healthz")[::2] == (503, "the broker has to be restarted; its log says why\n")


def test_a_token_is_taken_where_clients_log_in_with_tokens(tmp_path: Path) -> None:
    jwt = pytest.importorskip("jwt", reason="tokens need PyJWT; enable with: pip install 'foldlog[oauth]'")
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    found = {**jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": "one"}
    jwks = tmp_path / "jwks.json"
    jwks.write_text(json.dumps({"keys": [found]}))

    def bearer(**claims: Any) -> dict[str, str]:
        given = {"sub": "prometheus", "exp": time.time() + 300, **claims}
        return {"Authorization": f"Bearer {jwt.encode(given, key, algorithm='RS256', headers={'kid': 'one'})}"}

    tokens = {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": str(jwks)}
    with sasl_broker({**METRICS, **ACLS, **tokens}) as (broker, server):
        assert ask(server, headers=bearer())[0] == 403
        allow_describe(broker, "User:prometheus")
        assert ask(server, headers=bearer())[0] == 200
        assert ask(server, headers=bearer(exp=time.time() - 300))[0] == 401
        assert ask(server, headers={"Authorization": "Bearer x"})[0] == 401


def test_a_certificate_is_somebody_where_one_is_asked_for(tmp_path: Path) -> None:
    authority = Authority()
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(authority.broker().write(tmp_path / "broker.pem")),
        "ssl.truststore.location": str(authority.write(tmp_path / "clients.pem")),
        "listener.name.metrics.ssl.client.auth": "requested",
        "foldlog.metrics": "https://127.0.0.1:0",
        **ACLS,
    }
    known = client_context(authority, authority.client("prometheus").write(tmp_path / "client.pem"))
    with Broker.open(MEMORY_PATH) as broker, Server.start(broker, ServerSettings.parse(settings)) as server:
        assert ask(server, tls=client_context(authority))[0] == 401
        assert ask(server, tls=known)[0] == 403
        allow_describe(broker, "User:CN=prometheus")
        assert ask(server, tls=known)[0] == 200


def test_passwords_go_to_metrics_only_with_tls() -> None:
    sasl = {"listeners": "SASL_SSL://0.0.0.0:1", "advertised.listeners": "SASL_SSL://x:1", **KEYS}
    with pytest.raises(InvalidConfig, match=r"at /metrics on 0\.0\.0\.0:2.*say https://0\.0\.0\.0:2"):
        ServerSettings.parse({**sasl, "foldlog.metrics": "0.0.0.0:2"})
    ServerSettings.parse({**sasl, "foldlog.metrics": "https://0.0.0.0:2"})
    with pytest.raises(InvalidConfig, match="does not ask who its clients are"):
        ServerSettings.parse({**sasl, "foldlog.metrics": "https://0.0.0.0:2", "foldlog.metrics.open": "true"})
