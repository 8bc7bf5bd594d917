"""What cannot be right is refused with one sentence of ours: never a foreign exception, never a hang, nothing changed.

Each test gives a Log or what it makes an argument of the wrong type, out of range or not to be touched, and looks at
the type of the error and at the words that say what to do.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

import foldlog
from foldlog.errors import (
    InvalidTopicName,
)

OFFSETS = "__consumer_offsets"


def test_users_cannot_write_or_alter_the_topic_that_holds_committed_offsets(log: foldlog.Log) -> None:
    log.create_topic("orders")
    log.append("orders", "paid")
    log.reset_group("fraud", {("orders", 0): 1})
    end = log.offsets(OFFSETS)[0][1]

    with pytest.raises(InvalidTopicName, match=OFFSETS):
        log.alter_topic(OFFSETS, {"cleanup.policy": "delete", "retention.ms": 0})
    with pytest.raises(InvalidTopicName, match="reset_group"):
        log.append(OFFSETS, None, key="k")
    with pytest.raises(InvalidTopicName, match="reset_group"):
        log.append(OFFSETS, None, key="k", partition=0)
    with pytest.raises(InvalidTopicName, match="reset_group"):
        log.append_arrow(OFFSETS, pa.table({"key": ["k"], "value": ["v"]}))
    with log.producer() as producer:
        with pytest.raises(InvalidTopicName, match="reset_group"):
            producer.send(OFFSETS, b"v", key=b"k")
        with pytest.raises(InvalidTopicName, match="reset_group"):
            producer.send_batch(OFFSETS, [{"value": b"v", "key": b"k"}])

    assert log.offsets(OFFSETS)[0][1] == end
    log.enforce_retention(OFFSETS)
    log.compact(OFFSETS)
    log.reset_group("fraud", {("orders", 0): 0})
    assert log.committed("fraud")["orders", 0].offset == 0
