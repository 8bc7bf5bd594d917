"""The offsets of a stream as the checkpoint keeps them: the same place is the same text, and it reads back.

No Spark is started: these are the texts that Spark stores and compares.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.errors import UnreadableCheckpoint
from foldlog.spark.source.stream_offset import OURS, StreamOffset
from foldlog.views.bookmark import Position

TOPICS = st.text("ab.-_", min_size=1, max_size=5)
POSITIONS = st.builds(Position, st.integers(0, 2**63 - 1), st.integers(-1, 50))


@st.composite
def stream_offsets(draw: st.DrawFn) -> StreamOffset:
    positions = draw(st.dictionaries(st.tuples(TOPICS, st.integers(0, 120)), POSITIONS, max_size=12))
    topics = sorted({topic for topic, _ in positions})
    ids = draw(st.fixed_dictionaries({topic: st.sampled_from(["", "x", "k3Vb"]) for topic in topics}))
    return StreamOffset(positions, {topic: found for topic, found in ids.items() if found}, draw(st.integers(0, 9)))


@given(stream_offsets())
def test_what_is_written_reads_back(offset: StreamOffset) -> None:
    assert StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


@given(stream_offsets(), st.randoms())
def test_the_same_place_is_the_same_text_whatever_the_order(offset: StreamOffset, random: Any) -> None:
    shuffled = list(offset.positions.items())
    random.shuffle(shuffled)
    again = StreamOffset(dict(shuffled), dict(reversed(list(offset.topic_ids.items()))), offset.skipped)
    assert json.dumps(again.to_json()) == json.dumps(offset.to_json())


def test_the_text_is_readable_and_pinned() -> None:
    offset = StreamOffset(
        {("orders", 10): Position(7, 2), ("orders", 9): Position(3), ("a.b", 0): Position(0, 0)}, {"orders": "k3Vb"}, 5
    )
    assert json.dumps(offset.to_json()) == (
        '{"$foldlog": {"version": 1, "skipped": 5, "topics":'
        ' {"a.b": {"epochs": {"0": 0}}, "orders": {"id": "k3Vb", "epochs": {"10": 2}}}},'
        ' "a.b": {"0": 0}, "orders": {"9": 3, "10": 7}}'
    )


def test_a_checkpoint_of_sparks_kafka_source_is_understood() -> None:
    offset = StreamOffset.from_json({"orders": {"1": 7, "0": 23}})
    assert offset == StreamOffset({("orders", 0): Position(23), ("orders", 1): Position(7)}, {})


@pytest.mark.parametrize(
    "fields",
    [
        {"orders": 7},
        {"orders": {"zero": 7}},
        {"orders": {"0": -1}},
        {"orders": {"0": "7"}},
        {"orders": {"0": True}},
        {OURS: {}},
        {OURS: {"version": 2, "skipped": 0, "topics": {}}},
        {OURS: {"version": 1, "skipped": 0, "topics": []}},
        {OURS: {"version": 1, "skipped": 0, "topics": {"orders": {"epochs": {"0": "x"}}}}, "orders": {"0": 1}},
        [],
        None,
    ],
)
def test_what_is_no_offset_is_refused_in_one_sentence(fields: Any) -> None:
    with pytest.raises(UnreadableCheckpoint, match="new checkpointLocation"):
        StreamOffset.from_json(fields)
