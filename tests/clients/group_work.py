"""Work for the members of a group, and whether it was done once: records that count when they are committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Protocol

from clients.any_client import Place, Received, Refused, at_once, eventually
from foldlog.client.log import Log

PARTITIONS = 4

Done = tuple[int, int]
"""Partition and offset."""


class Worker(Protocol):
    """A member of a group, of any client or embedded. `commit` raises Refused if the group has moved on.

    `taken` is what rebalances took from it, in order; `read_after` is how many of them there were when it read last.
    """

    taken: list[set[Place]]

    @property
    def read_after(self) -> int: ...

    def poll(self) -> list[Received]: ...

    def assignment(self) -> set[Place]: ...

    def commit(self, offsets: Mapping[Place, tuple[int, str]]) -> None: ...


def is_shared(members: Sequence[Worker], wanted: set[Place]) -> bool:
    """Every partition has one reader, and nobody is without."""
    assigned = [member.assignment() for member in members]
    return all(assigned) and sorted(chain(*assigned)) == sorted(wanted)


class Work:
    """What members have done: a record counts once the offset after it is committed."""

    def __init__(self, log: Log, topic: str) -> None:
        self._log = log
        self._topic = topic
        self._written: Counter[Done] = Counter()
        self._refused: dict[int, tuple[list[Received], int]] = {}
        self.done: Counter[Done] = Counter()

    def give(self, each: int) -> None:
        """Append that many to every partition."""
        with self._log.producer() as producer:
            futures = [
                producer.send(self._topic, b"work", partition=number)
                for number in range(PARTITIONS)
                for _ in range(each)
            ]
        self._written.update((one.partition, one.offset) for one in (future.result() for future in futures))

    def finish(self, members: Sequence[Worker]) -> None:
        """Let the members work until all is done."""

        def is_finished() -> bool:
            for done in at_once([partial(self._step, member) for member in members]):
                self.done.update(done)
            return set(self.done) == set(self._written)

        eventually(is_finished, "all records are committed")

    @property
    def is_right(self) -> bool:
        return self.done == self._written

    def _step(self, member: Worker) -> list[Done]:
        """Poll, and commit what came; what is done then."""
        uncommitted, before = self._refused.pop(id(member), ([], 0))
        read = member.poll()
        seen = member.read_after
        # What a member kept through a rebalance it reads on behind what it could not commit; what it lost is read again
        # by whoever has it now.
        lost = set().union(*member.taken[before:seen])
        mine = member.assignment()
        kept = [one for one in uncommitted if (one.topic, one.partition) in mine - lost]
        kept += [one for one in read if (one.topic, one.partition) in mine]
        if kept:
            try:
                member.commit({(one.topic, one.partition): (one.offset + 1, "") for one in kept})
            except Refused:
                self._refused[id(member)] = kept, seen
                return []
        return [(one.partition, one.offset) for one in kept]
