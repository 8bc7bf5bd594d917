"""Cut the power after every file operation of creating, growing, altering and deleting topics and committing offsets.

On every disk a cut could leave: it opens; each topic is as it was before the change under way or as it is after it,
never between; topics that are not being changed are whole, with every acknowledged record and commit; no partition is
refused; a topic can be created, written and committed again. Every 40th image is recovered on a disk that is cut in
turn. Planted bugs show that the cuts find what they are there to find.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from broker.small_broker import at, open_broker, read, write
from budgets import times
from foldlog.broker.broker import Broker
from foldlog.broker.topics import catalog as catalogs
from foldlog.broker.topics.catalog import Catalog, CatalogTopic
from foldlog.broker.topics.changes import NewTopic, TopicChanges
from foldlog.broker.topics.config import DEFAULT_CONFIG
from foldlog.broker.topics.directories import TopicDirectories
from foldlog.broker.topics.names import partition_directory
from foldlog.errors import CorruptLog
from foldlog.files.base import Files
from foldlog.testing.power_cuts import PowerCuts, Violation
from foldlog.testing.power_loss import DiskImage, PowerLossFiles

SHARE = 16
"""In `make test`, one image of so many. These histories are short, and a smaller share misses planted bugs."""

Shape = tuple[int, dict[str, str]]
"""How many partitions a topic has, and its settings."""


@dataclass(frozen=True)
class TopicState:
    """All there is to see of one topic."""

    topic_id: str
    shape: Shape
    values: list[list[bytes]]


State = dict[str, TopicState]


def state_of(broker: Broker) -> State:
    found: State = {}
    for name in broker.topics():
        topic = broker.topic(name)
        values = [read(broker, name, number) for number in range(topic.partition_count)]
        found[name] = TopicState(topic.topic_id, (topic.partition_count, dict(topic.config.settings)), values)
    return found


def commits_of(broker: Broker) -> dict[tuple[str, int], int]:
    return {key: committed.offset for key, committed in broker.committed("g").items()}


@dataclass
class Promises:
    """What the workload was told so far; and the topics it is changing now, with what each becomes; None: gone."""

    state: State = field(default_factory=dict)
    commits: dict[tuple[str, int], int] = field(default_factory=dict)
    changing: dict[str, Shape | None] = field(default_factory=dict)
    writing: bytes | None = None
    committing: tuple[tuple[str, int], int] | None = None
    version: int = 0

    def check(self, image: DiskImage) -> None:
        files = image.files()
        with open_broker(files) as broker:
            found = state_of(broker)
            for name in self.state.keys() | found.keys():
                if name not in self.changing:
                    assert found.get(name) == self.state.get(name), f"topic {name!r} changed"
            for name, becomes in self.changing.items():
                self._check_changing(name, becomes, found.get(name))
            if len(self.changing) > 1:
                are_there = {name in found for name in self.changing}
                assert len(are_there) == 1, "one replacement of the catalog makes, or deletes, all or none"
            self._check_commits(broker)
            assert not [warning for warning in broker.warnings() if "refused" in warning or "missing" in warning]
            self._go_on(broker)

    def _check_changing(self, name: str, becomes: Shape | None, found: TopicState | None) -> None:
        """It is as before or as after; and while it is the same topic, every record it was promised is there."""
        before = self.state.get(name)
        if found is None:
            assert before is None or becomes is None, f"topic {name!r} is gone"
            return
        is_same = before is not None and found.topic_id == before.topic_id
        allowed = [before.shape] if before is not None and is_same else []
        if becomes is not None:
            allowed.append(becomes)
        assert found.shape in allowed, f"topic {name!r} is {found.shape}, not one of {allowed}"
        promised = before.values if before is not None and is_same else ()
        for number, values in enumerate(found.values):
            kept = promised[number] if number < len(promised) else []
            written = [kept] if self.writing is None else [kept, [*kept, self.writing]]
            assert values in written, f"{name}-{number} holds {values}, not one of {written}"

    def _check_commits(self, broker: Broker) -> None:
        commits = commits_of(broker)
        for key in self.commits.keys() | commits.keys():
            if key[0] in self.changing:
                continue
            allowed = {self.commits.get(key)}
            if self.committing is not None and self.committing[0] == key:
                allowed.add(self.committing[1])
            assert commits.get(key) in allowed, f"commit of {key} is {commits.get(key)}, not one of {allowed}"

    def _go_on(self, broker: Broker) -> None:
        name = next(iter(self.changing), "later")
        if name in broker.topics():
            broker.delete_topic(name)
        broker.create_topic(name, 2)
        assert (name, 0) not in broker.committed("g")
        write(broker, name, 1, b"again")
        assert read(broker, name, 0) == []
        assert read(broker, name, 1) == [b"again"]
        broker.commit_offsets("g", {(name, 1): at(1)})
        assert commits_of(broker)[name, 1] == 1


class Workload:
    """Runs changes one after the other; each is promised once its call has returned."""

    def __init__(self, files: Files, promises: Promises) -> None:
        self.broker = open_broker(files)
        self.promises = promises

    def _change(self, changing: dict[str, Shape | None], call: Callable[[], object]) -> None:
        promises = self.promises
        promises.changing = changing
        promises.version += 1
        call()
        promises.state = state_of(self.broker)
        promises.commits = commits_of(self.broker)
        promises.changing, promises.writing = {}, None
        promises.version += 1

    def create(self, topic: str, partitions: int, **settings: str) -> None:
        config = {name.replace("_", "."): value for name, value in settings.items()}
        self._change({topic: (partitions, config)}, lambda: self.broker.create_topic(topic, partitions, config))

    def grow(self, topic: str, partitions: int) -> None:
        becomes = (partitions, self.promises.state[topic].shape[1])
        self._change({topic: becomes}, lambda: self.broker.grow_topic(topic, partitions))

    def alter(self, topic: str, **settings: str) -> None:
        config = {name.replace("_", "."): value for name, value in settings.items()}
        count, old = self.promises.state[topic].shape
        self._change({topic: (count, {**old, **config})}, lambda: self.broker.alter_topic(topic, config))

    def delete(self, topic: str) -> None:
        self._change({topic: None}, lambda: self.broker.delete_topic(topic))

    def create_together(self, **partitions: int) -> None:
        wanted = [NewTopic(name, count, DEFAULT_CONFIG) for name, count in partitions.items()]
        self._change(
            {name: (count, {}) for name, count in partitions.items()}, lambda: self.broker.create_topics(wanted)
        )
        assert set(partitions) <= set(self.promises.state)

    def delete_together(self, *topics: str) -> None:
        self._change(dict.fromkeys(topics), lambda: self.broker.delete_topics(topics))
        assert not set(topics) & set(self.promises.state)

    def write(self, topic: str, number: int, value: bytes, key: bytes = b"k") -> None:
        self.promises.writing = value
        shape = self.promises.state[topic].shape
        self._change({topic: shape}, lambda: write(self.broker, topic, number, value, key=key))

    def commit(self, topic: str, number: int, offset: int) -> None:
        promises = self.promises
        promises.committing = ((topic, number), offset)
        promises.version += 1
        self.broker.commit_offsets("g", {(topic, number): at(offset)})
        promises.commits[topic, number] = offset
        promises.committing = None
        promises.version += 1


def creates_and_deletes(run: Workload) -> None:
    run.create("a", 2, retention_ms="5")
    run.create("b", 1)
    run.write("b", 0, b"kept")
    run.write("a", 1, b"deleted")
    run.delete("a")
    run.create("a", 3)
    run.write("a", 1, b"new")
    run.delete("b")


def grows_and_alters(run: Workload) -> None:
    run.create("a", 1)
    run.write("a", 0, b"first")
    run.create("b", 1)
    run.grow("a", 3)
    run.write("a", 2, b"second")
    run.alter("b", segment_bytes="2048")
    run.grow("b", 2)
    run.alter("a", cleanup_policy="compact")


def commits(run: Workload) -> None:
    run.create("a", 2)
    for offset in range(4):
        run.commit("a", offset % 2, offset)
    run.create("b", 1)
    run.commit("b", 0, 7)
    run.delete("a")
    run.create("a", 1)
    run.commit("b", 0, 8)
    run.commit("a", 0, 1)


def together(run: Workload) -> None:
    run.create("kept", 1)
    run.write("kept", 0, b"kept")
    run.create_together(a=1, b=2, c=1)
    run.write("b", 1, b"in b")
    run.delete_together("a", "b")
    run.create_together(b=1, a=2)
    run.commit("a", 1, 0)
    run.delete_together("a", "c", "b")


@pytest.mark.parametrize("every", times(SHARE, 1))
@pytest.mark.parametrize("workload", [creates_and_deletes, grows_and_alters, commits, together])
def test_a_cut_leaves_each_topic_as_before_the_change_or_as_after_it(
    workload: Callable[[Workload], None], every: int
) -> None:
    promises = Promises()
    cuts = PowerCuts(
        promises.check,
        seed=1,
        mixes=2,
        promises=lambda: promises.version,
        recover=lambda files: open_broker(files).close(),
        every=every,
    )
    files = cuts.attach(PowerLossFiles())
    run = Workload(files, promises)
    workload(run)
    run.broker.close()
    assert cuts.finish() > 100


def store_in_place(files: Files, directory: str, catalog: Catalog) -> None:
    file = files.open(f"{directory}/catalog.json", write=True, create=True)
    data = catalogs.encode(catalog)
    file.write(0, [data])
    file.truncate(len(data))
    file.sync()
    file.close()


def claim_without_clearing(self: TopicChanges, count: int) -> tuple[int, ...]:
    return tuple(self.catalog.free_slots(count))


def remove_at_once(self: TopicDirectories, topic: CatalogTopic) -> None:
    self._remove(partition_directory(topic.name, number) for number in range(topic.partition_count))


def not_at_all(self: TopicDirectories) -> None:
    return


@pytest.mark.parametrize("workload", [creates_and_deletes, together])
@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [
        (TopicDirectories, "sync", not_at_all),
        (catalogs, "store", store_in_place),
        (TopicChanges, "_claim_slots", claim_without_clearing),
        (TopicDirectories, "move_away", remove_at_once),
    ],
)
def test_the_cuts_find_a_planted_bug(
    owner: object, name: str, bug: object, workload: Callable[[Workload], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    promises = Promises()
    cuts = PowerCuts(promises.check, seed=1, mixes=2, every=SHARE, promises=lambda: promises.version)
    files = cuts.attach(PowerLossFiles())
    monkeypatch.setattr(owner, name, bug)

    def run() -> None:
        workload(Workload(files, promises))
        cuts.finish()

    with pytest.raises((Violation, CorruptLog)):
        run()
