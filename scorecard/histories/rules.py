"""Judges a history of transactions over partitions: what was read against what clients were told of their writes.

The rules are those of others, written anew from their descriptions: Adya's phenomena G1a, G1b and G1c as Elle looks for
them in histories of list-append (Kingsbury, Alvaro: Elle, VLDB 2020), and the anomalies of the Kafka workload of Jepsen
(jepsen.tests.kafka). Each value is written once, so a value names its write. Not judged: cycles of writes alone (G0),
which Kafka's transactions allow, as they lock nothing.

    lost write         committed, and not in the final read, though something behind it is or nothing is
    aborted read       G1a: of a transaction whose abort was answered
    dirty read         read before its transaction was asked to commit
    fractured          G1b over partitions: some writes of a transaction are there in the end, and some are not
    cycle              G1c: two transactions that each read what the other wrote, by way of others perhaps
    duplicate          a value at two offsets
    inconsistent       an offset with two values, or a value elsewhere than it was acknowledged
    reordered          two values of one sender in one partition, against the order of sending
    skipped            a reader passed over a value that is there in the end
    went back          a reader was given an offset that it had passed
    invented           a value that nobody sent
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

LOST, ABORTED, DIRTY, FRACTURED = "lost write", "aborted read", "dirty read", "fractured"
CYCLE, DUPLICATE, INCONSISTENT = "cycle", "duplicate", "inconsistent"
REORDERED, SKIPPED, WENT_BACK, INVENTED = "reordered", "skipped", "went back", "invented"
KINDS = (LOST, ABORTED, DIRTY, FRACTURED, CYCLE, DUPLICATE, INCONSISTENT, REORDERED, SKIPPED, WENT_BACK, INVENTED)

COMMITTED, NOT_COMMITTED, UNKNOWN = "committed", "aborted", "unknown"


@dataclass(slots=True)
class Write:
    """A value sent to a partition. `offset`: where it was acknowledged, if it was."""

    partition: int
    value: str
    offset: int | None = None


@dataclass(slots=True)
class Transaction:
    """What one client did between begin and end. `ending`: when it asked for the end; `outcome`: what it was told."""

    sender: str
    writes: list[Write] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    """Values that it was given while it was open."""
    ending: float = float("inf")
    outcome: str = UNKNOWN


@dataclass(slots=True)
class Poll:
    """What a reader of committed records was given at once, in the order in which it was given."""

    reader: str
    done: float
    records: list[tuple[int, int, str]]
    """Partition, offset, value."""


@dataclass(slots=True)
class TransactionHistory:
    """Everything. `final`: all committed records by partition, read once nothing was under way any more."""

    transactions: list[Transaction] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    final: dict[int, list[tuple[int, str]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Anomaly:
    """What is wrong, by one of KINDS."""

    kind: str
    what: str


def judge(history: TransactionHistory) -> list[Anomaly]:
    """Every anomaly; none for a history that keeps what transactions promise."""
    found: list[Anomaly] = []
    for rule in (_final_read, _places, _order, _isolation, _readers, _cycles):
        found += rule(history)
    return found


def _by_value(history: TransactionHistory) -> dict[str, Transaction]:
    return {write.value: one for one in history.transactions for write in one.writes}


def _final_read(history: TransactionHistory) -> Iterator[Anomaly]:
    there = {value for records in history.final.values() for _, value in records}
    for one in history.transactions:
        values = {write.value for write in one.writes}
        missing = values - there
        if one.outcome == COMMITTED and missing:
            yield Anomaly(LOST, f"{one.sender} was told that {sorted(missing)[:3]} is committed, and it is not there")
        elif missing and missing != values:
            yield Anomaly(FRACTURED, f"of {one.sender}'s {sorted(values)[:3]} there is not {sorted(missing)[:3]}")


def _places(history: TransactionHistory) -> Iterator[Anomaly]:
    """Each value has one place and each place one value, whoever says so."""
    values: defaultdict[tuple[int, int], set[str]] = defaultdict(set)
    places: defaultdict[str, set[tuple[int, int]]] = defaultdict(set)
    seen = [(partition, offset, value) for partition, all_of in history.final.items() for offset, value in all_of]
    seen += [record for poll in history.polls for record in poll.records]
    for partition, offset, value in seen:
        values[partition, offset].add(value)
        places[value].add((partition, offset))
    for partition, records in history.final.items():
        twice = {value for _, value in records if len(places[value]) > 1}
        for value in sorted(twice):
            yield Anomaly(DUPLICATE, f"{value} of partition {partition} is at {sorted(places[value])}")
    for place, several in values.items():
        if len(several) > 1:
            yield Anomaly(INCONSISTENT, f"{place} was read as {sorted(several)}")
    for one in history.transactions:
        for write in one.writes:
            told = (write.partition, write.offset)
            if write.offset is not None and places[write.value] - {told}:
                yield Anomaly(
                    INCONSISTENT, f"{write.value} was acknowledged at {told}, and is at {places[write.value]}"
                )


def _order(history: TransactionHistory) -> Iterator[Anomaly]:
    """Of one sender in one partition, in the order of sending."""
    sent: dict[str, int] = {}
    for one in history.transactions:
        for write in one.writes:
            sent[write.value] = len(sent)
    senders = {write.value: one.sender for one in history.transactions for write in one.writes}
    for partition, records in history.final.items():
        newest: dict[str, tuple[int, str]] = {}
        for _, value in records:
            if value not in sent:
                continue
            before = newest.get(senders[value], (-1, ""))
            if sent[value] < before[0]:
                yield Anomaly(REORDERED, f"in partition {partition} {value} comes after {before[1]}")
            newest[senders[value]] = (sent[value], value)


def _isolation(history: TransactionHistory) -> Iterator[Anomaly]:
    writers = _by_value(history)
    for partition, records in history.final.items():
        for _, value in records:
            if value not in writers:
                yield Anomaly(INVENTED, f"{value} is in partition {partition}, and nobody sent it")
            elif writers[value].outcome == NOT_COMMITTED:
                yield Anomaly(ABORTED, f"{value} is in the final read, and its transaction was aborted")
    for poll in history.polls:
        for _, _, value in poll.records:
            writer = writers.get(value)
            if writer is None:
                yield Anomaly(INVENTED, f"{poll.reader} read {value}, and nobody sent it")
            elif writer.outcome == NOT_COMMITTED:
                yield Anomaly(ABORTED, f"{poll.reader} read {value}, and its transaction was aborted")
            elif poll.done < writer.ending:
                yield Anomaly(DIRTY, f"{poll.reader} read {value} before {writer.sender} asked to commit it")


def _readers(history: TransactionHistory) -> Iterator[Anomaly]:
    """Each reader is given every committed record of a partition once, in order, from where it began."""
    offsets = {partition: [offset for offset, _ in records] for partition, records in history.final.items()}
    following = {
        (partition, offset): all_of[at + 1] if at + 1 < len(all_of) else None
        for partition, all_of in offsets.items()
        for at, offset in enumerate(all_of)
    }
    last: dict[tuple[str, int], int] = {}
    for poll in history.polls:
        for partition, offset, _ in poll.records:
            before = last.get((poll.reader, partition))
            if before is not None and offset <= before:
                yield Anomaly(WENT_BACK, f"{poll.reader} was at {before} of partition {partition}, and read {offset}")
            elif before is not None:
                wanted = following.get((partition, before))
                if wanted is not None and offset > wanted:
                    yield Anomaly(
                        SKIPPED, f"{poll.reader} went from {before} of {partition} to {offset}, over {wanted}"
                    )
            last[poll.reader, partition] = offset


def _cycles(history: TransactionHistory) -> Iterator[Anomaly]:
    """Edges go from a transaction to those that it read from: strongly connected ones depend on each other."""
    writers = _by_value(history)
    edges = {
        number: {id(writers[value]) for value in one.reads if value in writers and writers[value] is not one}
        for number, one in ((id(one), one) for one in history.transactions)
    }
    names = {id(one): one for one in history.transactions}
    for component in _components(edges):
        if len(component) > 1:
            values = sorted(write.value for number in component for write in names[number].writes[:1])
            yield Anomaly(CYCLE, f"the transactions of {values[:4]} have read from one another")


def _components(edges: dict[int, set[int]]) -> Iterable[list[int]]:
    """Tarjan's strongly connected components, without recursion."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root, firsts in edges.items():
        if root in index:
            continue
        work = [(root, iter(firsts))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, others = work[-1]
            descended = False
            for other in others:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(edges[other])))
                    descended = True
                    break
                if other in on_stack:
                    low[node] = min(low[node], index[other])
            if descended:
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[node])
            if low[node] == index[node]:
                component: list[int] = []
                while not component or component[-1] != node:
                    component.append(stack.pop())
                    on_stack.discard(component[-1])
                yield component
