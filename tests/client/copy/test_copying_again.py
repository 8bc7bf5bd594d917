"""A copy that was stopped goes on, and nothing is doubled or left out: after an error, after kill -9, with requests
that arrive late, with a source that is written, compacted and trimmed meanwhile, and on a model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import foldlog
from client.copy.copies import OFTEN, Stopped, contents, copy, ignored, kill_after, note_often, stopping_after
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.client.backends.directory import is_directory
from foldlog.client.copy.batches import as_sent
from foldlog.client.copy.cluster import ClusterTarget
from foldlog.client.copy.copying import Copying, Pair
from foldlog.client.copy.groups import translate
from foldlog.client.copy.notes import Note
from foldlog.client.copy.offsets import CopyPoint, OffsetMap
from foldlog.client.copy.sides import batches, open_side
from foldlog.client.copy.targets import Route
from foldlog.client.groups import COPY_GROUP
from foldlog.client.positions import TopicPartition
from foldlog.client.wire.produce import ClusterProducer
from foldlog.errors import CopyConflict, OutOfOrderSequence
from foldlog.records.batch import MAX_INT32
from foldlog.records.loops import pack
from foldlog.testing import KafkaBroker


@pytest.fixture(scope="module", autouse=True)
def often() -> Iterator[None]:
    """Copies in this module note their progress after every few batches."""
    before = [getattr(module, name) for module, name in OFTEN]
    note_often()
    yield
    for (module, name), value in zip(OFTEN, before, strict=True):
        setattr(module, name, value)


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker.launch() as running:
        yield running


@pytest.fixture(scope="module")
def cluster(broker: KafkaBroker) -> Iterator[foldlog.Log]:
    with foldlog.connect(f"kafka://{broker}") as log:
        yield log


@pytest.fixture
def source(tmp_path: Path) -> Iterator[foldlog.Log]:
    with foldlog.open(tmp_path / "source", background=False) as log:
        yield log


new_name = map("orders-{}".format, itertools.count()).__next__
"""The tests share a broker, and each has a topic of its own."""


def fill(log: foldlog.Log, name: str, batches: int = 20, trimmed: int = 3) -> None:
    log.create_topic(name)
    for number in range(batches):
        with log.producer(linger_ms=1000) as producer:
            for record in range(5):
                producer.send(name, f"{number}.{record}".encode(), b"k", timestamp_ms=number + 1)
    log.delete_records(name, {0: trimmed})


def values(log: foldlog.Log, name: str) -> list[bytes | None]:
    return [value for _, _, value, _ in contents(log, name).values()]


@pytest.mark.parametrize("where", ["directory", "broker"])
def test_a_copy_that_stops_again_and_again_arrives(
    where: str, source: foldlog.Log, cluster: foldlog.Log, tmp_path: Path
) -> None:
    name = new_name()
    fill(source, name)
    with foldlog.open(tmp_path / "target") as directory:
        target: foldlog.Log = directory if where == "directory" else cluster
        for steps in (0, 1, 2, 7):
            with pytest.raises(Stopped):
                copy(source, target, name, on_progress=stopping_after(steps))
            arrived = values(target, name)  # looked at once: what was on its way may still come
            assert arrived == values(source, name)[: len(arrived)]
        copy(source, target, name)
        assert values(target, name) == values(source, name)


@pytest.mark.parametrize("where", ["directory", "broker"])
def test_a_copy_that_is_killed_goes_on_without_doubling(
    where: str, source: foldlog.Log, broker: KafkaBroker, cluster: foldlog.Log, tmp_path: Path
) -> None:
    name = new_name()
    fill(source, name)
    place = str(tmp_path / "target") if where == "directory" else f"kafka://{broker}"
    for steps in (6, 9):
        kill_after(source.path, place, name, steps)
    if where == "broker":
        done = copy(source, cluster, name)
        assert values(cluster, name) == values(source, name)
    else:
        with foldlog.open(place) as directory:
            done = copy(source, directory, name)
            assert contents(directory, name) == contents(source, name)
    assert 0 < done.records < len(values(source, name)), "both that were killed have left something"


def interrupted(source: foldlog.Log, cluster: foldlog.Log, name: str) -> None:
    """What it had on its way arrives before this returns: what comes later is the test's own."""
    close = ClusterProducer.close

    def close_once_settled(producer: ClusterProducer) -> None:
        producer.flush()
        close(producer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClusterProducer, "close", close_once_settled)
        with pytest.raises(Stopped):
            copy(source, cluster, name, on_progress=stopping_after(4))


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_request_of_the_killed_copy_that_arrives_late_does_not_double_its_records(
    is_whole: bool, source: foldlog.Log, cluster: foldlog.Log
) -> None:
    name = new_name()
    fill(source, name)
    interrupted(source, cluster, name)
    with Copying(source, cluster, [Pair(name, name)]) as copying:
        (plan,) = copying.plan()
        at, numbers = plan.resume.at, plan.resume.numbers
        assert numbers is not None
        assert isinstance(copying.target, ClusterTarget)
        data, header = next(batches(copying.source, name, 0, at.source, plan.span.stop))
        (late,) = as_sent(data, header, at.source, 1 << 20)
        if not is_whole:  # of another split: only its first record
            first = contents(source, name)[at.source]
            late = pack([first])
        sequences = {(name, 0): (at.target - numbers.since) & MAX_INT32}
        with copying.target.side.cluster.producer(numbers[:2], sequences) as killed:
            killed.send(name, 0, late)
        if is_whole:
            copying.copy(plan, ignored)
        else:
            with pytest.raises(OutOfOrderSequence):
                copying.copy(plan, ignored)
    copy(source, cluster, name)
    assert values(cluster, name) == values(source, name)


def test_a_topic_that_the_stopped_copy_was_still_making_is_the_copys(
    source: foldlog.Log, cluster: foldlog.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request of the one before wins between the question whether there is a topic and its making. One with more
    partitions than the source is a conflict, as ever."""
    make = cluster.create_topic
    for name, partitions in ((new_name(), 1), (new_name(), 2)):
        fill(source, name)

        def make_second(topic: str, partitions: int, *, made: int = partitions) -> object:
            make(topic, partitions=made)
            return make(topic, partitions=partitions)

        monkeypatch.setattr(cluster, "create_topic", make_second)
        with Copying(source, cluster, [Pair(name, name)]) as copying:
            if partitions == 1:
                assert [one.is_made for one in copying.prepare()] == [False]
                copying.copy_all(ignored)
                assert values(cluster, name) == values(source, name)
            else:
                with pytest.raises(CopyConflict, match="has 2 partitions, and its source 1"):
                    copying.prepare()


def test_without_its_notes_a_copy_is_told_by_its_records(source: foldlog.Log, cluster: foldlog.Log) -> None:
    whole, trimmed = new_name(), new_name()
    fill(source, whole, trimmed=0)
    fill(source, trimmed, trimmed=3)
    for name in (whole, trimmed):
        interrupted(source, cluster, name)
    cluster.delete_group(COPY_GROUP)
    copy(source, cluster, whole)
    assert contents(cluster, whole) == contents(source, whole)
    with pytest.raises(CopyConflict):
        copy(source, cluster, trimmed)


def test_without_its_notes_a_copy_at_other_offsets_is_not_taken_for_one_at_the_same(
    source: foldlog.Log, cluster: foldlog.Log
) -> None:
    """Records that repeat are the same at many offsets. If the source has no holes, it never had any; and where records
    differ, the last one tells it."""

    def append(name: str, numbers: range, period: int) -> None:
        for number in numbers:
            source.append(name, str(number % period), timestamp_ms=1 + number % period)

    mapped, dense, trimmed = new_name(), new_name(), new_name()
    for name, period in ((mapped, 5), (dense, 5), (trimmed, 100)):
        source.create_topic(name)
        append(name, range(40), period)
        if name == mapped:
            source.delete_records(name, {0: 10})
        copy(source, cluster, name)
        append(name, range(40, 60), period)
    source.delete_records(trimmed, {0: 10})
    cluster.delete_group(COPY_GROUP)
    before = cluster.offsets(mapped)
    with pytest.raises(CopyConflict, match="as far as one can tell"):
        copy(source, cluster, mapped)
    assert cluster.offsets(mapped) == before == {0: (0, 30)}
    assert copy(source, cluster, dense).records == 20
    assert contents(cluster, dense) == contents(source, dense)
    assert copy(source, cluster, trimmed).records == 20
    assert list(contents(cluster, trimmed)) == list(range(60))


def test_somebody_else_who_writes_to_the_copy_is_noticed(source: foldlog.Log, cluster: foldlog.Log) -> None:
    during, before = new_name(), new_name()
    for name in (during, before):
        fill(source, name)
    with pytest.raises(CopyConflict, match="somebody else writes to"):
        copy(source, cluster, during, on_progress=lambda offsets, size_bytes: cluster.append(during, "mine"))
    interrupted(source, cluster, before)
    cluster.append(before, "mine")
    with pytest.raises(CopyConflict, match="has other records than the source"):
        copy(source, cluster, before)


def test_records_that_expire_before_their_turn_are_passed_over(
    source: foldlog.Log, cluster: foldlog.Log, tmp_path: Path
) -> None:
    with foldlog.open(tmp_path / "target") as directory:
        targets: list[foldlog.Log] = [directory, cluster]
        for target in targets:
            name = new_name()
            fill(source, name)
            with pytest.raises(Stopped):
                copy(source, target, name, on_progress=stopping_after(4))
            arrived = values(target, name)  # at least: what was on its way may still come
            assert arrived
            before = values(source, name)
            source.delete_records(name, {0: 50})
            rest = values(source, name)
            copy(source, target, name)
            found = values(target, name)
            assert found[-len(rest) :] == rest
            expired = found[: -len(rest)]
            assert len(expired) >= len(arrived)
            assert expired == before[: len(expired)]


def test_what_arrived_and_is_gone_from_the_source_by_now_is_no_place_to_go_on(
    source: foldlog.Log, cluster: foldlog.Log
) -> None:
    """A killed copy has noted two of six records that arrived, and the source compacts the last three: where they were
    is not known exactly, and whoever stood before them does not miss them."""
    name = new_name()
    source.create_topic(name, config={"cleanup.policy": "compact", "foldlog.segment.records": 3})
    for number in range(6):
        source.append(name, str(number), key=f"k{number}", timestamp_ms=number + 1)
    copy(source, cluster, name)
    with Copying(source, cluster, [Pair(name, name)]) as copying:
        assert isinstance(copying.target, ClusterTarget)
        place = TopicPartition(name, 0)
        note = Note.from_json(cluster.committed(COPY_GROUP)[place].metadata, 6)
        assert note is not None
        early = OffsetAndMetadata(2, metadata=note._replace(at=CopyPoint(2, 2)).to_json())
        copying.target.side.cluster.commit_offsets(COPY_GROUP, {place: early})
    for number in range(6, 13):
        source.append(name, str(number), key=f"k{3 + number % 3}", timestamp_ms=number + 1)
    source.compact(name)
    ((route, one),) = copy(source, cluster, name).copied.items()
    assert values(cluster, name)[:6] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    places = {offset: translate(open_side(source), route, one.offsets, offset) for offset in range(7)}
    assert all(place.earliest <= offset <= place.latest for offset, place in places.items()), places
    assert places[1].is_exact
    assert not places[5].is_exact


# --- a model --------------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 12)),
        st.tuples(st.just("compact"), st.just(0)),
        st.tuples(st.just("trim"), st.integers(1, 9)),
        st.tuples(st.just("stop after"), st.integers(0, 6)),
        st.tuples(st.just("copy"), st.just(0)),
    ),
    min_size=2,
    max_size=12,
)
CONFIG = {"cleanup.policy": "compact", "foldlog.segment.records": 7, "segment.bytes": 1 << 20}


class Model:
    """Records with serial numbers for values, and what has to hold of their copy."""

    def __init__(self, source: foldlog.Log, target: foldlog.Log, name: str) -> None:
        self.source, self.target, self.name = source, target, name
        self.serial = itertools.count()
        source.create_topic(name, config=CONFIG)

    def run(self, steps: list[tuple[str, int]]) -> None:
        for step, amount in [*steps, ("append", 1), ("copy", 0)]:
            if step == "append":
                with self.source.producer(linger_ms=1000) as producer:
                    for _ in range(amount):
                        number = next(self.serial)
                        key = f"k{number % 4}".encode()
                        producer.send(self.name, str(number).encode(), key, timestamp_ms=number + 1)
            elif step == "compact":
                self.source.compact(self.name)
            elif step == "trim":
                start, end = self.source.offsets(self.name)[0]
                self.source.delete_records(self.name, {0: start + (end - start) * amount // 10})
            else:
                self.copied(amount if step == "stop after" else None)

    def copied(self, stop_after: int | None) -> None:
        """Copy, or a part of it."""
        try:
            on_progress = ignored if stop_after is None else stopping_after(stop_after)
            done = copy(self.source, self.target, self.name, on_progress=on_progress)
        except Stopped:
            self.hold()
        else:
            assert set(values(self.source, self.name)) <= set(self.hold())
            ((route, one),) = done.copied.items()
            self.hold_places(route, one.offsets)

    def hold_places(self, route: Route, offsets: OffsetMap) -> None:
        """No place of the copy is said to be another one than it is, whatever the source has lost since."""
        serials = {place: int(value or b"") for place, (_, _, value, _) in contents(self.target, self.name).items()}
        end = self.target.offsets(self.name)[0][1]
        for offset in range(self.source.offsets(self.name)[0][1] + 1):
            behind = max((place + 1 for place, serial in serials.items() if serial < offset), default=0)
            before = min((place for place, serial in serials.items() if serial >= offset), default=end)
            found = translate(open_side(self.source), route, offsets, offset)
            assert found.earliest <= before, f"offset {offset} is {found}, and records from {before} on are missed"
            assert found.latest >= behind, f"offset {offset} is {found}, and records from {found.latest} on are doubled"

    def hold(self) -> list[bytes | None]:
        """Whatever happened: in order, nothing twice, and at the offset it had where offsets are kept."""
        there = contents(self.target, self.name)
        serials = [int(value or b"") for _, _, value, _ in there.values()]
        assert serials == sorted(set(serials))
        if is_directory(self.target):
            assert list(there) == serials, "a record's serial number is its offset in the source"
        return [value for _, _, value, _ in there.values()]


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_a_directory_holds_what_the_source_held_whatever_happens_in_between(steps: list[tuple[str, int]]) -> None:
    with (
        foldlog.open(":memory:", background=False) as source,
        foldlog.open(":memory:", background=False) as target,
    ):
        Model(source, target, "orders").run(steps)


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a smaller example takes minutes to find
)
@given(STEPS)
def test_a_broker_holds_what_the_source_held_whatever_happens_in_between(
    cluster: foldlog.Log, steps: list[tuple[str, int]]
) -> None:
    with foldlog.open(":memory:", background=False) as source:
        Model(source, cluster, new_name()).run(steps)
