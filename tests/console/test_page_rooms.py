"""The other rooms and the page as a whole, in a real Chromium on a real broker.

Topics, groups and health say what the log says; terms explain themselves; light, dark and narrow screens work; the page
is small. The pure parts of the page (intervals, the strip's arithmetic, places, indentation) are held to their laws by
calling the modules themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from console.chromium import StripOnPage, Witness, page_of
from console.conftest import served_log
from foldlog.client.fold_bulletin import FOLDS_CONFIG

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from console.conftest import OpenPage, Served
    from foldlog.client.log import Log

ROOMS = ("home", "log", "folds", "topics", "groups", "health", "scene")
WEIGHT_MAX_BYTES = 150 << 10
LOADED = """
  [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
    .filter((one) => !one.name.includes("/api/"))
"""


@pytest.fixture(scope="module")
def log(served: Served) -> Log:
    log = served.log
    log.create_topic("orders", partitions=2, config={"retention.ms": 3_600_000})
    for number in range(20):
        log.append("orders", {"lamps": number}, key=f"o{number}", partition=number % 2)
    log.reset_group("warehouse", {("orders", 0): 4, ("orders", 1): "end"})
    return log


def test_what_a_topic_keeps_is_told_in_words(open_page: OpenPage, log: Log) -> None:
    log.create_topic("history")
    log.create_topic("prices", config={"cleanup.policy": "compact"})
    log.create_topic("recent", config={"cleanup.policy": "compact,delete", "retention.ms": 3_600_000})
    page = open_page("#/topics")
    for topic, kept in (
        ("orders", "everything, for 1 h"),
        ("history", "everything, for ever"),
        ("prices", "newest of each key, for ever"),
        ("recent", "newest of each key, for 1 h"),
    ):
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name=topic, exact=True))
        expect(row).to_contain_text(kept)
    page = open_page("#/topics/history")
    expect(page.locator(".room-head")).to_contain_text("Kept: everything, for ever.")


def test_a_test_record_is_appended_and_can_be_looked_at(open_page: OpenPage, log: Log) -> None:
    page = open_page("#/topics/orders")
    expect(page.locator(".segment.active")).to_have_count(2)
    expect(page.locator("table")).to_contain_text("retention.ms")
    page.get_by_label("Key", exact=True).fill("by hand")
    page.get_by_label("Value", exact=True).fill('{"lamps": 7}')
    page.get_by_label("Headers").fill("source=console, empty")
    page.get_by_label("Partition").select_option("1")
    page.get_by_role("button", name="Append").click()
    page.get_by_role("link", name="partition 1, offset").click()
    panel = page.get_by_role("complementary", name="Record")
    expect(panel).to_contain_text('"lamps": 7')
    expect(panel).to_contain_text("source")
    *_, last = log.read("orders", 1)
    assert (last.key, last.value) == (b"by hand", b'{"lamps": 7}')
    assert list(last.headers) == [("source", b"console"), ("empty", b"")]


def test_settings_are_shown_with_their_defaults_when_asked(open_page: OpenPage, log: Log) -> None:
    page = open_page("#/topics/orders")
    expect(page.get_by_role("row")).to_have_count(1)
    page.get_by_label("with defaults").check()
    expect(page.get_by_role("row").filter(has_text="segment.bytes")).to_contain_text("1073741824")


def test_topics_and_groups_are_listed_and_lead_to_their_pages(open_page: OpenPage, log: Log) -> None:
    page = open_page("#/topics")
    expect(page.get_by_role("row").filter(has_text="orders")).to_contain_text("1 h")
    page.get_by_role("link", name="Groups").click()
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="warehouse", exact=True))
    expect(row).to_contain_text("Empty")
    row.get_by_role("link", name="warehouse").click()
    expect(page.get_by_role("row").filter(has_text="orders / 0")).to_contain_text("6")
    expect(page.locator("main")).to_contain_text("No member is connected")
    page.get_by_role("link", name="orders / 0").click()
    expect(StripOnPage(page).flag("warehouse")).to_have_attribute("aria-valuenow", "4")


def test_health_says_where_the_broker_is_and_that_nothing_is_wrong(open_page: OpenPage, served: Served) -> None:
    page = open_page("#/health")
    expect(page.locator("main")).to_contain_text(served.bootstrap)
    expect(page.locator(".notice.good")).to_contain_text("All is well")


def test_terms_explain_themselves_to_the_keyboard_and_to_readers_of_screens(open_page: OpenPage, log: Log) -> None:
    page = open_page("#/log/orders")
    term = page.locator(".legend [data-term='offset']")
    term.focus()
    meaning = page.get_by_role("tooltip")
    expect(meaning).to_contain_text("never given again")
    expect(term).to_have_attribute("aria-describedby", "meaning")
    page.keyboard.press("Escape")
    expect(meaning).to_be_hidden()
    for name in ("partition", "retention", "order", "group", "fold", "cursor", "lag", "batch", "compaction"):
        assert page.locator(f"[data-term='{name}']").count() > 0, f"{name} does not explain itself"


def luminance(page: Page) -> float:
    """How bright the page is behind everything, from 0 to 255."""
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(map(float, re.findall(r"[\d.]+", colour)[:3])) / 3


@pytest.mark.faults
def test_light_and_dark_follow_the_system_until_somebody_chooses(open_page: OpenPage, log: Log) -> None:
    page = open_page("#/log/orders", color_scheme="dark")
    expect(page.locator(".track").first).to_be_visible()
    assert luminance(page) < 60
    page.get_by_role("button", name="Colours").click()
    assert luminance(page) > 200
    page.reload()
    expect(page.locator(".track").first).to_be_visible()
    assert luminance(page) > 200, "the choice is kept"
    page.get_by_role("button", name="Colours: light").click()
    assert luminance(page) < 60
    page.emulate_media(color_scheme="light")
    page.get_by_role("button", name="Colours: dark").click()
    assert luminance(page) > 200, "the third choice is the system's again"


@pytest.mark.faults
def test_a_phone_has_every_room_without_scrolling_sideways(open_page: OpenPage, log: Log) -> None:
    page = open_page("#/log/orders", viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    for room in ROOMS:
        page.locator(f"#nav a[data-room={room}]").tap()
        expect(page.locator("main")).to_have_attribute("data-room", room)
        expect(page.locator("main h1:visible, main select:visible").first).to_be_visible()
        wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1], f"{room} is {wide[0]} wide on {wide[1]}"
    page.goto("/#/log/orders")
    strip = StripOnPage(page)
    strip.until("end", log.offsets("orders")[0][1])
    strip.until("following", "true")
    page.touchscreen.tap(*strip.middle_of(log.offsets("orders")[0][1] - 2))
    expect(page.get_by_role("complementary", name="Record")).to_be_visible()


LONG = "warehouse.shipments.of-a-very-long-name-that-nobody-would-type." + "x" * 180


@pytest.mark.faults
@pytest.mark.parametrize("width", [390, pytest.param(1160, marks=pytest.mark.faults)])
def test_a_long_name_breaks_no_layout(open_page: OpenPage, log: Log, width: int) -> None:
    if LONG not in log.topics():
        log.create_topic(LONG)
    log.append(LONG, "x", key="k")
    log.reset_group(LONG[:200], {(LONG, 0): "start"})
    page = open_page(f"#/log/{LONG}", viewport={"width": width, "height": 780})
    for address in (f"#/log/{LONG}", f"#/topics/{LONG}", "#/topics", f"#/groups/{LONG[:200]}", "#/groups"):
        page.goto(f"/{address}")
        expect(page.locator("main")).to_contain_text(LONG[:100])
        sizes = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert sizes[0] <= sizes[1], f"{address} scrolls sideways"
        lists = page.evaluate(
            "[...document.querySelectorAll('.scroll:has(.list)')].map((one) => one.scrollWidth - one.clientWidth)"
        )
        assert lists in ([], [0]), f"a column of {address} is out of sight"
        rows = page.evaluate("[...document.querySelectorAll('tbody tr')].map((one) => one.offsetHeight)")
        assert max(rows, default=0) < 100, f"a row of {address} fills the screen"
    page.goto(f"/#/log/{LONG}")
    expect(page.get_by_role("button", name="Live")).to_be_in_viewport()
    expect(page.get_by_label("Jump to")).to_be_in_viewport()


def test_the_chosen_topic_is_in_view_however_many_there_are(open_page: OpenPage, log: Log) -> None:
    for number in range(40):
        log.create_topic(f"many-{number:02d}")
    page = open_page("#/log/many-33")
    expect(page.locator(".topic-list [aria-current]")).to_have_text("many-33")
    expect(page.locator(".topic-list [aria-current]")).to_be_in_viewport(ratio=1)
    assert page.evaluate("scrollY") == 0


def test_a_dialog_and_an_error_end_with_what_they_are_about(open_page: OpenPage, log: Log) -> None:
    page = open_page("#/log/orders")
    jump = page.get_by_label("Jump to")
    jump.fill("nonsense")
    jump.press("Enter")
    error = page.locator("#toasts .bad")
    expect(error).to_contain_text("is not a place in a topic")
    jump.fill("3")
    jump.press("Enter")
    expect(error).to_have_count(0)
    jump.fill("nonsense")
    jump.press("Enter")
    expect(error).to_have_count(1)
    flag = StripOnPage(page).flag("warehouse").first
    flag.focus()
    flag.press("ArrowLeft")
    flag.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.evaluate("location.hash = '#/groups'")
    expect(page.get_by_role("heading", name="Groups")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(error).to_have_count(0)


def test_a_group_keeps_its_colour_whoever_comes_and_goes(open_page: OpenPage, log: Log) -> None:
    colour = """
      getComputedStyle([...document.querySelectorAll("tr")].find((row) => row.textContent.startsWith("warehouse"))
        .querySelector(".dot")).backgroundColor
    """
    page = open_page("#/groups")
    expect(page.get_by_role("link", name="warehouse", exact=True)).to_be_visible()
    before = page.evaluate(colour)
    for name in ("aardvark", "bee", "cat"):
        log.reset_group(name, {("orders", 0): "end"})
    page = open_page("#/groups")
    expect(page.get_by_role("link", name="aardvark", exact=True)).to_be_visible()
    assert page.evaluate(colour) == before
    for name in ("aardvark", "bee", "cat"):
        log.delete_group(name)


@pytest.mark.faults
def test_the_page_is_small(open_page: OpenPage, log: Log) -> None:
    """What a browser that has nothing yet is sent, for all rooms with the scene."""
    page = open_page("#/log/orders", color_scheme="light")
    expect(page.locator(".track").first).to_be_visible()
    for room in ROOMS:
        page.locator(f"#nav a[data-room={room}]").click()
        expect(page.locator("main")).to_have_attribute("data-room", room)
    expect(page.locator(".scene-cells").first).to_be_visible()
    sent = page.evaluate(f"({LOADED}).reduce((sum, one) => sum + one.transferSize, 0)")
    assert 10_000 < sent <= WEIGHT_MAX_BYTES


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Served]:
    stack, found = served_log(tmp_path / "data", "--console-read-only")
    with stack:
        yield found


@pytest.mark.faults
def test_a_read_only_console_shows_the_first_topic_as_it_comes_and_moves_nothing(
    browser: Browser, read_only: Served
) -> None:
    log = read_only.log
    with page_of(browser, read_only.url) as (page, _):
        page.goto("/#/log")
        expect(page.locator("#read-only")).to_be_visible()
        expect(page.locator("main")).to_contain_text("Nothing is written yet")
        log.create_topic("orders")
        for number in range(5):
            log.append("orders", str(number))
        log.reset_group("warehouse", {("orders", 0): "end"})
        strip = StripOnPage(page)
        strip.until("end", 5)
        flag = strip.flag("warehouse")
        flag.focus()
        page.keyboard.press("ArrowLeft")
        expect(flag).to_have_attribute("aria-valuenow", "5")
        page.keyboard.press("Enter")
        expect(page.locator(".toast")).to_contain_text("read-only")
        assert "rewind" not in (flag.get_attribute("title") or "")
        expect(page.locator(".legend")).not_to_contain_text("rewind")
        page.goto("/#/topics/orders")
        expect(page.locator("main")).to_contain_text("This console is read-only.")
        expect(page.get_by_role("button", name="Append")).to_have_count(0)


@pytest.mark.faults
def test_a_record_is_asked_for_only_where_one_can_be_appended(browser: Browser, tmp_path: Path) -> None:
    stack, served = served_log(tmp_path / "data")
    with stack, page_of(browser, served.url) as (page, _):
        log = served.log
        log.create_topic("__folds", config=FOLDS_CONFIG)
        log.create_topic("states", config={"cleanup.policy": "compact"})
        log.reset_group("warehouse", {("states", 0): 0})
        for topic in ("__consumer_offsets", "__folds"):
            page.goto(f"/#/topics/{topic}")
            expect(page.get_by_role("heading", name=topic)).to_be_visible()
            expect(page.get_by_role("heading", name="Settings")).to_be_visible()
            expect(page.get_by_role("button", name="Append")).to_have_count(0)
        page.goto("/#/topics/states")
        page.get_by_role("button", name="Append").click()
        assert page.get_by_label("Key", exact=True).evaluate("one => one.validity.valueMissing"), "a table needs a key"
        assert log.offsets("states") == {0: (0, 0)}


# --- the pure parts -------------------------------------------------------------------------------------------------


@pytest.fixture
def modules(usual_page: tuple[Page, Witness]) -> Page:
    """A page from which the console's modules can be called."""
    page, _ = usual_page
    page.goto("/#/health")
    return page


LAWS_OF_INTERVALS = """async () => {
  const { Intervals } = await import("/console/intervals.js");
  let seed = 7;
  const random = (most) => (seed = (seed * 48271) % 2147483647) % most;
  for (let round = 0; round < 300; round += 1) {
    const set = new Intervals(), truth = new Set();
    for (let step = 0; step < 12; step += 1) {
      const first = random(60), next = first + random(9);
      set.add(first, next);
      for (let value = first; value < next; value += 1) truth.add(value);
    }
    for (let value = 0; value < 70; value += 1) {
      if (Boolean(set.holding(value)) !== truth.has(value)) return `holding ${value}: ${JSON.stringify(set.list)}`;
      const missing = set.missing(value, 70);
      let first = value;
      while (first < 70 && truth.has(first)) first += 1;
      if ((missing ? missing[0] : 70) !== first) return `missing ${value}: ${JSON.stringify(set.list)}`;
    }
    for (let at = 1; at < set.list.length; at += 1) if (set.list[at - 1][1] >= set.list[at][0]) return "they touch";
  }
  return "lawful";
}"""

LAWS_OF_THE_STRIP = """async () => {
  const { StripModel } = await import("/console/strip_model.js");
  let seed = 11;
  const random = (most) => (seed = (seed * 48271) % 2147483647) % most;
  for (let round = 0; round < 300; round += 1) {
    const model = new StripModel("t", 0, 0, 1000);
    for (let at = 20; at < 900; at += 30 + random(60)) model.gaps.add(at, at + 1 + random(25));
    model.slots = 10 + random(40);
    for (let step = 0; step < 20; step += 1) {
      const offset = 100 + random(800) + random(100) / 100, slots = random(400) / 10;
      const there = model.back(offset, slots);
      if (Math.abs(model.forward(there, slots) - offset) > 1e-6) return `there and back: ${offset} by ${slots}`;
      if (Math.abs(model.between(there, offset) - slots) > 1e-6) return `between: ${offset} by ${slots}`;
      model.show(offset);
      if (Math.abs(model.offsetAt(model.place(offset)) - offset) > 1e-6) return `place: ${offset}`;
      let last = null;
      for (const slot of model.visible()) {
        if (last !== null && slot.offset !== last) return "the window has a hole";
        last = slot.next;
      }
    }
  }
  return "lawful";
}"""


@pytest.mark.parametrize("laws", [LAWS_OF_INTERVALS, LAWS_OF_THE_STRIP], ids=["intervals", "strip"])
def test_the_arithmetic_of_the_strip_is_lawful(modules: Page, laws: str) -> None:
    assert modules.evaluate(laws) == "lawful"


def test_json_is_indented_without_touching_its_numbers(modules: Page) -> None:
    indented = modules.evaluate(
        """async (text) => (await import("/console/record.js")).indent(text)""",
        '{"big":12345678901234567890,"e":[],"s":"a:{b},[c]\\"","n":{"x":1.50}}',
    )
    assert indented == (
        '{\n  "big": 12345678901234567890,\n  "e": [],\n  "s": "a:{b},[c]\\"",\n  "n": {\n    "x": 1.50\n  }\n}'
    )
