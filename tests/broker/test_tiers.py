"""A directory with a store: who remembers where it is, whose it is, and what topics leave there."""

from __future__ import annotations

import pytest

from broker.small_broker import DIRECTORY, die, read, write
from foldlog.broker.broker import Broker
from foldlog.broker.tiers import TIER_NAME, TierSettings, load_url, read_topic
from foldlog.errors import InvalidArgument, InvalidConfig, StoreError
from foldlog.files.memory import MemoryFiles
from foldlog.files.objects import DirectoryObjects
from foldlog.limits import TIER_CHECK_MS
from foldlog.testing.sim_clock import SimClock
from log.tier.faulty_store import FaultyStore

URL = "file:///store"
SETTINGS = {"remote.storage.enable": "true", "local.retention.ms": "0", "foldlog.segment.records": "2"}


class TieredBroker:
    """A broker without a background, its clock and its store."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.store = FaultyStore(DirectoryObjects(self.files, "/store"))
        self.clock = SimClock()
        self.open(TierSettings(URL, store=self.store))

    def open(self, tier: TierSettings | str | None) -> None:
        self.broker = Broker.open(DIRECTORY, files=self.files, clock=self.clock, background=False, tier=tier)

    def work(self) -> None:
        """A round of the jobs."""
        self.clock.advance(TIER_CHECK_MS + 1)
        self.broker.run_due()

    def fill(self, topic: str = "orders", batches: int = 4) -> None:
        for number in range(batches):
            write(self.broker, topic, 0, b"a%d" % number, b"b%d" % number)

    def keys(self, kind: str = "") -> list[str]:
        return [key for key in self.store.keys("") if kind in key]


@pytest.fixture
def tiered() -> TieredBroker:
    tiered = TieredBroker()
    tiered.broker.create_topic("orders", 1, SETTINGS)
    tiered.fill()
    return tiered


def values(batches: int = 4) -> list[bytes]:
    return [b"%s%d" % (letter, number) for number in range(batches) for letter in (b"a", b"b")]


def test_the_directory_remembers_its_store(tiered: TieredBroker) -> None:
    tiered.work()
    assert tiered.broker.partition("orders", 0).local_start_offset == 6
    assert load_url(tiered.files, DIRECTORY) == URL
    tiered.broker.close()
    tiered.open(None)
    assert read(tiered.broker, "orders") == values()
    reader = Broker.open(DIRECTORY, files=tiered.files, clock=tiered.clock, mode="r")
    assert read(reader, "orders") == values()


def test_a_topic_is_described_in_the_store(tiered: TieredBroker) -> None:
    tiered.broker.create_topic("plain", 1)
    tiered.work()
    tiered.broker.grow_topic("orders", 3)
    tiered.work()
    (key,) = tiered.keys("topic.json")
    fields = read_topic(tiered.store.get(key), key)
    assert (fields["name"], fields["partitions"], fields["config"]) == ("orders", 3, SETTINGS)
    assert fields["growths"] == [{"partitions": 3, "ends": [8]}]


def test_a_deleted_topic_leaves_the_store_even_after_a_crash(tiered: TieredBroker) -> None:
    tiered.work()
    tiered.broker.create_topic("kept", 1, SETTINGS)
    tiered.fill("kept")
    tiered.work()
    tiered.broker.delete_topic("orders")
    assert tiered.keys("topics/orders-")
    die(tiered.files)
    tiered.open(TierSettings(store=tiered.store))
    tiered.work()
    assert not tiered.keys("topics/orders-")
    assert not tiered.broker.catalog.removed
    assert read(tiered.broker, "kept") == values()


def test_a_store_that_refuses_is_a_warning_and_produce_goes_on(tiered: TieredBroker) -> None:
    tiered.store.refuse("put", but="topic.json")
    tiered.work()
    assert any("orders-0 to the store failed" in text and "503" in text for text in tiered.broker.warnings())
    tiered.fill(batches=1)
    tiered.store.heal()
    tiered.work()
    assert tiered.broker.partition("orders", 0).local_start_offset > 0


def test_the_store_of_another_directory_is_refused(tiered: TieredBroker) -> None:
    tiered.work()
    files = MemoryFiles()
    other = Broker.open(
        DIRECTORY, files=files, clock=tiered.clock, background=False, tier=TierSettings(URL, store=tiered.store)
    )
    other.create_topic("orders", 1, SETTINGS)
    tiered.clock.advance(TIER_CHECK_MS)
    before = tiered.keys()
    other.run_due()
    assert any("is the store of another directory" in text for text in other.warnings())
    assert tiered.keys() == before


def test_an_empty_store_is_refused_where_records_are_in_another_one_alone(tiered: TieredBroker) -> None:
    tiered.work()
    tiered.broker.close()
    tiered.open("file:///elsewhere")
    tiered.work()
    assert any("file:///elsewhere is empty" in text for text in tiered.broker.warnings())
    tiered.broker.close()
    tiered.open(URL)
    assert read(tiered.broker, "orders") == values()


def test_settings_are_refused_as_kafka_refuses_them(tiered: TieredBroker) -> None:
    with pytest.raises(InvalidConfig, match=r"not allowed without remote\.log\.delete\.on\.disable"):
        tiered.broker.alter_topic("orders", {"remote.storage.enable": "false"})
    tiered.work()
    tiered.broker.alter_topic("orders", {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"})
    tiered.work()
    assert not tiered.keys(".segment")
    assert read(tiered.broker, "orders") == values()[6:]


def test_without_a_store_a_topic_cannot_use_one() -> None:
    broker = Broker.open(":memory:", background=False)
    with pytest.raises(InvalidConfig, match="needs a store, and this log has none"):
        broker.create_topic("orders", 1, {"remote.storage.enable": "true"})
    broker.create_topic("orders", 1)
    with pytest.raises(InvalidConfig, match="needs a store"):
        broker.alter_topic("orders", {"remote.storage.enable": "true"})


@pytest.mark.parametrize("url", ["http://bucket/prefix", "s3://", "file://host/x", "tier", "s3://b/p?key=x", 7])
def test_what_is_no_store_is_one_sentence(url: object) -> None:
    files = MemoryFiles()
    with pytest.raises(InvalidArgument, match=r"store|directory"):
        Broker.open(DIRECTORY, files=files, background=False, tier=url)  # type: ignore[arg-type]
    assert not files.exists(f"{DIRECTORY}/{TIER_NAME}")


def test_a_lost_checkpoint_is_explained_by_the_store_before_anybody_reads_and_not_guessed_without_it(
    tiered: TieredBroker,
) -> None:
    tiered.work()
    tiered.broker.close()
    tiered.files.unlink(f"{DIRECTORY}/checkpoint")
    store = TierSettings(URL, store=tiered.store)

    def refuse(step: str, key: str) -> None:
        raise StoreError("it does not answer")

    tiered.store.before = refuse
    for _ in range(2):  # also after the first try, which must not note a wrong start
        tiered.open(store)
        with pytest.raises(StoreError, match="does not answer"):
            tiered.broker.partition("orders", 0)
        tiered.broker.close()
    tiered.store.before = lambda step, key: None
    tiered.open(store)
    partition = tiered.broker.partition("orders", 0)
    assert (partition.log_start_offset, partition.local_start_offset) == (0, 6)
    assert read(tiered.broker, "orders") == values()
