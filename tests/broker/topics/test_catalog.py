"""The catalog file: what was stored is loaded, and no flipped, missing or added byte goes unnoticed.

Every bit of a real file is flipped in turn; generated catalogs round-trip; the checksum is also put right around
content that no catalog has.
"""

from __future__ import annotations

import json

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from foldlog.broker.topics import catalog as catalogs
from foldlog.broker.topics.catalog import Catalog, CatalogTopic, Growth
from foldlog.broker.topics.config import TopicConfig
from foldlog.errors import CorruptLog, NewerVersion
from foldlog.files.memory import MemoryFiles

NAMES = st.text("abcXYZ019._-", min_size=1, max_size=20).filter(lambda name: name not in {".", ".."})
CONFIGS = st.fixed_dictionaries(
    {}, optional={"retention.ms": st.integers(-1, 10**12), "cleanup.policy": st.sampled_from(["delete", "compact"])}
).map(TopicConfig.parse)
GROWTHS = st.builds(Growth, st.integers(2, 9), st.lists(st.integers(0, 2**63 - 1), max_size=4).map(tuple))
TOPICS = st.builds(
    CatalogTopic,
    NAMES,
    st.uuids().map(lambda value: value.hex),
    CONFIGS,
    st.lists(st.integers(0, 5000), max_size=5, unique=True).map(tuple),
    st.lists(GROWTHS, max_size=3).map(tuple),
)
CATALOGS = st.builds(
    lambda directory_id, topics: Catalog(str(directory_id), {topic.name: topic for topic in topics}),
    st.uuids(),
    st.lists(TOPICS, max_size=5),
)


def sample() -> Catalog:
    orders = CatalogTopic("orders", "0123456789abcdef" * 2, TopicConfig.parse({"retention.ms": 1000}), (0, 1))
    grown = CatalogTopic("a-1", "f" * 32, TopicConfig.parse({}), (2,)).grown([3], [7])
    return Catalog.empty().with_topics(orders).with_topics(grown)


def checksummed(body: str) -> bytes:
    return body.encode() + f',\n"crc32c":"{crc32c(body.encode()):08x}"}}\n'.encode()


@given(CATALOGS)
def test_what_is_stored_is_loaded(catalog: Catalog) -> None:
    files = MemoryFiles()
    files.make_directory("data")
    catalogs.store(files, "data", catalog)
    assert catalogs.load(files, "data") == catalog


@given(CATALOGS)
def test_the_file_is_json_for_anybody(catalog: Catalog) -> None:
    fields = json.loads(catalogs.encode(catalog))
    assert list(fields) == ["version", "directory_id", "topics", "crc32c"]
    assert set(fields["topics"]) == set(catalog.topics)


def test_every_flipped_bit_is_noticed() -> None:
    data = catalogs.encode(sample())
    for position in range(len(data)):
        for bit in range(8):
            broken = bytearray(data)
            broken[position] ^= 1 << bit
            with pytest.raises(CorruptLog) as refused:
                catalogs.decode(bytes(broken), "data/catalog.json")
            assert refused.value.path == "data/catalog.json"


def test_a_cut_or_lengthened_file_is_noticed() -> None:
    data = catalogs.encode(sample())
    for length in range(len(data)):
        with pytest.raises(CorruptLog):
            catalogs.decode(data[:length], "c")
    for more in (b"\n", b" ", b"}", b"\0", data):
        with pytest.raises(CorruptLog):
            catalogs.decode(data + more, "c")


def test_a_newer_version_is_refused_by_name() -> None:
    with pytest.raises(NewerVersion, match="it has version 2, and this foldlog knows versions up to 1"):
        catalogs.decode(checksummed('{"version":2,"directory_id":"x","topics":{}'), "c")


def test_a_right_checksum_does_not_excuse_wrong_content() -> None:
    good_id = "12345678-1234-1234-1234-123456789abc"
    topic = '{"id":"x","config":%s,"partitions":[0],"growths":[]}'
    for text in (
        '{"version":1',
        '{"version":1,"directory_id":"not a uuid","topics":{}',
        f'{{"version":1,"directory_id":"{good_id}","topics":[]',
        f'{{"version":1,"directory_id":"{good_id}","topics":{{"../up":{topic % "{}"}}}',
        f'{{"version":1,"directory_id":"{good_id}","topics":{{"a":{topic % json.dumps({"no.such": "1"})}}}',
        f'{{"version":1,"directory_id":"{good_id}","topics":{{"a":7}}',
    ):
        with pytest.raises(NewerVersion, match="its checksum is right"):
            catalogs.decode(checksummed(text), "c")


def test_free_slots_are_the_lowest_that_nobody_has() -> None:
    catalog = sample()
    assert catalog.free_slots(2) == [4, 5]
    assert catalog.slot_count() == 4
    assert catalog.without_topics(["orders"]).free_slots(3) == [0, 1, 4]
    assert Catalog.empty().slot_count() == 0


def test_a_growth_remembers_where_the_older_partitions_ended() -> None:
    topic = CatalogTopic("a", "f" * 32, TopicConfig.parse({}), (5,)).grown([6, 7], [100]).grown([9], [100, 3, 4])
    assert topic.slots == (5, 6, 7, 9)
    assert topic.partition_count == 4
    assert topic.growths == (Growth(3, (100,)), Growth(4, (100, 3, 4)))
