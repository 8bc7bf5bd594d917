"""Who may do what: users by Basic, subjects by the ACLs of their topics, changes in the audit log, pages kept out."""

from __future__ import annotations

import base64
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from certificates import Authority, client_context
from foldlog import testing
from foldlog.broker.access.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from foldlog.broker.broker import MEMORY_PATH, Broker
from foldlog.errors import InvalidConfig
from foldlog.server.config.settings import ServerSettings
from foldlog.server.server import Server
from server.access.sasl_broker import PASSWORD, SIMPLE_USER, USER, sasl_broker
from server.registry.rest import Rest, record

REGISTRY = {"foldlog.registry": "127.0.0.1:0"}
ACLS = {"authorizer.class.name": "foldlog", "super.users": f"User:{USER}"}


def as_user(server: Server, name: str, password: str = PASSWORD) -> Rest:
    assert server.registry_address is not None
    host, port = server.registry_address
    shown = base64.b64encode(f"{name}:{password}".encode()).decode()
    return Rest(f"http://{host}:{port}", {"Authorization": f"Basic {shown}"} if name else {})


def allow(broker: Broker, operation: AclOperation, topic: str) -> None:
    principal = f"User:{SIMPLE_USER}"
    acl = Acl(ResourceType.TOPIC, topic, PatternType.LITERAL, principal, "*", operation, Permission.ALLOW)
    broker.access.change(lambda access: replace(access, acls=access.acls.with_more([acl])))


def test_subjects_have_the_rights_of_their_topics(caplog: pytest.LogCaptureFixture) -> None:
    with sasl_broker({**REGISTRY, **ACLS}) as (broker, server), caplog.at_level(logging.INFO, "foldlog.audit"):
        stranger, wrong = as_user(server, ""), as_user(server, SIMPLE_USER, "wrong")
        assert stranger.get("/subjects").status == wrong.get("/subjects").status == 401
        assert stranger.get("/subjects").headers["www-authenticate"].startswith("Basic ")
        admin, bob = as_user(server, USER), as_user(server, SIMPLE_USER)
        number = admin.register("orders-value", record("a")).body["id"]
        assert bob.get("/subjects").body == []
        assert bob.get(f"/schemas/ids/{number}").code == 40403
        assert bob.get("/subjects/orders-value/versions").status == 403
        allow(broker, AclOperation.READ, "orders")
        assert bob.get("/subjects").body == ["orders-value"]
        assert bob.get(f"/schemas/ids/{number}").status == 200
        assert bob.register("orders-value", record("a", "b?")).status == 403
        assert bob.put("/config/orders-value", {"compatibility": "NONE"}).status == 403
        assert bob.put("/config", {"compatibility": "NONE"}).status == 403
        allow(broker, AclOperation.WRITE, "orders")
        assert bob.register("orders-value", record("a", "b?")).status == 200
        assert bob.register("orders-key", '"string"').status == 200
        assert bob.register("others-value", '"string"').status == 403
        assert bob.delete("/subjects/orders-value").status == 403
        allow(broker, AclOperation.DELETE, "orders")
        assert bob.delete("/subjects/orders-value").status == 200
    lines = [one.getMessage() for one in caplog.records if one.name == "foldlog.audit"]
    assert any(
        "registry POST" in one and "/subjects/orders-value/versions" in one and "refused" in one for one in lines
    )
    assert any("registry DELETE" in one and f"User:{SIMPLE_USER}" in one for one in lines)


def test_with_tls_a_certificate_is_somebody(tmp_path: Path) -> None:
    authority = Authority()
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(authority.broker().write(tmp_path / "broker.pem")),
        "ssl.truststore.location": str(authority.write(tmp_path / "clients.pem")),
        "listener.name.registry.ssl.client.auth": "requested",
        "foldlog.registry": "https://127.0.0.1:0",
        "authorizer.class.name": "foldlog",
        "super.users": "User:CN=admin",
    }
    known = client_context(authority, authority.client("admin").write(tmp_path / "client.pem"))
    with Broker.open(MEMORY_PATH) as broker, Server.start(broker, ServerSettings.parse(settings)) as server:
        assert server.registry_address is not None
        url = f"https://localhost:{server.registry_address[1]}"
        assert Rest(url, tls=known).register("orders-value", record("a")).status == 200
        assert Rest(url, tls=client_context(authority)).register("orders-value", record("a")).status == 403
        assert Rest(url, tls=client_context(authority)).get("/subjects").body == []


def test_pages_of_other_sites_and_other_names_are_kept_out() -> None:
    with testing.Broker(registry=True) as broker:
        rest = Rest(broker.schema_registry_url)
        body = {"schema": '"int"'}
        assert rest.get("/subjects", Host="evil.example").status == 403
        assert rest.get("/subjects", Origin="http://evil.example").status == 403
        assert rest.post("/subjects/a/versions", body, Origin="http://evil.example").status == 403
        assert rest.post("/subjects/a/versions", body, Sec_Fetch_Site="cross-site").status == 403
        assert rest.post("/subjects/a/versions", body, Content_Type="text/plain").status == 415
        assert rest.post("/subjects/a/versions", body, Content_Type="application/json; charset=utf-8").status == 200


def test_a_registry_that_other_machines_reach_asks_who_they_are() -> None:
    with pytest.raises(InvalidConfig, match="register and delete schemas"):
        ServerSettings.parse({"foldlog.registry": "0.0.0.0:8081"})
    ServerSettings.parse({"foldlog.registry": "0.0.0.0:8081", "foldlog.insecure": "true"})
    keys = {"ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c"}
    sasl = {"listeners": "SASL_SSL://0.0.0.0:1", "advertised.listeners": "SASL_SSL://x:1", **keys}
    with pytest.raises(InvalidConfig, match="passwords can be read"):
        ServerSettings.parse({**sasl, "foldlog.registry": "0.0.0.0:8081"})
    ServerSettings.parse({**sasl, "foldlog.registry": "https://0.0.0.0:8081"})
