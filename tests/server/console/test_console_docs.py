"""docs/reference/console_api.md has every route, and its examples have the shape of real answers."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import foldlog
from foldlog.broker.broker import Broker
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.files.paths import DiskSpace
from foldlog.limits import (
    CONSOLE_CELLS_MAX,
    CONSOLE_DOWNLOAD_BYTES_MAX,
    CONSOLE_FIELD_BYTES_MAX,
    CONSOLE_HISTORY_SERIES_MAX,
    CONSOLE_LISTENERS_MAX,
    CONSOLE_READ_BYTES_MAX,
    CONSOLE_ROW_BYTES_MAX,
    CONSOLE_ROWS_MAX,
    CONSOLE_SCENE_RECORDS_MAX,
    CONSOLE_SCENE_VALUE_CHARS_MAX,
)
from foldlog.server import problems as problems_module
from foldlog.server.config.broker_settings import TOKEN_CHARS_MIN
from foldlog.server.config.settings import ServerSettings
from foldlog.server.console.admin.access_pages import AccessPages
from foldlog.server.console.admin.group_pages import GroupPages
from foldlog.server.console.admin.topic_pages import TopicPages
from foldlog.server.console.admin.transaction_pages import TransactionPages
from foldlog.server.console.api import Api
from foldlog.server.console.events import EventFeed
from foldlog.server.console.folds import FoldPages
from foldlog.server.console.health import HealthPages
from foldlog.server.console.scene import ScenePages
from foldlog.server.console.search import SearchPages
from foldlog.server.http.routes import HttpRoute
from foldlog.server.metrics.metrics import Metrics
from foldlog.server.node import BrokerNode
from server.access.sasl_broker import sasl_broker, set_password
from server.console.console_site import ConsoleSite, console
from server.console.test_console_users import SETTINGS, session
from server.group_readers import Reader, running_readers, wait_until

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGES = ("reference/console_api.md", "reference/console_api_admin.md", "reference/console_api_folds.md")
HEADING = re.compile(r"^## `(GET|POST|DELETE) (/api/[^`?]*)", re.MULTILINE)
EXAMPLE = re.compile(r"```json\n(.*?)```", re.DOTALL)
CHANGES = (TopicPages, GroupPages, TransactionPages)
HAS_NO_JSON = {("GET", "/api/events"), ("GET", "/api/topics/{topic}/download")}


@cache
def documented() -> dict[tuple[str, str], str]:
    """Of every route, what is said below its heading."""
    sections: dict[tuple[str, str], str] = {}
    for name in PAGES:
        text = (DOCS / name).read_text(encoding="utf-8")
        headings = list(HEADING.finditer(text))
        for at, heading in enumerate(headings):
            end = headings[at + 1].start() if at + 1 < len(headings) else len(text)
            sections[heading[1], heading[2]] = text[heading.end() : end]
    return sections


def routes() -> list[HttpRoute]:
    async def made() -> list[HttpRoute]:
        with Broker.open(":memory:", background=False) as broker, ThreadPoolExecutor(1) as workers:
            node = BrokerNode(broker, ServerSettings.parse({}), Metrics(), asyncio.get_running_loop())
            api = Api(node, EventFeed(), workers, bootstrap="", read_only=False)
            folds = FoldPages(node, EventFeed(), workers, bootstrap="")
            health = HealthPages(node, EventFeed(), workers, bootstrap="")
            found = [*api.routes(), *folds.routes(), *health.routes(), *ScenePages(node, workers).routes()]
            found += [route for pages in (SearchPages, *CHANGES) for route in pages(node, workers).routes()]
            found += AccessPages(node, workers, is_private=True).routes()
            folds.close()
            node.close()
            return found

    return asyncio.run(made())


def test_every_route_is_documented_and_nothing_else_is() -> None:
    assert {(route.method, route.path) for route in routes()} == set(documented())


def shape(value: Any) -> Any:
    """Which members there are, and what is a list; of a list the first entry stands for all."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "leaf"


def scene_answers(site: ConsoleSite) -> dict[tuple[str, str], Any]:
    """Of steps what they did: how things stand then is as a look says it."""
    billing = {"reader": "billing"}
    steps: list[tuple[str, Any]] = [
        ("append", {"value": "tea"}), ("append", {"value": "rice"}), ("crash", {"side": "log"} | billing),
        ("read", billing), ("dequeue", {"reader": "search"}), ("append", {"value": "book"}),
        ("crash", {"side": "queue"} | billing), ("append", {"value": "lamp"}),
    ]  # fmt: skip
    answers: dict[tuple[str, str], Any] = {}
    for verb, body in steps:
        answers["POST", f"/api/scene/{verb}"] = {"did": site.posted(f"/api/scene/{verb}", body)["did"]}
    state = site.get("/api/scene")
    answers["GET", "/api/scene"] = state
    answers["GET", "/api/scene/code"] = site.get("/api/scene/code")
    after = site.posted("/api/scene/reset", {})
    answers["POST", "/api/scene/reset"] = {"did": after["did"]}
    assert shape(after) | {"log": 0, "queue": 0} == {"did": shape(after["did"])} | shape(state) | {"log": 0, "queue": 0}
    return answers


def health_answers(site: ConsoleSite, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], Any]:
    """With a disk, a problem and an error, and a second sample."""
    monkeypatch.setattr(problems_module, "disk_space", lambda _: DiskSpace(100, 1))
    monkeypatch.setattr(problems_module, "MEMORY_PATH", "")
    logging.getLogger("foldlog.server").warning("a line")
    assert site.server._console is not None
    history = site.server._console._health._history
    history.sample()
    history.sample()
    found = site.get("/api/history?points=2")
    found["topics"] = {name: one for name, one in found["topics"].items() if name == "orders"}
    return {("GET", "/api/health"): site.get("/api/health"), ("GET", "/api/history"): found}


ACL = {"permission": "ALLOW", "principal": "User:bob", "operation": "READ", "resource": "TOPIC", "name": "orders"}


def change_answers() -> dict[tuple[str, str], Any]:
    """Of changes, each made once."""
    answers: dict[tuple[str, str], Any] = {}
    with sasl_broker(SETTINGS) as (broker, server):
        set_password(broker, "admin", "admin's")
        site = ConsoleSite(broker, server)
        who = session(site, "admin", "admin's")

        def post(route: str, body: Any, **names: str) -> None:
            path = route
            for name, value in names.items():
                path = path.replace(f"{{{name}}}", value)
            answer = site.post(path, body, **who)
            assert answer.status == 200, answer.body
            answers["POST", route] = answer.json

        topic = {"topic": "mail"}
        post("/api/topics", {"name": "mail", "config": {"retention.ms": "86400000"}})
        post("/api/topics/{topic}/configs", {"set": {"retention.ms": "5"}}, **topic)
        post("/api/topics/{topic}/partitions", {"count": 2}, **topic)
        post("/api/topics/{topic}/trim", {"before": "end"}, **topic)
        broker.commit_offsets("fraud", {("mail", 0): OffsetAndMetadata(0)})
        post("/api/groups/{group}/reset", {"to": "end"}, group="fraud")
        answers["POST", "/api/groups/{group}/reset"] |= {"members": ["x"], "evicted": ["x"]}
        broker.alter_topic("mail", {"cleanup.policy": "compact"})
        post("/api/topics/{topic}/compact", {}, **topic)
        post("/api/topics/{topic}/delete", {}, **topic)
        broker.commit_offsets("fraud", {("orders", 0): OffsetAndMetadata(0)})
        post("/api/groups/{group}/delete", {}, group="fraud")
        post("/api/users/{user}/password", {"password": "something long"}, user="bob")
        post("/api/acls", ACL)
        found = site.ask("GET", "/api/access", headers=who).json
        found["users"] = [{"user": "admin", "mechanisms": {"SCRAM-SHA-256": 16384}}]
        answers["GET", "/api/access"] = found
        post("/api/acls/delete", ACL)
        post("/api/users/{user}/delete", {}, user="bob")
    return answers


def transaction_answers() -> dict[tuple[str, str], Any]:
    with foldlog.open(":memory:") as log, console(log._backend.reader) as site:  # type: ignore[attr-defined]
        log.create_topic("orders")
        log.transaction("etl").send("orders", "1").result()
        return {
            ("GET", "/api/transactions"): site.get("/api/transactions"),
            ("POST", "/api/transactions/{id}/abort"): site.posted("/api/transactions/etl/abort", {}),
        }


def test_examples_have_the_shape_of_real_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[tuple[str, str], Any] = {}
    with console() as site, running_readers() as readers:
        site.broker.create_topic("orders")
        record = {"key": "u1", "value": "x", "headers": [["trace", "7"]], "partition": 0}
        answers["POST", "/api/topics/{topic}/records"] = site.posted("/api/topics/orders/records", record)
        site.broker.commit_offsets("readers", {("orders", 0): OffsetAndMetadata(1)})
        overview = site.get("/api/overview")
        overview["topics"] = [topic for topic in overview["topics"] if not topic["is_internal"]]
        answers["GET", "/api/overview"] = overview
        answers["GET", "/api/topics/{topic}"] = site.get("/api/topics/orders")
        strip = site.get("/api/topics/orders/0/strip") | {"gaps": [[6, 9]]}
        answers["GET", "/api/topics/{topic}/{partition}/strip"] = strip
        answers["GET", "/api/topics/{topic}/{partition}/records/{offset}"] = site.get("/api/topics/orders/0/records/0")
        answers["GET", "/api/topics/{topic}/place"] = site.get("/api/topics/orders/place?place=0")
        answers["GET", "/api/topics/{topic}/{partition}/at"] = site.get("/api/topics/orders/0/at?offset=0")
        table = site.get("/api/topics/orders/search?columns=%5B%22%24%22%5D")
        answers["GET", "/api/topics/{topic}/search"] = table
        readers.append(Reader(site.server))
        wait_until(readers, lambda: readers[0].assigned == {0})
        answers["GET", "/api/groups/{group}"] = site.get("/api/groups/readers")
        body = {"topic": "orders", "partition": 0, "offset": 0, "evict": True}
        answers["POST", "/api/groups/{group}/rewind"] = site.posted("/api/groups/readers/rewind", body)
        answers |= scene_answers(site)
        answers |= health_answers(site, monkeypatch)
    answers |= change_answers() | transaction_answers()
    for route, answer in answers.items():
        (example,) = EXAMPLE.findall(documented()[route])
        assert shape(json.loads(example)) == shape(answer), route
    examples = {route for route, text in documented().items() if not route[1].startswith("/api/folds")}
    assert set(answers) == examples - HAS_NO_JSON


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("reference/console_api.md", f"from 1 to {CONSOLE_CELLS_MAX}"),
        ("reference/console_api.md", f"ends after {CONSOLE_READ_BYTES_MAX >> 20} MiB"),
        ("reference/console_api.md", f"1 to {CONSOLE_ROWS_MAX} rows"),
        ("reference/console_api.md", f"at most {CONSOLE_ROW_BYTES_MAX >> 10} KiB of each key"),
        ("reference/console_api.md", f"more than {CONSOLE_DOWNLOAD_BYTES_MAX >> 20} MiB is refused"),
        ("reference/console_api.md", f"of {CONSOLE_HISTORY_SERIES_MAX} topics"),
        ("reference/console_api.md", f"longer than {CONSOLE_FIELD_BYTES_MAX >> 10} KiB"),
        ("reference/console_api.md", f"{CONSOLE_LISTENERS_MAX} pages may listen"),
        ("reference/console_api.md", f"1 to {CONSOLE_SCENE_VALUE_CHARS_MAX} characters"),
        ("reference/console_api.md", f"holds {CONSOLE_SCENE_RECORDS_MAX} records"),
        ("console.md", f"at least {TOKEN_CHARS_MIN} characters"),
    ],
)
def test_limits_that_the_pages_name_are_those_of_the_code(page: str, words: str) -> None:
    assert words in " ".join((DOCS / page).read_text(encoding="utf-8").split())
