"""The console shows the log as it is: topics, strips, records and places, over HTTP, from a broker that serves."""

from __future__ import annotations

import base64
from pathlib import Path
from urllib.parse import quote

import pytest

from foldlog.broker.broker import Broker
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.client.outgoing import partition_for_key
from foldlog.limits import CONSOLE_FIELD_BYTES_MAX
from foldlog.log.partition import Partition
from server.console.console_site import console


def offsets(strip: dict[str, list[dict[str, int]]]) -> list[int]:
    return [cell["offset"] for cell in strip["cells"]]


def test_the_overview_has_every_topic_with_its_ends_and_every_group_with_its_cursors() -> None:
    with console() as site:
        site.broker.create_topic("orders", 2, {"retention.ms": 10**13})
        site.append("orders", 1, (b"u1", b"paid"), (b"u2", b"sent"), (b"u1", None))
        site.posted("/api/topics/orders/records", {"value": "x", "partition": 0})
        site.broker.commit_offsets("fraud", {("orders", 1): OffsetAndMetadata(1)})
        site.broker.commit_offsets("fold.shop", {("orders", 1): OffsetAndMetadata(3)})
        found = site.get("/api/overview")
        assert found["directory"] == ":memory:"
        assert found["bootstrap"] == site.server.bootstrap
        assert found["cluster_id"] == site.broker.directory_id
        assert (found["read_only"], found["warnings"]) == (False, [])
        internal, orders = found["topics"]
        assert (internal["name"], internal["is_internal"]) == ("__consumer_offsets", True)
        assert (orders["name"], orders["is_internal"], orders["retention_ms"]) == ("orders", False, 10**13)
        assert orders["id"] == site.broker.topic("orders").topic_id
        assert orders["cleanup_policy"] == "delete"
        ends = [(each["partition"], each["start"], each["end"], each["durable"]) for each in orders["partitions"]]
        assert ends == [(0, 0, 1, 1), (1, 0, 3, 3)]
        assert all(each["size_bytes"] > 0 and each["segments"] == 1 for each in orders["partitions"])
        cursors = {
            group["group"]: (group["is_fold"], group["state"], group["cursors"][0]["lag"]) for group in found["groups"]
        }
        assert cursors == {"fraud": (False, "Empty", 2), "fold.shop": (True, "Empty", 0)}


def test_partitions_that_nobody_has_used_since_the_start_have_their_sizes_too(tmp_path: Path) -> None:
    with Broker.open(str(tmp_path)) as broker:
        broker.create_topic("orders", 2)
    with Broker.open(str(tmp_path)) as broker, console(broker) as site:
        (orders,) = site.get("/api/overview")["topics"]
        assert [each["size_bytes"] for each in orders["partitions"]] == [0, 0]


def test_looking_opens_few_partitions_and_not_thousands(tmp_path: Path) -> None:
    with Broker.open(str(tmp_path)) as broker:
        broker.create_topic("orders", 300)
    with Broker.open(str(tmp_path)) as broker, console(broker) as site:
        (orders,) = site.get("/api/overview")["topics"]
        assert {each["size_bytes"] for each in orders["partitions"]} == {None}
        assert broker.opened_partitions() == []


def test_a_damaged_partition_is_told_and_the_others_are_shown(tmp_path: Path) -> None:
    with Broker.open(str(tmp_path)) as broker:
        broker.create_topic("orders", 2)
        with console(broker) as site:
            site.append("orders", 0, (None, b"x" * 100))
    log = tmp_path / "orders-0" / "00000000000000000000.log"
    log.write_bytes(b"")
    with Broker.open(str(tmp_path)) as broker, console(broker) as site:
        (orders,) = site.get("/api/overview")["topics"]
        damaged, sound = orders["partitions"]
        assert "orders-0" in damaged["error"]
        assert sound["error"] is None
        details = site.get("/api/topics/orders")
        assert details["partitions"][0]["error"] is not None
        assert details["partitions"][0]["segments"] == []
        assert site.ask("GET", "/api/topics/orders/0/strip").status == 503
        assert site.get("/api/topics/orders/1/strip")["cells"] == []


def test_a_topic_has_its_settings_and_its_segments() -> None:
    with console() as site:
        site.broker.create_topic("orders", 1, {"foldlog.segment.records": 2, "retention.ms": 10**13})
        for at_ms in (1000, 2000, 3000):
            site.append("orders", 0, (b"u", b"1"), (b"u", b"2"), at_ms=at_ms)
        found = site.get("/api/topics/orders")
        settings = {each["name"]: (each["value"], each["is_default"]) for each in found["configs"]}
        assert settings["foldlog.segment.records"] == ("2", False)
        assert settings["max.message.bytes"] == ("1048588", True)
        (partition,) = found["partitions"]
        assert partition["segment_count"] == 3
        places = [(each["base_offset"], each["next_offset"], each["is_active"]) for each in partition["segments"]]
        assert places == [(0, 2, False), (2, 4, False), (4, 6, True)]
        assert [(each["first_ms"], each["last_ms"]) for each in partition["segments"]] == [
            (1000, 1000),
            (2000, 2000),
            (3000, 3000),
        ]
        assert sum(each["size_bytes"] for each in partition["segments"]) == partition["size_bytes"]


def test_a_strip_is_a_window_of_cells() -> None:
    with console() as site:
        site.broker.create_topic("orders")
        site.append("orders", 0, *((f"user-{n}".encode(), b"x" * n) for n in range(5)), at_ms=1000)
        site.append("orders", 0, (b"user-1", None), (None, b"\xff"), (b"\xff\xfe", b""), (b"k" * 99, b""), at_ms=2000)
        found = site.get("/api/topics/orders/0/strip?from=2&cells=4")
        assert (found["start"], found["end"], found["from"], found["next"]) == (0, 9, 2, 6)
        assert found["cells"][0] == {
            "offset": 2, "timestamp": 1000, "key": "user-2", "value_size": 2, "is_tombstone": False, "batch": 0,
        }  # fmt: skip
        assert found["cells"][3] == {
            "offset": 5, "timestamp": 2000, "key": "user-1", "value_size": 0, "is_tombstone": True, "batch": 5,
        }  # fmt: skip
        last = site.get("/api/topics/orders/0/strip?cells=3")
        assert (last["from"], last["next"], offsets(last)) == (6, 9, [6, 7, 8])
        assert [cell["key"] for cell in last["cells"]] == [None, "0xfffe", "k" * 39 + "…"]
        assert offsets(site.get("/api/topics/orders/0/strip?from=-1&cells=400")) == list(range(9))
        assert site.get("/api/topics/orders/0/strip?from=1000&cells=3")["from"] == 9
        by_time = site.get("/api/topics/orders/0/strip?at=1500&cells=2")
        assert (by_time["from"], offsets(by_time)) == (5, [5, 6])
        assert site.get("/api/topics/orders/0/strip?at=2001&cells=2")["from"] == 9


def test_gaps_of_compaction_are_where_records_were_removed() -> None:
    with console() as site:
        site.broker.create_topic("prices", 1, {"cleanup.policy": "compact", "foldlog.segment.records": 4})
        for n in range(3):
            site.append("prices", 0, *((key, b"1") for key in (b"tea", f"once-{n}".encode(), b"tea", b"gin")))
        site.broker.compact("prices")
        found = site.get("/api/topics/prices/0/strip?from=0&cells=100")
        assert offsets(found) == [1, 5, 9, 10, 11]
        assert found["gaps"] == [[0, 1], [2, 5], [6, 9]]
        assert (found["from"], found["next"]) == (0, 12)
        # The last four records are spread over the last seven offsets.
        last = site.get("/api/topics/prices/0/strip?cells=4")
        assert (last["from"], offsets(last), last["gaps"]) == (5, [5, 9, 10, 11], [[6, 9]])
        gone = site.ask("GET", "/api/topics/prices/0/records/3")
        assert gone.status == 404
        assert gone.json["next"] == 5
        assert "compacted away; the next one is at 5" in gone.json["error"]
        assert site.get("/api/topics/prices/0/at?offset=2")["offset"] == 5


def test_a_record_is_shown_with_its_batch_and_its_place_in_the_file() -> None:
    with console() as site:
        site.broker.create_topic("orders", 1, {"foldlog.segment.records": 3})
        site.append("orders", 0, (b"a", b"1"), (b"b", b"2"))
        end = site.append("orders", 0, (b"\x00\xff", None))
        site.append("orders", 0, (b"c", "é".encode() * CONSOLE_FIELD_BYTES_MAX))
        partition = site.broker.partition("orders", 0)
        first_bytes = len(partition.read(0, 1).data)
        found = site.get("/api/topics/orders/0/records/2")
        assert found["key"] == {"base64": base64.b64encode(b"\x00\xff").decode(), "size": 2}
        assert (found["value"], found["headers"], found["timestamp_type"]) == (None, [], "CreateTime")
        assert (found["segment"], found["position"]) == ("00000000000000000000.log", first_bytes)
        assert found["batch"] | {"size_bytes": 0} == {
            "base_offset": 2, "last_offset": 2, "records": 1, "codec": "none", "size_bytes": 0, "producer_id": -1,
            "leader_epoch": 0,
        }  # fmt: skip
        assert found["batch"]["size_bytes"] == len(partition.read(2, 1).data)
        large = site.get(f"/api/topics/orders/0/records/{end}")
        assert (large["segment"], large["position"]) == ("00000000000000000003.log", 0)
        assert large["value"]["size"] == 2 * CONSOLE_FIELD_BYTES_MAX
        assert large["value"]["is_cut"] is True
        assert large["value"]["text"] == "é" * (CONSOLE_FIELD_BYTES_MAX // 2)


def test_a_record_that_expired_or_is_not_written_yet_is_not_found_with_the_reason() -> None:
    with console() as site:
        site.broker.create_topic("orders")
        site.append("orders", 0, (b"a", b"1"), (b"b", b"2"))
        site.broker.writable_partition("orders", 0).delete_records(1)
        for offset, words in ((0, "delete"), (2, "not written yet; the last is 1"), (3, "not written yet")):
            answer = site.ask("GET", f"/api/topics/orders/0/records/{offset}")
            assert answer.status == 404
            assert words in answer.json["error"]
        strip = site.get("/api/topics/orders/0/strip?from=0")
        assert (strip["from"], strip["start"], strip["edge"]["start"]) == (1, 1, 1)


def test_the_edge_says_when_the_oldest_segment_goes() -> None:
    with console() as site:
        site.broker.create_topic("kept", 1, {"retention.ms": 10**12, "foldlog.segment.records": 2})
        site.append("kept", 0, (b"a", b"1"), at_ms=5000)
        site.append("kept", 0, (b"a", b"1"), at_ms=7000)
        site.append("kept", 0, (b"a", b"1"), at_ms=9000)
        edge = site.get("/api/topics/kept/0/strip")["edge"]
        assert edge == {"start": 0, "oldest_ms": 5000, "expires_ms": 7000 + 10**12 + 1}
        partition = site.broker.writable_partition("kept", 0)
        assert partition.enforce_retention(edge["expires_ms"] - 1) == 0
        assert partition.enforce_retention(edge["expires_ms"]) == 1
        site.broker.create_topic("forever", 1, {"retention.ms": -1})
        site.append("forever", 0, (b"a", b"1"), at_ms=5000)
        assert site.get("/api/topics/forever/0/strip")["edge"]["expires_ms"] is None
        site.broker.create_topic("empty")
        assert site.get("/api/topics/empty/0/strip")["edge"] == {"start": 0, "oldest_ms": None, "expires_ms": None}


def test_the_time_at_an_offset_is_that_of_the_record_there_or_none_at_the_end() -> None:
    with console() as site:
        site.broker.create_topic("orders")
        site.append("orders", 0, (b"a", b"1"), at_ms=5000)
        assert site.get("/api/topics/orders/0/at?offset=0") == {"offset": 0, "timestamp": 5000}
        assert site.get("/api/topics/orders/0/at?offset=1") == {"offset": 1, "timestamp": None}
        assert site.get("/api/topics/orders/0/at?offset=99") == {"offset": 1, "timestamp": None}


@pytest.mark.parametrize(
    ("place", "offset", "is_record"),
    [
        ("start", 2, True), ("+1", 3, True), ("-3", 2, True), ("-1", 4, True), ("3", 3, True),
        ("@1700000000003", 3, True), ("@-6h", 5, False), ("end", 5, False), ("+9", 5, False), ("1", 2, False),
        ("5", 5, False), ("9", 5, False),
    ],
)  # fmt: skip
def test_a_place_tells_whether_a_record_can_be_there(place: str, offset: int, is_record: bool) -> None:
    with console() as site:
        site.broker.create_topic("orders")
        for number in range(5):
            site.append("orders", 0, (b"k", b"v"), at_ms=1_700_000_000_000 + number)
        opened = site.broker.partition("orders", 0)
        assert isinstance(opened, Partition)
        opened.delete_records(2)
        found = site.get(f"/api/topics/orders/place?place={quote(place)}")["partitions"]["0"]
        assert (found["offset"], found["is_record"]) == (offset, is_record)


def test_a_test_record_goes_where_any_producer_would_send_it() -> None:
    with console() as site:
        site.broker.create_topic("orders", 3)
        posted = site.posted(
            "/api/topics/orders/records",
            {"key": "u1", "value": {"base64": "AP8="}, "headers": [["trace", "7"], ["none", None]]},
        )
        record = site.get(f"/api/topics/orders/{posted['partition']}/records/{posted['offset']}")
        assert record["value"] == {"base64": "AP8=", "size": 2}
        assert record["headers"] == [["trace", {"text": "7", "size": 1}], ["none", None]]
        assert record["timestamp"] == posted["timestamp"]
        assert posted["partition"] == partition_for_key(b"u1", 3)
        keyless = {site.posted("/api/topics/orders/records", {"value": "x"})["partition"] for _ in range(2)}
        assert posted["partition"] not in keyless
        assert site.posted("/api/topics/orders/records", {"partition": 2})["partition"] == 2
        refused = site.post("/api/topics/orders/records", {"partition": 3, "value": "x"})
        assert (refused.status, refused.json["error"]) == (404, "topic 'orders' has no partition 3; it has 0 to 2")
        site.broker.alter_topic("orders", {"max.message.bytes": 100})
        assert site.post("/api/topics/orders/records", {"value": "x" * 200}).status == 400
        site.broker.alter_topic("orders", {"cleanup.policy": "compact"})
        refused = site.post("/api/topics/orders/records", {"value": "x"})
        needs_key = "topic 'orders' keeps the newest record of each key, so a record needs a key there"
        assert (refused.status, refused.json["error"]) == (400, needs_key)
        internal = site.post("/api/topics/__consumer_offsets/records", {"value": "x"})
        assert internal.status in (403, 404)
