"""Folds in the page, in a real Chromium: cards, a peek that searches, progress, a rewind that a runner is asked for.

The views are real ones, filled through their own API. The runner is played by records in `__folds`, as any runner
writes them, so that a test decides when it takes a command up and how far it is.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from playwright.sync_api import expect

from console.chromium import StripOnPage
from foldlog.client.fold_bulletin import FOLDS_CONFIG, FOLDS_TOPIC, SILENT_AFTER_MS, Command, Status, decode, encode
from foldlog.client.fold_proof import FoldsKey
from foldlog.client.positions import TopicPartition
from foldlog.clock import SystemClock
from foldlog.errors import TopicExists
from foldlog.views.contract import Delta, Shape, View
from foldlog.views.counters import measures as fl
from foldlog.views.counters.counters import check_aggregation, counters
from foldlog.views.search.search import search
from foldlog.views.table.table import table
from views.view_contract import START, Event, ViewCase, at

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from console.conftest import OpenPage, Served
    from foldlog.client.log import Log

RECORDS = 20
PAYMENTS = [Event(n, f"tx-{n:03d}", f"Chai Point {n % 3}", 100 * n) for n in range(RECORDS)]


class Runner:
    """Speaks for folds in `__folds`, again and again as runners do, and reads there what they are asked."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._key = FoldsKey.of_directory(log.path)
        self._last: dict[str, Status] = {}
        self._dead: set[str] = set()
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._repeat)
        self._thread.start()

    def says(self, fold: str, **changes: Any) -> None:
        """Publish a status: the last one of that fold, changed."""
        with self._lock:
            known = replace(self._last.get(fold, self._plain(fold)), **changes, updated_ms=SystemClock().now_ms())
            self._last[fold] = known
            self._write(*encode(known))

    def _write(self, key: bytes, value: bytes | None) -> None:
        self._log.append(FOLDS_TOPIC, value, key=key, headers=[self._key.proof(key, value, SystemClock().now_ms())])

    def _plain(self, fold: str) -> Status:
        at, host = {"0": RECORDS}, f"{socket.gethostname()}:1"
        return Status(fold, "takings", "", "table", "running", at, at, 0, 20, 20, 0.0, 0, 0, "", None, host, 0)

    def _repeat(self) -> None:
        while not self._done.wait(timeout=SILENT_AFTER_MS / 5000):
            for fold in list(self._last):
                self.says(fold)

    def close(self) -> None:
        """Leave no fold behind for another test to wonder about."""
        self._done.set()
        self._thread.join()
        for fold in {*self._last, *self._dead}:
            self._write(f"status/{fold}".encode(), None)

    def was_killed(self, fold: str, ago_ms: int, **changes: Any) -> None:
        """The last word of a runner that said nothing of an end."""
        known = replace(self._plain(fold), **changes, updated_ms=SystemClock().now_ms() - ago_ms)
        self._dead.add(fold)
        self._write(*encode(known))

    def asked(self, fold: str) -> Command | None:
        found = [decode(record.key, record.value) for record in self._log.read(FOLDS_TOPIC, 0)]
        mine = [item for item in found if isinstance(item, Command) and item.fold == fold]
        return mine[-1] if mine else None


def described(view: View) -> Mapping[str, Any]:
    return {
        "kind": view.kind,
        "view": view.place,
        "view_description": view.description(),
        "adds": view.kind == "counters",
    }


def filled(view: View) -> View:
    case = ViewCase(lambda: view)
    view.prepare(case.shape, START)
    view.apply(case.delta(PAYMENTS, 0, RECORDS), START, at(RECORDS))
    return view


def counted(path: Path) -> View:
    """Payments of two merchants in three minutes."""
    began = datetime(2026, 1, 15, 10, 30, tzinfo=UTC)
    view = counters(path, by=["merchant"], window=("at", "1 minute"), measures={"payments": fl.count()})
    assert view.aggregation is not None
    rows_of = pa.schema([("merchant", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    columns = check_aggregation(view.aggregation, rows_of)
    rows = [
        {"window_start": began + timedelta(minutes=minute), "merchant": merchant, "payments": 10 * minute + 5}
        for minute in range(3)
        for merchant in ("tea", "bikes")
    ]
    view.prepare(Shape(columns), START)
    view.apply(Delta(pa.Table.from_pylist(rows, schema=columns), {0: (0, RECORDS)}), START, at(RECORDS))
    return view


@pytest.fixture(scope="module")
def log(served: Served) -> Log:
    log = served.log
    log.create_topic("takings")
    with suppress(TopicExists):
        log.create_topic(FOLDS_TOPIC, 1, FOLDS_CONFIG)
    for payment in PAYMENTS:
        log.append("takings", {"merchant": payment.merchant, "amount": payment.amount}, key=payment.tx_id)
    return log


@pytest.fixture
def runner(log: Log) -> Iterator[Runner]:
    with closing(Runner(log)) as found:
        yield found


def card(page: Page, fold: str) -> Locator:
    return page.locator(f".fold-card[data-fold='{fold}']")


def test_a_search_box_searches_and_a_table_shows_its_rows(open_page: OpenPage, runner: Runner, tmp_path: Path) -> None:
    with closing(filled(search(tmp_path / "search", ["merchant"]))) as index:
        runner.says("finder", **described(index))
    with closing(filled(table(tmp_path / "live.db", "payments"))) as mirror:
        runner.says("mirror", **described(mirror))
    page = open_page("#/folds")
    finder = card(page, "finder")
    finder.get_by_role("button", name="Peek").click()
    finder.get_by_label("Search in finder").fill("point AND 2")
    wanted = sum(payment.offset % 3 == 2 for payment in PAYMENTS)
    expect(finder.locator(".peek tbody tr")).to_have_count(wanted)
    finder.get_by_label("Search in finder").fill("coffee")
    expect(finder.locator(".answer")).to_have_text("Nothing found.")
    mirror_card = card(page, "mirror")
    mirror_card.get_by_role("button", name="Peek").click()
    expect(mirror_card.locator(".peek tbody tr")).to_have_count(RECORDS)
    expect(mirror_card.locator(".peek")).to_contain_text("tx-007")


def test_counters_are_a_chart_and_are_rebuilt_instead_of_rewound(
    open_page: OpenPage, runner: Runner, log: Log, tmp_path: Path
) -> None:
    with closing(counted(tmp_path / "live.db")) as view:
        runner.says("per_minute", **described(view))
    page = open_page("#/folds")
    chart = card(page, "per_minute")
    chart.get_by_role("button", name="Peek").click()
    expect(chart.locator("figure.chart path.line")).to_have_count(2)
    expect(chart.locator(".chart figcaption")).to_contain_text(re.compile("tea 25"))
    expect(chart.get_by_role("button", name="Rebuild")).to_be_visible()
    expect(chart.get_by_role("button", name="Rewind")).to_be_hidden()
    log.reset_group("fold.per_minute", {("takings", 0): "end"})
    page.goto("/#/log/takings")
    strip = StripOnPage(page)
    strip.until("end", RECORDS)
    strip.until("following", "true")
    strip.drag("fold.per_minute", RECORDS - 4)
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("would count it twice")
    expect(dialog.get_by_label("To offset")).to_be_hidden()
    dialog.get_by_role("button", name="Rebuild it instead").click()
    expect(dialog).to_be_hidden()
    command = runner.asked("per_minute")
    assert command is not None
    assert command.verb == "rebuild"


def test_folds_that_write_topics_are_drawn_before_those_that_read_them(open_page: OpenPage, runner: Runner) -> None:
    runner.says("mirror", topic="large", view="shop.db: large")
    runner.says("keep_large", kind="changes", view="topic large", writes="large")
    page = open_page("#/folds")
    graph = page.get_by_role("navigation", name="The graph of folds")
    expect(graph).to_have_text("takingskeep_large → largemirror → table shop.db: large")
    expect(graph.get_by_role("link", name="large", exact=True)).to_have_attribute("href", "#/log/large")
    expect(page.locator("[data-fold=keep_large]")).to_contain_text("from takings into topic large.")


def test_a_rebuild_is_asked_shown_while_it_runs_and_its_result_told(open_page: OpenPage, runner: Runner) -> None:
    runner.says("slow", view="table slow")
    page = open_page("#/folds")
    slow = card(page, "slow")
    slow.get_by_role("button", name="Rebuild").click()
    page.get_by_role("dialog").get_by_role("button", name="Rebuild").click()
    expect(slow.locator(".work")).to_contain_text("Asked to rebuild")
    command = runner.asked("slow")
    assert command is not None
    runner.says("slow", last_command=command.id, doing={"verb": "rebuild", "done": 5, "total": 20})
    expect(slow.get_by_role("progressbar")).to_have_attribute("value", "0.25")
    expect(slow.get_by_role("button", name="Verify")).to_be_disabled()
    runner.says("slow", doing=None, result="rebuilt from 20 records")
    expect(slow.locator(".work")).to_have_text("Rebuilt from 20 records.")
    expect(slow.get_by_role("button", name="Verify")).to_be_enabled()


def test_a_fold_is_paused_resumed_verified_and_rewound_each_after_a_question(
    open_page: OpenPage, runner: Runner
) -> None:
    runner.says("asked", view="table asked")
    page = open_page("#/folds")
    asked, dialog = card(page, "asked"), page.get_by_role("dialog")
    shown = {"pause": "Its lag grows meanwhile", "resume": "goes on from its bookmark", "verify": "both are compared"}
    for verb, told in shown.items():
        asked.get_by_role("button", name=verb.title()).click()
        expect(dialog).to_contain_text(told)
        dialog.get_by_role("button", name="Cancel").click()
        asked.get_by_role("button", name=verb.title()).click()
        dialog.get_by_role("button", name=verb.title()).click()
        expect(asked.locator(".work")).to_contain_text(f"Asked to {verb}")
        command = runner.asked("asked")
        assert command is not None
        assert command.verb == verb
        runner.says("asked", last_command=command.id, state="paused" if verb == "pause" else "running")
    expect(asked.get_by_role("button", name="Resume")).to_be_hidden()
    asked.get_by_role("button", name="Rewind").click()
    rewind = dialog.get_by_role("button", name="Rewind", exact=True)
    expect(rewind).to_be_disabled()
    dialog.get_by_label("To").fill("+25")
    expect(dialog).to_contain_text("Nothing is read again")
    expect(rewind).to_be_disabled()
    dialog.get_by_role("button", name="to the start").click()
    expect(dialog).to_contain_text("20 records will be read again")
    expect(dialog.get_by_role("row").last).to_have_text("takings / 020020")
    rewind.click()
    expect(page.locator(".toast").last).to_contain_text("20 records will be read again")
    command = runner.asked("asked")
    assert command is not None
    assert (command.verb, command.to) == ("rewind", "start")


def test_dead_letters_and_errors_stand_on_the_card(open_page: OpenPage, runner: Runner, log: Log) -> None:
    log.create_topic("broken.dead")
    log.append("broken.dead", "not a payment")
    runner.says("broken", view="table broken", error="the database is away; it is tried again")
    broken = card(open_page("#/folds"), "broken")
    expect(broken.locator(".notice.bad")).to_have_text("The database is away; it is tried again.")
    expect(broken.locator(".warned")).to_have_text("1")
    runner.says("broken", error=None)
    expect(broken.locator(".notice.bad")).to_have_count(0)


def test_a_killed_fold_is_a_finding_and_its_lag_is_that_of_the_log(
    open_page: OpenPage, runner: Runner, log: Log
) -> None:
    """Its last word was that it had read everything; nobody says what came after, but the log has it."""
    log.create_topic("drained")
    for _ in range(5):
        log.append("drained", "before")
    log.reset_group("fold.victim", {("drained", 0): 5})
    runner.was_killed("victim", 60_000, topic="drained", view="table victim", bookmark={"0": 5}, end={"0": 5})
    for _ in range(40):
        log.append("drained", "after")
    page = open_page("#/folds")
    victim = card(page, "victim")
    expect(victim.locator(".chip").last).to_have_text("not running")
    expect(victim.locator(".notice.bad")).to_contain_text("did not stop in order")
    expect(victim.locator(".lag-chart")).to_have_attribute("aria-label", re.compile(r"from 0 to 40; now 40$"))
    expect(victim.locator(".lag-chart .guess")).to_have_attribute("d", re.compile("M.*L"))
    for _ in range(20):
        log.append("drained", "while somebody looks")
    expect(victim.locator(".lag-chart")).to_have_attribute("aria-label", re.compile(r"now 60$"))
    expect(victim.locator(".command code")).to_contain_text("foldlog fold run ")
    page.get_by_role("link", name="Groups").click()
    expect(page.get_by_role("row").filter(has_text="fold.victim")).to_contain_text("not running")
    page.get_by_role("link", name="Health").click()
    expect(page.locator(".notice.bad").filter(has_text="Fold victim")).to_contain_text("60 records behind")
    expect(page.locator(".notice.good")).to_have_count(0)


def test_without_a_runner_the_command_to_type_is_shown(open_page: OpenPage, runner: Runner) -> None:
    runner.says("asleep", view="table asleep", stopped=True, file="shop.py")
    page = open_page("#/folds")
    asleep = card(page, "asleep")
    expect(asleep.locator(".chip").last).to_have_text("stopped")
    asleep.get_by_role("button", name="Verify").click()
    expect(asleep.locator("code")).to_contain_text("foldlog fold verify asleep -f shop.py -d ")
    asleep.get_by_role("button", name="Done").click()
    asleep.get_by_role("button", name="Rewind").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("code")).to_have_count(0)
    dialog.get_by_label("To").fill("0=3")
    expect(dialog.locator("code")).to_contain_text("foldlog fold rewind asleep --to 0=3 ")
    expect(dialog.get_by_role("button", name="Rewind", exact=True)).to_be_disabled()
    dialog.get_by_role("button", name="Cancel").click()


def test_a_fold_s_cursor_is_pulled_in_the_log_and_its_runner_is_asked(
    open_page: OpenPage, runner: Runner, log: Log
) -> None:
    log.reset_group("fold.pulled", {("takings", 0): "end"})
    runner.says("pulled", view="table pulled")
    strip = StripOnPage(open_page("#/log/takings"))
    strip.until("end", RECORDS)
    strip.until("following", "true")
    strip.drag("fold.pulled", RECORDS - 4)
    dialog = strip.page.get_by_role("dialog")
    expect(dialog).to_contain_text("4 records will be read again")
    dialog.get_by_role("button", name="Rewind", exact=True).last.click()
    expect(dialog).to_be_hidden()
    command = runner.asked("pulled")
    assert command is not None
    assert (command.verb, command.to) == ("rewind", f"0={RECORDS - 4}")
    assert log.committed("fold.pulled")[TopicPartition("takings", 0)].offset == RECORDS, "the runner moves it, not we"


def test_a_join_shows_both_topics_and_is_rewound_in_one(
    open_page: OpenPage, runner: Runner, log: Log, tmp_path: Path
) -> None:
    if "shoppers" not in log.topics():
        log.create_topic("shoppers")
        for number in range(5):
            log.append("shoppers", {"name": f"shopper {number}"}, key=f"s{number}")
    topics = {
        "takings": {"bookmark": {"0": RECORDS}, "end": {"0": RECORDS}, "lag": 0},
        "shoppers": {"bookmark": {"0": 3}, "end": {"0": 5}, "lag": 2},
    }
    sides = table(tmp_path / "shop.db", "joined").joined((True, True))
    assert sides is not None
    with closing(sides[0]) as view:
        runner.says("joined", **described(view), topics=topics, lag=2)
        page = open_page("#/folds")
        joined = card(page, "joined")
        expect(joined).to_contain_text("from takings and shoppers into table joined")
        expect(joined.locator(".figure b").first).to_have_text("2")
        expect(joined.locator(".place")).to_have_count(2)
        expect(joined.locator(".place").last).to_contain_text("shoppers 0")
        joined.get_by_role("button", name="Rewind").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("textbox").fill("1")
        expect(dialog).to_contain_text("choose one of them")
        dialog.get_by_label("Topic").select_option("shoppers")
        expect(dialog).to_contain_text("2 records will be read again")
        expect(dialog.get_by_role("row").last).to_have_text("shoppers / 0312")
        dialog.get_by_role("button", name="Rewind", exact=True).click()
        expect(dialog).to_be_hidden()
        command = runner.asked("joined")
        assert command is not None
        assert (command.verb, command.to) == ("rewind", "shoppers:1")
