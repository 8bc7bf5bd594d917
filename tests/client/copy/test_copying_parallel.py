"""Partitions of a copy go at the same time where a cluster is one of the sides, and are compared at the same time; an
error in one ends all of them, and the copy can be gone on with."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import foldlog
from client.copy.copies import Stopped, contents, copy, ignored
from foldlog.client.copy import parallel
from foldlog.client.copy.check import CopyVerdict, compare
from foldlog.client.copy.cluster import ClusterTarget
from foldlog.client.copy.copying import Copying, Pair
from foldlog.client.copy.directory import DirectoryTarget
from foldlog.client.copy.offsets import CopyPoint
from foldlog.client.copy.sides import Side
from foldlog.client.copy.targets import Copied, CopySpan, OnProgress, Resume, Route
from foldlog.testing import KafkaBroker

PARTITIONS = 4


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker.launch() as running:
        yield running


@pytest.fixture
def cluster(broker: KafkaBroker) -> Iterator[foldlog.Log]:
    with foldlog.connect(f"kafka://{broker}") as log:
        yield log


@pytest.fixture
def directory() -> Iterator[foldlog.Log]:
    with foldlog.open(":memory:", background=False) as log:
        yield log


def fill(log: foldlog.Log, topic: str) -> None:
    log.create_topic(topic, partitions=PARTITIONS)
    for number in range(40):
        log.append(topic, b"%d" % number, partition=number % PARTITIONS)


def meeting(monkeypatch: pytest.MonkeyPatch, kind: type[ClusterTarget | DirectoryTarget]) -> list[int]:
    """Nobody begins with a partition before all of them are begun with: one after the other would wait in vain."""
    everybody = threading.Barrier(PARTITIONS, timeout=60)
    begun: list[int] = []
    copy_one = kind.copy

    def together(
        self: ClusterTarget | DirectoryTarget, source: Side, span: CopySpan, resume: Resume, on_progress: OnProgress
    ) -> Copied:
        begun.append(span.route.partition)
        everybody.wait()
        return copy_one(self, source, span, resume, on_progress)  # type: ignore[arg-type]

    monkeypatch.setattr(kind, "copy", together)
    return begun


def test_partitions_go_to_a_cluster_and_back_at_the_same_time(
    cluster: foldlog.Log, directory: foldlog.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(directory, "together")
    there = meeting(monkeypatch, ClusterTarget)
    assert copy(directory, cluster, "together").records == 40
    back = meeting(monkeypatch, DirectoryTarget)
    with foldlog.open(":memory:", background=False) as again:
        assert copy(cluster, again, "together").records == 40
        for number in range(PARTITIONS):
            assert contents(again, "together", number) == contents(directory, "together", number)
    assert sorted(there) == sorted(back) == list(range(PARTITIONS))


def test_an_error_in_one_ends_all_and_the_copy_goes_on_later(cluster: foldlog.Log, directory: foldlog.Log) -> None:
    fill(directory, "broken.off")
    told = 0

    def on_progress(offsets: int, size_bytes: int) -> None:
        nonlocal told
        told += 1
        if told == 7:
            raise Stopped

    with pytest.raises(Stopped):
        copy(directory, cluster, "broken.off", on_progress=on_progress)
    assert told == 7  # nobody has gone on after it
    assert [one.name for one in threading.enumerate() if one.name.startswith("foldlog-copy")] == []
    copy(directory, cluster, "broken.off", on_progress=ignored)
    for number in range(PARTITIONS):
        assert contents(cluster, "broken.off", number) == contents(directory, "broken.off", number)


@pytest.mark.parametrize("is_over_network", [True, False])
def test_partitions_are_compared_at_the_same_time_and_every_offset_is_told_once(
    cluster: foldlog.Log, directory: foldlog.Log, is_over_network: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody begins before all have begun."""
    everybody = threading.Barrier(PARTITIONS, timeout=60)
    told: list[int] = []
    telling = threading.Lock()

    def compare_together(
        source: Side, target: Side, route: Route, copied: Copied, on_progress: OnProgress, since: CopyPoint | None
    ) -> CopyVerdict:
        everybody.wait()
        return compare(source, target, route, copied, on_progress, since)

    def on_progress(offsets: int, size_bytes: int) -> None:
        assert telling.acquire(blocking=False), "two told of progress at the same time"
        told.append(offsets)
        telling.release()

    monkeypatch.setattr(parallel, "compare", compare_together)
    fill(directory, "compared")
    with (
        foldlog.open(":memory:", background=False) as another,
        Copying(directory, cluster if is_over_network else another, [Pair("compared", "compared")]) as copying,
    ):
        copying.prepare()
        copies = copying.copy_all(ignored)
        verdicts = copying.check_all(copies, on_progress)
        assert list(verdicts) == list(copies)
        assert [(one.records, one.is_same) for one in verdicts.values()] == [(10, True)] * PARTITIONS
        assert sum(told) == 40


def test_an_error_in_one_comparison_ends_all_of_them(cluster: foldlog.Log, directory: foldlog.Log) -> None:
    told = 0

    def on_progress(offsets: int, size_bytes: int) -> None:
        nonlocal told
        told += 1
        if told == 2:
            raise Stopped

    fill(directory, "half.compared")
    with Copying(directory, cluster, [Pair("half.compared", "half.compared")]) as copying:
        copying.prepare()
        copies = copying.copy_all(ignored)
        with pytest.raises(Stopped):
            copying.check_all(copies, on_progress)
    assert told == 2
    assert [one.name for one in threading.enumerate() if one.name.startswith("foldlog-copy")] == []
