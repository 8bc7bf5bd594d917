"""Takes the pictures of the console that the README shows: a real broker, a real browser, a staged shop.

    python scripts/console_screenshot.py            writes docs/images/console.png, console-dark.png, console-phone.png

The log is staged: payments over some hours whose oldest have expired, groups and folds that have stopped at different
places, accounts that were compacted. The places of folds are committed as their runners commit them, to `fold.<name>`.
Needs Playwright and Chromium (apt-get install chromium).
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import foldlog

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from foldlog.client.log import Log

ROOT = Path(__file__).resolve().parent.parent
PARTITIONS = 3
PAYMENTS = 9_000
EXPIRED = 0.3
MERCHANTS = ["Chai Point", "Blue Tokai", "Crossword", "Decathlon", "BigBasket", "IRCTC", "Sangeetha", "Naturals"]
NOTES = ["morning order", "two tickets", "refill", "gift wrapped", "monthly box", "window seat"]
HOUR_MS = 3_600_000

BEHIND = {
    "fraud": (0, 1, 0),
    "ledger": (7, 5, 8),
    "backfill": (1_700, 1_420, 1_900),
    "fold.mirror": (3, 2, 3),
    "fold.search": (3, 2, 5),
    "fold.per_minute": (5, 8, 3),
}
"""How far each group and each fold is behind, in each partition."""

WAIT_MS = 60_000
BROWSER_OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
COMMAND = [sys.executable, "-c", "import sys; from foldlog.cli.main import main; sys.exit(main())"]


def payment(number: int, chance: random.Random) -> dict[str, Any]:
    return {
        "tx_id": f"tx_{number:05d}",
        "merchant": chance.choice(MERCHANTS),
        "amount_paise": chance.randrange(49, 9_900) * 100,
        "note": chance.choice(NOTES),
        "at": f"2026-01-15T{8 + number % 6:02d}:{number // 7 % 60:02d}:{number % 60:02d}Z",
    }


def write_payments(log: Log) -> None:
    """Six hours of payments, some refunded, in batches of different lengths; the oldest have expired."""
    chance = random.Random(7)
    log.create_topic("payments", partitions=PARTITIONS, config={"retention.ms": 6 * HOUR_MS, "segment.bytes": 16 << 10})
    began_ms = int(time.time() * 1000) - 5 * HOUR_MS
    number = 0
    while number < PAYMENTS:
        with log.producer(linger_ms=50, compression="zstd") as producer:
            for _ in range(chance.randrange(200, 400)):
                number += 1
                is_refund = chance.random() < 0.06
                refunded = number - chance.randrange(1, min(number, 40) + 1)
                value = None if is_refund else json.dumps(payment(number, chance))
                producer.send(
                    "payments",
                    value,
                    key=f"tx_{refunded if is_refund else number:05d}",
                    headers=[("source", b"till-7"), ("trace", chance.randbytes(4).hex().encode())],
                    timestamp_ms=began_ms + number * 5 * HOUR_MS // PAYMENTS,
                )
    ends = log.offsets("payments")
    log.delete_records("payments", {partition: int(end * EXPIRED) for partition, (_, end) in ends.items()})


def write_newest(log: Log) -> None:
    """The last few of each partition, one to four a batch, so that the picture has batches to show."""
    chance = random.Random(11)
    for number in range(PAYMENTS, PAYMENTS + 40):
        with log.producer(linger_ms=5) as producer:
            for part in range(chance.randrange(1, 5)):
                paid = payment(number * 4 + part, chance)
                is_refund = number % 7 == 5 and part == 0
                value = None if is_refund else json.dumps(paid)
                headers = [("source", b"till-7"), ("trace", chance.randbytes(4).hex().encode())]
                producer.send("payments", value, key=paid["tx_id"], partition=number % PARTITIONS, headers=headers)


def write_others(log: Log) -> None:
    log.create_topic("accounts", config={"cleanup.policy": "compact", "segment.bytes": 4096})
    for number in range(400):
        log.append("accounts", {"balance_paise": number * 100}, key=f"acc_{number * number % 17:02d}")
    log.compact("accounts")
    log.create_topic("clicks", partitions=2)
    log.create_topic("mirror.dead")
    log.append("clicks", {"page": "/"}, key="u1")


def stage(path: Path) -> None:
    with foldlog.open(path) as log:
        write_payments(log)
        write_newest(log)
        write_others(log)
        for group, behind in BEHIND.items():
            ends = log.offsets("payments")
            log.reset_group(group, {("payments", number): ends[number][1] - lag for number, lag in enumerate(behind)})
        log.reset_group("crm", {("accounts", 0): 396})


@contextmanager
def served(path: Path) -> Iterator[str]:
    """`foldlog serve … --console` on free ports; the console's address."""
    arguments = ["serve", str(path), "--listen", "127.0.0.1:0", "--console", "127.0.0.1:0"]
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            ready = process.stdout.readline() if process.stdout is not None else ""
            match = re.search(r"console (http://[^/]+)/", ready)
            if match is None:
                raise SystemExit(f"the broker did not start: {ready!r}")
            yield match[1]
        finally:
            process.terminate()


def settled(page: Page) -> None:
    """Every strip is drawn, with its keys, and nothing is being asked for."""
    page.locator(".partition .flag").first.wait_for()
    page.wait_for_load_state("load")
    page.wait_for_function(
        "() => [...document.querySelectorAll('.track')].every((track) => track.dataset.end > 0)"
        " && performance.getEntriesByType('resource').filter((one) => one.name.includes('/strip')).length >= 3"
    )
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def open_record(page: Page, partition: int, back: int) -> None:
    """Click the record that is `back` before the end."""
    track = page.locator(f".partition[data-partition='{partition}'] .track")
    box = track.bounding_box()
    left, slot, end = (float(track.get_attribute(f"data-{name}") or 0) for name in ("left", "slot", "end"))
    if box is not None:
        page.mouse.click(box["x"] + (end - back + 0.5 - left) * slot, box["y"] + 28)
        page.locator(".panel .value, .panel .quiet").first.wait_for()
        page.mouse.move(5, 600)


def show_edge(page: Page, partition: int) -> None:
    """Scroll one partition to its oldest record, by its bar."""
    page.locator(f".partition[data-partition='{partition}'] .whole").click(position={"x": 1, "y": 5})
    page.locator(f".partition[data-partition='{partition}'].at-edge").wait_for()
    page.wait_for_function(
        "() => performance.getEntriesByType('resource').some((one) => /strip.*from=[0-9]/.test(one.name))"
    )


def take(browser: Browser, url: str, target: Path, size: tuple[int, int], scheme: str) -> None:
    is_phone = size[0] < 720
    with browser.new_context(
        base_url=url,
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if scheme == "dark" else "light",
        device_scale_factor=2,
        reduced_motion="reduce",
        has_touch=is_phone,
    ) as context:
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.goto("/#/log/payments")
        settled(page)
        if not is_phone:
            open_record(page, 0, 5)
            show_edge(page, 2)
            settled(page)
        page.evaluate("scrollTo(0, 0)")
        page.screenshot(path=target)
    sys.stderr.write(f"{target.relative_to(ROOT) if target.is_relative_to(ROOT) else target}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="Take the pictures of the console that the README shows.")
    parser.add_argument("--into", type=Path, default=ROOT / "docs" / "images", help="the folder (default: docs/images)")
    into: Path = parser.parse_args().into
    binary = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise SystemExit("Playwright is not installed; enable with: pip install playwright") from None
    if binary is None:
        raise SystemExit("Chromium is not installed; enable with: apt-get install chromium")
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        stage(Path(folder) / "shop")
        with served(Path(folder) / "shop") as url, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=binary, args=BROWSER_OPTIONS)
            take(browser, url, into / "console.png", (1440, 900), "light")
            take(browser, url, into / "console-dark.png", (1440, 900), "dark")
            take(browser, url, into / "console-phone.png", (390, 844), "light")
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
