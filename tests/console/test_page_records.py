"""Records as a table: filtered by the broker, live, with columns, and at an address that says all of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from console.chromium import StripOnPage
from console.conftest import OpenPage, Served

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from foldlog.client.log import Log


@pytest.fixture(scope="module")
def log(served: Served) -> Iterator[Log]:
    log = served.log
    log.create_topic("baskets", partitions=2)
    began_ms = time.time_ns() // 1_000_000 - 1_000
    for number in range(150):
        value = {"n": number, "customer": {"id": number % 5, "name": f"Customer {number % 5}"}}
        # The table is in the order of times: those of two records are never the same.
        log.append("baskets", value, key=f"b{number}", partition=number % 2, timestamp_ms=began_ms + number)
    log.create_topic("lines")
    log.append("lines", "something happened")
    log.append("lines", bytes([0x81, 0xA1, 0x6E, 0x01]))
    yield log
    log.delete_topic("baskets")
    log.delete_topic("lines")


def rows(page: Page) -> Locator:
    return page.locator(".rows tbody tr:not(.gap)")


def status(page: Page) -> Locator:
    return page.locator(".found [role=status]")


def test_a_search_finds_what_was_asked_and_the_address_keeps_it(open_page: OpenPage, log: Log) -> None:
    page = open_page("#/log/baskets")
    page.get_by_role("button", name="Table").click()
    expect(status(page)).to_contain_text("100 records")
    expect(rows(page).first).to_contain_text("149")
    assert rows(page).count() < 80, "only those in sight are drawn"
    page.get_by_label("JSON path").fill("$.customer.id = 3")
    page.get_by_label("Columns").fill("$.n, $.customer.name")
    page.get_by_role("button", name="Search").click()
    expect(status(page)).to_have_text("30 records, all that match")
    expect(page.locator(".rows thead")).to_contain_text("$.customer.name")
    expect(rows(page).first).to_contain_text("Customer 3")
    address = page.url
    assert "view=table" in address
    page.goto("about:blank")
    page.goto(address)
    expect(status(page)).to_have_text("30 records, all that match")
    rows(page).first.click()
    expect(page.locator(".panel")).to_contain_text("Where and when")
    expect(page.locator(".rows tr[aria-selected]")).to_have_count(1)
    page.wait_for_function("() => location.hash.startsWith('#/log/baskets/0/74?view=table')")
    page.goto("about:blank")
    page.goto(f"/#/log/baskets/0/74?view=table&{address.partition('?')[2]}")
    expect(page.locator(".panel")).to_contain_text("b148")


def test_live_shows_what_comes_and_matches(open_page: OpenPage, log: Log) -> None:
    page = open_page("#/log/baskets?view=table&text=fresh")
    expect(status(page)).to_have_text("0 records, all that match")
    page.get_by_role("button", name="Live").click()
    log.append("baskets", {"what": "stale"}, key="x")
    log.append("baskets", {"what": "FRESH"}, key="y")
    expect(rows(page)).to_have_count(1)
    expect(rows(page)).to_contain_text("FRESH")


def test_what_is_shown_is_downloaded(open_page: OpenPage, log: Log, tmp_path: Path) -> None:
    page = open_page("#/log/baskets?view=table&key=b7")
    with page.expect_download() as coming:
        page.get_by_role("button", name="JSON lines").click()
    path = tmp_path / "file"
    coming.value.save_as(path)
    (record,) = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    assert (record["key"], record["value"]["n"]) == ("b7", 7)
    assert coming.value.suggested_filename == "baskets.jsonl"


def test_filters_hold_together(open_page: OpenPage, log: Log) -> None:
    page = open_page("#/log/baskets?view=table")
    page.get_by_label("Text", exact=True).fill("customer 1")
    page.get_by_label("Partitions").fill("1")
    page.get_by_label("Order").select_option("oldest")
    page.get_by_role("button", name="Search").click()
    expect(status(page)).to_have_text("15 records, all that match")
    expect(rows(page).first).to_contain_text("b1")


def test_records_without_keys_have_no_column_for_them_and_values_are_decoded(open_page: OpenPage, log: Log) -> None:
    page = open_page("#/log/lines?view=table")
    expect(rows(page)).to_have_count(2)
    expect(page.locator(".rows thead")).not_to_contain_text("Key")
    expect(rows(page).first).to_contain_text('{"n": 1}')
    rows(page).first.click()
    expect(page.locator(".panel pre")).to_contain_text('"n": 1')
    page.get_by_label("Show the value as").select_option("hex")
    expect(page.locator(".panel pre")).to_contain_text("00000000  81 a1 6e 01")


def test_the_address_of_the_strips_follows_a_record_and_a_place(open_page: OpenPage, log: Log) -> None:
    page = open_page("#/log/baskets")
    strip = StripOnPage(page)
    strip.until("end", log.offsets("baskets")[0][1])
    page.locator("#jump").fill("0=10")
    page.keyboard.press("Enter")
    page.wait_for_function("() => location.hash === '#/log/baskets?place=0%3D10'")
    strip.until("following", "false")
    strip.click(12)
    page.wait_for_function("() => location.hash === '#/log/baskets/0/12'")
    page.keyboard.press("Escape")
    page.wait_for_function("() => location.hash === '#/log/baskets?place=0%3D10'")
    page.reload()
    strip.until("following", "false")


def test_many_partitions_are_filtered(open_page: OpenPage, served: Served) -> None:
    served.log.create_topic("wide", partitions=200)
    page = open_page("#/log/wide")
    page.get_by_label("Partitions").fill("3, 197-250")
    expect(page.locator(".partition:visible")).to_have_count(4)
    page.wait_for_function("() => location.hash === '#/log/wide?partitions=3%2C+197-250'")
    page.reload()
    expect(page.locator(".partition:visible")).to_have_count(4)
    served.log.delete_topic("wide")
