"""What the page makes of addresses that lead nowhere, values made to hurt it, compaction under its eyes, and nobody
looking at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from console.chromium import stop_clock

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from console.conftest import OpenPage, Served
    from foldlog.client.log import Log


@pytest.fixture(scope="module")
def log(served: Served) -> Log:
    return served.log


def look_away(page: Page, is_hidden: bool) -> None:
    """As when somebody goes to another tab, or comes back."""
    page.evaluate(
        "(hidden) => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        is_hidden,
    )


@pytest.mark.faults
def test_an_address_that_leads_nowhere_says_so_and_shows_the_topic_once_it_is_there(
    open_page: OpenPage, log: Log
) -> None:
    page = open_page("#/log/%zz")
    expect(page.locator(".empty")).to_contain_text("There is no topic %zz.")
    page = open_page("#/log/not.yet")
    expect(page.locator(".empty")).to_contain_text("There is no topic not.yet.")
    log.create_topic("not.yet")
    expect(page.get_by_role("heading", level=1)).to_have_text("not.yet")
    expect(page.locator(".track")).to_have_count(1)


@pytest.mark.faults
def test_a_value_of_nothing_but_brackets_stays_readable(open_page: OpenPage, log: Log) -> None:
    depth = 3000
    log.create_topic("brackets")
    log.append("brackets", "[" * depth + "]" * depth)
    page = open_page("#/log/brackets/0/0")
    value = page.locator(".panel pre")
    expect(value).to_contain_text("[")
    # Indented to its full depth it would have nine million characters more.
    assert value.evaluate("(element) => element.textContent.length") < 100 * 2 * depth


@pytest.mark.faults
def test_records_that_compaction_takes_while_one_looks_become_a_gap(open_page: OpenPage) -> None:
    page = open_page("#/log/accounts")
    before, asked, after = page.evaluate(
        """async () => {
          const { StripModel } = await import("/console/strip_model.js");
          const model = new StripModel("ledger", 0, 0, 12);
          const cells = [...Array(12).keys()].map((offset) => ({ offset }));
          const answer = { edge: null, start: 0, end: 12, from: 0, next: 12, gaps: [], cells };
          model.merge(answer);
          const before = [model.wanted(), model.neighbour(1, 1)];
          model.stale();
          const asked = [model.wanted() !== null, model.cells.size];
          const kept = cells.filter(({ offset }) => offset < 2 || offset > 6);
          model.merge({ ...answer, gaps: [[2, 7]], cells: kept });
          return [before, asked, [model.wanted(), model.neighbour(1, 1), model.cells.size]];
        }"""
    )
    assert before == [None, 2]
    assert asked == [True, 12], "what is known stays to be drawn until the answer is there"
    assert after == [None, 7, 7]


@pytest.mark.faults
def test_a_jump_into_a_long_gap_shows_the_gap_and_what_is_beside_it(open_page: OpenPage) -> None:
    page = open_page("#/log/accounts")
    slots = page.evaluate(
        """async () => {
          const { StripModel } = await import("/console/strip_model.js");
          const model = new StripModel("ledger", 0, 0, 3000);
          model.show(0, 0.1);
          const cells = [...Array(100).keys()].map((number) => ({ offset: 2900 + number }));
          const answer = { edge: null, start: 0, end: 3000, from: 0, next: 3000, gaps: [[0, 2900]], cells };
          while (model.wanted()) model.merge(answer);
          return [...model.visible()].filter(({ offset }) => offset >= 0).map(({ offset, isGap }) => [offset, isGap]);
        }"""
    )
    assert slots[0] == [0, True]
    assert slots[1:19] == [[2900 + number, False] for number in range(18)]


@pytest.mark.faults
def test_a_page_that_nobody_sees_gives_its_connection_back(open_page: OpenPage) -> None:
    """A browser has six for a host: as many pages in the background would leave none for the one that is looked at."""
    page = open_page("#/topics", viewport={"width": 900, "height": 500})
    pulse = page.locator("#pulse")
    expect(pulse).to_have_text("live")
    stop_clock(page)
    look_away(page, True)
    page.clock.run_for(19_000)
    expect(pulse).to_have_text("live")
    page.clock.run_for(2_000)
    expect(pulse).to_have_text("no connection")
    look_away(page, False)
    expect(pulse).to_have_text("live")
