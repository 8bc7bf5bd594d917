"""What somebody does in the console: each says first what it would do, and then does that."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import foldlog
from foldlog.broker.access.acls import Acl, AclFilter, AclOperation, PatternType, Permission, ResourceType
from foldlog.broker.access.quotas import entity
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.client.log import Log
from server.access.sasl_broker import PASSWORD, SIMPLE_USER, sasl_broker, set_password
from server.console.console_site import WRITE_HEADERS, ConsoleSite, console
from server.console.test_console_users import SETTINGS, session
from server.group_readers import GROUP, TOPIC, Reader, running_readers, wait_until


@pytest.fixture
def site() -> Iterator[ConsoleSite]:
    with console() as made:
        made.broker.create_topic("orders", 2)
        for number in range(2):
            for at in range(10):
                made.append("orders", number, (b"k%d" % (at % 3), b"v"), at_ms=1000 + at)
        yield made


# --- topics -----------------------------------------------------------------------------------------------------------


def test_a_topic_is_made_after_a_look_at_what_it_would_be(site: ConsoleSite) -> None:
    wanted = {"name": "mail", "partitions": 3, "config": {"retention.ms": "1000"}}
    plan = site.posted("/api/topics", wanted | {"dry_run": True})
    assert (plan["partitions"], plan["is_done"]) == (3, False)
    assert site.broker.find_topic("mail") is None
    assert site.posted("/api/topics", wanted)["is_done"] is True
    made = site.broker.topic("mail")
    assert (made.partition_count, made.config.effective()["retention.ms"]) == (3, "1000")
    assert site.post("/api/topics", wanted).status == 409
    assert site.posted("/api/topics", {"name": "plain"})["partitions"] == 1


@pytest.mark.parametrize(
    "body",
    [
        {"name": "a b"},
        {"name": "__consumer_offsets"},
        {"name": "__folds", "partitions": 7},
        {"name": "x", "partitions": 0},
        {"name": "x", "partitions": 10**9},
        {"name": "x", "config": {"retention.ms": "soon"}},
        {"name": "x", "config": {"no.such": "1"}},
        {"name": "x", "config": {"retention.ms": None}},
        {"name": "x", "config": ["retention.ms"]},
        {"name": 7},
        {"name": "x", "colour": "red"},
    ],
)
def test_a_topic_that_cannot_be_is_refused_in_one_sentence(site: ConsoleSite, body: dict[str, Any]) -> None:
    answer = site.post("/api/topics", body)
    assert answer.status == 400, answer.body
    assert answer.json["error"]
    assert site.broker.topics() == ["orders"]


def test_settings_are_shown_before_and_after(site: ConsoleSite) -> None:
    change = {"set": {"retention.ms": "5000"}}
    plan = site.posted("/api/topics/orders/configs", change | {"dry_run": True})
    assert plan == {"changes": [{"name": "retention.ms", "from": "-1", "to": "5000"}], "is_done": False}
    assert site.broker.topic("orders").config.effective()["retention.ms"] == "-1"
    site.posted("/api/topics/orders/configs", change)
    assert site.broker.topic("orders").config.effective()["retention.ms"] == "5000"
    back = site.posted("/api/topics/orders/configs", {"set": {"retention.ms": None}})
    assert back["changes"] == [{"name": "retention.ms", "from": "5000", "to": "-1"}]
    refused: list[dict[str, Any]] = [{"set": {"retention.ms": "soon"}}, {"set": {}}, {"set": {"no.such": "1"}}, {}]
    for wrong in refused:
        assert site.post("/api/topics/orders/configs", wrong).status == 400
    assert site.post("/api/topics/nothing/configs", change).status == 404


def test_a_topic_grows_and_never_shrinks(site: ConsoleSite) -> None:
    assert site.posted("/api/topics/orders/partitions", {"count": 4, "dry_run": True})["from"] == 2
    assert site.broker.topic("orders").partition_count == 2
    site.posted("/api/topics/orders/partitions", {"count": 4})
    assert site.broker.topic("orders").partition_count == 4
    assert site.post("/api/topics/orders/partitions", {"count": 4}).status == 400


def test_a_trim_says_what_goes_in_each_partition(site: ConsoleSite) -> None:
    plan = site.posted("/api/topics/orders/trim", {"before": "0=4", "dry_run": True})
    assert plan["partitions"] == [{"partition": 0, "start": 0, "new_start": 4, "end": 10, "removed": 4}]
    assert site.broker.partition("orders", 0).log_start_offset == 0
    site.posted("/api/topics/orders/trim", {"before": "0=4"})
    assert [site.broker.partition("orders", number).log_start_offset for number in range(2)] == [4, 0]
    assert site.post("/api/topics/orders/trim", {"before": "99"}).status == 400
    assert site.post("/api/topics/orders/trim", {"before": "whenever"}).status == 400
    site.posted("/api/topics/orders/trim", {"before": "end"})
    assert site.broker.partition("orders", 1).log_start_offset == 10


def test_compaction_and_what_it_saved() -> None:
    with foldlog.open(":memory:") as log, console(log._backend.reader) as site:  # type: ignore[attr-defined]
        log.create_topic("states", config={"cleanup.policy": "compact", "segment.bytes": 1024})
        for at in range(30):
            log.append("states", "x" * 300, key=f"k{at % 2}")
        plan = site.posted("/api/topics/states/compact", {"dry_run": True})
        assert plan["partitions"][0]["offsets"] == 30
        (done,) = site.posted("/api/topics/states/compact", {})["partitions"]
        assert done["records_after"] < done["records_before"]
        log.create_topic("plain")
        assert site.post("/api/topics/plain/compact", {}).status == 409
        assert site.post("/api/topics/states/trim", {"before": "end"}).status == 409


def test_deleting_a_topic_says_what_is_lost(site: ConsoleSite) -> None:
    site.broker.commit_offsets("fraud", {("orders", 0): OffsetAndMetadata(1)})
    plan = site.posted("/api/topics/orders/delete", {"dry_run": True})
    assert (plan["partitions"], plan["offsets"], plan["groups"]) == (2, 20, ["fraud"])
    assert plan["size_bytes"] > 0
    assert site.broker.find_topic("orders") is not None
    site.posted("/api/topics/orders/delete", {})
    assert site.broker.find_topic("orders") is None
    assert site.post("/api/topics/__consumer_offsets/delete", {}).status == 400
    assert site.post("/api/topics/orders/delete", {}).status == 404


# --- groups -----------------------------------------------------------------------------------------------------------


def test_a_whole_group_moves_to_a_place_and_each_partition_is_told(site: ConsoleSite) -> None:
    site.broker.commit_offsets("fraud", {("orders", 0): OffsetAndMetadata(8), ("orders", 1): OffsetAndMetadata(2)})
    plan = site.posted("/api/groups/fraud/reset", {"to": "5", "dry_run": True})
    assert [(one["partition"], one["from"], one["to"], one["again"], one["skipped"]) for one in plan["moves"]] == [
        (0, 8, 5, 3, 0),
        (1, 2, 5, 0, 3),
    ]
    assert (plan["read_again"], plan["skipped"], plan["is_done"]) == (3, 3, False)
    committed = site.broker.committed("fraud")
    assert {one: at.offset for one, at in committed.items()} == {("orders", 0): 8, ("orders", 1): 2}
    for to, offsets in (("start", [0, 0]), ("end", [10, 10]), ("@1970-01-01T00:00:01.004Z", [4, 4]), ("-3", [7, 7])):
        site.posted("/api/groups/fraud/reset", {"to": to})
        committed = site.broker.committed("fraud")
        assert [committed["orders", number].offset for number in range(2)] == offsets, to
    assert site.post("/api/groups/fraud/reset", {"to": "nowhere"}).status == 400
    assert site.post("/api/groups/nobody/reset", {"to": "end"}).status == 404


def test_a_group_can_be_given_a_topic_that_it_has_not_read(site: ConsoleSite) -> None:
    site.broker.commit_offsets("fraud", {("orders", 0): OffsetAndMetadata(8)})
    site.broker.create_topic("more")
    site.posted("/api/groups/fraud/reset", {"to": "end", "topics": ["more"]})
    assert {one: at.offset for one, at in site.broker.committed("fraud").items()} == {
        ("orders", 0): 8,
        ("more", 0): 0,
    }
    assert site.post("/api/groups/fraud/reset", {"to": "end", "topics": ["none"]}).status == 404


def test_members_are_named_and_sent_away_only_if_one_says_so() -> None:
    with console() as site, running_readers() as readers:
        site.broker.create_topic(TOPIC)
        site.append(TOPIC, 0, *((b"k", b"%d" % n) for n in range(5)))
        site.broker.commit_offsets(GROUP, {(TOPIC, 0): OffsetAndMetadata(5)})
        readers.append(Reader(site.server, client_id="till-7"))
        wait_until(readers, lambda: readers[0].assigned == {0})
        plan = site.posted(f"/api/groups/{GROUP}/reset", {"to": "start", "dry_run": True})
        assert plan["members"][0].startswith("till-7")
        refused = site.post(f"/api/groups/{GROUP}/reset", {"to": "start"})
        assert (refused.status, len(refused.json["members"])) == (409, 1)
        assert site.post(f"/api/groups/{GROUP}/delete", {}).status == 409
        done = site.posted(f"/api/groups/{GROUP}/reset", {"to": "start", "evict": True})
        assert done["evicted"]
        wait_until(readers, lambda: (0, 0) in readers[0].read)


def test_a_group_is_forgotten_with_what_it_committed(site: ConsoleSite) -> None:
    site.broker.commit_offsets("fraud", {("orders", 0): OffsetAndMetadata(8)})
    plan = site.posted("/api/groups/fraud/delete", {"dry_run": True})
    assert plan["commits"] == [{"topic": "orders", "partition": 0, "offset": 8}]
    assert site.broker.group_names() == ["fraud"]
    site.posted("/api/groups/fraud/delete", {})
    assert site.broker.group_names() == []
    assert site.post("/api/groups/fraud/delete", {}).status == 404
    assert site.post("/api/groups/fold.mirror/reset", {"to": "end"}).status in (404, 409)


# --- transactions -----------------------------------------------------------------------------------------------------


def test_a_transaction_that_is_open_is_shown_and_aborted() -> None:
    log: Log
    with foldlog.open(":memory:") as log, console(log._backend.reader) as site:  # type: ignore[attr-defined]
        log.create_topic("orders")
        transaction = log.transaction("etl")
        transaction.send("orders", "1").result()
        (found,) = site.get("/api/transactions")
        assert (found["transactional_id"], found["partitions"]) == ("etl", [{"topic": "orders", "partition": 0}])
        assert found["start_ms"] is not None
        assert site.posted("/api/transactions/etl/abort", {"dry_run": True})["is_done"] is False
        assert site.posted("/api/transactions/etl/abort", {})["is_done"] is True
        assert list(log.read("orders", isolation="read_committed")) == []
        assert site.post("/api/transactions/etl/abort", {}).status == 409
        assert site.post("/api/transactions/other/abort", {}).status == 404
        with pytest.raises(foldlog.FoldlogError):
            transaction.commit()


# --- users and ACLs ---------------------------------------------------------------------------------------------------

ACL = {"permission": "ALLOW", "principal": "User:bob", "operation": "READ", "resource": "TOPIC", "name": "orders"}


@pytest.fixture(scope="module")
def secured() -> Iterator[ConsoleSite]:
    with sasl_broker(SETTINGS) as (broker, server):
        set_password(broker, "admin", "admin's")
        broker.create_topic("secret")
        yield ConsoleSite(broker, server)


def admin_post(site: ConsoleSite, path: str, body: Any) -> Any:
    answer = site.post(path, body, **session(site, "admin", "admin's"))
    assert answer.status == 200, answer.body
    return answer.json


def test_users_come_and_go_and_no_password_is_ever_told(secured: ConsoleSite) -> None:
    assert admin_post(secured, "/api/users/eve/password", {"password": "something long"})["is_new"] is True
    assert admin_post(secured, "/api/users/eve/password", {"password": "something else"})["is_new"] is False
    session(secured, "eve", "something else")
    answer = secured.ask("GET", "/api/access", headers=session(secured, "admin", "admin's"))
    assert "eve" in [one["user"] for one in answer.json["users"]]
    assert b"something" not in answer.body
    assert b"salt" not in answer.body
    admin_post(secured, "/api/users/eve/delete", {})
    refused = secured.post("/api/users/eve/delete", {}, **session(secured, "admin", "admin's"))
    assert refused.status == 404


def test_acls_come_and_go_and_are_written_down(secured: ConsoleSite, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "foldlog.audit"):
        made = admin_post(secured, "/api/acls", ACL)
    assert made == ACL | {"host": "*", "pattern": "LITERAL"}
    acl = Acl(ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:bob", "*", AclOperation.READ, Permission.ALLOW)
    assert secured.broker.access.current.acls.found(AclFilter(*acl)) == [acl]
    assert made in secured.ask("GET", "/api/access", headers=session(secured, "admin", "admin's")).json["acls"]
    lines = [record.getMessage() for record in caplog.records if record.name == "foldlog.audit"]
    assert any("ALLOW User:bob * READ TOPIC orders LITERAL" in line for line in lines)
    admin_post(secured, "/api/acls/delete", ACL)
    assert secured.broker.access.current.acls.found(AclFilter(*acl)) == []
    gone = secured.post("/api/acls/delete", ACL, **session(secured, "admin", "admin's"))
    assert gone.status == 404
    for wrong in ({"operation": "SING"}, {"resource": "ANY"}, {"name": ""}, {"permission": "MAYBE"}, {"name": 1}):
        refused = secured.post("/api/acls", ACL | wrong, **session(secured, "admin", "admin's"))
        assert refused.status == 400, wrong


CHANGES = [
    ("/api/topics", {"name": "x"}),
    ("/api/topics/orders/configs", {"set": {"retention.ms": "1"}}),
    ("/api/topics/orders/partitions", {"count": 9}),
    ("/api/topics/orders/trim", {"before": "end"}),
    ("/api/topics/orders/compact", {}),
    ("/api/topics/orders/delete", {}),
    ("/api/groups/fraud/reset", {"to": "end"}),
    ("/api/groups/fraud/delete", {}),
    ("/api/transactions/etl/abort", {}),
    ("/api/users/eve/password", {"password": "something long"}),
    ("/api/users/eve/delete", {}),
    ("/api/acls", ACL),
    ("/api/acls/delete", ACL),
]


@pytest.mark.parametrize(("path", "body"), CHANGES)
def test_who_has_no_right_changes_nothing_and_a_preview_is_no_way_around(
    secured: ConsoleSite, path: str, body: dict[str, Any]
) -> None:
    for more in ({}, {"dry_run": True}):
        answer = secured.post(path, body | more, **session(secured))
        assert answer.status == 403, answer.body
    assert secured.ask("GET", "/api/access", headers=session(secured)).status == 403
    assert secured.ask("GET", "/api/transactions", headers=session(secured)).json == []


@pytest.mark.parametrize(("path", "body"), CHANGES)
def test_a_read_only_console_changes_nothing(path: str, body: dict[str, Any]) -> None:
    with console(read_only=True) as site:
        assert site.post(path, body).status == 403


@pytest.mark.parametrize(("path", "body"), CHANGES)
def test_a_form_of_another_page_changes_nothing(site: ConsoleSite, path: str, body: dict[str, Any]) -> None:
    answer = site.ask("POST", path, b"{}", {"Content-Type": "application/json"})
    assert answer.status == 403
    headers = WRITE_HEADERS | {"Sec-Fetch-Site": "cross-site"}
    assert site.ask("POST", path, b"{}", headers).status == 403
    assert body is not None


def test_a_group_moves_only_in_topics_that_one_may_read(secured: ConsoleSite) -> None:
    acls = [
        Acl(kind, name, PatternType.LITERAL, f"User:{SIMPLE_USER}", "*", AclOperation.READ, Permission.ALLOW)
        for kind, name in ((ResourceType.GROUP, "mixed"), (ResourceType.TOPIC, "orders"))
    ]
    secured.broker.access.change(lambda access: replace(access, acls=access.acls.with_more(acls)))
    for topic in ("orders", "secret"):
        secured.append(topic, 0, (b"k", b"v"))
    secured.broker.commit_offsets("mixed", {(topic, 0): OffsetAndMetadata(0) for topic in ("orders", "secret")})
    answer = secured.post("/api/groups/mixed/reset", {"to": "end"}, **session(secured, SIMPLE_USER, PASSWORD))
    assert [one["topic"] for one in answer.json["moves"]] == ["orders"]
    assert secured.broker.committed("mixed")["secret", 0].offset == 0
    named = secured.post(
        "/api/groups/mixed/reset", {"to": "end", "topics": ["secret"]}, **session(secured, SIMPLE_USER, PASSWORD)
    )
    assert named.status == 409
    assert b"secret" not in named.body
    secured.broker.access.change(lambda access: replace(access, acls=access.acls.without(acls)))


def test_a_quota_of_mutations_holds_in_the_console_too(secured: ConsoleSite) -> None:
    rates: dict[str, float | None] = {"controller_mutation_rate": 0.01}
    user = entity({"user": "admin"})
    secured.broker.access.change(lambda access: replace(access, quotas=access.quotas.changed(user, rates)))
    who = session(secured, "admin", "admin's")
    answers = [secured.post("/api/topics", {"name": f"q{number}", "partitions": 5}, **who).status for number in (1, 2)]
    secured.broker.access.change(
        lambda access: replace(access, quotas=access.quotas.changed(user, {"controller_mutation_rate": None}))
    )
    assert answers == [200, 429]
    assert secured.broker.find_topic("q2") is None


def test_an_acl_that_nobody_asks_is_refused(site: ConsoleSite) -> None:
    answer = site.post("/api/acls", ACL)
    assert (answer.status, "authorizer.class.name" in answer.json["error"]) == (409, True)
    assert site.get("/api/access")["has_acls"] is False
