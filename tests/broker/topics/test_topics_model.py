"""Any sequence of changes of topics, writes, commits and reopens does what a dictionary does.

The model is a dictionary of topics and one of commits. Reopening is clean or, as after a kill, without a close.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.small_broker import at, die, open_broker, read, write
from foldlog.broker.topics.changes import NewTopic
from foldlog.broker.topics.config import TopicConfig
from foldlog.errors import FoldlogError, InvalidArgument, TopicExists, UnknownTopic
from foldlog.files.memory import MemoryFiles

NAMES = st.sampled_from(["a", "a-0", "a-1", "b.c", "B_c"])
COUNTS = st.integers(1, 4)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "retention.ms": st.sampled_from(["-1", "5"]),
        "segment.bytes": st.sampled_from(["1024", "2048"]),
        "flush.messages": st.just("1"),
    },
)


@dataclass
class Topic:
    """A topic as the model has it."""

    config: dict[str, str]
    values: list[list[bytes]]
    growths: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)


class TopicsMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.files = MemoryFiles()
        self.broker = open_broker(self.files)
        self.topics: dict[str, Topic] = {}
        self.commits: dict[tuple[str, int], int] = {}
        self.ids: set[str] = set()

    @rule(name=NAMES, count=COUNTS, config=SETTINGS)
    def create(self, name: str, count: int, config: dict[str, str]) -> None:
        if name in self.topics:
            with pytest.raises(TopicExists):
                self.broker.create_topic(name, count, config)
            return
        topic = self.broker.create_topic(name, count, config)
        assert topic.topic_id not in self.ids
        self.ids.add(topic.topic_id)
        self.topics[name] = Topic(dict(config), [[] for _ in range(count)])

    @rule(wanted=st.lists(st.tuples(NAMES, COUNTS, SETTINGS), min_size=2, max_size=4))
    def create_together(self, wanted: list[tuple[str, int, dict[str, str]]]) -> None:
        outcomes = self.broker.create_topics([NewTopic(n, count, TopicConfig.parse(c)) for n, count, c in wanted])
        for (name, count, config), outcome in zip(wanted, outcomes, strict=True):
            if name in self.topics:
                assert isinstance(outcome, TopicExists)
                continue
            assert not isinstance(outcome, FoldlogError)
            assert outcome.topic_id not in self.ids
            self.ids.add(outcome.topic_id)
            self.topics[name] = Topic(dict(config), [[] for _ in range(count)])

    @rule(names=st.lists(NAMES, min_size=2, max_size=4))
    def delete_together(self, names: list[str]) -> None:
        for name, outcome in zip(names, self.broker.delete_topics(names), strict=True):
            assert (outcome is None) == (name in self.topics)
            assert outcome is None or isinstance(outcome, UnknownTopic)
        for name in names:
            self.topics.pop(name, None)
        self.commits = {key: offset for key, offset in self.commits.items() if key[0] not in names}

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if name not in self.topics:
            with pytest.raises(UnknownTopic):
                self.broker.delete_topic(name)
            return
        self.broker.delete_topic(name)
        del self.topics[name]
        self.commits = {key: offset for key, offset in self.commits.items() if key[0] != name}

    @rule(name=NAMES, count=COUNTS)
    def grow(self, name: str, count: int) -> None:
        topic = self.topics.get(name)
        if topic is None or count <= len(topic.values):
            with pytest.raises(UnknownTopic if topic is None else InvalidArgument):
                self.broker.grow_topic(name, count)
            return
        self.broker.grow_topic(name, count)
        topic.growths.append((count, tuple(len(values) for values in topic.values)))
        topic.values += [[] for _ in range(count - len(topic.values))]

    @rule(name=NAMES, changes=SETTINGS, reset=st.booleans())
    def alter(self, name: str, changes: dict[str, str], reset: bool) -> None:
        topic = self.topics.get(name)
        asked: dict[str, object | None] = {**changes, **({"retention.ms": None} if reset else {})}
        if topic is None:
            with pytest.raises(UnknownTopic):
                self.broker.alter_topic(name, asked)
            return
        self.broker.alter_topic(name, asked)
        topic.config.update(changes)
        if reset:
            topic.config.pop("retention.ms", None)

    @rule(name=NAMES, number=st.integers(0, 3), value=st.binary(max_size=5))
    def append(self, name: str, number: int, value: bytes) -> None:
        topic = self.topics.get(name)
        if topic is not None and number < len(topic.values):
            topic.values[number].append(value)
            assert write(self.broker, name, number, value) == len(topic.values[number])

    @rule(name=NAMES, number=st.integers(0, 3), offset=st.integers(0, 99))
    def commit(self, name: str, number: int, offset: int) -> None:
        topic = self.topics.get(name)
        if topic is not None and number < len(topic.values):
            self.broker.commit_offsets("g", {(name, number): at(offset)})
            self.commits[name, number] = offset

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        if clean:
            self.broker.close()
        else:
            die(self.files)
        self.broker = open_broker(self.files)

    @invariant()
    def agrees(self) -> None:
        assert self.broker.topics() == sorted(self.topics)
        for name, expected in self.topics.items():
            topic = self.broker.topic(name)
            assert topic.config.settings == expected.config
            assert [(growth.partitions, growth.ends) for growth in topic.growths] == expected.growths
            assert [read(self.broker, name, number) for number in range(topic.partition_count)] == expected.values
        committed = {key: value.offset for key, value in self.broker.committed("g").items()}
        assert committed == self.commits
        assert self.broker.warnings() == []

    def teardown(self) -> None:
        if hasattr(self, "broker"):
            self.broker.close()


TestTopicsModel = TopicsMachine.TestCase
TestTopicsModel.settings = settings(max_examples=40, stateful_step_count=30)
