"""What the console shows of a store of segments, in a real Chromium."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from console.chromium import page_of
from foldlog.broker.broker import Broker
from foldlog.errors import StoreError
from server.console.console_site import ConsoleSite, console

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.faults

SETTINGS = {"remote.storage.enable": "true", "local.retention.ms": "0", "foldlog.segment.records": "2"}
LOOKS_MS = 20_000
"""The page asks again every few seconds."""


def fill(site: ConsoleSite) -> None:
    for _ in range(3):
        site.append("orders", 0, (None, b"paid"), (None, b"shipped"))


def test_a_topic_shows_what_is_in_the_store_and_health_that_it_fails(browser: Browser, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with (
        Broker.open(str(tmp_path / "data"), background=False, tier=f"file://{store}") as broker,
        console(broker) as site,
        page_of(browser, f"http://{site.host}:{site.port}") as (page, _),
    ):
        broker.create_topic("orders", 1, SETTINGS)
        fill(site)
        broker.enforce_retention()
        page.goto("/#/topics/orders")
        card = page.locator("#in-store")
        expect(card).to_contain_text("0 to 4")
        expect(card).to_contain_text("2 segments")
        expect(card).to_contain_text("all that is sealed is there")
        page.goto("/#/health")
        expect(page.locator("main")).to_contain_text(str(store))
        expect(page.locator("main")).to_contain_text("All is well")
        store.rename(tmp_path / "elsewhere")
        store.write_text("no directory")
        fill(site)
        with pytest.raises(StoreError):
            broker.enforce_retention()
        problem = page.locator("[data-kind=store_failing]")
        expect(problem).to_contain_text("opying orders-0 to the store failed", timeout=LOOKS_MS)
        expect(problem).to_contain_text(f"foldlog topic list -d file://{store}")
        waits = re.compile("Waiting to be copied3 segments")
        expect(page.locator("main")).to_contain_text(waits, timeout=LOOKS_MS)
