"""How a store of segments stands, as a scrape and the console tell it: copied, waiting, read, failing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.small_broker import DIRECTORY, read, write
from foldlog.broker.broker import Broker
from foldlog.broker.tiers import TierSettings
from foldlog.errors import StorageError, StoreError
from foldlog.exposition import render
from foldlog.files.memory import MemoryFiles
from foldlog.files.objects import DirectoryObjects
from foldlog.limits import TIER_CHECK_MS
from foldlog.server.folds_reader import ServedFoldRuns
from foldlog.server.metrics.collectors import log_families
from foldlog.testing.sim_clock import SimClock
from log.tier.faulty_store import FaultyStore
from server.console.console_site import console

SETTINGS = {"remote.storage.enable": "true", "local.retention.ms": "0", "foldlog.segment.records": "2"}


class Watched:
    """A broker without a background whose store may fail, and what a scrape tells of it."""

    def __init__(self) -> None:
        files = MemoryFiles()
        self.clock = SimClock()
        self.store = FaultyStore(DirectoryObjects(files, "/store"))
        tier = TierSettings("file:///store", store=self.store)
        self.broker = Broker.open(DIRECTORY, files=files, clock=self.clock, background=False, tier=tier)
        self.broker.create_topic("orders", 1, SETTINGS)

    def fill(self, batches: int) -> None:
        for number in range(batches):
            write(self.broker, "orders", 0, b"a%d" % number, b"b%d" % number)

    def work(self) -> None:
        self.clock.advance(TIER_CHECK_MS + 1)
        self.broker.run_due()

    def scrape(self) -> dict[str, float]:
        """By the name without its prefix, for the one topic."""
        page = render(log_families(self.broker, ServedFoldRuns(self.broker))).decode()
        samples = [one for family in text_string_to_metric_families(page) for one in family.samples]
        return {
            one.name.removeprefix("foldlog_store_"): one.value
            for one in samples
            if one.name.startswith("foldlog_store_") and one.labels.get("topic", "orders") == "orders"
        }

    def problems(self) -> set[tuple[str, str]]:
        page = render(log_families(self.broker, ServedFoldRuns(self.broker))).decode()
        samples = [one for family in text_string_to_metric_families(page) for one in family.samples]
        return {(one.labels["kind"], one.labels["name"]) for one in samples if one.name == "foldlog_problems"}


@pytest.fixture
def watched() -> Watched:
    return Watched()


def refuse(what: str) -> Callable[[str, str], None]:
    def before(step: str, key: str) -> None:
        if step in what:
            raise StoreError(f"{key}: 503 slow down")

    return before


def test_what_was_copied_and_read_is_told(watched: Watched) -> None:
    watched.fill(4)
    watched.work()
    told = watched.scrape()
    copied = [len(watched.store.get(key)) for key in watched.store.keys("") if key.endswith(".segment")]
    assert (told["segments"], told["copied_segments_total"]) == (3, 3)
    assert told["copied_bytes_total"] == sum(copied) > told["size_bytes"] > 0
    assert (told["lag_segments"], told["lag_bytes"], told["faults"], told["failures_total"]) == (0, 0, 0, 0)
    read(watched.broker, "orders", 0)
    first = watched.scrape()
    assert first["cache_misses_total"] > told["cache_misses_total"]
    assert first["reads_total"] > told["reads_total"]
    assert first["read_bytes_total"] > told["read_bytes_total"]
    assert first["cache_bytes"] > 0
    read(watched.broker, "orders", 0)
    second = watched.scrape()
    assert second["cache_hits_total"] > first["cache_hits_total"]
    assert second["reads_total"] == first["reads_total"]
    assert watched.problems() == set()


def test_segments_wait_while_the_store_fails_and_it_is_a_problem_until_it_answers(watched: Watched) -> None:
    watched.fill(2)
    watched.work()
    watched.store.before = refuse("put create")
    watched.fill(3)
    watched.work()
    watched.work()
    told = watched.scrape()
    assert (told["segments"], told["lag_segments"], told["faults"]) == (1, 3, 1)
    assert told["lag_bytes"] > 0
    assert told["failures_total"] == 2
    assert watched.problems() == {("store_failing", "orders")}
    watched.store.before = lambda step, key: None
    watched.work()
    told = watched.scrape()
    assert (told["segments"], told["lag_segments"], told["faults"]) == (4, 0, 0)
    assert watched.problems() == set()


def test_a_store_that_does_not_answer_at_all_is_a_problem_of_the_broker(watched: Watched) -> None:
    watched.store.before = refuse("read")
    watched.fill(2)
    watched.work()
    assert watched.problems() == {("store_failing", "store")}
    watched.store.before = lambda step, key: None
    watched.work()
    assert watched.problems() == set()


def test_a_lost_object_is_a_problem_once_somebody_missed_it(watched: Watched) -> None:
    watched.fill(4)
    watched.work()
    (first, *_) = [key for key in watched.store.keys("") if key.endswith(".segment")]
    kept = watched.store.get(first)
    watched.store.delete([first])
    with pytest.raises(StorageError, match="is gone from the store"):
        read(watched.broker, "orders", 0)
    assert watched.problems() == {("store_damaged", "orders")}
    watched.store.put(first, [kept])
    read(watched.broker, "orders", 0)
    assert watched.problems() == set()


def test_without_a_store_nothing_is_told_of_one() -> None:
    with Broker.open(":memory:", background=False) as broker:
        assert b"foldlog_store" not in render(log_families(broker, ServedFoldRuns(broker)))


def test_the_console_shows_what_is_here_what_is_in_the_store_and_what_helps(watched: Watched) -> None:
    watched.fill(4)
    watched.work()
    watched.store.before = refuse("put create")
    watched.fill(1)
    watched.work()
    with console(watched.broker) as site:
        (partition,) = site.get("/api/topics/orders")["partitions"]
        found = site.get("/api/health")
    stored = partition["store"]
    assert (stored["start"], stored["end"], stored["local_start"]) == (0, 6, 6)
    assert (stored["segments"], stored["waiting_segments"]) == (3, 1)
    assert found["store"]["url"] == "file:///store"
    assert (found["store"]["segments"], found["store"]["waiting_segments"], found["store"]["failures"]) == (3, 1, 1)
    (problem,) = found["problems"]
    assert (problem["kind"], problem["name"]) == ("store_failing", "orders")
    assert "503 slow down" in problem["sentence"]
    assert found["store"]["errors"] == [problem["sentence"]]
    assert problem["command"] == "foldlog topic list -d file:///store"
    assert problem["since_ms"] is not None
