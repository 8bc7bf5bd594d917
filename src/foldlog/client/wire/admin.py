"""What is done with a cluster beside records, where one question does not do it.

Leaders are asked each for its own partitions, and a change is waited for until all brokers have heard of it. What one
question does is asked with `ClusterLinks.ask`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.client.descriptions import (
    ConfigEntry,
    GroupDescription,
    OpenProducer,
    TransactionDescription,
    described_group,
)
from foldlog.client.positions import TopicPartition
from foldlog.client.wire import propagation, questions
from foldlog.client.wire.links import ClusterLinks, PartitionLeader
from foldlog.client.wire.questions import EARLIEST, LATEST, REPLICAS_DEFAULT, Answer, ListedOffset, Question
from foldlog.client.wire.refusals import Passing
from foldlog.client.wire.transactions import requests as transactions
from foldlog.errors import TopicExists, UnknownTopic, UnknownTransactionalId, WaitTimeout
from foldlog.wire.messages.delete_records import DeleteRecordsResponse
from foldlog.wire.messages.list_offsets import ListOffsetsResponse
from foldlog.wire.schema import ZERO_UUID

Done = TypeVar("Done")

_LOOK_AGAIN_S: Final = 0.02


# --- topics ---------------------------------------------------------------------------------------------------------


def create_topic(
    links: ClusterLinks, name: str, partitions: int, config: Mapping[str, str], replicas: int = REPLICAS_DEFAULT
) -> None:
    """Returns once all brokers know of it and each partition has a leader. TopicExists if there is one."""
    timeout_ms = links.properties.request_timeout_ms
    try:
        links.ask(questions.create_topic(name, partitions, config, timeout_ms, replicas))
    except TopicExists:
        # Made a moment ago, perhaps: who is told that it is there finds it.
        _wait_until(links, lambda: propagation.is_known(links, name), f"finding topic {name!r}, which is being made")
        raise
    _wait_until(links, lambda: propagation.is_led(links, name, partitions), f"making topic {name!r}")


def ensure_topic(links: ClusterLinks, name: str, partitions: int, config: Mapping[str, str]) -> None:
    """Make a topic unless it exists."""
    try:
        links.topic(name)
    except UnknownTopic:
        try:
            create_topic(links, name, partitions, config)
        except TopicExists:
            pass  # another process was as quick


def delete_topic(links: ClusterLinks, name: str) -> None:
    """Returns once no broker knows of it any more."""
    links.ask(questions.delete_topic(name, links.properties.request_timeout_ms))
    links.forget_topic(name)
    _wait_until(links, lambda: propagation.is_gone(links, name), f"deleting topic {name!r}")


def grow_topic(links: ClusterLinks, name: str, partitions: int) -> None:
    """Returns once all brokers know of them and each has a leader."""
    question = questions.grow_topic(name, partitions, links.properties.request_timeout_ms)
    if links.topic(name).partition_count >= partitions:
        # What it is refused with is then not what an earlier try of this call did.
        question = replace(question, done_shows_as=None)
    links.ask(question)
    _wait_until(links, lambda: propagation.is_led(links, name, partitions), f"growing topic {name!r}")


def alter_topic(links: ClusterLinks, name: str, settings: Mapping[str, str | None]) -> None:
    """None puts a setting back to its default. In force at all brokers on return."""
    links.ask(questions.alter_topic(name, settings))
    _wait_until(links, lambda: propagation.has_settings(links, name, settings), f"altering topic {name!r}")


def topic_settings(links: ClusterLinks, name: str, settings: Iterable[str] | None = None) -> dict[str, ConfigEntry]:
    """Those that are in force, defaults included: all, or those named."""
    question = questions.topic_settings(name, settings)

    def attempt() -> dict[str, ConfigEntry]:
        try:
            return question.read(links.call_any(question.request, question.answer))
        except Passing as passing:
            if isinstance(passing.error, UnknownTopic):
                links.topic(name)  # says so, if it is gone; else the one that was asked has not heard of it
            raise

    return links.retried(attempt)


def _wait_until(links: ClusterLinks, is_so: Callable[[], bool], what: str) -> None:
    """Brokers hear of a change one after the other."""
    limit_ms = links.properties.default_api_timeout_ms
    deadline_s = time.monotonic() + limit_ms / 1000
    while not links.retried(is_so):
        if time.monotonic() > deadline_s:
            raise WaitTimeout(f"{what} was not done within {limit_ms} ms; it may yet be")
        time.sleep(_LOOK_AGAIN_S)


# --- partitions -----------------------------------------------------------------------------------------------------


def list_offsets(
    links: ClusterLinks, topic: str, times_ms: Mapping[int, int], *, isolation_level: int | None = None
) -> dict[int, ListedOffset]:
    """See `questions.list_offsets`. `isolation_level`: another than the properties say."""
    level = links.properties.isolation_level if isolation_level is None else isolation_level
    timeout_ms = links.properties.request_timeout_ms

    def question(leaders: Mapping[int, PartitionLeader]) -> Question[ListOffsetsResponse, dict[int, ListedOffset]]:
        wanted = {number: times_ms[number] for number in leaders}
        epochs = {number: leader.epoch for number, leader in leaders.items()}
        return questions.list_offsets(topic, wanted, epochs, level, timeout_ms)

    return _of_leaders(links, topic, times_ms, question)


class PartitionBounds(NamedTuple):
    """What can be read of a partition, [start, end), and the epoch of its leader (-1 if the broker does not say)."""

    start: int
    end: int
    leader_epoch: int


def partition_bounds(
    links: ClusterLinks, topic: str, epochs: Mapping[int, int], *, isolation_level: int | None = None
) -> dict[int, PartitionBounds]:
    """Where partitions begin and end now. `epochs` has each one's leader epoch as far as it is known, or -1;
    `isolation_level` as for `list_offsets`."""
    starts = list_offsets(links, topic, dict.fromkeys(epochs, EARLIEST))
    ends = list_offsets(links, topic, dict.fromkeys(epochs, LATEST), isolation_level=isolation_level)
    found: dict[int, PartitionBounds] = {}
    for number, known in epochs.items():
        start, end = starts[number], ends[number]
        # A leader that was elected meanwhile may have answered: under the old epoch its end would look as if the log
        # had been cut back. Its end may also lag behind a start that another leader told.
        epoch = max(known, start.leader_epoch, end.leader_epoch)
        found[number] = PartitionBounds(min(start.offset, end.offset), end.offset, epoch)
    return found


def offsets_at(links: ClusterLinks, topic: str, times_ms: Mapping[int, int]) -> dict[int, int | None]:
    """Per partition the offset of the first record at or after its time; None where there is none."""
    found = list_offsets(links, topic, {number: max(0, at) for number, at in times_ms.items()})
    offsets = {number: None if one.offset < 0 else one.offset for number, one in found.items()}
    early = [number for number, at in times_ms.items() if at < 0]
    if early:
        # Brokers read negative times as questions of another kind. Records without a time have -1, and are not before.
        whole = partition_bounds(links, topic, dict.fromkeys(early, -1))
        offsets |= {number: one.start if one.start < one.end else None for number, one in whole.items()}
    return offsets


def delete_records(links: ClusterLinks, topic: str, before: Mapping[int, int]) -> dict[int, int]:
    """Per partition the offset that it is to begin at; the new log starts."""
    timeout_ms = links.properties.request_timeout_ms

    def question(leaders: Mapping[int, PartitionLeader]) -> Question[DeleteRecordsResponse, dict[int, int]]:
        return questions.delete_records(topic, {number: before[number] for number in leaders}, timeout_ms)

    return _of_leaders(links, topic, before, question)


def epoch_end(links: ClusterLinks, topic: str, partition: int, epoch: int) -> tuple[int, int]:
    """(the latest epoch not after `epoch`, the offset where it ended); (-1, -1) where the leader knows none such."""

    def attempt() -> tuple[int, int]:
        leader = links.leader(topic, partition)
        question = questions.epoch_end(topic, partition, epoch, leader.epoch)
        return question.read(links.call(leader.address, question.request, question.answer))

    return links.retried(attempt)


def _of_leaders(
    links: ClusterLinks,
    topic: str,
    partitions: Iterable[int],
    question: Callable[[Mapping[int, PartitionLeader]], Question[Answer, dict[int, Done]]],
) -> dict[int, Done]:
    """What the leaders of these partitions say, each asked for all of its own at once. Only who could not answer is
    asked again, or who leads then."""
    wanted = list(partitions)
    found: dict[int, Done] = {}

    def attempt() -> None:
        passing: Passing | None = None
        missing = [number for number in wanted if number not in found]
        for address, leaders in links.leaders(topic, missing).items():
            asked = question(leaders)
            try:
                found.update(asked.read(links.call(address, asked.request, asked.answer)))
            except Passing as error:
                passing = error
        if passing is not None:
            raise passing

    links.retried(attempt)
    return {number: found[number] for number in wanted}


# --- groups ---------------------------------------------------------------------------------------------------------


def list_groups(links: ClusterLinks) -> list[str]:
    """Every group, whichever broker looks after it, in order."""
    question = questions.list_groups()

    def attempt() -> list[str]:
        # All have to answer: the groups that one of them looks after would be missing.
        answers = links.call_all(question.request, question.answer)
        return sorted({group for answer in answers for group in question.read(answer)})

    return links.retried(attempt)


def describe_group(links: ClusterLinks, group: str) -> GroupDescription:
    """UnknownGroup if the cluster knows nothing of it."""
    return described_group(questions.describe_any_group(links, group))


def commit(links: ClusterLinks, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Store a group's offsets as nobody's member; a GroupError if it has members."""
    if not offsets:
        return
    topic_ids = {name: links.topic(name).topic_id for name in dict.fromkeys(one.topic for one in offsets)}
    is_by_name = ZERO_UUID in topic_ids.values()
    links.ask(questions.commit(group, dict(offsets.items()), topic_ids, is_by_name=is_by_name))


# --- transactions ---------------------------------------------------------------------------------------------------


def list_transactions(links: ClusterLinks) -> list[TransactionDescription]:
    """Every transactional id, whichever broker looks after it, in order. One that expires meanwhile is left out."""
    question = transactions.list_transactions()

    def attempt() -> list[str]:
        # All have to answer: the ids that one of them looks after would be missing.
        answers = links.call_all(question.request, question.answer)
        return sorted({name for answer in answers for name in question.read(answer)})

    found: list[TransactionDescription] = []
    for name in links.retried(attempt):
        with suppress(UnknownTransactionalId):
            found.append(links.ask(transactions.describe_transaction(name)))
    return found


def open_producers(links: ClusterLinks, topic: str, partition: int) -> list[OpenProducer]:
    """Whose transactions are open in a partition, the oldest first."""
    return _of_leaders(links, topic, [partition], lambda leaders: transactions.open_producers(topic, leaders))[
        partition
    ]


def abort_in_partition(links: ClusterLinks, topic: str, partition: int, producer: OpenProducer) -> None:
    """End a transaction in one partition as aborted, whatever its coordinator says."""
    _of_leaders(links, topic, [partition], lambda _: transactions.abort_marker(topic, partition, producer))
