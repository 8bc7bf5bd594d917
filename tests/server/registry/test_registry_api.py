"""The REST API as Confluent documents it: paths, answers, and the code of each refusal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import foldlog
from foldlog.errors import InvalidConfig
from foldlog.testing import Broker
from server.registry.rest import Rest, record


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(registry=True) as broker:
        yield broker


@pytest.fixture
def rest(broker: Broker) -> Rest:
    return Rest(broker.schema_registry_url)


def test_a_schema_is_registered_looked_up_and_read_by_version_and_id(rest: Rest) -> None:
    registered = rest.register("one-value", record("a"))
    assert registered.status == 200
    assert registered.headers["content-type"] == "application/vnd.schemaregistry.v1+json"
    number = registered.body["id"]
    text = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
    shown = {"subject": "one-value", "version": 1, "id": number, "schema": text}
    assert rest.get("/subjects/one-value/versions/1").body == shown
    assert rest.get("/subjects/one-value/versions/latest").body == shown
    assert rest.post("/subjects/one-value", {"schema": json.dumps(record("a"), indent=2)}).body == shown
    assert rest.get(f"/schemas/ids/{number}").body == {"schema": text}
    assert rest.get(f"/schemas/ids/{number}/schema").body == json.loads(text)
    assert rest.get("/subjects/one-value/versions/1/schema").body == json.loads(text)
    assert rest.get(f"/schemas/ids/{number}/subjects").body == ["one-value"]
    assert rest.get(f"/schemas/ids/{number}/versions").body == [{"subject": "one-value", "version": 1}]
    assert rest.get("/subjects/one-value/versions").body == [1]
    assert shown in rest.get("/schemas?subjectPrefix=one").body
    assert rest.get(f"/schemas/ids/{number}?fetchMaxId=true").body["maxId"] >= number


def test_the_same_schema_has_one_id_and_one_version_of_a_subject(rest: Rest) -> None:
    first = rest.register("same-a", record("same")).body
    assert rest.register("same-a", json.dumps(record("same"), indent=4)).body == first
    assert rest.register("same-b", record("same")).body == first
    assert rest.get("/subjects/same-a/versions").body == [1]
    assert rest.get(f"/schemas/ids/{first['id']}/subjects").body == ["same-a", "same-b"]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/subjects/gone/versions", 404, 40401),
        ("GET", "/subjects/gone/versions/1", 404, 40401),
        ("GET", "/subjects/known-value/versions/9", 404, 40402),
        ("GET", "/subjects/known-value/versions/0", 422, 42202),
        ("GET", "/subjects/known-value/versions/first", 422, 42202),
        ("GET", "/schemas/ids/99999", 404, 40403),
        ("GET", "/schemas/ids/99999/versions", 404, 40403),
        ("GET", "/schemas/ids/x", 404, 404),
        ("DELETE", "/subjects/gone", 404, 40401),
        ("DELETE", "/subjects/gone/versions/1", 404, 40401),
        ("DELETE", "/subjects/known-value/versions/7", 404, 40402),
        ("DELETE", "/subjects/known-value?permanent=true", 404, 40405),
        ("DELETE", "/subjects/known-value/versions/1?permanent=true", 404, 40407),
        ("GET", "/config/known-value", 404, 40408),
        ("GET", "/mode/known-value", 404, 40409),
        ("DELETE", "/config/known-value", 404, 40401),
        ("GET", "/nowhere", 404, 404),
        ("PUT", "/subjects", 405, 405),
    ],
)
def test_refusals_have_confluents_codes(rest: Rest, method: str, path: str, status: int, code: int) -> None:
    rest.register("known-value", record("a"))
    answer = rest.ask(method, path)
    assert (answer.status, answer.code) == (status, code)
    assert answer.body["message"]


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("POST", "/subjects/known-value/versions", {"schema": "{"}, 42201),
        ("POST", "/subjects/known-value/versions", {"schema": ""}, 42201),
        ("POST", "/subjects/known-value/versions", {}, 42201),
        ("POST", "/subjects/known-value/versions", {"schema": '"int"', "schemaType": "XML"}, 42201),
        ("POST", "/subjects/known-value/versions", {"schema": '"int"'}, 409),
        ("POST", "/subjects/known-value/versions", {"schema": '"int"', "id": 7}, 42205),
        ("POST", "/subjects/__GLOBAL/versions", {"schema": '"int"'}, 42208),
        ("POST", "/subjects/known-value", {"schema": '"int"'}, 40403),
        ("POST", "/subjects/gone", {"schema": '"int"'}, 40401),
        ("PUT", "/config", {"compatibility": "SIDEWAYS"}, 42203),
        ("PUT", "/config", {"compatibility": 3}, 42203),
        ("PUT", "/config", {}, 422),
        ("PUT", "/mode", {"mode": "SLEEPING"}, 42204),
        ("PUT", "/mode", {"mode": "IMPORT"}, 42205),
        ("POST", "/subjects/s/versions", {"schema": '"int"', "ruleSet": {"domainRules": []}}, 422),
        (
            "POST",
            "/subjects/s/versions",
            {"schema": '"int"', "references": [{"name": "x", "subject": "gone", "version": 1}]},
            42201,
        ),
        ("POST", "/compatibility/subjects/gone/versions/latest", {"schema": '"int"'}, 40401),
    ],
)
def test_refused_bodies_have_confluents_codes(rest: Rest, method: str, path: str, body: Any, code: int) -> None:
    rest.register("known-value", record("a"))
    assert rest.ask(method, path, body).code == code


@pytest.mark.parametrize(
    ("level", "refused"),
    [
        ("NONE", []),
        ("BACKWARD", [record("c")]),
        ("BACKWARD_TRANSITIVE", [record("c")]),
        ("FORWARD", [record("c?")]),
        ("FORWARD_TRANSITIVE", [record("c?")]),
        ("FULL", [record("c"), record("a?", "d")]),
        ("FULL_TRANSITIVE", [record("c"), record("a?", "d")]),
    ],
)
def test_a_level_refuses_what_it_says(rest: Rest, level: str, refused: list[Any]) -> None:
    subject = f"level-{level}"
    assert rest.put(f"/config/{subject}", {"compatibility": level.lower()}).body == {"compatibility": level}
    assert rest.get(f"/config/{subject}").body == {"compatibilityLevel": level}
    assert rest.register(subject, record("a")).status == 200
    for schema in refused:
        answer = rest.register(subject, schema)
        assert (answer.status, answer.code) == (409, 409)
        assert "incompatible with an earlier schema" in answer.body["message"]
        path = f"/compatibility/subjects/{subject}/versions/latest?verbose=true"
        verdict = rest.post(path, {"schema": json.dumps(schema)}).body
        assert verdict["is_compatible"] is False
        assert verdict["messages"]
    assert rest.register(subject, record("a", "b?")).status == 200


def test_a_transitive_level_asks_all_versions_and_the_others_only_the_newest(rest: Rest) -> None:
    steps = [record("a"), record("a?", "b?"), record("b")]  # the third reads the second, and not the first
    for level, last in (("BACKWARD", 200), ("BACKWARD_TRANSITIVE", 409)):
        subject = f"steps-{level}"
        rest.put(f"/config/{subject}", {"compatibility": level})
        answers = [rest.register(subject, one).status for one in steps]
        assert answers == [200, 200, last]


def test_deletion_is_soft_first_and_then_for_good_and_never_frees_an_id(rest: Rest) -> None:
    first = rest.register("del-value", record("d1")).body["id"]
    rest.put("/config/del-value", {"compatibility": "NONE"})
    second = rest.register("del-value", record("d2")).body["id"]
    assert rest.delete("/subjects/del-value/versions/1").body == 1
    assert rest.delete("/subjects/del-value/versions/1").code == 40406
    assert rest.get("/subjects/del-value/versions").body == [2]
    assert rest.get("/subjects/del-value/versions?deleted=true").body == [1, 2]
    assert rest.get("/subjects/del-value/versions/1").code == 40402
    assert rest.get("/subjects/del-value/versions/1?deleted=true").body["id"] == first
    assert rest.get(f"/schemas/ids/{first}").status == 200, "what was written with it is still read"
    assert rest.delete("/subjects/del-value").body == [2]
    assert rest.delete("/subjects/del-value").code == 40404
    assert rest.get("/config/del-value").code == 40408
    assert "del-value" in rest.get("/subjects?deleted=true").body
    assert "del-value" not in rest.get("/subjects").body
    assert rest.register("del-value", record("d1")).body["id"] == first
    assert rest.get("/subjects/del-value/versions").body == [3]
    rest.delete("/subjects/del-value")
    assert rest.delete("/subjects/del-value?permanent=true").body == [1, 2, 3]
    assert rest.get(f"/schemas/ids/{second}").code == 40403
    assert rest.register("del-value", record("d3")).body["id"] > second


def test_references_hold_and_are_held(rest: Rest) -> None:
    rest.register("money", {"type": "record", "name": "shop.Money", "fields": [{"name": "paise", "type": "long"}]})
    price = {"type": "record", "name": "Price", "fields": [{"name": "of", "type": "shop.Money"}]}
    references = [{"name": "shop.Money", "subject": "money", "version": 1}]
    number = rest.register("price", price, references=references).body["id"]
    assert rest.get(f"/schemas/ids/{number}").body["references"] == references
    assert rest.get("/subjects/money/versions/1/referencedby").body == [number]
    assert rest.delete("/subjects/money/versions/1").code == 42206
    assert rest.delete("/subjects/money").code == 42206
    rest.delete("/subjects/price")
    assert rest.delete("/subjects/money").body == [1]


def test_a_read_only_subject_takes_nothing_and_import_takes_ids(rest: Rest) -> None:
    rest.register("ro-value", record("a"))
    assert rest.put("/mode/ro-value", {"mode": "READONLY"}).body == {"mode": "READONLY"}
    assert rest.register("ro-value", record("a", "b?")).code == 42205
    assert rest.delete("/subjects/ro-value").code == 42205
    assert rest.register("ro-value", record("a")).status == 200, "it is there already"
    assert rest.delete("/mode/ro-value").body == {"mode": "READONLY"}
    assert rest.put("/mode/imported", {"mode": "IMPORT"}).status == 200
    assert rest.register("imported", record("i"), id=5000, version=3).body == {"id": 5000}
    assert rest.get("/subjects/imported/versions/3").body["id"] == 5000
    assert rest.register("imported", record("j"), id=5000, version=4).code == 42207
    assert rest.get("/mode").body == {"mode": "READWRITE"}
    assert rest.get("/mode/imported2?defaultToGlobal=true").body == {"mode": "READWRITE"}
    assert rest.register("after-import", record("k")).body["id"] == 5001


def test_normalized_schemas_are_one(rest: Rest) -> None:
    first = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}
    second = {"properties": {"b": {"type": "string"}, "a": {"type": "integer"}}, "type": "object"}
    ids = {
        rest.post("/subjects/norm/versions?normalize=true", {"schema": json.dumps(one), "schemaType": "JSON"}).body[
            "id"
        ]
        for one in (first, second)
    }
    assert len(ids) == 1
    rest.put("/config/norm2", {"normalize": True})
    kept = [rest.register("norm2", one, "JSON").body for one in (first, second)]
    assert kept[0] == kept[1] == {"id": ids.pop()}
    assert rest.register("norm3", second, "JSON").body != kept[0]


def test_a_version_can_be_asked_for_if_it_is_the_next(rest: Rest) -> None:
    assert rest.register("next", record("a"), version=2).code == 42201
    assert rest.register("next", record("a"), version=1).status == 200
    assert rest.register("next", record("a"), version=1).status == 200, "it is there"
    assert rest.register("next", record("a"), version=2).code == 42201, "it is version 1"
    assert rest.register("next", record("a", "b?"), version=1).code == 42201
    assert rest.register("next", record("a", "b?"), version=2).status == 200
    assert rest.get("/subjects/next/versions").body == [1, 2]


def test_a_version_that_is_deleted_already_says_so(rest: Rest) -> None:
    rest.register("twice", record("a"))
    assert rest.delete("/subjects/twice").body == [1]
    assert rest.delete("/subjects/twice/versions/1").code == 40406
    assert rest.delete("/subjects/twice/versions/latest").code == 40406
    assert rest.delete("/subjects/twice/versions/2").code == 40402
    assert rest.delete("/subjects/twice/versions/latest?permanent=true").body == 1


def test_contexts_number_their_schemas_apart(rest: Rest) -> None:
    inside = rest.register(":.eu:orders-value", record("eu")).body
    assert inside == {"id": 1}
    assert rest.get("/contexts").body == [".", ".eu"]
    assert rest.get("/subjects?subjectPrefix=:.eu:").body == [":.eu:orders-value"]
    assert ":.eu:orders-value" not in rest.get("/subjects?subjectPrefix=").body
    for path in ("/subjects", "/subjects?subjectPrefix=:*:", "/contexts/.eu/subjects?subjectPrefix=ord"):
        assert ":.eu:orders-value" in rest.get(path).body
    assert rest.get("/contexts/.eu/subjects?subjectPrefix=none").body == []
    for path, is_there in (("/schemas", False), ("/schemas?subjectPrefix=:*:", True), ("/contexts/.eu/schemas", True)):
        assert (":.eu:orders-value" in [one["subject"] for one in rest.get(path).body]) is is_there
    assert rest.get("/contexts/.eu/subjects/orders-value/versions/1").body["id"] == 1
    assert rest.get("/schemas/ids/1?subject=:.eu:").body["schema"] == json.dumps(record("eu"), separators=(",", ":"))


def test_protobuf_is_answered_as_text_or_serialized(rest: Rest) -> None:
    text = 'syntax = "proto3"; message M { string a = 1; }'
    number = rest.register("proto-value", text, "PROTOBUF").body["id"]
    assert rest.get(f"/schemas/ids/{number}").body == {"schemaType": "PROTOBUF", "schema": text}
    packed = rest.get(f"/schemas/ids/{number}?format=serialized").body["schema"]
    assert rest.register("proto-value", packed, "PROTOBUF").body == {"id": number}
    assert rest.get("/subjects/proto-value/versions").body == [1]
    assert rest.get("/schemas/types").body == ["JSON", "PROTOBUF", "AVRO"]


def test_lists_come_in_pages(rest: Rest) -> None:
    for number in range(3):
        rest.register(f"page-{number}", record("a"))
    assert rest.get("/subjects?subjectPrefix=page-&offset=1&limit=1").body == ["page-1"]
    assert rest.get("/subjects?limit=x").status == 400
    assert len(rest.get("/schemas?subjectPrefix=page-&latestOnly=true").body) == 3


def test_everything_is_there_after_a_restart_and_ids_go_on(tmp_path: Any) -> None:
    with Broker(registry=True, path=tmp_path) as broker:
        rest = Rest(broker.schema_registry_url)
        rest.put("/config", {"compatibility": "FULL"})
        rest.put("/mode/frozen", {"mode": "READONLY"})
        ids = [rest.register(f"s{number}", record(f"f{number}")).body["id"] for number in range(4)]
        rest.delete("/subjects/s0")
        rest.delete("/subjects/s3")
        rest.delete("/subjects/s3?permanent=true")
        before = rest.get("/schemas?deleted=true").body
        broker.kill_and_restart()
        # Even once the deleted schema and its tombstone are compacted away.
        broker.log.compact("_schemas")
        broker.restart()
        assert rest.get("/schemas?deleted=true").body == before
        assert rest.get("/config").body == {"compatibilityLevel": "FULL"}
        assert rest.get("/mode/frozen").body == {"mode": "READONLY"}
        assert rest.get("/subjects").body == ["s1", "s2"]
        assert rest.register("s9", record("f9")).body["id"] == ids[-1] + 1


def test_a_topic_of_schemas_that_others_made_is_set_right_or_refused(tmp_path: Any) -> None:
    said = {"subject": "s", "version": 1, "id": 7, "schema": '"int"', "deleted": False}
    key = {"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}
    with foldlog.open(tmp_path / "one") as log:
        log.create_topic("_schemas", 1, {"retention.ms": 1000, "flush.messages": 100})
        log.append("_schemas", json.dumps(said), key=json.dumps(key))
        log.append("_schemas", "no record of a registry", key="no key of one")
    with Broker(registry=True, path=tmp_path / "one") as broker:
        rest = Rest(broker.schema_registry_url)
        assert rest.get("/subjects/s/versions/1").body["id"] == 7
        assert rest.register("s", '"long"').body == {"id": 8}
        settings = broker.log.topic("_schemas").config.settings
        assert (settings["cleanup.policy"], settings["flush.messages"]) == ("compact", "1")
    with foldlog.open(tmp_path / "two") as log:
        log.create_topic("_schemas", 2)
    with pytest.raises(InvalidConfig, match="2 partitions"):
        Broker(registry=True, path=tmp_path / "two").start()
