"""A copy of a damaged directory stops at the damage, into another directory and into a broker: what it cannot read is
not passed over, and nothing takes its place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import foldlog
from client.copy.copies import contents, copy
from foldlog.errors import CorruptLog
from foldlog.records import batch as fmt
from foldlog.records.loops import walk
from foldlog.testing import KafkaBroker

TOPIC = "orders"


def fill(path: Path, *, compacted: bool) -> None:
    with foldlog.open(path, background=False) as log:
        policy = "compact" if compacted else "delete"
        log.create_topic(TOPIC, config={"cleanup.policy": policy, "segment.bytes": 1024})
        for number in range(45):
            log.append(TOPIC, f"value {number}", key=f"k{number}" if number % 2 else "even")
        if compacted:
            log.compact(TOPIC)


def sealed(path: Path) -> Path:
    return sorted((path / f"{TOPIC}-0").glob("*.log"))[1]


def lost_batches(log: Path) -> None:
    data = log.read_bytes()
    log.write_bytes(data[: walk(data).headers[-2].position])


def wrong_offset(log: Path) -> None:
    """Of its last batch: it now lies in the segment after it."""
    data = bytearray(log.read_bytes())
    at = walk(data).headers[-1].position
    offset = int.from_bytes(data[at : at + fmt.LENGTH_AT], "big")
    data[at : at + fmt.LENGTH_AT] = (offset + 3).to_bytes(fmt.LENGTH_AT, "big")
    log.write_bytes(data)


@pytest.mark.parametrize("damage", [lost_batches, wrong_offset])
@pytest.mark.parametrize("compacted", [False, True])
def test_a_copy_stops_at_damage(tmp_path: Path, damage: Callable[[Path], None], compacted: bool) -> None:
    path = tmp_path / "source"
    fill(path, compacted=compacted)
    with foldlog.open(path, mode="r") as source:
        whole = contents(source, TOPIC)
    damage(sealed(path))
    with foldlog.open(path, mode="r") as source, foldlog.open(":memory:", background=False) as target:
        with pytest.raises(CorruptLog):
            copy(source, target, TOPIC)
        copied = contents(target, TOPIC)
    assert copied == {offset: whole[offset] for offset in copied}
    with (
        KafkaBroker.launch() as broker,
        foldlog.open(path, mode="r") as source,
        foldlog.connect(f"kafka://{broker}") as cluster,
    ):
        with pytest.raises(CorruptLog):
            copy(source, cluster, TOPIC)
        copied = contents(cluster, TOPIC)
    assert list(copied.values()) == list(whole.values())[: len(copied)]
