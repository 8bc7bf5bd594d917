"""The room of the log, in a real Chromium on a real broker: it grows, shows records, jumps, and rewinds when asked.

Cells are drawn on a canvas; the strip says its own numbers (`data-left`, `data-slot`, …), from which a test knows where
to click. What a rewind did is asked of the log, not of the page.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from console.chromium import StripOnPage
from foldlog.client.positions import TopicPartition

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from console.conftest import OpenPage, Served
    from foldlog.client.log import Log

RECORDS = 60


@pytest.fixture(scope="module")
def log(served: Served) -> Log:
    """Payments in two partitions, the first ten of them expired."""
    log = served.log
    log.create_topic("payments", partitions=2)
    with log.producer(linger_ms=60_000, batch_records=4) as producer:
        for number in range(RECORDS):
            key, headers = f"tx_{number:03d}", [("trace", b"\xff")]
            paid = {"tx_id": key, "amount_paise": 4900 + number, "tags": [], "deep": {"a": [1, 2.50]}}
            producer.send("payments", json.dumps(paid), key=key, partition=0, headers=headers)
    log.append("payments", "other", partition=1)
    log.delete_records("payments", {0: 10})
    return log


def committed(log: Log, group: str) -> int:
    return log.committed(group)[TopicPartition("payments", 0)].offset


def at_payments(page: Page, log: Log) -> StripOnPage:
    """The strip, once it follows the end."""
    strip = StripOnPage(page)
    strip.until("end", log.offsets("payments")[0][1])
    strip.until("following", "true")
    return strip


def test_the_strip_grows_while_one_looks_and_the_new_record_can_be_opened(open_page: OpenPage, log: Log) -> None:
    strip = at_payments(open_page("#/log/payments"), log)
    new = log.append("payments", '{"tx_id": "live"}', key="live", partition=0).offset
    strip.until("end", new + 1)
    strip.click(new)
    panel = strip.page.get_by_role("complementary", name="Record")
    expect(panel).to_contain_text('"live"')
    expect(panel.get_by_role("heading", level=2)).to_contain_text(str(new))


def test_a_click_shows_the_record_with_all_that_is_known_of_it(open_page: OpenPage, log: Log) -> None:
    strip = at_payments(open_page("#/log/payments"), log)
    strip.page.fill("#jump", "41")
    strip.page.press("#jump", "Enter")
    strip.until("following", "false")
    strip.click(41)
    panel = strip.page.get_by_role("complementary", name="Record")
    expect(panel.locator(".value")).to_have_text(
        '{\n  "tx_id": "tx_041",\n  "amount_paise": 4941,\n  "tags": [],\n'
        '  "deep": {\n    "a": [\n      1,\n      2.5\n    ]\n  }\n}'
    )
    for fact in ("tx_041", "trace", "base64 /w==", "40 \N{EN DASH} 43", "4 records", "00000000000000000000.log"):
        expect(panel).to_contain_text(fact)
    expect(panel.locator("dt:has-text('Byte position') + dd")).to_have_text(re.compile(r"^[\d,]+$"))
    panel.get_by_label("The record after").click()
    expect(panel).to_contain_text("tx_042")


def test_what_a_record_holds_never_becomes_markup(open_page: OpenPage, log: Log) -> None:
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    offset = log.append("payments", evil, key=evil, partition=0, headers=[(evil, evil.encode())]).offset
    strip = at_payments(open_page("#/log/payments"), log)
    strip.until("end", offset + 1)
    strip.click(offset)
    panel = strip.page.get_by_role("complementary", name="Record")
    expect(panel.locator(".value")).to_have_text(evil)
    assert strip.page.locator("img, main script").count() == 0


def test_the_keyboard_alone_walks_opens_and_closes(open_page: OpenPage, log: Log) -> None:
    strip = at_payments(open_page("#/log/payments"), log)
    page, last = strip.page, log.offsets("payments")[0][1] - 1
    strip.track.focus()
    page.keyboard.press("End")
    expect(page.locator("#said")).to_contain_text(f"Offset {last}")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#said")).to_contain_text(f"Offset {last - 1}")
    page.keyboard.press("Enter")
    panel = page.get_by_role("complementary", name="Record")
    expect(panel.get_by_role("heading", level=2)).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(panel.get_by_role("heading", level=2)).to_contain_text(str(last - 2))
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(strip.track).to_be_focused()
    page.keyboard.press("Home")
    expect(page.locator("#said")).to_contain_text("Offset 10,")


def test_jumps_go_to_the_retention_edge_to_a_time_and_back_to_the_end(open_page: OpenPage, log: Log) -> None:
    strip = at_payments(open_page("#/log/payments"), log)
    page, jump = strip.page, strip.page.locator("#jump")
    jump.fill("start")
    jump.press("Enter")
    expect(strip.element).to_have_class(re.compile("at-edge"))
    assert strip.number("left") < 10, "one can look over the edge"
    jump.fill("@-1d")
    jump.press("Enter")
    expect(strip.element.locator(".range")).to_contain_text("10 \N{EN DASH}")
    jump.fill("end")
    jump.press("Enter")
    strip.until("following", "true")
    jump.fill("nowhere")
    jump.press("Enter")
    expect(page.locator(".toast.bad")).to_contain_text("is not a place in a topic")


def test_a_drag_asks_first_and_then_rewinds_the_group(open_page: OpenPage, log: Log) -> None:
    log.reset_group("dragged", {("payments", 0): "end"})
    before = committed(log, "dragged")
    strip = at_payments(open_page("#/log/payments"), log)
    expect(strip.flag("dragged")).to_have_attribute("aria-valuenow", str(before))
    strip.drag("dragged", before - 3)
    dialog = strip.page.get_by_role("dialog")
    expect(dialog).to_contain_text("3 offsets will be read again")
    expect(dialog.locator(".when")).to_contain_text("from ")
    dialog.get_by_role("button", name="Cancel").click()
    assert committed(log, "dragged") == before, "nothing moves before one has said yes"
    expect(strip.flag("dragged")).to_have_attribute("aria-valuenow", str(before))
    strip.drag("dragged", before - 3)
    dialog.get_by_role("button", name="Rewind", exact=True).last.click()
    expect(strip.page.locator(".toast")).to_contain_text("3 records again")
    assert committed(log, "dragged") == before - 3
    expect(strip.flag("dragged")).to_have_attribute("aria-valuenow", str(before - 3))


def test_arrow_keys_and_enter_rewind_the_group(open_page: OpenPage, log: Log) -> None:
    log.reset_group("typed", {("payments", 0): "end"})
    before = committed(log, "typed")
    strip = at_payments(open_page("#/log/payments"), log)
    flag = strip.flag("typed")
    flag.focus()
    for key in ("ArrowLeft", "ArrowLeft", "Shift+ArrowLeft", "ArrowRight"):
        strip.page.keyboard.press(key)
    expect(flag).to_have_attribute("aria-valuenow", str(before - 11))
    strip.page.keyboard.press("Escape")
    expect(flag).to_have_attribute("aria-valuenow", str(before))
    strip.page.keyboard.press("ArrowLeft")
    strip.page.keyboard.press("Enter")
    dialog = strip.page.get_by_role("dialog")
    expect(dialog.get_by_label("To offset")).to_have_value(str(before - 1))
    dialog.get_by_label("To offset").fill(str(before - 7))
    expect(dialog).to_contain_text("7 offsets will be read again")
    strip.page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    assert committed(log, "typed") == before - 7


def test_live_members_are_named_and_sent_away_only_when_that_is_said(open_page: OpenPage, log: Log) -> None:
    with log.consumer(["payments"], group="lively", auto_offset_reset="earliest") as reader:
        while reader.poll(timeout_ms=20_000 if not reader.assignment() else 0):
            reader.commit()
        before = committed(log, "lively")
        strip = at_payments(open_page("#/log/payments"), log)
        strip.flag("lively").focus()
        strip.page.keyboard.press("ArrowLeft")
        strip.page.keyboard.press("Enter")
        dialog = strip.page.get_by_role("dialog")
        expect(dialog).to_contain_text("One live member: foldlog.")
        go = dialog.get_by_role("button", name="Rewind", exact=True).last
        expect(go).to_be_disabled()
        dialog.get_by_role("checkbox").check()
        go.click()
        expect(dialog).to_be_hidden()
        assert committed(log, "lively") == before - 1
        again = next(filter(None, (reader.poll(timeout_ms=1000) for _ in range(60))))
        assert [record.offset for record in again] == [before - 1], "it joined again, at the new offset"


def test_the_walk_steps_over_what_compaction_removed(open_page: OpenPage, log: Log) -> None:
    left = [record.offset for record in log.read("accounts", 0)]
    assert left == [0, 1, 7, 8, 9, 10, 11], "compaction has done its work"
    page = open_page("#/log/accounts")
    strip = StripOnPage(page)
    strip.until("end", 12)
    strip.track.focus()
    page.keyboard.press("Home")
    for offset in left:
        # With its key: the broker has answered, and the gap in the same answer is known before the next step.
        expect(page.locator("#said")).to_contain_text(f"Offset {offset}, key")
        page.keyboard.press("ArrowRight")


def test_internal_topics_have_strips_too_and_a_topic_that_is_new_appears(open_page: OpenPage, log: Log) -> None:
    log.reset_group("somebody", {("payments", 0): "end"})
    page = open_page("#/log/payments")
    topics = page.get_by_role("complementary", name="Topics")
    expect(topics).to_contain_text("__consumer_offsets")
    log.create_topic("just-made")
    expect(topics).to_contain_text("just-made")
    topics.get_by_text("just-made").click()
    # Not ".range" alone: until the page has turned, the strips of the other topic match it too.
    expect(page.locator(".range").get_by_text("empty, next is 0")).to_be_visible()
    log.delete_topic("just-made")
    expect(topics).not_to_contain_text("just-made")


def test_the_strip_says_which_open_transaction_holds_committed_readers_back(open_page: OpenPage, log: Log) -> None:
    log.create_topic("transfers")
    for number in range(3):
        log.append("transfers", f"before {number}")
    with log.transaction("orders-etl", timeout_ms=600_000) as tx:
        tx.send("transfers", "of a transaction").result(60)
        log.append("transfers", "behind it")
        page = open_page("#/log/transfers")
        note = StripOnPage(page).element.locator(".edge-note")
        expect(note).to_contain_text(
            re.compile(r"5 offsets · .*committed up to 3: waits for orders-etl, last written \d+ (s|min) ago")
        )
    # The commit's marker is new at the end, so the strip asks again.
    expect(note).to_contain_text("6 offsets")
    expect(note).not_to_contain_text("waits for")
