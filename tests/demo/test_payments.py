"""The made-up payments are what the demo says of them: repeatable, keyed, and with every kind of record among them."""

from __future__ import annotations

from collections import Counter

from foldlog.client.outgoing import partition_for_key
from foldlog.demo.payments import CORRECTION, PARTITIONS, PAYMENT, POISON, REFUND, Event, PaymentStream
from foldlog.demo.proof import decoded
from foldlog.demo.writer import batches
from foldlog.records.loops import decode

NOW_MS = 1_768_470_000_000


def events(count: int, seed: int = 5) -> list[Event]:
    stream = PaymentStream(seed)
    return [stream.next(NOW_MS + number) for number in range(count)]


def test_the_same_seed_gives_the_same_stream_and_another_one_another() -> None:
    assert events(200) == events(200)
    assert events(200) != events(200, seed=6)


def test_every_kind_comes_and_is_counted() -> None:
    stream = PaymentStream()
    made = Counter(stream.next(NOW_MS).kind for _ in range(5000))
    assert made == stream.made
    assert set(made) == {PAYMENT, CORRECTION, REFUND, POISON}
    assert made[PAYMENT] > 4000 > made[REFUND] > made[POISON] > 0


def test_refunds_and_corrections_are_of_payments_that_were_made() -> None:
    known: set[bytes] = set()
    for event in events(3000):
        if event.kind in (CORRECTION, REFUND):
            assert event.key in known
        if event.kind == PAYMENT:
            assert event.key not in known
            known.add(event.key)


def test_a_refund_has_no_value_and_only_poison_does_not_parse() -> None:
    for event in events(3000):
        assert (event.value is None) == (event.kind == REFUND)
        if event.value is not None:
            assert (decoded(event.value) is None) == (event.kind == POISON)


def test_payments_have_the_fields_and_some_come_late() -> None:
    rows = [row for event in events(500) if event.value is not None and (row := decoded(event.value)) is not None]
    assert all(row["amount_paise"] >= 100 and row["merchant"] and row["note"] for row in rows)
    late_ms = [NOW_MS - row["at"].timestamp() * 1000 for row in rows]
    assert any(one > 60_000 for one in late_ms)
    assert all(one <= 4 * 60_000 for one in late_ms)


def test_batches_keep_the_order_of_each_key_and_number_every_record() -> None:
    made = events(400)
    found: list[int] = []
    for partition, batch in batches(made).items():
        records, _ = decode(bytes(batch), "payments", partition)
        numbers = [int(dict(one.headers)["n"] or b"") for one in records]
        assert numbers == sorted(numbers)
        assert {partition_for_key(one.key or b"", PARTITIONS) for one in records} == {partition}
        found += numbers
    assert sorted(found) == list(range(400))
