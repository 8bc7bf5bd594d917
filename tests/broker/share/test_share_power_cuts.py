"""Cut the power after every file operation of a share group's work: on every disk that is left, no record whose
acceptance was answered is given out again, and every other one is given to somebody.

A planted bug, answers before the sync, shows that the cuts find what they are there to find.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from broker.small_broker import open_broker, write
from foldlog.broker.broker import Broker
from foldlog.broker.share.messages import AcknowledgedBatch, AcknowledgeType
from foldlog.broker.share.store import Saved
from foldlog.testing.power_cuts import PowerCuts, Violation
from foldlog.testing.power_loss import DiskImage, PowerLossFiles

GROUP, TOPIC = "workers", "jobs"
RECORDS = 8


def take(broker: Broker, member: str, records_max: int) -> list[int]:
    """The offsets that the member is given."""
    taken = broker.shares.take(GROUP, member, TOPIC, 0, max_bytes=1 << 16, records_max=records_max)
    if taken.saved is not None:
        taken.saved.wait()
    return [offset for first, last, _ in taken.acquired for offset in range(first, last + 1)]


def say(broker: Broker, member: str, offset: int, kind: AcknowledgeType) -> None:
    saved = broker.shares.acknowledge(GROUP, member, TOPIC, 0, [AcknowledgedBatch(offset, offset, (kind,))])
    if saved is not None:
        saved.wait()


@dataclass
class Promises:
    """What members were told: which records are done for good, and which one is just being accepted or rejected."""

    done: set[int] = field(default_factory=set)
    saying: int | None = None
    is_begun: bool = False

    def check(self, image: DiskImage) -> None:
        with open_broker(image.files()) as broker:
            if not self.is_begun:
                return
            given = set(take(broker, "later", 100))
            assert not given & self.done, f"given again: {sorted(given & self.done)}"
            lost = set(range(RECORDS)) - given - self.done - {self.saying}
            assert not lost, f"given to nobody: {sorted(lost)}"


def work(cuts: PowerCuts, promises: Promises) -> None:
    files = PowerLossFiles()
    with open_broker(files) as broker:
        broker.create_topic(TOPIC)
        write(broker, TOPIC, 0, *[b"job"] * RECORDS)
        broker.group_configs.change(GROUP, lambda own: {"share.auto.offset.reset": "earliest"})
        broker.shares.begin(GROUP, [(TOPIC, 0)])
        # Where the group begins is durable by now: at the end, from here on, it would lose everything.
        broker.group_configs.change(GROUP, lambda own: {"share.auto.offset.reset": "latest"})
        cuts.attach(files)
        promises.is_begun = True
        for offset in take(broker, "ann", 6):
            kind = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)[offset % 3]
            promises.saying = None if kind is AcknowledgeType.RELEASE else offset
            say(broker, "ann", offset, kind)
            if promises.saying is not None:
                promises.done.add(offset)
            promises.saying = None
        for offset in take(broker, "ben", 3):
            promises.saying = offset
            say(broker, "ben", offset, AcknowledgeType.ACCEPT)
            promises.done.add(offset)
            promises.saying = None
        files.on_operation = lambda: None


def run(seed: int) -> PowerCuts:
    promises = Promises()
    cuts = PowerCuts(promises.check, seed=seed, promises=lambda: (frozenset(promises.done), promises.saying))
    work(cuts, promises)
    return cuts


@pytest.mark.parametrize("seed", range(3))
def test_an_accepted_record_is_never_given_again_and_none_is_lost(seed: int) -> None:
    assert run(seed).finish() > 50


def test_an_answer_before_the_sync_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Saved, "wait", lambda self: None)
    with pytest.raises(Violation, match=r"given to nobody|given again"):
        run(0).finish()
