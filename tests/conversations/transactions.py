"""Conversations about transactions, as librdkafka, Java 3 or Java 4 would have them, and as no client would.

What was asked for is named by `Transacting.at`; what a step asks besides its first question has a number.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from conversations.classic_groups import look_at_offsets
from conversations.records import places
from conversations.running import conversation
from conversations.talk import STAMP_MS, Talk, steps
from foldlog.records.batch import CONTROL_COMMIT
from foldlog.records.loops import control_batch
from foldlog.wire.schema import Request
from server.transaction_client import JAVA_3, JAVA_4, LIBRDKAFKA, TransactionClient, Versions, fetch_request

STEPS = 40
SEEDS = 10

OLDER = tuple(Versions(number, 3 + 2 * number, min(3, number), number, number, number) for number in range(5))
"""Every version of what came with transactions, together as no client has them."""

CLIENTS = (LIBRDKAFKA, JAVA_3, JAVA_4)


def _run(versions: Versions) -> dict[str, int]:
    return {
        "InitProducerId": versions.init,
        "Produce": versions.produce,
        "AddPartitionsToTxn": versions.add_partitions,
        "AddOffsetsToTxn": versions.add_offsets,
        "TxnOffsetCommit": versions.commit_offsets,
        "EndTxn": versions.end,
    }


class Transacting:
    """A talk with a topic of two partitions, a group and producers, which are brokers' clients as others see them."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self.versions = Versions(
            talk.version("InitProducerId"),
            min(12, talk.version("Produce")),  # by name
            min(3, talk.version("AddPartitionsToTxn")),  # of clients
            talk.version("AddOffsetsToTxn"),
            talk.version("TxnOffsetCommit"),
            talk.version("EndTxn"),
        )
        self.topic = talk.topic(partitions=2)
        self.group = talk.name("readers")
        self.zero, self.one = (self.topic, 0), (self.topic, 1)
        self._step = "first"

    def at(self, step: str) -> None:
        """What is asked from here on has this name."""
        self._step = step

    def ask(self, request: Request, version: int) -> Any:
        """What a TransactionClient calls."""
        return self.talk.put(request, version, self._step)

    def producer(self, name: str = "tx") -> TransactionClient:
        return TransactionClient(self, self.versions, self.talk.name(name), STAMP_MS)

    def begun(self, name: str = "tx") -> TransactionClient:
        producer = self.producer(name)
        assert producer.init() == 0
        return producer

    def settle(self) -> str:
        """Wait until the last transaction of the id is complete; its state."""
        ids = [self.talk.name("tx")]
        found = self.talk.until(
            lambda: self.talk.quiet("DescribeTransactions", transactional_ids=ids).transaction_states[0],
            lambda one: not one.transaction_state.startswith("Prepare"),
        )
        return str(found.transaction_state)

    def described(self, name: str) -> None:
        self.talk.ask("DescribeTransactions", self._step, transactional_ids=[self.talk.name(name)])

    def seen(self, place: tuple[str, int], *, committed: bool) -> None:
        self.talk.put(fetch_request(place, committed=committed), 12, self._step, settling=True)

    def committed(self, *, stable: bool) -> None:
        topics = [{"name": self.topic, "partition_indexes": [0, 1]}]
        groups = [{"group_id": self.group, "topics": topics}]
        self.talk.ask("OffsetFetch", self._step, version=9, groups=groups, require_stable=stable)

    def commit(self, producer: TransactionClient, offset: int, **member: Any) -> list[int]:
        if not self.versions.is_2:
            assert producer.add_offsets(self.group) == 0
        return producer.commit_offsets(self.group, {self.zero: offset}, **member)


Asks = Callable[[Transacting], None]


def transacting(*clients: Versions) -> Callable[[Asks], Callable[[Talk], None]]:
    """Put on the list a conversation with a topic and producers, for each of these clients."""

    def add(asks: Asks) -> Callable[[Talk], None]:
        @wraps(asks)
        def ask(talk: Talk) -> None:
            asks(Transacting(talk))

        return conversation(runs=tuple(map(_run, clients)))(ask)

    return add


@transacting(*OLDER, *CLIENTS)
def a_transaction_of_two_partitions(talk: Transacting) -> None:
    tx = talk.begun()
    for commit in (True, False):
        tx.write(talk.zero, b"a", b"b")
        tx.write(talk.one, b"c")
        talk.at("open")
        for committed in (True, False):
            talk.seen(talk.zero, committed=committed)
        talk.described("tx")
        talk.at("end")
        tx.end(commit=commit)
        talk.settle()
        talk.at("ended")
        talk.described("tx")
        for committed in (True, False):
            talk.seen(talk.zero, committed=committed)
        talk.seen(talk.one, committed=True)


@transacting(*CLIENTS)
def ends_that_come_twice(talk: Transacting) -> None:
    tx = talk.begun()
    talk.at("without a transaction")
    for commit in (True, False):
        tx.end(commit=commit)
        talk.settle()
    request = wrong = tx.end_request(commit=True)
    for commit in (True, False):
        tx.write(talk.zero, b"a")
        request, wrong = tx.end_request(commit=commit), tx.end_request(commit=not commit)
        talk.at("end")
        for one in (request, request, wrong):
            talk.ask(one, tx.versions.end)
        talk.settle()
        talk.described("tx")
        talk.at("again")
        for one in (request, wrong):
            talk.ask(one, tx.versions.end)
        tx.init()
    talk.at("from empty")
    for one in (request, wrong):
        talk.ask(one, tx.versions.end)


@transacting(*OLDER, *CLIENTS)
def partitions_that_are_not_added(talk: Transacting) -> None:
    tx = talk.begun()
    talk.at("not begun")
    tx.produce(talk.zero, b"a")
    talk.at("unknown")
    tx.add(talk.zero, (talk.topic, 7), (talk.talk.name("none"), 0))
    talk.at("internal")
    tx.add(("__transaction_state", 0))
    talk.at("added")
    tx.add(talk.one)
    talk.at("the other")
    tx.produce(talk.zero, b"a")
    talk.at("its own")
    tx.produce(talk.one, b"a")
    talk.at("end")
    tx.end(commit=True)
    talk.settle()
    talk.at("after the end")
    tx.produce(talk.one, b"b")


@transacting(*CLIENTS)
def a_successor(talk: Transacting) -> None:
    zombie = talk.begun()
    zombie.write(talk.zero, b"zombie")
    talk.at("successor")
    successor = talk.begun()
    talk.at("late")
    for place in (talk.zero, talk.one):
        zombie.produce(place, b"late")
    zombie.add(talk.one)
    zombie.add_offsets(talk.group)
    zombie.commit_offsets(talk.group, {talk.zero: 1})
    for commit in (True, False):
        zombie.end(commit=commit)
    zombie.init(producer_id=zombie.producer_id, producer_epoch=zombie.epoch)
    talk.at("its own")
    successor.write(talk.zero, b"successor")
    talk.at("later")
    zombie.produce(talk.zero, b"late")
    talk.at("its end")
    successor.end(commit=True)
    talk.settle()
    talk.seen(talk.zero, committed=True)


@transacting(*OLDER, *CLIENTS)
def a_producer_that_continues(talk: Transacting) -> None:
    """KIP-360: it names its id and epoch, once more if the answer was lost."""
    tx = talk.begun()
    known = {"producer_id": tx.producer_id, "producer_epoch": tx.epoch}
    for step in ("once", "again"):
        talk.at(step)
        tx.init(**known)
    talk.at("too new")
    tx.init(producer_id=tx.producer_id, producer_epoch=tx.epoch + 1)
    talk.at("another")
    tx.init(producer_id=tx.producer_id + 1000, producer_epoch=0)
    talk.at("half")
    tx.init(producer_id=1)
    tx.init(producer_epoch=1)
    talk.at("open")
    tx.write(talk.zero, b"a")
    tx.init(producer_id=tx.producer_id, producer_epoch=tx.epoch)
    talk.seen(talk.zero, committed=True)


@transacting(*OLDER, *CLIENTS)
def strangers(talk: Transacting) -> None:
    tx = talk.producer("never")
    tx.producer_id, tx.epoch = 123_456, 0
    talk.at("add")
    tx.add(talk.zero)
    talk.at("batch")
    tx.produce(talk.zero, b"a")
    talk.at("offsets")
    tx.add_offsets(talk.group)
    tx.commit_offsets(talk.group, {talk.zero: 1})
    talk.at("end")
    tx.end(commit=True)
    talk.described("never")
    other = talk.begun()
    talk.at("id of another")
    tx.transactional_id = other.transactional_id
    tx.add(talk.zero)
    tx.produce(talk.zero, b"a")
    tx.end(commit=True)
    talk.at("no id")
    tx.transactional_id = ""
    tx.init()
    tx.add(talk.zero)
    tx.add_offsets(talk.group)
    tx.end(commit=False)


@transacting(*OLDER, *CLIENTS)
def timeouts(talk: Transacting) -> None:
    for timeout_ms in (0, -1, 900_001, 900_000, 1):
        talk.at(f"{timeout_ms} ms")
        talk.producer().init(timeout_ms)


@transacting(*CLIENTS)
def batches_that_do_not_belong(talk: Transacting) -> None:
    tx = talk.begun()
    tx.write(talk.zero, b"a")
    late = tx.batch(talk.zero, [b"late"], base_sequence=1)
    no_producer = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "transactional": False}
    for step, place, records in (
        ("outside", talk.zero, tx.batch(talk.zero, [b"b"], transactional=False)),
        ("elsewhere", talk.one, tx.batch(talk.one, [b"b"], transactional=False)),
        ("marker", talk.zero, bytes(control_batch(CONTROL_COMMIT, 0, tx.producer_id, tx.epoch, tx.stamp_ms))),
        ("gap", talk.zero, tx.batch(talk.zero, [b"b"], base_sequence=9)),
        ("plain", talk.zero, tx.batch(talk.zero, [b"plain"], **no_producer)),
        ("twice", talk.zero, tx.batch(talk.zero, [b"a"], base_sequence=0)),
    ):
        talk.at(step)
        tx.produce(place, records=records)
    talk.at("end")
    tx.end(commit=True)
    talk.settle()
    talk.at("late")
    tx.produce(talk.zero, records=late)
    talk.seen(talk.zero, committed=False)


@transacting(*OLDER, *CLIENTS)
def offsets_of_a_group(talk: Transacting) -> None:
    tx = talk.begun()
    for commit in (True, False):
        talk.at("commit")
        talk.commit(tx, 5 if commit else 7)
        talk.at("pending")
        talk.committed(stable=False)
        talk.at("end")
        tx.end(commit=commit)
        talk.settle()
        talk.at("ended")
        for stable in (True, False):
            talk.committed(stable=stable)
    talk.at("not announced")
    tx.commit_offsets(talk.group, {talk.zero: 9})
    talk.at("unknown")
    tx.commit_offsets(talk.group, {(talk.topic, 9): 1, (talk.talk.name("none"), 0): 1})
    talk.at("member")
    talk.commit(tx, 9, member_id="nobody", generation_id_or_member_epoch=1)


@conversation("OffsetFetch")
def offsets_that_are_not_stable(talk: Talk) -> None:
    transaction = Transacting(talk)
    tx = transaction.begun()
    transaction.commit(tx, 5)
    for step in ("pending", "ended"):
        for stable in (True, False):
            wanted = [(transaction.topic, talk.ids["orders"], [0])]
            shown = f"{step}, {'stable' if stable else 'any'}"
            look_at_offsets(talk, shown, transaction.group, wanted, require_stable=stable)
        tx.end(commit=True)
        transaction.settle()


@transacting(*CLIENTS)
def what_brokers_ask(talk: Transacting) -> None:
    tx = talk.begun()
    tx.write(talk.zero, b"a")
    for version in (4, 5):
        for verify_only in (True, False):
            for ahead in (0, 1):
                asked = {
                    "transactional_id": tx.transactional_id,
                    "producer_id": tx.producer_id,
                    "producer_epoch": tx.epoch + ahead,
                    "verify_only": verify_only,
                    "topics": [{"name": talk.topic, "partitions": [0, 1]}],
                }
                step = f"{'verified' if verify_only else 'added'}, epoch {ahead} ahead, {version}"
                talk.talk.ask("AddPartitionsToTxn", step, version=version, transactions=[asked])


@conversation("ListTransactions", "WriteTxnMarkers", "DescribeTransactions", "DescribeProducers")
def what_operators_ask(talk: Talk) -> None:
    transaction = Transacting(talk)
    tx = transaction.begun()
    tx.write(transaction.zero, b"a")
    own = talk.names.prefix.replace(".", "[.]")
    for step, filters in steps(
        {
            "all": {},
            "ongoing": {"state_filters": ["Ongoing"]},
            "empty": {"state_filters": ["Empty"]},
            "no such state": {"state_filters": ["Sleeping"]},
            "its producer": {"producer_id_filters": [tx.producer_id]},
            "another producer": {"producer_id_filters": [99_999_999]},
            "any duration": {"duration_filter": -1},
            "long ones": {"duration_filter": 1_000_000},
            "its name": {"transactional_id_pattern": f"{own}tx"},
            "names that begin so": {"transactional_id_pattern": f"{own}.*"},
            "a part of its name": {"transactional_id_pattern": "tx"},
            "no pattern": {"transactional_id_pattern": "("},
            "an empty pattern": {"transactional_id_pattern": ""},
        }
    ):
        talk.ask("ListTransactions", step, mine=True, **filters)
    talk.ask("DescribeTransactions", "described", transactional_ids=[tx.transactional_id])
    talk.ask("DescribeTransactions", "none described", transactional_ids=[talk.name("none"), ""])

    def producers(step: str) -> None:
        topics = [{"name": transaction.topic, "partition_indexes": [0]}]
        talk.ask("DescribeProducers", step, topics=topics)

    def marked(step: str, epoch: int, *numbers: int, topic: str = transaction.topic) -> None:
        topics = [{"name": topic, "partition_indexes": numbers}]
        marker = {"producer_id": tx.producer_id, "producer_epoch": epoch, "topics": topics}
        talk.ask("WriteTxnMarkers", step, markers=[marker])

    producers("producers")
    marked("no such partition", tx.epoch, 9)
    marked("no such topic", tx.epoch, 0, topic=talk.name("none"))
    marked("an older epoch", tx.epoch - 1, 0)
    marked("marker", tx.epoch, 0)
    producers("producers after it")
    transaction.at("seen")
    transaction.seen(transaction.zero, committed=True)
    talk.ask("WriteTxnMarkers", "nothing", markers=[])
    topics = [
        {"name": transaction.topic, "partition_indexes": [9]},
        {"name": talk.name("none"), "partition_indexes": [0]},
    ]
    talk.ask("DescribeProducers", "no such producers", topics=topics)


@transacting(*CLIENTS)
def ends_of_the_log(talk: Transacting) -> None:
    tx = talk.begun()
    tx.write(talk.one, b"elsewhere")
    tx.write(talk.zero, b"a")
    for state in ("open", "ended"):
        # Not the largest timestamp (-3): that is the marker's in Kafka, and ours counts records only.
        for at in (-1, -2, STAMP_MS):
            for level in (0, 1):
                step = f"{state}, level {level}, at {min(at, 0)}"
                topics = places(talk.topic, (0, at))
                talk.talk.ask("ListOffsets", step, replica_id=-1, isolation_level=level, topics=topics)
        tx.end(commit=False)
        talk.settle()


def at_random(seed: int) -> Asks:
    """Two producers with one id do whatever comes to their mind, also what no client would do."""

    def asks(talk: Transacting) -> None:
        rng = random.Random(seed)
        producers = [talk.begun(), talk.begun()]
        for step in range(STEPS):
            tx = rng.choice(producers)
            place = rng.choice([talk.zero, talk.one])
            # In Kafka a zombie that continues aborts the transaction of its successor before it is refused.
            is_open = talk.settle() == "Ongoing"
            known = {} if is_open else {"producer_id": tx.producer_id, "producer_epoch": tx.epoch}
            acts: list[tuple[str, Callable[[], Any]]] = [
                ("produce", partial(tx.produce, place, b"x")),
                ("produce", partial(tx.produce, place, b"x")),
                ("add", partial(tx.add, place)),
                ("add offsets", partial(tx.add_offsets, talk.group)),
                ("commit offsets", partial(tx.commit_offsets, talk.group, {talk.zero: 1})),
                ("commit", partial(tx.end, commit=True)),
                ("abort", partial(tx.end, commit=False)),
                ("init", tx.init),
                ("continue", partial(tx.init, **known)),
            ]
            name, act = rng.choice(acts)
            talk.at(f"{step}: {name}")
            act()
            talk.talk.tell(f"{step}: state", talk.settle())
        talk.at("at the end")
        for place in (talk.zero, talk.one):
            talk.seen(place, committed=True)
        talk.committed(stable=False)

    asks.__name__ = f"at_random_{seed}"
    return asks


for _seed in range(SEEDS):
    transacting(*CLIENTS)(at_random(_seed))
