"""Where clients log in, users of the console do so too, and see and do what ACLs allow them."""

from __future__ import annotations

import base64
import http.client
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest

from foldlog.broker.access.acls import CLUSTER_NAME, Acl, AclOperation, PatternType, Permission, ResourceType
from foldlog.broker.access.quotas import entity
from foldlog.broker.broker import MEMORY_PATH, Broker
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.errors import InvalidConfig
from foldlog.log.partition import Partition
from foldlog.server.config.settings import ServerSettings
from foldlog.server.console.admin.access_pages import AccessPages
from foldlog.server.console.admin.group_pages import GroupPages
from foldlog.server.console.admin.topic_pages import TopicPages
from foldlog.server.console.admin.transaction_pages import TransactionPages
from foldlog.server.console.api import Api
from foldlog.server.console.folds import FoldPages
from foldlog.server.console.health import HealthPages
from foldlog.server.console.scene import ScenePages
from foldlog.server.console.search import SearchPages
from foldlog.server.server import Server
from server.access.sasl_broker import PASSWORD, SIMPLE_USER, sasl_broker, set_password
from server.console.console_site import WRITE_HEADERS, Answer, ConsoleSite

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
SETTINGS = {"foldlog.console": "127.0.0.1:0", "authorizer.class.name": "foldlog", "super.users": "User:admin"}


KEYS = {"ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c"}


def allow(kind: ResourceType, name: str, operation: AclOperation) -> Acl:
    return Acl(kind, name, PatternType.LITERAL, f"User:{SIMPLE_USER}", "*", operation, Permission.ALLOW)


@pytest.fixture(scope="module")
def site() -> Iterator[ConsoleSite]:
    with sasl_broker(SETTINGS) as (broker, server):
        set_password(broker, "admin", "admin's")
        broker.create_topic("secret", 1)
        acls = [
            allow(ResourceType.TOPIC, "orders", AclOperation.READ),
            allow(ResourceType.GROUP, "fraud", AclOperation.DESCRIBE),
        ]
        broker.access.change(lambda access: replace(access, acls=access.acls.with_more(acls)))
        made = ConsoleSite(broker, server)
        for topic in ("orders", "secret"):
            made.append(topic, 0, (b"k", b"v"))
        yield made


def log_in(site: ConsoleSite, name: str, password: str, **headers: str) -> Answer:
    form = urlencode({"user": name, "password": password}).encode()
    return site.ask("POST", "/login", form, FORM | headers)


def session(site: ConsoleSite, name: str = SIMPLE_USER, password: str = PASSWORD) -> dict[str, str]:
    answer = log_in(site, name, password)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    return {"Cookie": cookie.partition(";")[0]}


def test_nobody_sees_anything_before_a_login(site: ConsoleSite) -> None:
    page = site.ask("GET", "/", headers={"Accept": "text/html"})
    assert page.status == 401
    assert b'action="/login"' in page.body
    for path in ("/api/overview", "/api/topics/orders", "/console/main.js", "/api/events"):
        assert site.ask("GET", path).status == 401, path


def test_a_user_sees_what_it_may_describe(site: ConsoleSite) -> None:
    seen = site.ask("GET", "/api/overview", headers=session(site)).json
    assert seen["user"] == SIMPLE_USER
    assert [one["name"] for one in seen["topics"]] == ["orders"]
    assert site.ask("GET", "/api/topics/orders", headers=session(site)).json["may"] == []
    admin = site.ask("GET", "/api/topics/orders", headers=session(site, "admin", "admin's")).json
    assert admin["may"] == ["WRITE", "ALTER", "ALTER_CONFIGS", "DELETE"]
    everything = site.ask("GET", "/api/overview", headers=session(site, "admin", "admin's")).json
    assert [one["name"] for one in everything["topics"]] == ["orders", "secret"]


@pytest.mark.parametrize(
    "acl",
    [
        allow(ResourceType.CLUSTER, CLUSTER_NAME, AclOperation.CREATE),
        allow(ResourceType.TOPIC, "mine-", AclOperation.CREATE)._replace(pattern=PatternType.PREFIXED),
        None,
    ],
)
def test_creating_topics_is_offered_to_who_may_create_one(site: ConsoleSite, acl: Acl | None) -> None:
    acls = [] if acl is None else [acl]
    site.broker.access.change(lambda access: replace(access, acls=access.acls.with_more(acls)))
    may = site.ask("GET", "/api/overview", headers=session(site)).json["may"]
    tried = site.post("/api/topics", {"name": "mine-1", "dry_run": True}, **session(site)).status
    site.broker.access.change(lambda access: replace(access, acls=access.acls.without(acls)))
    assert (may, tried) == ((["CREATE"], 200) if acls else ([], 403))
    everything = site.ask("GET", "/api/overview", headers=session(site, "admin", "admin's")).json
    assert everything["may"] == ["CREATE"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/topics/orders", 200),
        ("/api/topics/orders/0/strip", 200),
        ("/api/topics/orders/0/records/0", 200),
        ("/api/topics/orders/search", 200),
        ("/api/topics/orders/download?records=0%3D0", 200),
        ("/api/topics/secret/search", 403),
        ("/api/topics/secret/download?records=0%3D0", 403),
        ("/api/topics/secret", 403),
        ("/api/topics/secret/0/strip", 403),
        ("/api/topics/no-such-topic", 403),
        ("/api/groups/fraud", 404),
        ("/api/groups/other", 403),
        ("/api/folds/mine/peek", 403),
        ("/api/scene", 403),
    ],
)
def test_a_user_may_ask_for_what_it_may_read(site: ConsoleSite, path: str, status: int) -> None:
    assert site.ask("GET", path, headers=session(site)).status == status


def test_a_user_may_write_what_it_may_write_and_it_is_written_down(
    site: ConsoleSite, caplog: pytest.LogCaptureFixture
) -> None:
    body = b'{"value": "hello"}'
    with caplog.at_level(logging.INFO, "foldlog.audit"):
        refused = site.ask("POST", "/api/topics/orders/records", body, WRITE_HEADERS | session(site))
        done = site.ask("POST", "/api/topics/orders/records", body, WRITE_HEADERS | session(site, "admin", "admin's"))
    assert refused.status == 403
    assert "WRITE of topic 'orders'" in refused.json["error"]
    assert done.status == 200
    lines = [record.getMessage() for record in caplog.records if record.name == "foldlog.audit"]
    assert lines == [
        f'principal="User:{name}" address="127.0.0.1" {rest}'
        for name, result in (("bob", "refused"), ("admin", "done"))
        for rest in (
            'action="login" names=["the console"] result="done"',
            f'action="console POST" names=["/api/topics/orders/records"] result="{result}"',
        )
    ]


def test_logging_out_is_written_down_and_a_header_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    basic = {"Authorization": "Basic " + base64.b64encode(f"{SIMPLE_USER}:{PASSWORD}".encode()).decode()}
    with caplog.at_level(logging.INFO, "foldlog.audit"), sasl_broker(SETTINGS) as (broker, server):
        site = ConsoleSite(broker, server)
        cookie = session(site)
        for _ in range(2):
            site.ask("POST", "/logout", headers=cookie)
        for _ in range(3):
            assert site.ask("GET", "/api/overview", headers=basic).status == 200
    told = [record.getMessage().partition("action=")[2] for record in caplog.records if record.name == "foldlog.audit"]
    assert told == [
        '"login" names=["the console"] result="done"',
        '"logout" names=["the console"] result="done"',
        '"login" names=["the console", "Basic"] result="done"',
    ]


def test_paths_and_warnings_are_for_who_may_describe_the_cluster(
    site: ConsoleSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Broker, "warnings", lambda _: ["secret-0 is damaged"])
    seen = [
        site.ask("GET", "/api/overview", headers=session(site, *who)).json
        for who in ((SIMPLE_USER, PASSWORD), ("admin", "admin's"))
    ]
    assert [(one["directory"], one["warnings"]) for one in seen] == [
        (None, []),
        (MEMORY_PATH, ["secret-0 is damaged"]),
    ]


def test_health_and_history_hold_what_a_user_may_describe(site: ConsoleSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "is_poisoned", property(lambda self: True))
    site.broker.commit_offsets("fraud", {(topic, 0): OffsetAndMetadata(0) for topic in ("orders", "secret")})
    site.broker.commit_offsets("other", {("orders", 0): OffsetAndMetadata(0)})
    assert site.server._console is not None
    history = site.server._console._health._history
    history.sample()
    history.sample()
    own, all_of_it = (
        [site.ask("GET", path, headers=session(site, *who)).json for path in ("/api/health", "/api/history")]
        for who in ((SIMPLE_USER, PASSWORD), ("admin", "admin's"))
    )
    site.broker.delete_group("fraud")
    site.broker.delete_group("other")
    assert {one["name"] for one in own[0]["problems"]} == {"orders"}
    assert (own[0]["disk"], own[0]["connections"], own[0]["errors"]) == (None, None, [])
    assert own[1]["topics"].keys() == {"orders"}
    assert {group: list(topics) for group, topics in own[1]["groups"].items()} == {"fraud": ["orders"]}
    assert {one["name"] for one in all_of_it[0]["problems"]} >= {"orders", "secret"}
    assert all_of_it[0]["connections"]["open"] >= 0
    assert all_of_it[1]["topics"].keys() >= {"orders", "secret"}
    assert all_of_it[1]["groups"].keys() == {"fraud", "other"}


def test_events_hold_what_a_user_may_see(site: ConsoleSite) -> None:
    connection = http.client.HTTPConnection(site.host, site.port, timeout=60)
    connection.request("GET", "/api/events", headers=session(site))
    response = connection.getresponse()
    text = b""
    while b"event: ends" not in text or not text.endswith(b"\n\n"):
        text += response.readline()
    connection.close()
    assert b'"orders"' in text
    assert b"secret" not in text


@pytest.mark.parametrize(
    ("name", "password"), [(SIMPLE_USER, "wrong"), ("nobody", PASSWORD), ("", ""), ("x" * 999, "x")]
)
def test_a_wrong_password_is_told_on_the_page(site: ConsoleSite, name: str, password: str) -> None:
    answer = log_in(site, name, password)
    assert answer.status == 401
    assert b"password is wrong" in answer.body
    assert "set-cookie" not in answer.headers


def test_a_name_cannot_leave_its_field_on_the_page(site: ConsoleSite) -> None:
    answer = log_in(site, '"><script>alert(1)</script>', "x")
    assert b"<script>" not in answer.body


def test_a_login_from_another_site_is_refused(site: ConsoleSite) -> None:
    assert log_in(site, SIMPLE_USER, PASSWORD, **{"Sec-Fetch-Site": "cross-site"}).status == 403
    assert log_in(site, SIMPLE_USER, PASSWORD, Origin="https://evil.example").status == 403


def test_scripts_log_in_by_basic(site: ConsoleSite) -> None:
    for password, status in ((PASSWORD, 200), ("wrong", 401)):
        encoded = base64.b64encode(f"{SIMPLE_USER}:{password}".encode()).decode()
        assert site.ask("GET", "/api/overview", headers={"Authorization": f"Basic {encoded}"}).status == status
    assert site.ask("GET", "/api/overview", headers={"Authorization": "Basic ???"}).status == 401


def test_a_session_ends_with_a_logout_and_with_a_changed_password(site: ConsoleSite) -> None:
    headers = session(site)
    assert site.ask("POST", "/logout", b"", headers).status == 303
    assert site.ask("GET", "/api/overview", headers=headers).status == 401
    set_password(site.broker, "dora", "first")
    headers = session(site, "dora", "first")
    assert site.ask("GET", "/api/overview", headers=headers).status == 200
    set_password(site.broker, "dora", "second")
    assert site.ask("GET", "/api/overview", headers=headers).status == 401


def test_acls_that_are_taken_away_count_at_once(site: ConsoleSite) -> None:
    headers = session(site)
    taken = allow(ResourceType.TOPIC, "orders", AclOperation.READ)
    site.broker.access.change(lambda access: replace(access, acls=access.acls.without([taken])))
    assert site.ask("GET", "/api/topics/orders/0/strip", headers=headers).status == 403
    site.broker.access.change(lambda access: replace(access, acls=access.acls.with_more([taken])))
    assert site.ask("GET", "/api/topics/orders/0/strip", headers=headers).status == 200


ALL_PAGES: tuple[type, ...] = (
    Api,
    FoldPages,
    HealthPages,
    ScenePages,
    SearchPages,
    TopicPages,
    GroupPages,
    TransactionPages,
    AccessPages,
)


def test_every_route_of_the_api_says_what_it_asks_for() -> None:
    for pages in ALL_PAGES:
        made: Any = pages.__new__(pages)  # type: ignore[call-overload]
        assert all(route.asks is not None for route in made.routes() if route.path.startswith("/api/"))


def test_with_acls_and_no_logins_the_console_needs_its_token() -> None:
    settings = {"listeners": "127.0.0.1:0", "foldlog.console": "127.0.0.1:0", "authorizer.class.name": "foldlog"}
    with Broker.open(MEMORY_PATH) as broker, Server.start(broker, ServerSettings.parse(settings)) as server:
        site = ConsoleSite(broker, server)
        assert site.ask("GET", "/api/overview").status == 401
        token = {"Authorization": f"Bearer {server.console_token}"}
        assert site.ask("GET", "/api/overview", headers=token).status == 200


def test_a_console_without_tls_takes_no_passwords_from_other_machines() -> None:
    with pytest.raises(InvalidConfig, match="https://"):
        ServerSettings.parse({"listeners": "SASL_SSL://127.0.0.1:0", "foldlog.console": "0.0.0.0:0"} | KEYS)


def test_a_user_gains_nothing_over_a_quota_by_the_console() -> None:
    with sasl_broker(SETTINGS | {"super.users": f"User:{SIMPLE_USER};User:admin", "quota.window.num": 1}) as (
        broker,
        server,
    ):
        set_password(broker, "admin", "admin's")
        site = ConsoleSite(broker, server)
        cookie, other = session(site), session(site, "admin", "admin's")
        rates: dict[str, float | None] = {"producer_byte_rate": 1, "consumer_byte_rate": 1}
        broker.access.change(
            lambda access: replace(access, quotas=access.quotas.changed(entity({"user": SIMPLE_USER}), rates))
        )

        def read(who: dict[str, str]) -> Answer:
            return site.ask("GET", "/api/overview", headers=who)

        def write(who: dict[str, str]) -> Answer:
            return site.post("/api/topics/orders/records", {"value": "x" * 100}, **who)

        for request in (read, write):
            assert request(cookie).status == 200
            refused = request(cookie)
            assert refused.status == 429
            assert int(refused.headers["retry-after"]) > 1
            assert request(other).status == 200
        assert site.ask("GET", "/", headers=cookie).status == 200
        assert broker.partition("orders", 0).log_end_offset == 2


@contextmanager
def with_quota(settings: dict[str, Any], named: dict[str, str | None], **rates: float) -> Iterator[ConsoleSite]:
    """A console, and a quota on it."""
    with sasl_broker(SETTINGS | {"super.users": f"User:{SIMPLE_USER};User:admin"} | settings) as (broker, server):
        set_password(broker, "admin", "admin's")
        set_quota(broker, named, **rates)
        yield ConsoleSite(broker, server)


def set_quota(broker: Broker, named: dict[str, str | None], **rates: float | None) -> None:
    broker.access.change(lambda access: replace(access, quotas=access.quotas.changed(entity(named), rates)))


def test_the_time_that_the_broker_works_for_the_console_is_of_the_users_quota() -> None:
    """A millionth of a thread's time: one look at the log is beyond it."""
    named: dict[str, str | None] = {"user": SIMPLE_USER}
    with with_quota({"quota.window.num": 1}, named, request_percentage=0.0001) as site:
        cookie, other = session(site), session(site, "admin", "admin's")
        assert site.ask("GET", "/api/overview", headers=cookie).status == 200
        refused = site.ask("GET", "/api/overview", headers=cookie)
        assert refused.status == 429
        assert site.ask("GET", "/api/overview", headers=other).status == 200
        set_quota(site.broker, named, request_percentage=None)
        assert site.ask("GET", "/api/overview", headers=cookie).status == 200


def test_a_stream_of_events_waits_while_its_user_is_in_debt() -> None:
    named: dict[str, str | None] = {"user": SIMPLE_USER}
    with with_quota({"quota.window.num": 1}, named, consumer_byte_rate=1) as site:
        connection = http.client.HTTPConnection(site.host, site.port, timeout=60)
        connection.request("GET", "/api/events", headers=session(site))
        response = connection.getresponse()
        assert response.readline() == b"retry: 1000\n"
        assert response.readline() == b"\n"
        assert site.ask("GET", "/api/overview", headers=session(site)).status == 429  # the same debt
        set_quota(site.broker, named, consumer_byte_rate=None)
        while b"event: ends" not in response.readline():
            pass
        connection.close()


@pytest.mark.parametrize("path", ["/api/overview", "/metrics"])
def test_connections_by_http_are_of_their_addresss_quota(path: str) -> None:
    settings = {"foldlog.metrics": "127.0.0.1:0", "foldlog.metrics.open": "true", "quota.window.num": 2}
    named: dict[str, str | None] = {"ip": "127.0.0.1"}
    with with_quota(settings, named, connection_creation_rate=1) as site:
        address = site.server.console_address if path.startswith("/api") else site.server.metrics_address
        assert address is not None
        statuses = set()
        for _ in range(30):  # faster than one in a second, however slow the machine is
            connection = http.client.HTTPConnection(*address, timeout=60)
            connection.request("GET", path)
            statuses.add(connection.getresponse().status)
            connection.close()
        assert 429 in statuses
        set_quota(site.broker, named, connection_creation_rate=None)
        assert site.ask("GET", "/api/overview", headers=session(site)).status == 200
