"""The first room answers whether all is well, and charts survive a reload: the broker remembers, not the page."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from console.chromium import page_of
from console.conftest import OpenPage, Served, served_log
from foldlog.client.fold_bulletin import FOLDS_CONFIG, FOLDS_TOPIC, Status, encode
from foldlog.client.fold_proof import FoldsKey

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LOST = Status("mirror", "orders", "v", "table", "running", {"0": 2}, {"0": 5}, 3, 2, 2, 0, 0, 0, "", None, "h:1", 1)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_a_lost_fold_is_a_problem_in_every_room_until_it_runs_again(browser: Browser, tmp_path: Path) -> None:
    stack, served = served_log(tmp_path / "data")
    with stack, page_of(browser, served.url) as (page, _):
        log = served.log
        log.create_topic("orders")
        log.create_topic(FOLDS_TOPIC, config=FOLDS_CONFIG)
        folds_key = FoldsKey.of_directory(str(tmp_path / "data"))

        def publish(status: Status) -> None:
            key, value = encode(status)
            log.append(FOLDS_TOPIC, value, key=key, headers=[folds_key.proof(key, value, now_ms())])

        page.goto("/")
        expect(page.locator("main")).to_have_attribute("data-room", "home")
        expect(page.locator(".notice.good")).to_contain_text("All is well")
        page.goto("/#/log")
        publish(LOST)
        tab = page.locator("#nav a[data-room=home]")
        expect(tab).to_have_attribute("aria-label", "Overview, 1 problem")
        tab.click()
        problem = page.locator(".notice[data-kind=fold_lost]")
        expect(problem).to_contain_text("Its runner h:1 fell silent")
        expect(problem.locator("code")).to_have_text(f"foldlog fold run folds.py -b {served.bootstrap}")
        page.goto("/#/health")
        expect(problem).to_be_visible()
        page.goto("/#/home")
        problem.get_by_role("link", name="mirror").click()
        expect(page.locator("[data-fold=mirror]")).to_be_visible()
        publish(replace(LOST, updated_ms=now_ms() + 60_000))
        expect(tab).to_have_attribute("aria-label", "Overview")


@pytest.mark.usefixtures("served_groups")
def test_the_overview_orders_topics_and_groups_and_has_axes(open_page: OpenPage) -> None:
    page = open_page("#/home")
    rows = page.locator(".card", has_text="Groups and folds by lag").locator("tbody tr")
    expect(rows.filter(has_text="far-behind")).to_contain_text("30")
    names = rows.locator("a").all_text_contents()
    assert names.index("far-behind") < names.index("near")
    chart = page.locator(".chart svg").first
    expect(chart).to_have_attribute("aria-label", re.compile(r"^Lag, the last 1 h, from 0 to \d+$"))
    expect(page.locator(".chart figcaption").first).to_contain_text("far-behind 30")
    page.get_by_role("button", name="6 hours").first.click()
    expect(chart).to_have_attribute("aria-label", re.compile(r"^Lag, the last 6 h, from 0 to \d+$"))
    page.reload()
    expect(page.locator(".chart figcaption").first).to_contain_text("far-behind 30")


@pytest.fixture
def served_groups(served: Served) -> Iterator[None]:
    log = served.log
    log.create_topic("lagging")
    for number in range(30):
        log.append("lagging", str(number))
    log.reset_group("far-behind", {("lagging", 0): 0})
    log.reset_group("near", {("lagging", 0): 29})
    yield
    for group in ("far-behind", "near"):
        log.delete_group(group)
    log.delete_topic("lagging")
