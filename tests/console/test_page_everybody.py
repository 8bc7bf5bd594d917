"""Every room is for everybody, in both themes and on every width: axe finds nothing, and nothing sticks out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

import pytest

from console.chromium import page_of
from console.conftest import Served
from console.test_page_folds import Runner
from foldlog.client.fold_bulletin import FOLDS_CONFIG, FOLDS_TOPIC
from foldlog.errors import TopicExists

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="enable with: pip install axe-playwright-python"
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOMS = {
    "home": ".chart",
    "log/fair": ".track",
    "log/fair?view=table": ".rows tbody tr",
    "folds": ".command",
    "topics": ".list tbody tr",
    "topics/fair": ".segment",
    "groups": ".list tbody tr",
    "groups/fair-readers": ".chart",
    "health": ".facts",
    "access": ".card tbody tr",
    "scene": ".scene-cells",
}
SIZES = {"phone": (380, 760), "tablet": (820, 1000), "desk": (1280, 800)}
DIALOGS = {
    "topics": "New topic",
    "topics/fair": "Trim…",
    "groups/fair-readers": "Move…",
    "access": "New user",
    "folds": "Rewind",
}


ALL = tuple(ROOMS)
CASES = [
    # All rooms in all themes and on all widths take a minute.
    pytest.param("light", "desk", ALL[::3], id="light-desk-some"),
    *(
        pytest.param(theme, size, ALL, id=f"{theme}-{size}", marks=pytest.mark.faults)
        for theme in ("light", "dark")
        for size in SIZES
    ),
]


@pytest.fixture(scope="module")
def _filled(served: Served) -> Iterator[None]:
    log = served.log
    log.create_topic("fair", partitions=2)
    for number in range(20):
        log.append("fair", {"n": number}, key=f"f{number}")
    log.reset_group("fair-readers", {("fair", 0): 1, ("fair", 1): 0})
    with suppress(TopicExists):
        log.create_topic(FOLDS_TOPIC, 1, FOLDS_CONFIG)
    runner = Runner(log)
    at = {"topic": "fair", "bookmark": {"0": 1, "1": 1}, "end": {"0": 9, "1": 9}}
    runner.says("fair", view="table fair", error="the database is away; it is tried again", **at)
    runner.was_killed("fair-lost", 60_000, view="table lost", file="folds.py", **at)
    change(served, "users/fair/password", {"password": "correct horse"})
    yield
    change(served, "users/fair/delete", {})
    runner.close()
    log.delete_group("fair-readers")
    log.delete_topic("fair")


def change(served: Served, path: str, body: dict[str, str]) -> None:
    headers = {"Content-Type": "application/json", "X-Foldlog": "1"}
    request = Request(f"{served.url}/api/{path}", json.dumps(body).encode(), headers)
    with urlopen(request, timeout=30):
        pass


def is_fair(page: Page, where: str) -> None:
    found = axe.Axe().run(page).response["violations"]
    assert not found, f"{where}: {[(one['id'], one['nodes'][0]['html'][:120]) for one in found]}"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{where} sticks out"


@pytest.mark.usefixtures("_filled")
@pytest.mark.parametrize(("theme", "size", "rooms"), CASES)
def test_every_room_is_for_everybody(
    browser: Browser, served: Served, theme: str, size: str, rooms: tuple[str, ...]
) -> None:
    width, height = SIZES[size]
    viewport = {"width": width, "height": height}
    with page_of(browser, served.url, viewport=viewport, color_scheme=theme) as (page, _):
        for room in rooms:
            part = ROOMS[room]
            page.goto(f"/#/{room}")
            expect(page.locator("main")).to_have_attribute("data-room", room.partition("/")[0].partition("?")[0])
            expect(page.locator(part).first).to_be_visible()
            is_fair(page, f"{room}, {theme}, {size}")
            if room in DIALOGS:
                page.get_by_role("button", name=DIALOGS[room], exact=True).first.click()
                expect(page.locator("dialog")).to_be_visible()
                is_fair(page, f"{room}, {DIALOGS[room]}, {theme}, {size}")
                page.get_by_role("button", name="Cancel").click()
