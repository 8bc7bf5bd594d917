"""Folds behind the console's API, over real sockets: listed, asked, previewed, looked into, and told as events.

The runner is played by records in `__folds`, as any runner writes them; the views are real ones.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from foldlog.broker.broker import Broker
from foldlog.client.fold_bulletin import FOLDS_TOPIC, Command, Status, decode, encode
from foldlog.clock import SystemClock
from foldlog.records.loops import decode as decode_records
from foldlog.views.bookmark import Bookmark, Position
from foldlog.views.contract import Delta, Shape, View
from foldlog.views.counters import measures as fl
from foldlog.views.counters.counters import check_aggregation, counters
from foldlog.views.table.table import table
from server.console.console_site import ConsoleSite, Event, console

START = Bookmark("payments", "id", {0: Position(0)}, {0: 0})
COLUMNS = pa.schema([("tx_id", pa.string()), ("note", pa.string())])


@pytest.fixture
def site() -> Iterator[ConsoleSite]:
    with console() as served:
        served.broker.create_topic("payments", 2)
        served.broker.create_topic(FOLDS_TOPIC)
        for number in (0, 1):
            served.append("payments", number, *[(b"k", b"v")] * 30, at_ms=1234)
        yield served


def status(**changes: Any) -> Status:
    """Of a fold that runs and has read some of both partitions."""
    at = {"0": 20, "1": 10}
    plain = Status(
        "mirror", "payments", "table x", "table", "running", at, at, 0, 30, 30, 5.0, 0, 0, "", None, "host:1", now_ms()
    )
    return replace(plain, **changes)


def now_ms() -> int:
    return SystemClock().now_ms()


def publish(site: ConsoleSite, *statuses: Status) -> None:
    site.append(FOLDS_TOPIC, 0, *(encode(one) for one in statuses), folds_key=site.server.folds_key())


def commands(site: ConsoleSite) -> list[Command]:
    partition = site.broker.partition(FOLDS_TOPIC, 0)
    found: list[Command] = []
    offset = 0
    while offset < partition.high_watermark:
        data, offset, _ = partition.read(offset)
        items = (decode(record.key, record.value) for record in decode_records(data, FOLDS_TOPIC, 0)[0])
        found += [item for item in items if isinstance(item, Command)]
    return found


def mirror(path: Path) -> View:
    """A table of two rows."""
    view = table(path / "live.db", "payments")
    view.prepare(Shape(COLUMNS, "tx_id", ("tx_id",)), START)
    meta = {"_topic": "payments", "_partition": 0, "_timestamp": 0, "_deleted": False}
    rows = [{"tx_id": f"tx-{n}", "note": note, "_offset": n, **meta} for n, note in enumerate(("tea", "milk"))]
    kinds: list[tuple[str, Any]] = [
        ("_topic", pa.string()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", pa.timestamp("us", "UTC")),
        ("_deleted", pa.bool_()),
    ]
    new = START.advanced({0: Position(2)})
    view.apply(Delta(pa.Table.from_pylist(rows, pa.schema([*COLUMNS, *kinds])), {0: (0, 2)}), START, new)
    view.close()
    return view


def test_folds_are_listed_as_their_runners_publish_them(site: ConsoleSite) -> None:
    assert site.get("/api/folds") == []
    publish(site, status(), status(fold="index", state="failed", error="no tea"))
    index, entry = site.get("/api/folds")
    assert (index["fold"], index["state"], index["is_live"], index["error"]) == ("index", "failed", True, "no tea")
    assert (entry["fold"], entry["lag"], entry["end"]) == ("mirror", 30, {"0": 30, "1": 30})
    assert entry["command_lines"]["rebuild"] == f"foldlog fold rebuild mirror -f folds.py -b {site.server.bootstrap}"


def test_a_topic_that_was_made_anew_has_none_of_the_old_folds(site: ConsoleSite) -> None:
    publish(site, status())
    assert len(site.get("/api/folds")) == 1
    site.broker.delete_topic(FOLDS_TOPIC)
    assert site.get("/api/folds") == []
    site.broker.create_topic(FOLDS_TOPIC)
    publish(site, status(fold="other"))
    assert [entry["fold"] for entry in site.get("/api/folds")] == ["other"]


def test_changes_of_folds_are_events(site: ConsoleSite) -> None:
    publish(site, status())

    def next_folds(events: Iterator[Event]) -> Any:
        return next(event.data for event in events if event.name == "folds")

    with site.events() as events:
        assert [entry["fold"] for entry in next_folds(events)] == ["mirror"]
        publish(site, status(fold="index"))
        assert "index" in [entry["fold"] for entry in next_folds(events)]
        site.append(FOLDS_TOPIC, 0, (b"status/index", None))
        gone: list[Any] = []
        while not gone:
            gone = [entry for entry in next_folds(events) if entry["is_gone"]]
        assert gone == [{"fold": "index", "is_gone": True}]


def test_what_is_asked_is_a_record_for_the_runner(site: ConsoleSite) -> None:
    publish(site, status())
    first = site.posted("/api/folds/mirror/commands", {"verb": "rewind", "to": "0=12"})
    second = site.posted("/api/folds/mirror/commands", {"verb": "rebuild", "accept_loss": True})
    rewind, rebuild = commands(site)
    assert (rewind.id, rewind.verb, rewind.to) == (first["id"], "rewind", "0=12")
    assert (rebuild.id, rebuild.verb, rebuild.accept_loss) == (second["id"], "rebuild", True)
    (entry,) = site.get("/api/folds")
    assert (entry["command"]["id"], entry["command"]["is_taken"]) == (rebuild.id, False)
    publish(site, status(last_command=rebuild.id, result="rebuilt"))
    (entry,) = site.get("/api/folds")
    assert (entry["command"]["is_taken"], entry["last_command"], entry["result"]) == (True, rebuild.id, "rebuilt")


def test_without_a_runner_the_command_to_type_is_the_answer(site: ConsoleSite) -> None:
    publish(site, status(updated_ms=now_ms() - 60_000, file="/srv/folds.py"))
    answer = site.post("/api/folds/mirror/commands", {"verb": "rewind", "to": "@-6h"})
    assert answer.status == 409
    assert "nobody runs fold 'mirror' now" in answer.json["error"]
    line = f"foldlog fold rewind mirror --to @-6h -f /srv/folds.py -b {site.server.bootstrap}"
    assert answer.json["command_line"] == line
    assert commands(site) == []


@pytest.mark.parametrize(
    ("fold", "body", "code", "told"),
    [
        ("mirror", {"verb": "explode"}, 400, "it is one of pause, resume"),
        ("mirror", {"verb": "rewind"}, 400, "a rewind says where to"),
        ("mirror", {"verb": "rewind", "to": "-6h"}, 400, "a time begins with @, as in @-6h"),
        ("mirror", {"verb": "verify", "to": "start"}, 400, "a rewind says where to"),
        ("mirror", {"verb": "pause", "too": "x"}, 400, "the body has 'too'"),
        ("sums", {"verb": "rewind", "to": "start"}, 409, "would count it twice"),
        ("nobody", {"verb": "pause"}, 404, "no runner has ever published a fold 'nobody'"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(
    site: ConsoleSite, fold: str, body: dict[str, Any], code: int, told: str
) -> None:
    publish(site, status(), status(fold="sums", adds=True))
    answer = site.post(f"/api/folds/{fold}/commands", body)
    assert (answer.status, told in answer.json["error"]) == (code, True)
    assert commands(site) == []


def test_a_read_only_console_asks_nothing_of_folds() -> None:
    with console(read_only=True) as site:
        site.broker.create_topic(FOLDS_TOPIC)
        publish(site, status())
        assert site.post("/api/folds/mirror/commands", {"verb": "pause"}).status == 403
        assert commands(site) == []


def test_a_rewind_is_previewed_with_its_time_and_what_is_read_again(site: ConsoleSite) -> None:
    publish(site, status(), status(fold="sums", adds=True), status(fold="new", bookmark={}))
    assert site.get("/api/folds/mirror/rewind?partition=0&to=12") == {
        "offset": 12,
        "timestamp": 1234,
        "read_again": 8,
        "is_additive": False,
        "note": "",
    }
    assert site.get("/api/folds/mirror/rewind?partition=0&to=25")["read_again"] == 0
    assert "count it twice" in site.get("/api/folds/sums/rewind?partition=0&to=1")["note"]
    for path in ("new/rewind?partition=0&to=1", "mirror/rewind?partition=7&to=1", "mirror/rewind?partition=0"):
        assert site.ask("GET", f"/api/folds/{path}").status == 400


def test_a_rewind_of_all_partitions_to_a_place_is_previewed(site: ConsoleSite) -> None:
    publish(site, status(), status(fold="sums", adds=True))
    plan = site.get("/api/folds/mirror/rewind?place=%2B12")
    assert [(one["partition"], one["from"], one["to"], one["again"]) for one in plan["moves"]] == [
        (0, 20, 12, 8),
        (1, 10, 10, 0),
    ]
    assert (plan["place"], plan["read_again"], plan["is_additive"]) == ("+12", 8, False)
    later = site.get("/api/folds/mirror/rewind?place=@2026-01-15T10:30&zone=Europe/Berlin")
    assert later["place"] == "@2026-01-15T10:30:00+01:00"
    assert later["read_again"] == 0, "every record is older"
    assert site.get("/api/folds/mirror/rewind?place=payments:0=3")["place"] == "payments:0=3"
    assert "count it twice" in site.get("/api/folds/sums/rewind?place=start")["note"]
    for place in ("yesterday", "orders:0=3", "7=1"):
        answer = site.ask("GET", f"/api/folds/mirror/rewind?place={place}")
        assert answer.status in (400, 404), place
        assert answer.json["error"]


def test_a_rewind_behind_what_is_left_or_before_a_growth_says_so(site: ConsoleSite) -> None:
    publish(site, status())
    site.broker.grow_topic("payments", 3)
    partition = site.broker.writable_partition("payments", 0)
    partition.delete_records(5)
    preview = site.get("/api/folds/mirror/rewind?partition=0&to=2")
    assert (preview["offset"], preview["read_again"]) == (5, 15)
    assert "the log begins at 5" in preview["note"]
    assert "the other partitions go back" in preview["note"]


def test_a_table_is_looked_into_by_page_and_by_text(site: ConsoleSite, tmp_path: Path) -> None:
    publish(site, status(view_description=mirror(tmp_path).description(), engine="sqlite"))
    page = site.get("/api/folds/mirror/peek?limit=1")
    assert (page["kind"], page["columns"], page["rows"], page["total"]) == (
        "table",
        ["tx_id", "note"],
        [["tx-1", "milk"]],
        2,
    )
    assert page["series"] is None
    assert page["took_ms"] >= 0
    (row,) = site.get(f"/api/folds/mirror/peek?limit=1&after={page['next']}")["rows"]
    assert row == ["tx-0", "tea"]
    assert site.get("/api/folds/mirror/peek?q=mil")["rows"] == [["tx-1", "milk"]]
    (entry,) = site.get("/api/folds")
    assert (entry["can_peek"], entry["engine"]) == (True, "sqlite")


def test_counters_are_looked_into_with_a_chart(site: ConsoleSite, tmp_path: Path) -> None:
    view = counters(tmp_path / "live.db", window=("at", "1 minute"), measures={"payments": fl.count()})
    columns = check_aggregation(view.counted, pa.schema([("at", pa.timestamp("us", "UTC"))]))
    view.prepare(Shape(columns), START)
    rows = pa.Table.from_pylist([{"window_start": 60_000_000, "payments": 4}], columns)
    view.apply(Delta(rows, {0: (0, 2)}), START, START.advanced({0: Position(2)}))
    view.close()
    publish(site, status(kind="counters", view_description=view.description()))
    page = site.get("/api/folds/mirror/peek")
    assert page["series"] == [{"name": "payments", "points": [[60_000, 4]]}]
    assert site.ask("GET", "/api/folds/mirror/peek?measure=tea").status == 400


@pytest.mark.parametrize(
    ("changes", "query", "code", "told"),
    [
        ({}, "", 404, "only its own tools can look into"),
        ({"view_description": {"kind": "graph", "engine": "x"}}, "", 400, "cannot be looked into by this foldlog"),
        ({}, "?limit=0", 400, "limit='0' is not allowed"),
        ({}, "?q=a&after=1", 400, "leave out after"),
        ({}, f"?q={'x' * 1001}", 400, "too long"),
        (
            {"view_description": {"kind": "search", "engine": "fts5", "path": "/nowhere/x.db"}},
            "",
            503,
            "is where its runner is, on 'host'",
        ),
        (
            {
                "view_description": {"kind": "search", "engine": "fts5", "path": "/nowhere/x.db"},
                "runner": f"{socket.gethostname()}:1",
            },
            "",
            503,
            "run the fold to make it",
        ),
    ],
)
def test_what_cannot_be_looked_into_is_one_sentence(
    site: ConsoleSite, changes: dict[str, Any], query: str, code: int, told: str
) -> None:
    publish(site, status(**changes))
    answer = site.ask("GET", f"/api/folds/mirror/peek{query}")
    assert (answer.status, told in answer.json["error"]) == (code, True), answer.body


def test_a_database_that_takes_its_time_keeps_no_more_than_a_few_waiting(
    site: ConsoleSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(site, status(view_description=mirror(tmp_path).description()))
    monkeypatch.setattr("foldlog.server.console.folds._PEEKS_WAITING_MAX", -2)
    answer = site.ask("GET", "/api/folds/mirror/peek")
    assert (answer.status, "try again" in answer.json["error"]) == (503, True)
    monkeypatch.undo()
    assert site.get("/api/folds/mirror/peek")["total"] == 2


def test_folds_of_a_directory_name_it_in_what_to_type(tmp_path: Path) -> None:
    with Broker.open(str(tmp_path / "data")) as broker, console(broker) as site:
        broker.create_topic(FOLDS_TOPIC)
        publish(site, status())
        (entry,) = site.get("/api/folds")
    assert entry["command_lines"]["verify"].endswith(f"-d {tmp_path}/data")
    assert json.dumps(entry)
