"""JSON that is nested deeper than Python follows is one error of ours wherever JSON of others is read."""

from __future__ import annotations

import pytest

import foldlog
from foldlog.broker.topics.catalog import parse_growths
from foldlog.client.copy.notes import Note
from foldlog.errors import SerializationError
from foldlog.records import loops
from foldlog.records.pure import reading

DEEP = "[" * 100_000


@pytest.mark.parametrize("kind", [loops.Record, reading.Record])
def test_the_value_of_a_record_is_said_to_be_nested_too_deep(kind: type[loops.Record]) -> None:
    record = kind("orders", 2, 5, 0, 0, None, DEEP.encode())
    with pytest.raises(SerializationError, match=r"orders-2.*nested too deep") as refused:
        record.json()
    assert isinstance(refused.value, ValueError)


def test_a_deserializer_says_so_too() -> None:
    with foldlog.open(":memory:") as log:
        log.create_topic("orders")
        log.append("orders", DEEP)
        with pytest.raises(SerializationError):
            list(log.read("orders", value_deserializer="json"))


def test_notes_and_growths_that_are_none_are_none() -> None:
    assert Note.from_json(DEEP, 0) is None
    with pytest.raises(ValueError, match="not a list of growths") as refused:
        parse_growths(DEEP)
    assert len(str(refused.value)) < 200
