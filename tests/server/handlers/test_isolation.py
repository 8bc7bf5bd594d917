"""What readers see of transactions: last stable offsets, aborted ones, stable commits; and when a waiting fetch wakes.

A reader of committed records gets every batch below the last stable offset, and a list of aborted transactions to leave
out by itself, as with Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from foldlog.records.batch import producer_of
from foldlog.server.fetches.fetching import FetchRead
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from foldlog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from server.group_client import GroupClient, settle
from server.raw_client import batch as plain_batch
from server.raw_client import produce as produce_request
from server.small_node import SmallNode
from server.transaction_client import (
    JAVA_3,
    JAVA_4,
    LIBRDKAFKA,
    STAMP_MS,
    TransactionClient,
    Versions,
    aborted_in,
    fetch_request,
    fetched,
    values_of,
)

EVENTS = ("events", 0)
OTHER = ("events", 1)
GROUP = "readers"
LONG_MS = 600_000
"""Longer than any test: what is answered was woken."""

every_client = pytest.mark.parametrize("versions", [LIBRDKAFKA, JAVA_3, JAVA_4], ids=["librdkafka", "java-3", "java-4"])


@pytest.fixture(autouse=True)
def _topic(small: SmallNode) -> None:
    small.broker.create_topic("events", 2)


@pytest.fixture
def client(small: SmallNode) -> TransactionClient:
    made = TransactionClient(small, JAVA_4)
    assert made.init() == 0
    return made


def write_plain(small: SmallNode, value: bytes) -> None:
    answer = small.ask(produce_request(plain_batch(value), topic="events"), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0


# --- Fetch ------------------------------------------------------------------------------------------------------------


def test_an_open_transaction_holds_back_what_is_behind_it(small: SmallNode, client: TransactionClient) -> None:
    write_plain(small, b"before")
    client.write(EVENTS, b"open")
    write_plain(small, b"behind")
    found = fetched(small, EVENTS, committed=True)
    assert (values_of(found), found.last_stable_offset, found.high_watermark) == ([b"before"], 1, 3)
    assert found.aborted_transactions == []
    seen = fetched(small, EVENTS, committed=False)
    assert values_of(seen) == [b"before", b"open", b"behind"]
    assert (seen.last_stable_offset, seen.aborted_transactions) == (1, None)
    assert client.end(commit=True) == 0
    assert values_of(fetched(small, EVENTS, committed=True)) == [b"before", b"open", b"behind"]


def test_who_begins_inside_an_aborted_transaction_is_told_of_it(small: SmallNode) -> None:
    one, other = (TransactionClient(small, JAVA_3, name) for name in ("one", "other"))
    assert one.init() == other.init() == 0
    one.write(EVENTS, b"0")
    other.write(EVENTS, b"1")
    one.write(EVENTS, b"2")
    other.write(EVENTS, b"3")
    assert other.end(commit=False) == 0  # its marker is at 4
    assert one.end(commit=True) == 0  # at 5
    write_plain(small, b"6")

    def told(offset: int) -> list[tuple[int, int]]:
        return aborted_in(fetched(small, EVENTS, offset, committed=True))

    assert [told(offset) for offset in (0, 2, 3, 4)] == [[(other.producer_id, 1)]] * 4
    assert told(5) == told(6) == []


def test_a_fetch_that_ends_before_an_aborted_transaction_is_not_told_of_it(
    small: SmallNode, client: TransactionClient
) -> None:
    write_plain(small, b"x" * 2000)
    client.write(EVENTS, b"aborted")
    assert client.end(commit=False) == 0
    request = fetch_request(EVENTS, committed=True, max_bytes=100)
    found = small.ask(request, 12).responses[0].partitions[0]
    assert (values_of(found), found.aborted_transactions) == ([b"x" * 2000], [])


@pytest.mark.parametrize("min_bytes", [1, 1000])
@pytest.mark.parametrize("commit", [True, False])
def test_a_waiting_reader_of_committed_records_is_woken_by_the_end_of_the_transaction(
    small: SmallNode, client: TransactionClient, min_bytes: int, commit: bool
) -> None:
    """By a marker of 78 bytes, also if it wants a thousand: what the marker releases is more."""
    later = small.begin(fetch_request(EVENTS, committed=True, max_wait_ms=LONG_MS, min_bytes=min_bytes), 12)
    values = [b"%d" % number * 300 for number in range(8)]
    for value in values:
        client.write(EVENTS, value)
        small.turn()
        assert not later.done(), "records of an open transaction are not what it waits for"
    assert client.end(commit=commit) == 0
    found = small.answer(later, 12).responses[0].partitions[0]
    assert values_of(found) == values
    assert aborted_in(found) == ([] if commit else [(client.producer_id, 0)])


def test_a_waiting_reader_counts_only_committed_bytes(small: SmallNode, client: TransactionClient) -> None:
    later = small.begin(fetch_request(EVENTS, committed=True, max_wait_ms=LONG_MS, min_bytes=1000), 12)
    write_plain(small, b"few")
    client.write(EVENTS, b"x" * 2000)
    small.turn()
    assert not later.done()
    assert client.end(commit=True) == 0
    assert values_of(small.answer(later, 12).responses[0].partitions[0]) == [b"few", b"x" * 2000]


@pytest.mark.parametrize("min_bytes", [1, 1000])
def test_a_waiting_reader_of_committed_records_does_not_read_again_and_again(
    small: SmallNode, client: TransactionClient, min_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written in an open transaction is none of its business, until the last stable offset moves."""
    reads: list[object] = []
    read = FetchRead.read

    def counted(self: FetchRead, wanted: Any) -> None:
        reads.append(wanted)
        read(self, wanted)

    client.write(EVENTS, b"open")
    monkeypatch.setattr(FetchRead, "read", counted)
    later = small.begin(fetch_request(EVENTS, committed=True, max_wait_ms=LONG_MS, min_bytes=min_bytes), 12)
    for _ in range(20):
        client.write(EVENTS, b"x" * 200)
        small.turn()
    assert len(reads) <= 2, "once, and once more if something came meanwhile"
    assert client.end(commit=True) == 0
    assert len(values_of(small.answer(later, 12).responses[0].partitions[0])) == 21


def test_a_reader_that_waits_in_vain_is_answered_when_its_time_is_up(
    small: SmallNode, client: TransactionClient
) -> None:
    client.write(EVENTS, b"open")
    found = small.ask(fetch_request(EVENTS, committed=True, max_wait_ms=20), 12).responses[0].partitions[0]
    assert (values_of(found), found.last_stable_offset, found.high_watermark) == ([], 0, 1)


def test_one_open_transaction_of_several_is_enough_to_hold_back(small: SmallNode) -> None:
    clients = [TransactionClient(small, JAVA_4, f"tx-{number}") for number in range(3)]
    for number, one in enumerate(clients):
        assert one.init() == 0
        one.write(EVENTS, b"%d" % number)
    stable = []
    for one in (clients[1], clients[0], clients[2]):
        assert one.end(commit=True) == 0
        stable.append(fetched(small, EVENTS, committed=True).last_stable_offset)
    assert stable == [0, 2, 6]


def test_markers_are_control_batches_of_their_producer(small: SmallNode, client: TransactionClient) -> None:
    client.write(EVENTS, b"a")
    assert client.end(commit=True) == 0
    data = bytes(fetched(small, EVENTS, 1, committed=True).records or b"")
    assert data[22] & 0x30 == 0x30
    assert producer_of(data) == (client.producer_id, client.epoch), "in version 2 with the epoch after its own"


# --- ListOffsets ------------------------------------------------------------------------------------------------------


def listed(small: SmallNode, timestamp_ms: int, *, committed: bool, version: int = 7) -> tuple[int, int]:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp_ms)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed),
        topics=[ListOffsetsTopic(name="events", partitions=[asked])],
    )
    (found,) = small.ask(request, version).topics[0].partitions
    assert found.error_code == 0
    return found.offset, found.timestamp


@pytest.mark.parametrize("version", range(2, 12))
def test_the_end_for_committed_records_is_the_last_stable_offset(
    small: SmallNode, client: TransactionClient, version: int
) -> None:
    write_plain(small, b"before")
    client.write(EVENTS, b"open")
    ends = [listed(small, -1, committed=committed, version=version)[0] for committed in (True, False)]
    assert ends == [1, 2]
    assert client.end(commit=False) == 0
    ends = [listed(small, -1, committed=committed, version=version)[0] for committed in (True, False)]
    assert ends == [3, 3]


def test_by_time_nothing_is_found_that_may_not_be_read_yet(small: SmallNode, client: TransactionClient) -> None:
    client.write(EVENTS, b"a")
    for asked_ms in (STAMP_MS, -3):
        assert listed(small, asked_ms, committed=False) == (0, STAMP_MS)
        assert listed(small, asked_ms, committed=True) == (-1, -1)
    assert client.end(commit=True) == 0
    assert listed(small, STAMP_MS, committed=True) == (0, STAMP_MS)


# --- offsets of groups ------------------------------------------------------------------------------------------------


def committed_offsets(small: SmallNode, *, stable: bool, version: int = 9) -> dict[int, tuple[int, int]]:
    """(offset, error code) of both partitions."""
    topics = [OffsetFetchRequestTopics(name="events", partition_indexes=[0, 1])]
    if version < 8:
        one = OffsetFetchRequest(group_id=GROUP, require_stable=stable, topics=topics)  # type: ignore[arg-type]
        found = small.ask(one, version).topics[0].partitions
    else:
        many = [OffsetFetchRequestGroup(group_id=GROUP, topics=topics)]
        found = (
            small.ask(OffsetFetchRequest(groups=many, require_stable=stable), version).groups[0].topics[0].partitions
        )
    return {one.partition_index: (one.committed_offset, one.error_code) for one in found}


def commit(client: TransactionClient, offsets: Mapping[tuple[str, int], int], **member: Any) -> None:
    if not client.versions.is_2:
        assert client.add_offsets(GROUP) == 0
    assert client.commit_offsets(GROUP, offsets, **member) == [0] * len(offsets)


NOTHING = (-1, 0)
UNSTABLE = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)


@every_client
@pytest.mark.parametrize("version", [7, 8, 9])
def test_offsets_are_committed_with_the_transaction(small: SmallNode, versions: Versions, version: int) -> None:
    client = TransactionClient(small, versions)
    assert client.init() == 0
    client.write(EVENTS, b"a")
    commit(client, {EVENTS: 5})
    assert committed_offsets(small, stable=False, version=version) == {0: NOTHING, 1: NOTHING}
    assert committed_offsets(small, stable=True, version=version) == {0: UNSTABLE, 1: NOTHING}
    assert client.end(commit=True) == 0
    for stable in (False, True):
        assert committed_offsets(small, stable=stable, version=version) == {0: (5, 0), 1: NOTHING}
    commit(client, {EVENTS: 7})
    assert committed_offsets(small, stable=False, version=version)[0] == (5, 0)
    assert client.end(commit=False) == 0
    assert committed_offsets(small, stable=True, version=version) == {0: (5, 0), 1: NOTHING}


@every_client
def test_the_last_of_several_commits_of_a_transaction_counts(small: SmallNode, versions: Versions) -> None:
    client = TransactionClient(small, versions)
    assert client.init() == 0
    commit(client, {EVENTS: 5, OTHER: 6})
    commit(client, {EVENTS: 8})
    assert client.end(commit=True) == 0
    assert committed_offsets(small, stable=True) == {0: (8, 0), 1: (6, 0)}


@pytest.mark.parametrize(
    ("version", "code"), [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE), (5, ErrorCode.NONE)]
)
def test_before_version_2_a_group_has_to_be_added_first(small: SmallNode, version: int, code: ErrorCode) -> None:
    client = TransactionClient(small, JAVA_3._replace(commit_offsets=version))
    assert client.init() == 0
    assert client.commit_offsets(GROUP, {EVENTS: 5}) == [code]


@every_client
def test_a_member_that_was_replaced_commits_nothing(small: SmallNode, versions: Versions) -> None:
    member = GroupClient(small, group=GROUP)
    settle(member)
    client = TransactionClient(small, versions)
    assert client.init() == 0
    known = {"member_id": member.member_id, "generation_id_or_member_epoch": member.generation}
    commit(client, {EVENTS: 5}, **known)
    old = client.commit_offsets(GROUP, {EVENTS: 6}, **{**known, "generation_id_or_member_epoch": member.generation - 1})
    assert old == [ErrorCode.ILLEGAL_GENERATION]
    stranger = client.commit_offsets(GROUP, {EVENTS: 6}, **{**known, "member_id": "stranger"})
    assert stranger == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert client.end(commit=True) == 0
    assert committed_offsets(small, stable=True)[0] == (5, 0)


def test_what_cannot_be_committed_is_refused_and_the_rest_is_committed(
    small: SmallNode, client: TransactionClient
) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.commit_offsets(GROUP, {EVENTS: 5, ("events", 9): 1, ("nothing", 0): 1}) == [0, unknown, unknown]
    assert client.commit_offsets("", {EVENTS: 5}) == [ErrorCode.INVALID_GROUP_ID]
    assert client.end(commit=True) == 0
    assert committed_offsets(small, stable=True)[0] == (5, 0)


# --- many at once -----------------------------------------------------------------------------------------------------


def test_many_producers_at_once_have_their_own_transactions(small: SmallNode) -> None:
    """Each request is begun before any is answered; every second one aborts."""
    clients = [TransactionClient(small, JAVA_4, f"tx-{number}") for number in range(10)]
    for one in clients:
        assert one.init() == 0
        one.write(EVENTS, one.transactional_id.encode())
    ends = [small.begin(one.end_request(commit=number % 2 == 0), 5) for number, one in enumerate(clients)]
    assert [small.answer(end, 5).error_code for end in ends] == [0] * len(clients)
    found = fetched(small, EVENTS, committed=True)
    assert {producer_id for producer_id, _ in aborted_in(found)} == {one.producer_id for one in clients[1::2]}
    assert found.last_stable_offset == 2 * len(clients)
