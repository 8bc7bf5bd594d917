"""One browser and one served log for all tests of the page: each module has topics of its own in it.

Not for longer than that: while Playwright runs, no other event loop can run in the thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import foldlog
from cli.serving import ANY_PORT, serving
from console.chromium import Witness, chromium, page_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from foldlog.client.log import Log

OpenPage = Callable[..., "Page"]


@dataclass
class Served:
    """A log that a broker serves, written by the tests through that broker, and the console's address."""

    log: Log
    url: str
    bootstrap: str
    token: str | None = None
    """What opens the console, where the broker asks ACLs."""


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def served_log(path: Path, *options: str) -> tuple[ExitStack, Served]:
    """`foldlog serve … --console` on free ports, and a handle of its log."""
    stack = ExitStack()
    process = stack.enter_context(serving(str(path), *ANY_PORT, "--console", "127.0.0.1:0", *options))
    match = re.search(r"console (http://[\d.:]+)/(?:\?token=([\w-]+))?", process.ready)
    assert match is not None, process.ready
    host, port = process.address
    return stack, Served(stack.enter_context(foldlog.open(path)), match[1], f"{host}:{port}", match[2])


@pytest.fixture(scope="package")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A log with a compacted topic, `accounts`, in which one key has been written six times."""
    path = tmp_path_factory.mktemp("console") / "data"
    with foldlog.open(path) as log:
        log.create_topic("accounts", config={"cleanup.policy": "compact", "segment.bytes": 1024})
        for number in range(12):
            log.append("accounts", "x" * 600, key="only" if 2 <= number < 8 else f"a{number}")
        log.compact("accounts")
    stack, found = served_log(path)
    with stack:
        yield found


@pytest.fixture(scope="package")
def usual_page(browser: Browser, served: Served) -> Iterator[tuple[Page, Witness]]:
    """The page that tests without wishes of their own share: a new one for each would take most of their time."""
    with page_of(browser, served.url) as found:
        yield found


@pytest.fixture
def open_page(browser: Browser, served: Served, usual_page: tuple[Page, Witness]) -> Iterator[OpenPage]:
    """Open `#/…` from nothing; with options, in a context of its own. Every page is held to: no complaint, no request
    that leaves the machine."""
    with ExitStack() as stack:

        def go(address: str, **options: Any) -> Page:
            page, witness = stack.enter_context(page_of(browser, served.url, **options)) if options else usual_page
            stack.callback(witness.check)
            page.goto("about:blank")
            page.goto(f"/{address}")
            return page

        yield go
