"""The clients of a simulated run, and what they write down of what they were told."""

from __future__ import annotations

import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

import foldlog.spark as fl
from broker.small_broker import at
from foldlog.broker.broker import Broker
from foldlog.errors import FoldlogError
from foldlog.log.transactions import Aborted
from foldlog.records.loops import decode, pack, walk
from scorecard.histories.rules import COMMITTED, NOT_COMMITTED, Poll, Transaction, TransactionHistory, Write
from scorecard.simulator.world import TOPICS, Client, Fenced, Life, World

PLACES = [(topic, number) for topic, partitions in TOPICS.items() for number in range(partitions)]
NUMBERS = {place: number for number, place in enumerate(PLACES)}
"""The rules know partitions by number."""
TRANSACTION_MS = 10_000
COUNTED = pa.schema([("sender", pa.string()), ("records", pa.int64())])
SHAPE = fl.Shape(COUNTED, None, ("sender",))
FOLDED = "orders"
GROUP, GROUP_PLACE = "readers", ("orders", 1)


def records_from(broker: Broker, topic: str, number: int, offset: int) -> tuple[list[tuple[int, str]], int]:
    """Committed records from an offset on, some of them, and where to go on."""
    partition = broker.writable_partition(topic, number)
    found = partition.read(max(offset, partition.log_start_offset), 600, committed=True)
    aborted = Aborted(found.aborted)
    records = []
    for header in walk(found.data).headers:
        if not aborted.holds(header) and not header.is_control:
            data = memoryview(found.data)[header.position : header.position + header.size]
            read = decode(data, topic, number, start_offset=offset)[0]
            records += [(record.offset, (record.value or b"").decode()) for record in read]
    return records, found.next_offset


class Told:
    """All that the clients of one world wrote down, and the lives they lead."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.history = TransactionHistory()
        self.committed: set[int | None] = {None}
        """Where the group of plain readers may be: where its last commit put it, or one that the power interrupted."""
        self.group_ends: dict[str, set[int]] = {}
        self.wrong: list[str] = []
        self._sent: Counter[str] = Counter()
        self._directory = tempfile.TemporaryDirectory()
        self.view = fl.counters(Path(self._directory.name) / "view.db", by="sender", measures={"records": fl.count()})
        self.folds = 0

    def close(self) -> None:
        self.view.close()
        self._directory.cleanup()

    def _now(self) -> float:
        return float(self.world.clock.now_ms())

    def _value(self, sender: str) -> str:
        self._sent[sender] += 1
        return f"{sender}/{self._sent[sender]}"

    # Lives

    def idempotent(self, client: Client) -> Life:
        rng = self.world.stream(client.name)
        (identity,) = yield "a producer id", lambda broker: (broker.allocate_producer_id(), 0)
        sequences: Counter[tuple[str, int]] = Counter()
        while True:
            place = rng.choice(PLACES)
            values = [self._value(client.name) for _ in range(rng.choice((1, 1, 3)))]
            writes = [Write(NUMBERS[place], value) for value in values]
            one = Transaction(client.name, writes, ending=self._now())
            self.history.transactions.append(one)
            batch = packed(self.world, values, identity, sequences[place])
            answer = yield "produce", lambda broker, place=place, batch=batch: produce(broker, place, batch)  # type: ignore[misc]
            if isinstance(answer, FoldlogError):
                self.wrong.append(f"{client.name} was refused: {type(answer).__name__}: {answer}")
                return
            for number, write in enumerate(writes):
                write.offset = answer[0] + number
            one.outcome = COMMITTED
            sequences[place] += len(values)

    def transactional(self, client: Client) -> Life:
        rng = self.world.stream(client.name)
        name = client.name.partition("#")[0]
        while True:
            answer = yield "init", lambda broker: broker.transactions.init_producer(name, TRANSACTION_MS)
            if client.is_replaced:
                raise Fenced
            if isinstance(answer, FoldlogError):
                continue
            ((identity,),) = (answer,)
            sequences: Counter[tuple[str, int]] = Counter()
            while True:
                moved = yield from self._transaction(client, name, identity, sequences, rng)
                if moved is None:
                    break
                if moved != identity:
                    sequences.clear()
                identity = moved

    def _transaction(self, client: Client, name: str, identity: Any, sequences: Counter[Any], rng: Any) -> Any:
        """One of them; the identity for the next, or None if a new one is needed."""
        one = Transaction(client.name)
        self.history.transactions.append(one)
        for place in rng.choices(PLACES, k=rng.choice((1, 2, 4))):
            values = [self._value(client.name) for _ in range(rng.choice((1, 2)))]
            writes = [Write(NUMBERS[place], value) for value in values]
            one.writes += writes
            batch = packed(self.world, values, identity, sequences[place], transactional=True)
            answer = yield (
                "produce",
                lambda broker, place=place, batch=batch: produce(broker, place, batch, name),
            )
            if isinstance(answer, FoldlogError):
                one.outcome = NOT_COMMITTED
                return None
            for number, write in enumerate(writes):
                write.offset = answer[0] + number
            sequences[place] += len(values)
        offset = None
        if rng.random() < 0.5:
            offset = self.world.clock.now_ms()
            answer = yield (
                "offsets",
                lambda broker: broker.transactions.commit_offsets(
                    name, *identity, f"of {name}", {("orders", 0): at(offset)}, add=True
                ),
            )
            if isinstance(answer, FoldlogError):
                one.outcome = NOT_COMMITTED
                return None
        commits = rng.random() < 0.75
        if commits:
            one.ending = self._now()
            if offset is not None:
                self.group_ends.setdefault(f"of {name}", set()).add(offset)
        answer = yield (
            "commit" if commits else "abort",
            lambda broker: broker.transactions.end(name, *identity, commit=commits, client_version=2),
        )
        if isinstance(answer, FoldlogError):
            if not commits:
                one.outcome = NOT_COMMITTED
            return None
        one.outcome = COMMITTED if commits else NOT_COMMITTED
        if commits and offset is not None and not client.is_replaced:
            self.group_ends[f"of {name}"] = {one for one in self.group_ends[f"of {name}"] if one >= offset}
        return answer[0]

    def reader(self, client: Client) -> Life:
        rng = self.world.stream(client.name)
        positions: Counter[tuple[str, int]] = Counter()
        while True:
            place = rng.choice(PLACES)
            answer = yield (
                "fetch",
                partial(records_from, topic=place[0], number=place[1], offset=positions[place]),
            )
            if isinstance(answer, FoldlogError):
                self.wrong.append(f"{client.name} was refused: {type(answer).__name__}: {answer}")
                return
            ((records, positions[place]),) = answer
            given = [(NUMBERS[place], offset, value) for offset, value in records]
            self.history.polls.append(Poll(client.name, self._now(), given))

    def group(self, client: Client) -> Life:
        """Reads from where its group is, and commits; there may be several, and the last commit counts."""
        answer = yield "committed", self._committed
        offset = answer[0] or 0
        while True:
            answer = yield "fetch", partial(records_from, topic=GROUP_PLACE[0], number=GROUP_PLACE[1], offset=offset)
            ((_, offset),) = answer
            yield "commit offsets", partial(self._commit, offset=offset)

    def _committed(self, broker: Broker) -> int | None:
        found = broker.committed(GROUP).get(GROUP_PLACE)
        offset = None if found is None else found.offset
        if offset not in self.committed:
            self.wrong.append(f"{GROUP} is at {offset}, and committed one of {self.committed}")
        return offset

    def _commit(self, broker: Broker, offset: int) -> None:
        """Runs when the message is there, which may be late: what it has answered is what counts from then on."""
        self.committed.add(offset)
        broker.commit_offsets(GROUP, {GROUP_PLACE: at(offset)})
        self.committed = {offset}

    def fold(self, client: Client) -> Life:
        """Counts the records of each sender, in a view that keeps its bookmark in the same transaction."""
        answer = yield "topic", lambda broker: broker.topic(FOLDED)
        (topic,) = answer
        start = fl.Bookmark(FOLDED, topic.topic_id, {}, {}).met(dict.fromkeys(range(TOPICS[FOLDED]), 0))
        while True:
            bookmark = self.view.prepare(SHAPE, start)
            ranges, counted = {}, Counter[str]()
            for number in range(TOPICS[FOLDED]):
                offset = bookmark.positions[number].offset
                answer = yield (
                    "fetch",
                    lambda broker, number=number, offset=offset: records_from(broker, FOLDED, number, offset),  # type: ignore[misc]
                )
                if isinstance(answer, FoldlogError):
                    continue
                ((records, end),) = answer
                counted.update(value.partition("/")[0] for _, value in records)
                if end > offset:
                    ranges[number] = (offset, end)
            if ranges and not self.world.strikes("fold dies", 0.05):
                self._apply(bookmark, ranges, counted)

    def _apply(self, bookmark: Any, ranges: dict[int, tuple[int, int]], counted: Counter[str]) -> None:
        rows = pa.Table.from_pylist(
            [{"sender": name, "records": number} for name, number in sorted(counted.items())], schema=COUNTED
        )
        moved = {number: type(bookmark.positions[number])(end, 0) for number, (_, end) in ranges.items()}
        try:
            self.view.apply(fl.Delta(rows, ranges), bookmark, bookmark.advanced(moved))
            self.folds += 1
        except FoldlogError:
            pass  # another one was there first: the next look begins where that one ended

    # In the end

    def judge_view(self) -> None:
        """The view is the fold of exactly what is below its bookmark."""
        bookmark = self.view.bookmark()
        if bookmark is None:
            return
        expected: Counter[str] = Counter()
        for number in range(TOPICS[FOLDED]):
            below = bookmark.positions[number].offset
            expected.update(
                value.partition("/")[0]
                for offset, value in self.history.final[NUMBERS[FOLDED, number]]
                if offset < below
            )
        rows = [row for batch in self.view.scan().batches for row in batch.to_pylist()]
        found = Counter({row["sender"]: row["records"] for row in rows})
        if found != expected:
            self.wrong.append(f"the view holds {dict(found)}, and below its bookmark are {dict(expected)}")

    def judge_groups(self, broker: Broker) -> None:
        self._committed(broker)
        for name, offsets in self.group_ends.items():
            found = broker.committed(name).get(("orders", 0))
            if found is not None and found.offset not in offsets:
                self.wrong.append(f"the transactions {name} committed one of {sorted(offsets)}, and {found} is there")


def packed(world: World, values: list[str], identity: Any, sequence: int, *, transactional: bool = False) -> bytes:
    rows = [(world.clock.now_ms(), value.encode(), value.encode(), ()) for value in values]
    return bytes(
        pack(
            rows,
            producer_id=identity[0],
            producer_epoch=identity[1],
            base_sequence=sequence,
            transactional=transactional,
        )
    )


def produce(broker: Broker, place: tuple[str, int], batch: bytes, transactional_id: str | None = None) -> int:
    """The offset of the first record, once it is durable."""
    partition = broker.writable_partition(*place)
    if transactional_id is None:
        appended = partition.append(bytearray(batch), foreign=True)
    else:
        appended = broker.transactions.append(transactional_id, partition, bytearray(batch), add=True)
    partition.wait_acknowledged(appended.next_offset)
    return appended.base_offset
