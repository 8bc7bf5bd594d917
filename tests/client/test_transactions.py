"""Transactions of the library, wherever the log is: all of a block counts, or nothing; one holder of an id at a time.

Every test runs in every place of `log_places.PLACES`, over real files and real sockets.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldlog
from client.log_places import IN_A_HURRY, PLACES, WAIT_MS, polled
from foldlog import errors
from foldlog.broker.transactions.store import TransactionStore
from foldlog.client.backends.directory import broker_of, is_directory
from foldlog.client.backends.local import LocalBackend
from foldlog.client.log import Log
from foldlog.testing.sim_clock import SimClock

_numbers = itertools.count()


class Failed(Exception):
    """What the user's code raises."""


@pytest.fixture(scope="module", params=PLACES)
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[foldlog.Log]:
    """One log for all tests of a place: what they share is its broker, and nothing in it."""
    with PLACES[request.param](tmp_path_factory.mktemp(request.param)) as opened:
        yield opened


@pytest.fixture
def topic(log: foldlog.Log) -> str:
    name = f"orders-{next(_numbers)}"
    log.create_topic(name)
    return name


@pytest.fixture
def name(topic: str) -> str:
    """A transactional id."""
    return f"etl-of-{topic}"


@contextmanager
def another_of(log: foldlog.Log) -> Iterator[foldlog.Log]:
    """A second log of the same place, as another program would have it."""
    if not is_directory(log):
        with foldlog.connect(log.path, properties=IN_A_HURRY) as opened:
            yield opened
    elif log.is_remote:
        with foldlog.open(log.path) as opened:
            yield opened
    else:
        yield Log(LocalBackend(broker_of(log)))  # not closed: its broker is that of `log`


def values(log: foldlog.Log, topic: str, isolation: str = "read_committed") -> list[bytes | None]:
    return [record.value for record in log.read(topic, 0, isolation=isolation)]


def committed(log: foldlog.Log, group: str, topic: str) -> int | None:
    found = log.committed(group).get(foldlog.TopicPartition(topic, 0))
    return None if found is None else found.offset


def test_leaving_the_block_commits_everything_in_it(log: foldlog.Log, topic: str, name: str) -> None:
    log.create_topic(f"{topic}-b", partitions=2)
    with log.transaction(name) as tx:
        sent = [tx.send(topic, str(n)) for n in range(3)]
        tx.send(f"{topic}-b", {"n": 1}, key="k", partition=1, headers={"h": b"1"}, timestamp_ms=1_700_000_000_000)
    assert values(log, topic) == [b"0", b"1", b"2"]
    assert [future.result(60).offset for future in sent] == [0, 1, 2]
    (record,) = log.read(f"{topic}-b", 1, isolation="read_committed")
    assert (record.key, record.value, record.headers) == (b"k", b'{"n":1}', (("h", b"1"),))


def test_an_exception_aborts_and_gets_out(log: foldlog.Log, topic: str, name: str) -> None:
    def fails() -> None:
        with log.transaction(name) as tx:
            tx.send(topic, "never").result(60)
            raise Failed("mine")

    with pytest.raises(Failed, match="mine"):
        fails()
    assert values(log, topic) == []
    assert values(log, topic, "read_uncommitted") == [b"never"]
    with log.transaction(name) as tx:
        tx.send(topic, "after")
    assert values(log, topic) == [b"after"]


def test_nothing_of_an_open_transaction_is_committed_and_all_of_it_is_written(
    log: foldlog.Log, topic: str, name: str
) -> None:
    log.append(topic, "before")
    tx = log.transaction(name)
    tx.send(topic, "within").result(60)
    log.append(topic, "beside")
    assert values(log, topic) == [b"before"]
    assert values(log, topic, "read_uncommitted") == [b"before", b"within", b"beside"]
    assert log.offsets(topic, isolation="read_committed") == {0: (0, 1)}
    assert log.offsets(topic) == {0: (0, 3)}
    tx.commit()
    assert values(log, topic) == [b"before", b"within", b"beside"]
    start, end = log.offsets(topic, isolation="read_committed")[0]
    assert (start, end) == (0, 4)  # with the marker


def test_one_transaction_after_the_other_without_a_new_id(log: foldlog.Log, topic: str, name: str) -> None:
    for n in range(5):
        with log.transaction(name) as tx:
            tx.send(topic, f"{n}a")
            tx.send(topic, f"{n}b")
            if n % 2:
                tx.abort()
    assert values(log, topic) == [b"0a", b"0b", b"2a", b"2b", b"4a", b"4b"]


def test_a_table_has_committed_records_alone(log: foldlog.Log, topic: str, name: str) -> None:
    with log.transaction(name) as tx:
        tx.send(topic, "one")
    with log.transaction(name) as tx:
        tx.send(topic, "never").result(60)
        tx.abort()
    with log.transaction(name) as tx:
        tx.send(topic, "two")
    found = log.read_arrow(topic, columns=["value"], isolation="read_committed")
    assert found.column("value").to_pylist() == [b"one", b"two"]
    assert log.read_arrow(topic, columns=["value"]).num_rows == 3


def test_a_consumer_of_committed_records_waits_for_the_end_of_a_transaction(
    log: foldlog.Log, topic: str, name: str
) -> None:
    with log.consumer(topic, auto_offset_reset="earliest", isolation="read_committed") as consumer:
        with log.transaction(name) as tx:
            tx.send(topic, "never").result(60)
            tx.abort()
        tx = log.transaction(name)
        tx.send(topic, "later").result(60)
        assert consumer.poll(timeout_ms=100) == []
        assert consumer.lag() == {foldlog.TopicPartition(topic, 0): 0}
        tx.commit()
        assert [record.value for record in polled(consumer, 1)] == [b"later"]


def test_a_consumer_that_begins_at_the_end_sees_what_was_undecided_then(
    log: foldlog.Log, topic: str, name: str
) -> None:
    tx = log.transaction(name)
    tx.send(topic, "undecided").result(60)
    with log.consumer(topic, group=f"{topic}-late", isolation="read_committed") as consumer:
        assert consumer.poll(timeout_ms=0) == []
        assert consumer.position(topic, 0) == 0
        tx.commit()
        assert [record.value for record in polled(consumer, 1)] == [b"undecided"]


def test_a_tail_of_committed_records_goes_on_with_each_commit(log: foldlog.Log, topic: str, name: str) -> None:
    tail = log.read(topic, 0, follow=True, timeout_ms=WAIT_MS, isolation="read_committed")
    for n in range(4):
        with log.transaction(name) as tx:
            tx.send(topic, str(n)).result(60)
            if n == 1:
                tx.abort()
    assert [next(tail).value for _ in range(3)] == [b"0", b"2", b"3"]


# --- offsets --------------------------------------------------------------------------------------------------------


def test_positions_of_a_consumer_are_committed_with_the_records(log: foldlog.Log, topic: str, name: str) -> None:
    group, out = f"{topic}-group", f"{topic}-out"
    log.create_topic(out)
    for n in range(4):
        log.append(topic, str(n))

    def copy_two(consumer: foldlog.Consumer, fault: Exception | None = None) -> None:
        with log.transaction(name) as tx:
            for record in polled(consumer, 2):
                tx.send(out, record.value)
            tx.commit_offsets(consumer)
            if fault is not None:
                raise fault

    with log.consumer(topic, group=group, auto_offset_reset="earliest", auto_commit=False, max_records=2) as consumer:
        copy_two(consumer)
        assert committed(log, group, topic) == 2
        with pytest.raises(Failed):
            copy_two(consumer, Failed())
    assert committed(log, group, topic) == 2
    with log.consumer(topic, group=group, auto_commit=False, isolation="read_committed") as consumer:
        copy_two(consumer)
    assert committed(log, group, topic) == 4
    assert values(log, out) == [b"0", b"1", b"2", b"3"]


def test_given_offsets_are_committed_for_a_group(log: foldlog.Log, topic: str, name: str) -> None:
    group = f"{topic}-group"
    with log.transaction(name) as tx:
        tx.commit_offsets(group, {(topic, 0): 7})
    assert committed(log, group, topic) == 7
    with log.transaction(name) as tx:
        tx.commit_offsets(group, {foldlog.TopicPartition(topic, 0): 9})
        tx.abort()
    assert committed(log, group, topic) == 7


def test_what_cannot_be_committed_is_refused_in_one_sentence(log: foldlog.Log, topic: str, name: str) -> None:
    with log.consumer(topic) as alone, log.consumer(topic, group=f"{topic}-g") as by_itself, another_of(log) as other:
        tx = log.transaction(name)
        with pytest.raises(errors.InvalidArgument, match="no group"):
            tx.commit_offsets(alone)
        with pytest.raises(errors.InvalidArgument, match="auto_commit=False"):
            tx.commit_offsets(by_itself)
        elsewhere = other.consumer(topic, group=f"{topic}-h", auto_commit=False)
        with elsewhere, pytest.raises(errors.InvalidArgument, match="another log"):
            tx.commit_offsets(elsewhere)
        with pytest.raises(errors.UnknownTopic):
            tx.commit_offsets("g", {("nowhere", 0): 1})
        with pytest.raises(errors.InvalidArgument, match="takes a dict"):
            tx.commit_offsets("g")  # type: ignore[call-overload]
        tx.abort()


def test_a_member_that_was_replaced_cannot_commit(log: foldlog.Log, topic: str, name: str) -> None:
    group = f"{topic}-group"
    log.append(topic, "0")
    with log.consumer(topic, group=group, auto_offset_reset="earliest", auto_commit=False) as consumer:
        polled(consumer, 1)
        log.reset_group(group, {(topic, 0): 0}, evict=True)  # its member is evicted
        tx = log.transaction(name)
        with pytest.raises(errors.GroupError):
            tx.commit_offsets(consumer)
        tx.abort()
    assert committed(log, group, topic) == 0


# --- one holder at a time -------------------------------------------------------------------------------------------


def test_two_open_transactions_of_one_id_are_an_error(log: foldlog.Log, topic: str, name: str) -> None:
    with log.transaction(name) as tx:
        tx.send(topic, "first")
        with pytest.raises(errors.InvalidTransactionState, match="open in this log"):
            log.transaction(name)
    assert values(log, topic) == [b"first"]


def test_a_transaction_that_nobody_can_end_any_more_is_aborted_by_the_next(
    log: foldlog.Log, topic: str, name: str
) -> None:
    log.transaction(name).send(topic, "dropped").result(60)
    gc.collect()
    with log.transaction(name) as tx:
        tx.send(topic, "next")
    assert values(log, topic) == [b"next"]


def test_a_newer_holder_fences_the_one_before_and_aborts_what_it_left(log: foldlog.Log, topic: str, name: str) -> None:
    with another_of(log) as other:
        old = log.transaction(name)
        old.send(topic, "left open").result(60)
        with other.transaction(name) as tx:
            tx.send(topic, "newer")
        old.send(topic, "too late")
        with pytest.raises(errors.ProducerFenced, match="newer holder"):
            old.commit()
        with pytest.raises(errors.ProducerFenced, match="newer holder"):  # nor does it take the id back by itself
            log.transaction(name).commit()
        with other.transaction(name) as tx:
            tx.send(topic, "goes on")
    assert values(log, topic) == [b"newer", b"goes on"]


def test_a_fenced_holder_that_ends_by_an_exception_gets_its_own(log: foldlog.Log, topic: str, name: str) -> None:
    def fails(other: foldlog.Log) -> None:
        with log.transaction(name) as old:
            old.send(topic, "left open").result(60)
            with other.transaction(name) as tx:
                tx.send(topic, "newer")
            raise Failed

    with another_of(log) as other, pytest.raises(Failed):
        fails(other)
    assert values(log, topic) == [b"newer"]


def test_a_log_that_is_closed_aborts_what_is_open(log: foldlog.Log, topic: str, name: str) -> None:
    if is_directory(log) and not log.is_remote:
        pytest.skip("closing it would close the log of the other tests; see below")
    with another_of(log) as other:
        other.transaction(name).send(topic, "left open").result(60)
    assert log.offsets(topic, isolation="read_committed") == log.offsets(topic)
    assert values(log, topic) == []


def test_a_directory_that_is_closed_has_no_open_transactions(tmp_path: Path) -> None:
    with foldlog.open(tmp_path) as log:
        log.create_topic("orders")
        kept = log.transaction("etl")
        kept.send("orders", "left open").result(60)
    with foldlog.open(tmp_path) as log:
        assert values(log, "orders") == []
        assert log.offsets("orders", isolation="read_committed") == log.offsets("orders") == {0: (0, 2)}


# --- the ends of a block --------------------------------------------------------------------------------------------


def test_a_transaction_that_is_over_takes_nothing_more(log: foldlog.Log, topic: str, name: str) -> None:
    with log.transaction(name) as tx:
        tx.send(topic, "paid")
        tx.commit()
        for call in (lambda: tx.send(topic, "x"), tx.commit, tx.abort, lambda: tx.commit_offsets("g", {(topic, 0): 1})):
            with pytest.raises(errors.InvalidTransactionState, match="is over"):
                call()
    with pytest.raises(errors.InvalidTransactionState, match="is over"), tx:
        pass
    assert values(log, topic) == [b"paid"]


def test_an_empty_transaction_is_nothing(log: foldlog.Log, topic: str, name: str) -> None:
    with log.transaction(name):
        pass
    log.transaction(name).abort()
    assert log.offsets(topic) == {0: (0, 0)}
    with log.transaction(name) as tx:
        tx.send(topic, "paid")
    assert values(log, topic) == [b"paid"]


def test_what_cannot_be_sent_is_refused_at_once_and_the_rest_commits(log: foldlog.Log, topic: str, name: str) -> None:
    with log.transaction(name) as tx:
        with pytest.raises(errors.UnknownTopic):
            tx.send("nowhere", "x")
        with pytest.raises(errors.UnknownPartition):
            tx.send(topic, "x", partition=9)
        tx.send(topic, "paid")
    assert values(log, topic) == [b"paid"]


def test_settings_of_a_producer_are_those_of_a_transaction(log: foldlog.Log, topic: str, name: str) -> None:
    with log.transaction(
        name, timeout_ms=30_000, linger_ms=60_000, batch_records=2, compression="zstd", value_serializer="json"
    ) as tx:
        for n in range(5):
            tx.send(topic, {"n": n})
    assert [record.value for record in log.read(topic, value_deserializer="json")] == [{"n": n} for n in range(5)]
    with log.transaction(name, timeout_ms=20_000) as tx:  # another timeout is told to the coordinator
        tx.send(topic, b"x")
    assert len(values(log, topic)) == 6


@pytest.mark.parametrize("bad", ["", None, 7])
def test_an_id_is_a_text(log: foldlog.Log, bad: object) -> None:
    with pytest.raises(errors.InvalidArgument, match="transactional_id"):
        log.transaction(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [0, -1, 1.5, "60000"])
def test_a_timeout_is_a_number_of_milliseconds(log: foldlog.Log, bad: object) -> None:
    with pytest.raises(errors.InvalidArgument, match="timeout_ms"):
        log.transaction("etl", timeout_ms=bad)  # type: ignore[arg-type]


def test_an_isolation_is_one_of_kafkas(log: foldlog.Log, topic: str) -> None:
    for call in (log.read, log.read_arrow, log.offsets, log.consumer):
        with pytest.raises(errors.InvalidArgument, match="isolation='serializable' is not known"):
            call(topic, isolation="serializable")


# --- time, failures and the next member: with a clock and files that the test owns ----------------------------------


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


@pytest.fixture
def local(clock: SimClock) -> Iterator[foldlog.Log]:
    with foldlog.open(":memory:", clock=clock, background=False) as opened:
        opened.create_topic("orders")
        yield opened


def test_a_transaction_that_is_open_for_too_long_is_aborted_and_the_next_goes_on(
    local: foldlog.Log, clock: SimClock
) -> None:
    tx = local.transaction("etl", timeout_ms=1000, linger_ms=0)
    tx.send("orders", "too slow").result(60)
    clock.advance(1001)
    with pytest.raises(errors.ProducerFenced, match="longer than timeout_ms"):
        tx.commit()
    with local.transaction("etl", timeout_ms=1000, linger_ms=0) as tx:
        tx.send("orders", "quick")
    assert values(local, "orders") == [b"quick"]


def test_a_timeout_over_the_brokers_is_refused(local: foldlog.Log) -> None:
    with pytest.raises(errors.InvalidTransactionTimeout):
        local.transaction("etl", timeout_ms=10**9)
    with local.transaction("etl", linger_ms=0) as tx:
        tx.send("orders", "paid")
    assert values(local, "orders") == [b"paid"]


def test_a_record_that_cannot_be_written_aborts_the_block_with_its_error(
    local: foldlog.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = errors.StorageFull("no space left")
    real = TransactionStore.append
    lets = {"orders-0": 1}

    def append(self: TransactionStore, transactional_id: str | None, partition: Any, records: Any, *, add: bool) -> Any:
        label = "-".join(map(str, partition.label))
        if lets.get(label, 9) <= 0:
            raise full
        lets[label] = lets.get(label, 9) - 1
        return real(self, transactional_id, partition, records, add=add)

    monkeypatch.setattr(TransactionStore, "append", append)
    tx = local.transaction("etl", linger_ms=0, batch_records=1)
    sent = [tx.send("orders", str(n)) for n in range(3)]
    with pytest.raises(errors.StorageFull, match="no space left"):
        tx.commit()
    assert sent[0].result(60).offset == 0
    for failed in sent[1:]:
        with pytest.raises(errors.StorageFull):
            failed.result(60)
    assert values(local, "orders") == []
    assert local.offsets("orders") == local.offsets("orders", isolation="read_committed")
    lets["orders-0"] = 9
    with local.transaction("etl", linger_ms=0) as tx:
        tx.send("orders", "again")
    assert values(local, "orders") == [b"again"]


def test_a_member_that_comes_after_an_undecided_commit_begins_when_it_is_decided(local: foldlog.Log) -> None:
    for n in range(4):
        local.append("orders", str(n))
    tx = local.transaction("etl", linger_ms=0)
    tx.commit_offsets("group", {("orders", 0): 3})
    with local.consumer("orders", group="group", auto_offset_reset="earliest", isolation="read_committed") as consumer:
        assert consumer.poll(timeout_ms=0) == []
        tx.commit()
        assert [record.value for record in polled(consumer, 1)] == [b"3"]
    with local.consumer("orders", group="group", auto_commit=False, isolation="read_uncommitted") as consumer:
        assert consumer.position("orders", 0) == 4


def test_a_reader_that_stands_behind_the_last_stable_offset_waits_there(local: foldlog.Log) -> None:
    local.append("orders", "0")
    tx = local.transaction("etl", linger_ms=0)
    sent = [tx.send("orders", str(n)) for n in (1, 2)]
    assert [future.result(60).offset for future in sent] == [1, 2]
    with local.consumer("orders", isolation="read_committed") as consumer:
        consumer.seek("orders", 0, 2)
        assert consumer.poll(timeout_ms=0) == []
        assert consumer.position("orders", 0) == 2
        tx.commit()
        assert [record.value for record in consumer.poll(timeout_ms=WAIT_MS)] == [b"2"]


def test_a_log_that_is_only_read_has_committed_records_and_no_transactions(tmp_path: Path) -> None:
    with foldlog.open(tmp_path) as writer:
        writer.create_topic("orders")
        with writer.transaction("etl") as tx:
            tx.send("orders", "paid")
        with writer.transaction("etl") as tx:
            tx.send("orders", "never").result(60)
            tx.abort()
        tx = writer.transaction("etl")
        tx.send("orders", "open").result(60)
        with foldlog.open(tmp_path, mode="r") as reader:
            assert values(reader, "orders") == [b"paid"]
            assert len(values(reader, "orders", "read_uncommitted")) == 3
            with pytest.raises(errors.ReadOnly):
                reader.transaction("etl")
            with reader.consumer("orders", auto_offset_reset="earliest", isolation="read_committed") as consumer:
                assert [record.value for record in consumer.poll(timeout_ms=WAIT_MS)] == [b"paid"]
                tx.commit()
                assert [record.value for record in polled(consumer, 1)] == [b"open"]


def test_a_log_opened_for_committed_records_is_so_for_all_its_readers(tmp_path: Path) -> None:
    with foldlog.open(tmp_path) as writer:
        writer.create_topic("orders")
        tx = writer.transaction("etl")
        tx.send("orders", "open").result(60)
        with foldlog.open(tmp_path, mode="r", isolation_level="read_committed") as reader:
            assert list(reader.read("orders")) == []
            assert reader.read_arrow("orders").num_rows == 0
            assert reader.offsets("orders") == {0: (0, 0)}
            assert reader.consumer("orders", auto_offset_reset="earliest").poll() == []
            assert values(reader, "orders", "read_uncommitted") == [b"open"]


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", ""]), st.integers(0, 3), st.sampled_from([True, False, None])), max_size=12
    )
)
@settings(max_examples=40, deadline=None)
def test_committed_readers_see_what_was_committed_in_order(steps: list[tuple[str, int, bool | None]]) -> None:
    """A model: two writers with an id each and one without; each step sends some records, and commits, aborts or leaves
    the transaction open."""
    with foldlog.open(":memory:", background=False) as log:
        log.create_topic("orders", config={"foldlog.segment.records": 5})
        opened: dict[str, foldlog.Transaction] = {}
        written: list[tuple[str, int]] = []  # the transaction, and the value
        decided: dict[str, bool] = {"": True}
        number = 0
        for step, (who, count, end) in enumerate(steps):
            if who and who not in opened:
                opened[who] = log.transaction(who)
                decided.pop(who, None)
            for _ in range(count):
                number += 1
                if who:
                    opened[who].send("orders", str(number)).result(60)
                else:
                    log.append("orders", str(number))
                written.append((who, number))
            if who and end is not None:
                tx = opened.pop(who)
                tx.commit() if end else tx.abort()
                name = f"{who}{step}"
                written = [(name if one == who else one, value) for one, value in written]
                decided[name] = end
        undecided = [at for at, (who, _) in enumerate(written) if who not in decided]
        stable = written[: undecided[0]] if undecided else written
        expected = [str(value).encode() for who, value in stable if decided[who]]
        assert values(log, "orders") == expected
        with log.consumer("orders", auto_offset_reset="earliest", isolation="read_committed") as consumer:
            assert [record.value for record in consumer.poll()] == expected
            assert sum(consumer.lag().values()) == 0
        assert len(values(log, "orders", "read_uncommitted")) == len(written)
