"""What a cluster gives is what the log holds: read over the wire and from the same log, and compared.

All codecs, headers, tombstones, records without key, gaps that compaction left, records deleted from the head, batches
larger than a fetch; any range, with fetches of any size. Transactions, old versions of the protocol and answers that
end in the middle of a batch come from a simulated cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.wire.simulated_cluster import SimulatedCluster
from foldlog.client.wire.cluster import Cluster
from foldlog.client.wire.fetch import Fetched
from foldlog.errors import (
    InvalidTopicName,
    OffsetOutOfRange,
    RefusedByBroker,
    TopicExists,
    UnknownGroup,
    UnknownPartition,
    UnknownTopic,
)
from foldlog.records.loops import Record, control_batch, decode, pack
from foldlog.testing import KafkaBroker
from foldlog.wire.messages.fetch import FetchRequest, FetchResponse
from foldlog.wire.schema import Request, Response

RECORDS = 60
QUICK = {"retry.backoff.ms": "1", "fetch.max.wait.ms": "1"}
"""Nothing that is waited for in these tests takes time."""


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """`mixed` has every kind of record in batches of every codec; `held` is compacted, with gaps; `cut` begins late."""
    with KafkaBroker.launch(path=tmp_path_factory.mktemp("mixed")) as broker:
        log = broker.log
        log.create_topic("mixed", 2)
        for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd") * (RECORDS // 10)):
            with log.producer(compression=codec) as producer:
                for which in range(2):
                    producer.send(
                        "mixed",
                        None if number % 3 == 0 else b"v%d" % number * number,
                        key=None if which else b"key %d" % (number % 4),
                        headers=[("h", b"1"), ("h", b"")] if number % 2 else (),
                        timestamp_ms=1_000 + 10 * number,
                        partition=0,
                    )
        settings = {"cleanup.policy": "compact", "foldlog.segment.records": 4, "min.cleanable.dirty.ratio": 0}
        log.create_topic("held", config=settings)
        for number in range(30):
            log.append("held", str(number), key=f"k{number % 3}" if number < 20 else f"l{number % 2}")
        log.compact("held")
        log.create_topic("cut")
        for number in range(10):
            log.append("cut", str(number))
        log.delete_records("cut", {0: 4})
        log.create_topic("empty", 3)
        log.create_topic("wide")
        for size in (10, 400_000, 10, 900_000):
            log.append("wide", b"w" * size)
        yield broker


@pytest.fixture(scope="module")
def cluster(mixed: KafkaBroker) -> Iterator[Cluster]:
    with Cluster.open(mixed, QUICK) as opened:
        yield opened


def read(cluster: Cluster, topic: str, start: int, stop: int, partition: int = 0) -> list[Record]:
    found: list[Record] = []
    offset = start
    for fetched in cluster.fetch_range(topic, partition, start, stop):
        for piece in fetched.pieces:
            found += decode(piece, topic, partition, start_offset=offset, end_offset=stop)[0]
        offset = fetched.next_offset
    return found


# --- records ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["mixed", "held", "cut", "wide"])
def test_a_whole_topic_is_what_the_log_holds(mixed: KafkaBroker, cluster: Cluster, topic: str) -> None:
    bounds = cluster.bounds(topic)[0]
    expected = list(mixed.log.read(topic, 0))
    assert expected
    assert read(cluster, topic, bounds.start, bounds.end) == expected


@given(data=st.data())
def test_any_range_in_fetches_of_any_size_is_what_the_log_holds(mixed: KafkaBroker, data: st.DataObject) -> None:
    topic = data.draw(st.sampled_from(["mixed", "held", "cut"]))
    fetch_bytes = data.draw(st.sampled_from([1, 100, 300, 1000, 1 << 20]))
    (first, end) = mixed.log.offsets(topic)[0]
    start = data.draw(st.integers(first, end))
    stop = data.draw(st.integers(start, end))
    with Cluster.open(mixed, {**QUICK, "max.partition.fetch.bytes": str(fetch_bytes)}) as cluster:
        assert read(cluster, topic, start, stop) == list(mixed.log.read(topic, 0, start=start, stop=stop))


def test_a_batch_larger_than_a_fetch_comes_whole(mixed: KafkaBroker) -> None:
    with Cluster.open(mixed, {**QUICK, "max.partition.fetch.bytes": "1000", "fetch.max.bytes": "1000"}) as cluster:
        sizes = [len(record.value) for record in read(cluster, "wide", 0, 4)]
    assert sizes == [10, 400_000, 10, 900_000]


def test_one_fetch_gives_about_as_much_as_was_asked_for(cluster: Cluster) -> None:
    first = cluster.fetch("wide", 0, 0, max_bytes=1)
    assert (first.next_offset, first.end, first.log_start_offset) == (1, 4, 0)
    assert cluster.fetch("wide", 0, first.next_offset).next_offset == 3
    assert cluster.fetch("wide", 0, 4) == Fetched((), 4, 4, 0)


def test_a_range_that_is_left_early_leaves_the_cluster_usable(cluster: Cluster) -> None:
    answers = cluster.fetch_range("wide", 0, 0, 4)
    assert next(answers).next_offset == 3
    assert cluster.bounds("wide")[0].end == 4  # while an answer is on its way to the reader
    answers.close()
    assert len(read(cluster, "wide", 0, 4)) == 4


def test_two_ranges_are_read_in_turns(mixed: KafkaBroker) -> None:
    with Cluster.open(mixed, {**QUICK, "max.partition.fetch.bytes": "300"}) as cluster:
        ends = [
            (one.next_offset, other.next_offset)
            for one, other in zip(
                cluster.fetch_range("mixed", 0, 0, 30), cluster.fetch_range("mixed", 0, 0, 30), strict=True
            )
        ]
    assert len(ends) > 3
    assert all(one == other for one, other in ends)


@pytest.mark.parametrize(
    ("topic", "start", "stop", "wanted"), [("cut", 3, 8, 3), ("cut", 4, 11, 10), ("empty", 0, 1, 0)]
)
def test_a_range_that_the_log_does_not_hold_is_refused_before_anything_comes(
    cluster: Cluster, topic: str, start: int, stop: int, wanted: int
) -> None:
    with pytest.raises(OffsetOutOfRange) as refused:
        next(cluster.fetch_range(topic, 0, start, stop))
    held = cluster.bounds(topic)[0]
    assert (refused.value.wanted, refused.value.start, refused.value.end) == (wanted, held.start, held.end)


def test_an_empty_range_asks_nothing(cluster: Cluster) -> None:
    assert list(cluster.fetch_range("no such topic", 0, 5, 5)) == []


def test_what_is_left_of_a_compacted_topic_may_end_before_its_end() -> None:
    with SimulatedCluster() as simulated, Cluster.open(simulated.address(), QUICK) as cluster:
        (partition,) = simulated.create("held")
        simulated.topics["held"].config["cleanup.policy"] = "compact,delete"
        partition.append(pack([(1, b"k", b"v", ())]))
        partition.end = 9
        assert [record.offset for record in read(cluster, "held", 0, 9)] == [0]


# --- topics, offsets, groups ------------------------------------------------------------------------------------------


def test_topics_are_those_of_the_log(mixed: KafkaBroker, cluster: Cluster) -> None:
    assert cluster.topics() == ["cut", "empty", "held", "mixed", "wide"]
    topic = cluster.topic("empty")
    assert topic.topic_id.hex() == mixed.log.topic("empty").topic_id
    assert topic.partition_count == cluster.partition_count("empty") == 3


def test_an_unknown_topic_is_told_with_those_that_there_are(cluster: Cluster) -> None:
    for ask in (cluster.topic, cluster.bounds, cluster.topic_config, lambda name: read(cluster, name, 0, 1)):
        with pytest.raises(UnknownTopic, match="'orders'; there are cut, empty, held, mixed, wide"):
            ask("orders")
    with pytest.raises(InvalidTopicName):
        cluster.topic("no/name")


def test_an_unknown_partition_is_told(cluster: Cluster) -> None:
    with pytest.raises(UnknownPartition, match="has no partition 7"):
        read(cluster, "mixed", 0, 1, partition=7)
    with pytest.raises(UnknownPartition, match="has no partition 7"):
        cluster.offsets_at("mixed", {7: 0})


def test_bounds_and_offsets_by_time_are_those_of_the_log(mixed: KafkaBroker, cluster: Cluster) -> None:
    for topic in cluster.topics():
        expected = mixed.log.offsets(topic)
        assert {number: (one.start, one.end) for number, one in cluster.bounds(topic).items()} == expected
    assert cluster.offsets_at("mixed", {0: 1_000, 1: 5}) == {0: 0, 1: None}
    assert cluster.offsets_at("mixed", {0: 1_011}) == {0: 4}
    assert cluster.offsets_at("mixed", {0: -1}) == {0: 0}
    assert cluster.offsets_at("mixed", {0: 9_999_999}) == {0: None}


def test_settings_of_a_topic_include_defaults(cluster: Cluster) -> None:
    assert cluster.topic_config("held", ["cleanup.policy"]) == {"cleanup.policy": "compact"}
    assert cluster.topic_config("mixed")["retention.ms"] == "-1"


def test_leader_epochs_end_where_the_log_says(cluster: Cluster) -> None:
    assert cluster.epoch_end("cut", 0, 0) == (0, 10)
    assert cluster.epoch_end("cut", 0, 5) == (-1, -1)


def test_topics_are_made_once(kafka_broker: KafkaBroker) -> None:
    with Cluster.open(kafka_broker, QUICK) as cluster:
        cluster.create_topic("orders", 3, {"cleanup.policy": "compact"})
        assert kafka_broker.log.topic("orders").partition_count == 3
        with pytest.raises(TopicExists):
            cluster.create_topic("orders")
        cluster.ensure_topic("orders", 5)
        assert cluster.partition_count("orders") == 3
        cluster.ensure_topic("others")
        assert cluster.topics() == ["orders", "others"]


def test_a_group_without_members_has_the_offsets_that_were_committed(kafka_broker: KafkaBroker) -> None:
    kafka_broker.create_topic("orders", 2)
    with Cluster.open(kafka_broker, QUICK) as cluster:
        cluster.commit("fold.orders", "orders", {0: 7, 1: 9})
        cluster.commit("fold.orders", "orders", {})
        committed = kafka_broker.log.committed("fold.orders")
        assert {key[1]: place.offset for key, place in committed.items()} == {0: 7, 1: 9}
        with pytest.raises(UnknownTopic):
            cluster.commit("fold.orders", "others", {0: 1})
        cluster.delete_group("fold.orders")
        with pytest.raises(UnknownGroup):
            cluster.delete_group("fold.orders")


# --- transactions -----------------------------------------------------------------------------------------------------


def transactional(producer_id: int, *values: bytes) -> bytearray:
    return pack([(1, None, value, ()) for value in values], producer_id=producer_id, producer_epoch=0,
                base_sequence=0, transactional=True)  # fmt: skip


def marker(producer_id: int, *, commit: bool) -> bytearray:
    return control_batch(int(commit), 0, producer_id, 0, 1)


def values_of(simulated: SimulatedCluster, stop: int, properties: Mapping[str, str]) -> list[bytes]:
    with Cluster.open(simulated.address(), {**QUICK, **properties}) as cluster:
        return [record.value for record in read(cluster, "orders", 0, stop)]


def test_aborted_transactions_are_left_out_for_who_reads_what_is_committed() -> None:
    with SimulatedCluster() as simulated:
        (partition,) = simulated.create("orders")
        for batch in (
            transactional(1, b"a1", b"a2"),  # 0, 1: aborted
            transactional(2, b"c1"),  # 2: committed
            pack([(1, None, b"plain", ())]),  # 3
            transactional(1, b"a3"),  # 4: aborted
            marker(1, commit=False),  # 5
            transactional(1, b"c2"),  # 6: committed, the same producer
            marker(2, commit=True),  # 7
            marker(1, commit=True),  # 8
            transactional(3, b"open"),  # 9
        ):
            partition.append(batch)
        partition.aborted = [(1, 0, 5)]
        partition.stable_end = 9
        everything = [b"a1", b"a2", b"c1", b"plain", b"a3", b"c2", b"open"]
        committed = {"isolation.level": "read_committed"}
        assert values_of(simulated, 10, {}) == everything
        assert values_of(simulated, 9, committed) == [b"c1", b"plain", b"c2"]
        assert values_of(simulated, 9, {**committed, "max.partition.fetch.bytes": "1"}) == [b"c1", b"plain", b"c2"]
        with pytest.raises(OffsetOutOfRange, match="0 to 9"):
            values_of(simulated, 10, committed)
        with Cluster.open(simulated.address(), {**QUICK, **committed}) as cluster:
            assert cluster.bounds("orders")[0].end == 9


# --- other brokers ----------------------------------------------------------------------------------------------------

OLD = {1: (0, 11), 2: (0, 5), 3: (0, 8), 8: (0, 7), 10: (0, 2), 22: (0, 1), 0: (0, 7), 19: (0, 4), 23: (0, 3)}
"""What Kafka 2.2 serves: topics have no ids."""

OLDEST = {1: (0, 4), 2: (0, 1), 3: (0, 4), 8: (0, 2), 10: (0, 0), 22: (0, 0), 0: (0, 3), 19: (0, 2)}
"""The oldest that has idempotent producers: there are no leader epochs either."""


@pytest.mark.parametrize("versions", [OLD, OLDEST], ids=["old", "oldest"])
def test_older_brokers_are_spoken_to_in_their_versions(versions: dict[int, tuple[int, int]]) -> None:
    with SimulatedCluster(versions=versions) as simulated, Cluster.open(simulated.address(), QUICK) as cluster:
        simulated.create("orders", topic_id=bytes(16))
        with cluster.producer() as producer:
            for value in (b"a", b"b", b"c"):
                producer.send("orders", 0, pack([(1, None, value, ())]))
        assert [record.value for record in read(cluster, "orders", 0, 3)] == [b"a", b"b", b"c"]
        assert cluster.topic("orders").topic_id == bytes(16)
        assert cluster.bounds("orders")[0][:2] == (0, 3)
        cluster.commit("g", "orders", {0: 3})
        assert simulated.committed == {("g", "orders", 0): 3}
        cluster.ensure_topic("others", 2)
        assert cluster.partition_count("others") == 2


def test_a_broker_of_another_time_is_told_of_in_a_sentence() -> None:
    with SimulatedCluster(versions={1: (40, 50)}) as simulated, Cluster.open(simulated.address(), QUICK) as cluster:
        simulated.create("orders")
        with pytest.raises(RefusedByBroker, match="serves Fetch in versions 40 to 50"):
            read(cluster, "orders", 0, 1)


def test_batches_that_an_answer_cuts_off_are_asked_for_again() -> None:
    """Brokers end an answer in the middle of a batch, and older ones one that holds only the beginning of its first."""
    with SimulatedCluster() as simulated:
        (partition,) = simulated.create("orders")
        for number in range(6):
            partition.append(pack([(1, None, b"%d" % number * 50, ())]))
        size = len(partition.batches[0])
        everything = b"".join(partition.batches)

        def cut_off(node: int, request: Request) -> Response | None:
            if not isinstance(request, FetchRequest):
                return None
            wanted = request.topics[0].partitions[0]
            at = wanted.fetch_offset * size
            answer = simulated._fetch(node, request)
            assert isinstance(answer, FetchResponse)
            answer.responses[0].partitions[0].records = everything[at : at + wanted.partition_max_bytes]
            return answer

        simulated.interfere = cut_off
        for limit_bytes in (61, 100, size, size + 1, 2 * size + 30):
            expected = [b"%d" % number * 50 for number in range(6)]
            assert values_of(simulated, 6, {"max.partition.fetch.bytes": str(limit_bytes)}) == expected
