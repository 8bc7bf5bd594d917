"""A real Chromium for the console's tests, and a page in it that keeps account of what must not happen."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request

WAIT_MS = 30_000
"""Bounds every wait for something that is about to happen: generous, for the machine is shared."""

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--process-per-site",
    "--renderer-process-limit=1",
]


@contextmanager
def chromium() -> Iterator[Browser]:
    """One browser; skips, with the way out, where there is none."""
    driver = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed; enable with: pip install playwright"
    )
    binary = next(filter(None, map(shutil.which, _NAMES)), None)
    if binary is None:
        pytest.skip("Chromium is not installed; enable with: apt-get install chromium")
    driver.expect.set_options(timeout=WAIT_MS)
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=binary, args=_OPTIONS)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Witness:
    """What a page said and whom it asked."""

    origin: str
    errors: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    def said(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not self._is_refused_place(message):
            self.errors.append(f"{message.text}: {message.location['url']}")

    def _is_refused_place(self, message: ConsoleMessage) -> bool:
        """The broker refuses what somebody typed and is no place; the browser notes every refusal."""
        url = message.location["url"]
        return "status of 400" in message.text and ("/place?" in url or "?place=" in url or url.endswith("/reset"))

    def asked(self, request: Request) -> None:
        if urlsplit(request.url).netloc not in {self.origin, ""}:
            self.strangers.append(request.url)

    def check(self) -> None:
        """Fails with what there was since the last check: pages are shared, and the next test is not at fault."""
        errors, self.errors = self.errors, []
        strangers, self.strangers = self.strangers, []
        assert not errors, f"the page complained: {errors}"
        assert not strangers, f"the page asked elsewhere: {strangers}"


@contextmanager
def page_of(browser: Browser, url: str, **options: Any) -> Iterator[tuple[Page, Witness]]:
    """A page in a context of its own; afterwards it has neither complained nor asked anybody but the console."""
    witness = Witness(urlsplit(url).netloc)
    options.setdefault("viewport", {"width": 1160, "height": 640})
    with browser.new_context(base_url=url, reduced_motion="reduce", **options) as context:
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("console", witness.said)
        page.on("pageerror", lambda error: witness.errors.append(str(error)))
        page.on("request", witness.asked)
        yield page, witness
        witness.check()


def stop_clock(page: Page) -> None:
    """Let the page's timers wait for `page.clock.run_for` or `resume`: its time no longer goes by while a test looks.

    On a page of the test's own: nothing gives the page its real clock back.
    """
    now = datetime.now(UTC)
    page.clock.install(time=now)
    page.clock.pause_at(now + timedelta(hours=1))


class StripOnPage:
    """One partition as the page shows it. Cells are on a canvas: where an offset is, the track's own numbers say."""

    def __init__(self, page: Page, partition: int = 0) -> None:
        self.page = page
        self.element = page.locator(f".partition[data-partition='{partition}']")
        self.track = self.element.locator(".track")

    def flag(self, group: str) -> Locator:
        return self.element.locator(f".cursor[data-group='{group}'] .flag")

    def number(self, name: str) -> float:
        value = self.track.get_attribute(f"data-{name}")
        assert value is not None, f"the strip does not say its {name}"
        return float(value)

    def until(self, name: str, value: object) -> None:
        """Wait until the track says this of itself."""
        self.page.wait_for_function(
            "([part, name, value]) => document.querySelector(part)?.dataset[name] === value",
            arg=[self._selector, name, str(value)],
        )

    @property
    def _selector(self) -> str:
        number = self.element.get_attribute("data-partition")
        return f".partition[data-partition='{number}'] .track"

    def middle_of(self, offset: int) -> tuple[float, float]:
        """Where a cell is on the screen: without gaps before it in the window."""
        box = self.track.bounding_box()
        assert box is not None
        return box["x"] + (offset + 0.5 - self.number("left")) * self.number("slot"), box["y"] + box["height"] / 2

    def click(self, offset: int) -> None:
        self.page.mouse.click(*self.middle_of(offset))

    def drag(self, group: str, to_offset: int) -> None:
        """Pull a group's flag with the mouse until its stem is at an offset, and let go there."""
        flag = self.flag(group)
        flag.hover()  # waits until it stands still: it glides back for a frame after a question that was left
        box = flag.bounding_box()
        assert box is not None
        y = box["y"] + box["height"] / 2
        self.page.mouse.down()
        target, _ = self.middle_of(to_offset)
        self.page.mouse.move(target, y, steps=4)
        self.page.mouse.move(target - self.number("slot") / 2, y)
        self.page.mouse.up()
