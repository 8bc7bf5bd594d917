"""The scene "Log or queue?" in a real Chromium on a real broker.

The story is played to its end, by hand and by itself, and what the page shows is what the log says: the topic's
records, the groups' committed offsets, the queue's None. It is fetched only when it is opened.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import foldlog
from console.chromium import WAIT_MS, page_of, stop_clock
from console.conftest import served_log
from foldlog.broker.topics.names import SCENE_TOPIC
from foldlog.server.console.scene import SceneLog, SceneQueue, group_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

    from console.conftest import OpenPage, Served

STEPS = 12


class SceneOnPage:
    """What somebody sees of the scene, and does."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.telling = page.locator(".telling")
        self.lane = {side: page.locator(f".lane[data-side={side}]") for side in ("log", "queue")}
        expect(self.lane["log"].locator("li").first).to_be_visible()

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def begin(self) -> None:
        """From nothing: tests share one broker, and the scene is one for all."""
        self.button("Start over").click()
        expect(self.telling).to_have_text("All is empty again.")

    def reader(self, side: str, name: str) -> Locator:
        return self.lane[side].get_by_role("group", name=f"{name}, {side}")

    def cells(self, side: str) -> Locator:
        return self.lane[side].locator("li:not(.blank)")

    def append(self, value: str) -> None:
        self.page.get_by_role("button", name=f"Append “{value}”").click()
        expect(self.telling).to_contain_text(f"“{value}” is offset")

    def flag(self, name: str) -> Locator:
        return self.lane["log"].locator(f".scene-flag[data-name={name}]")

    def lit(self, code: str) -> Locator:
        return self.page.locator(f"[data-code='{code}'] .now")

    def until_step(self, number: int) -> None:
        expect(self.page.locator(".scene-count")).to_have_text(f"{number} / {STEPS}")


@pytest.fixture
def scene(open_page: OpenPage) -> Iterator[SceneOnPage]:
    scene = SceneOnPage(open_page("#/scene"))
    scene.begin()
    yield scene
    scene.begin()


def committed(served: Served) -> dict[str, int]:
    place = foldlog.TopicPartition(SCENE_TOPIC, 0)
    return {name: served.log.committed(group_of(name))[place].offset for name in ("billing", "search")}


def test_the_story_ends_with_all_in_the_log_and_nothing_in_the_queue(scene: SceneOnPage, served: Served) -> None:
    for step in range(1, STEPS + 1):
        scene.page.keyboard.press("n")
        scene.until_step(step)
        if step == 9:
            expect(scene.reader("log", "billing")).to_contain_text("crashed; bookmark still at 2")
            expect(scene.reader("queue", "billing")).to_contain_text("crashed; lamp is lost")
            expect(scene.lit("Log.read")).to_contain_text("handle(record)")
            expect(scene.lit("Log.read")).to_have_class(re.compile("dead"))
            expect(scene.flag("billing")).to_have_attribute("data-at", "2")
    expect(scene.lane["log"].locator(".left")).to_contain_text("all 4. Billing has handled 4, search has handled 4")
    expect(scene.lane["queue"].locator(".left")).to_have_text(
        "nothing. Billing will never see book; search will never see tea, rice; nobody has handled lamp."
    )
    assert [record.value for record in served.log.read(SCENE_TOPIC, 0)] == [b"tea", b"rice", b"book", b"lamp"]
    assert committed(served) == {"billing": 4, "search": 4}
    expect(scene.button("Play again")).to_be_visible()


def test_reading_the_log_moves_a_bookmark_and_reading_the_queue_takes_the_record(scene: SceneOnPage) -> None:
    scene.append("tea")
    scene.append("rice")
    for side in ("log", "queue"):
        expect(scene.cells(side)).to_have_text([re.compile("tea"), re.compile("rice")])
    scene.reader("log", "billing").get_by_role("button", name="Read").click()
    expect(scene.flag("billing")).to_have_attribute("data-at", "1")
    expect(scene.flag("search")).to_have_attribute("data-at", "0")
    expect(scene.cells("log")).to_have_text([re.compile("tea.*read by billing"), re.compile("rice")])
    expect(scene.lit("Log.read")).to_contain_text("return record")
    for name in ("billing", "billing", "search"):
        scene.reader("queue", name).get_by_role("button", name="Dequeue").click()
        expect(scene.telling).to_contain_text(f"{name} takes" if name == "billing" else "search gets None")
    expect(scene.reader("queue", "search")).to_contain_text("got None; had nothing yet")
    expect(scene.lit("SceneQueue.dequeue")).to_contain_text("return None")
    expect(scene.lane["queue"].locator("li.gone")).to_have_count(2)
    expect(scene.cells("log")).to_have_count(2)


def test_after_a_crash_the_log_gives_the_record_again_and_the_queue_does_not(scene: SceneOnPage) -> None:
    scene.append("tea")
    for side, verb in (("log", "Read"), ("queue", "Dequeue")):
        reader = scene.reader(side, "search")
        reader.get_by_role("button", name="Crash").click()
        expect(scene.telling).to_contain_text("search dies with “tea” in hand")
        expect(reader).to_have_class(re.compile("down"))
        reader.get_by_role("button", name=verb).click()
        expect(reader).not_to_have_class(re.compile("down"))
    expect(scene.reader("log", "search")).to_contain_text("has read all")
    expect(scene.lane["queue"].locator("li.lost")).to_have_count(1)


@pytest.mark.faults
def test_it_plays_by_itself_and_can_be_paused(open_page: OpenPage) -> None:
    page = open_page("#/scene", viewport={"width": 1160, "height": 640})
    scene = SceneOnPage(page)
    scene.begin()
    stop_clock(page)
    page.keyboard.press("p")
    expect(scene.button("Pause")).to_be_visible()
    scene.until_step(1)
    scene.button("Pause").click()
    expect(scene.button("Play")).to_be_visible()
    scene.button("Next step").click()
    scene.until_step(2)
    scene.button("Play").click()
    scene.until_step(3)
    count = page.locator(".scene-count")
    while count.inner_text() == f"3 / {STEPS}":
        page.clock.run_for(500)  # a step lasts longer than that
    scene.until_step(4)
    scene.append("lamp")
    expect(count).to_have_text("by hand")
    expect(scene.button("Play again")).to_be_visible()
    scene.begin()


@pytest.mark.faults
def test_the_code_beside_it_is_what_the_broker_runs(scene: SceneOnPage) -> None:
    shown: dict[str, Callable[..., object]] = {
        "Log.append": SceneLog.append,
        "Log.read": SceneLog.read,
        "SceneQueue.dequeue": SceneQueue.dequeue,
    }
    for name, method in shown.items():
        text = scene.page.locator(f"[data-code='{name}'] code").text_content()
        assert (text or "").strip() == textwrap.dedent(inspect.getsource(method)).strip()


@pytest.mark.faults
def test_the_scene_is_a_topic_that_the_log_room_shows_and_a_rewind_there_counts(
    scene: SceneOnPage, served: Served
) -> None:
    scene.append("tea")
    scene.reader("log", "billing").get_by_role("button", name="Read").click()
    expect(scene.flag("billing")).to_have_attribute("data-at", "1")
    expect(scene.page.get_by_role("link", name="see it in the Log room")).to_be_visible()
    served.log.reset_group(group_of("billing"), {(SCENE_TOPIC, 0): 0})
    expect(scene.flag("billing")).to_have_attribute("data-at", "0")
    scene.page.get_by_role("link", name="see it in the Log room").click()
    expect(scene.page.locator(f".cursor[data-group='{group_of('billing')}'] .flag")).to_have_attribute(
        "aria-valuenow", "0"
    )
    scene.page.go_back()
    SceneOnPage(scene.page)


@pytest.mark.faults
def test_its_terms_explain_themselves(scene: SceneOnPage) -> None:
    main = scene.page.locator("main")
    for name in ("producer", "partition", "offset", "group", "retention", "compaction", "order", "queue", "log"):
        expect(main.locator(f"[data-term='{name}']").first).to_be_visible()
    main.locator("[data-term='producer']").first.focus()
    expect(scene.page.get_by_role("tooltip")).to_contain_text("appends records")
    scene.page.keyboard.press("Escape")


@pytest.mark.faults
def test_a_phone_shows_it_whole_and_takes_its_steps(open_page: OpenPage) -> None:
    page = open_page("#/scene", viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    scene = SceneOnPage(page)
    scene.begin()
    for value in ("tea", "rice", "book", "lamp", "milk", "soap", "pen", "salt"):
        scene.append(value)
    for _ in range(8):
        scene.reader("log", "billing").get_by_role("button", name="Read").tap()
    expect(scene.flag("billing")).to_have_attribute("data-at", "8")
    for width in (360, 820):
        page.set_viewport_size({"width": width, "height": 740})
        wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1], f"it is {wide[0]} wide on {wide[1]}"
    scene.begin()


@pytest.mark.faults
def test_nothing_of_it_is_fetched_before_it_is_opened(browser: Browser, served: Served) -> None:
    asked: list[str] = []
    with page_of(browser, served.url) as (page, _):
        page.on("request", lambda request: asked.append(request.url))
        stop_clock(page)  # a moment after the first room all the others are fetched
        page.goto("/#/health")
        expect(page.locator(".notice")).to_be_visible()
        assert [url for url in asked if "health" in url], "what is fetched is seen"
        assert [url for url in asked if "scene" in url] == []
        page.get_by_role("link", name="Log or queue?").click()
        SceneOnPage(page)
        assert len([url for url in asked if "scene" in url]) >= 4


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Served]:
    stack, found = served_log(tmp_path / "data", "--console-read-only")
    with stack:
        yield found


@pytest.mark.faults
def test_a_read_only_console_only_shows_it(browser: Browser, read_only: Served) -> None:
    with page_of(browser, read_only.url) as (page, _):
        page.goto("/#/scene")
        scene = SceneOnPage(page)
        expect(page.locator(".notice.warn")).to_contain_text("read-only")
        for button in page.locator("main .button").all():
            expect(button).to_be_disabled(timeout=WAIT_MS)
        page.keyboard.press("n")
        expect(scene.telling).to_contain_text("Press Play")
        assert SCENE_TOPIC not in read_only.log.topics(include_internal=True)
