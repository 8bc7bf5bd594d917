"""What somebody does in the page: each dialog says what it will do, as the broker reckons it, and then that is done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from console.chromium import page_of
from console.conftest import OpenPage, Served, served_log

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

    from foldlog.client.log import Log


@pytest.fixture
def log(served: Served) -> Iterator[Log]:
    log = served.log
    log.create_topic("stock", partitions=2)
    for number in range(20):
        log.append("stock", str(number), key=f"s{number}", partition=number % 2)
    log.reset_group("pickers", {("stock", 0): 8, ("stock", 1): 2})
    yield log
    for group in set(log.groups()) & {"pickers"}:
        log.delete_group(group)
    for topic in set(log.topics()) & {"stock", "returns"}:
        log.delete_topic(topic)


def dialog(page: Page) -> Locator:
    return page.locator("dialog")


def act(page: Page, button: str, *, on: Locator | None = None) -> None:
    (on or page).get_by_role("button", name=button, exact=True).click()


def test_a_topic_is_made_altered_grown_trimmed_and_deleted(open_page: OpenPage, log: Log) -> None:
    page = open_page("#/topics")
    act(page, "New topic")
    dialog(page).get_by_label("Name").fill("returns")
    dialog(page).get_by_label("Settings").fill("retention.ms=3600000")
    expect(dialog(page)).to_contain_text("Creates returns with 3 partitions and 1 setting of its own.")
    act(page, "Create", on=dialog(page))
    expect(page.get_by_role("heading", name="returns", exact=True)).to_be_visible()
    assert log.topic("returns").partition_count == 3
    act(page, "Settings…")
    dialog(page).get_by_label("Its own settings").fill("")
    expect(dialog(page).get_by_role("row").filter(has_text="retention.ms")).to_contain_text("-1")
    act(page, "Change", on=dialog(page))
    expect(page.locator(".room-head")).to_contain_text("Kept: everything, for ever.")
    act(page, "Add partitions…")
    expect(dialog(page)).to_contain_text("From 3 to 6")
    act(page, "Add", on=dialog(page))
    expect(page.locator(".room-head")).to_contain_text("6 partitions")
    page.goto("/#/topics/stock")
    act(page, "Trim…")
    dialog(page).get_by_label("Before").fill("0=4")
    expect(dialog(page)).to_contain_text("4 offsets will be deleted")
    act(page, "Delete these records", on=dialog(page))
    expect(dialog(page)).to_have_count(0)
    assert log.offsets("stock")[0][0] == 4
    page.goto("/#/topics/returns")
    act(page, "Delete…")
    expect(dialog(page)).to_contain_text("6 partitions, 0 offsets")
    yes = dialog(page).get_by_role("button", name="Delete the topic")
    expect(yes).to_be_disabled()
    dialog(page).get_by_label("Type its name").fill("returns")
    expect(yes).to_be_enabled()
    yes.click()
    expect(page.get_by_role("heading", name="Topics")).to_be_visible()
    assert "returns" not in log.topics()


def test_a_group_is_moved_with_a_look_at_each_partition_and_deleted(open_page: OpenPage, log: Log) -> None:
    page = open_page("#/groups/pickers")
    act(page, "Move…")
    act(page, "to the start", on=dialog(page))
    expect(dialog(page)).to_contain_text("10 offsets will be read again")
    expect(dialog(page).get_by_role("row").filter(has_text="stock / 0")).to_contain_text("8")
    dialog(page).locator("input[type=text]").fill("5")
    expect(dialog(page)).to_contain_text("3 offsets will be read again, 3 will be skipped")
    act(page, "Move", on=dialog(page))
    expect(page.locator(".toast")).to_contain_text("pickers was moved")
    assert {one: at.offset for one, at in log.committed("pickers").items()} == {("stock", 0): 5, ("stock", 1): 5}
    act(page, "Delete…")
    expect(dialog(page)).to_contain_text("What it committed in 2 partitions is deleted")
    act(page, "Delete it", on=dialog(page))
    expect(page.get_by_role("heading", name="Groups")).to_be_visible()
    assert "pickers" not in log.groups()


def test_what_is_no_place_is_told_in_the_dialog(open_page: OpenPage, log: Log) -> None:
    page = open_page("#/groups/pickers")
    act(page, "Move…")
    move = dialog(page).get_by_role("button", name="Move", exact=True)
    expect(move).to_be_disabled()
    dialog(page).get_by_label("To").fill("the day before")
    expect(dialog(page)).to_contain_text("the day before")
    expect(move).to_be_disabled()
    dialog(page).get_by_label("To").fill("start")
    expect(move).to_be_enabled()
    page.keyboard.press("Escape")
    expect(dialog(page)).to_have_count(0)


def test_an_open_transaction_is_aborted(open_page: OpenPage, served: Served, log: Log) -> None:
    transaction = log.transaction("restock")
    transaction.send("stock", "more").result()
    page = open_page("#/health")
    row = page.get_by_role("row").filter(has_text="restock")
    act(page, "Abort…", on=row)
    expect(dialog(page)).to_contain_text("in 1 partition: stock / ")
    act(page, "Abort it", on=dialog(page))
    expect(row).to_have_count(0)
    transaction.abort()


def test_lists_are_sorted_and_filtered_and_the_address_says_so(open_page: OpenPage, log: Log) -> None:
    page = open_page("#/groups")
    log.reset_group("zebras", {("stock", 0): "end", ("stock", 1): "end"})
    rows = page.locator(".list tbody tr")
    expect(rows.filter(has_text="zebras")).to_be_visible()
    page.locator("thead").get_by_role("button", name="Lag").click()
    page.wait_for_function("() => location.hash === '#/groups?sort=lag-down'")
    names = page.locator(".list tbody a[title]").all_text_contents()
    assert names.index("pickers") < names.index("zebras")
    page.get_by_label("Filter groups").fill("ZEB")
    expect(rows).to_have_count(1)
    page.reload()
    expect(rows).to_have_count(1)
    log.delete_group("zebras")


def test_a_read_only_console_offers_nothing_to_do(browser: Browser, tmp_path: Path) -> None:
    stack, served = served_log(tmp_path / "data", "--console-read-only")
    with stack, page_of(browser, served.url) as (page, _):
        served.log.create_topic("stock")
        served.log.reset_group("pickers", {("stock", 0): 0})
        for room in ("topics", "topics/stock", "groups/pickers", "access", "health"):
            page.goto(f"/#/{room}")
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            for name in ("New topic", "Delete…", "Move…", "New user"):
                expect(page.get_by_role("button", name=name)).to_have_count(0)
