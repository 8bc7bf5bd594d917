"""A log that another process writes and serves: reads from the files, everything else by asking that process.

Where nobody writes the directory any more, this process becomes its writer for as long as one call takes, and lets go
of it again: a server that is started finds it free. To follow a change of a topic: `RemoteBroker.create_topic`,
`_carry_out`, then calls.py. Of an append: partition.py, then produce.py. Of a member of a group: session.py.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Final

from foldlog.broker.broker import Broker
from foldlog.broker.data_directory import writer_of
from foldlog.broker.groups.committed import OffsetAndMetadata, check_offsets
from foldlog.broker.groups.messages import GroupSummary, check_group_name
from foldlog.broker.topics.catalog import CatalogTopic
from foldlog.broker.topics.changes import check_partition_count
from foldlog.broker.topics.config import TopicConfig
from foldlog.broker.topics.names import OwnTopicChange, check_user_topic_name, refuse_own_topic
from foldlog.client.backends.backend import GroupMemberships
from foldlog.client.backends.served.calls import Calls, NobodyWrites
from foldlog.client.backends.served.partition import RemotePartition
from foldlog.client.backends.served.produce import ProduceLink
from foldlog.client.backends.served.search import WriterSearch
from foldlog.client.backends.served.session import RemoteMemberships
from foldlog.client.backends.served.transactions import RemoteTransactions
from foldlog.client.consumer.arrivals import AnyPartition
from foldlog.client.fold_bulletin import refuse_made_otherwise
from foldlog.client.forks import watch_forks
from foldlog.client.outgoing import TransactionalProducer
from foldlog.client.positions import TopicPartition
from foldlog.client.wire import questions
from foldlog.client.wire.batches import Numbering, OutgoingBatch
from foldlog.client.wire.questions import Answer, Done, Question
from foldlog.clock import Clock
from foldlog.errors import LogClosed, ReadOnly, StorageError, UnknownTopic, WrongProcess
from foldlog.files.base import Files
from foldlog.files.holder import WriterInfo
from foldlog.limits import WRITER_ANSWER_MS
from foldlog.log.compaction import CompactionReport
from foldlog.log.doctor.recompression import RecompressionReport
from foldlog.log.follower import FollowedPartition
from foldlog.log.retention import outlived_on_arrival, outlived_text
from foldlog.records.stamping import newest_time

if TYPE_CHECKING:
    from foldlog.client.access import AccessAdmin
    from foldlog.client.backends.served.queue import ServedTaking
    from foldlog.client.queue.queue import QueueSettings

_log = logging.getLogger("foldlog")

DONE_BY_THE_WRITER: Final[Mapping[str, str]] = {
    "compact": "compaction{where} is done by {writer}, which writes it, when it is due",
    "recompress": "recompression{where} is done by {writer}, which writes it; stop it, then ask again",
    "enforce_retention": "retention{where} is done by {writer}, which writes it, when it is due",
}
"""What nobody can ask the writer for, and what is said where there is one: see `Backend.LIMITS`."""


class RemoteBroker:
    """A directory that another process writes, as the client uses it: see `backend.DirectoryBroker`. Any thread.

    What this process wrote, it reads: an answer comes when the writer has stored it in the checkpoint, which every
    reader looks at. Not promised: that it is one call for the disk where it is one call here, see `DistantPartition`.
    """

    def __init__(self, followed: Broker, files: Files, address: str | None) -> None:
        """Use `served.backend.open_served`."""
        self.path: Final = followed.path
        self.clock: Final[Clock] = followed.clock
        self.read_only: Final = False
        self._followed = followed
        self._files = files
        self._search = WriterSearch(files, self.path, self.clock, followed.directory_id)
        self._address = address
        self._calls = Calls(self._search)
        self._link = ProduceLink(self._search)
        self._partitions: dict[tuple[str, int], RemotePartition] = {}
        self._known_topics: dict[str, tuple[CatalogTopic, CatalogTopic]] = {}
        self._learned_from: WriterInfo | None = None
        self._told_outlived: set[str] = set()
        self._memberships = RemoteMemberships(self, self._search)
        self._refusal: type[LogClosed | WrongProcess] | None = None
        # A log that is dropped without being closed leaves no thread and no connection behind.
        self._end = weakref.finalize(self, _let_go, self._link, self._calls)
        watch_forks(self.forked)

    @property
    def bootstrap(self) -> str | None:
        writer = self._search.writer
        return self._address if writer is None else writer.address

    def memberships(self) -> GroupMemberships:
        return self._memberships

    def kept_moment(self) -> AbstractContextManager[None]:
        """Several calls as one: see `WriterSearch.kept_moment`."""
        self._check_usable()
        return self._search.kept_moment()

    # --- topics ---------------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None) -> CatalogTopic:
        check_user_topic_name(name)
        check_partition_count(partitions)
        settings = TopicConfig.parse({} if config is None else config).settings

        def create_here(broker: Broker) -> None:
            refuse_made_otherwise(name, partitions, config)
            broker.create_topic(name, partitions, config)

        self._change_topics(
            questions.create_topic(name, partitions, settings, WRITER_ANSWER_MS, replicas=1), create_here
        )
        return self.topic(name)

    def delete_topic(self, name: str) -> None:
        self.topic(name)
        self._change_topics(questions.delete_topic(name, WRITER_ANSWER_MS), lambda broker: broker.delete_topic(name))

    def grow_topic(self, name: str, partitions: int) -> CatalogTopic:
        refuse_own_topic(name, OwnTopicChange.GROW)  # here, since the writer's answer has no words for it
        self.topic(name)
        check_partition_count(partitions)
        self._change_topics(
            questions.grow_topic(name, partitions, WRITER_ANSWER_MS), lambda broker: broker.grow_topic(name, partitions)
        )
        return self.topic(name)

    def alter_topic(self, name: str, changes: Mapping[str, object | None]) -> CatalogTopic:
        wanted = self.topic(name).config.with_changes(changes).settings
        texts = {setting: wanted.get(setting) for setting in changes}
        self._change_topics(questions.alter_topic(name, texts), lambda broker: broker.alter_topic(name, changes))
        return self.topic(name)

    def topics(self, include_internal: bool = False) -> list[str]:
        return self._followed.topics(include_internal)

    def topic(self, name: str) -> CatalogTopic:
        """As it stands in the directory, over what its writer sets for topics that do not."""
        stored = self._followed.topic(name)
        defaults = self._search.topic_defaults
        if not defaults:
            return stored
        known, shown = self._known_topics.get(name, (None, stored))
        if known is not stored or shown.config.defaults is not defaults:
            # The same object as long as nothing has changed: who asks again compares them by that.
            shown = stored.with_defaults(defaults)
            self._known_topics[name] = (stored, shown)
        return shown

    def partition(self, topic: str, number: int) -> AnyPartition:
        return self._followed.partition(topic, number)

    def writable_partition(self, topic: str, number: int) -> RemotePartition:
        """To append; the writer decides whether it may."""
        self._check_usable()
        if self._learned_from != self._search.writer:
            self.learn_defaults()
        reader, topic_id = self._reader_of(topic, number)
        known = self._partitions.get((topic, number))
        if known is None or known.topic_id != topic_id:
            # Two threads may both make one: their batches are those of two producers.
            known = self._partitions[topic, number] = RemotePartition(self, reader, topic_id)
        return known

    def transactional_partition(self, topic: str, number: int, producer: TransactionalProducer) -> RemotePartition:
        """To append batches of one transaction, numbered from 0."""
        self._check_usable()
        reader, topic_id = self._reader_of(topic, number)
        numbering = Numbering(producer.producer_id, producer.epoch)
        return RemotePartition(self, reader, topic_id, numbering, producer.transactional_id)

    @property
    def transactions(self) -> RemoteTransactions:
        return RemoteTransactions(self._carry_out)

    @property
    def access(self) -> AccessAdmin:
        from foldlog.client.access import AccessAdmin, AskedAccess  # few ask for it, and an open imports little

        return AccessAdmin(AskedAccess(self._carry_out))

    def _reader_of(self, topic: str, number: int) -> tuple[FollowedPartition, bytes]:
        """With the id of its topic."""
        reader = self._followed.partition(topic, number)
        if not isinstance(reader, FollowedPartition):
            raise TypeError(f"{topic}-{number} was opened for writing")
        return reader, bytes.fromhex(self._followed.topic(topic).topic_id)

    def delete_records(self, topic: str, number: int, before_offset: int) -> int:
        """Move the log start to `before_offset`, for good; the new log start."""
        starts = self._carry_out(
            questions.delete_records(topic, {number: before_offset}, WRITER_ANSWER_MS),
            lambda broker: {number: broker.writable_partition(topic, number).delete_records(before_offset)},
        )
        return starts[number]

    # --- what partitions ask --------------------------------------------------------------------------------------

    def submit(self, batches: Iterable[OutgoingBatch]) -> None:
        sent = list(batches)
        for batch in sent:
            self._warn_if_outlived(batch)
        self._link.submit(sent)

    def _warn_if_outlived(self, batch: OutgoingBatch) -> None:
        """Once a topic, here too: the writer says it in its own log, which who appends may never see."""
        topic = batch.lane.label[0]
        if topic in self._told_outlived:
            return
        try:
            config = self.topic(topic).config.log
        except UnknownTopic:
            return  # who appends is told so when the writer answers
        if outlived_on_arrival(newest_time(batch.data), config, self.clock.now_ms()):
            self._told_outlived.add(topic)
            _log.warning("%s", outlived_text(topic, config.retention_ms))

    def allocate_producer_id(self) -> int:
        producer_id, _ = self._carry_out(
            questions.new_producer_id(WRITER_ANSWER_MS), lambda broker: (broker.allocate_producer_id(), 0)
        )
        return producer_id

    # --- who appends what may have been appended before: resumable.py -----------------------------------------------

    def resumable_partition(
        self, topic: str, number: int, producer_id: int, epoch: int, next_sequence: int
    ) -> RemotePartition:
        """To append batches with these numbers, the first of them `next_sequence`."""
        self._check_usable()
        reader, topic_id = self._reader_of(topic, number)
        return RemotePartition(self, reader, topic_id, Numbering(producer_id, epoch, next_sequence))

    def last_sequences(
        self, partitions: Iterable[tuple[str, int]], producer_id: int, epoch: int
    ) -> dict[tuple[str, int], int]:
        """The last sequence number that each partition has of a producer's epoch; left out where it remembers none."""
        chosen = list(partitions)

        def look(broker: Broker) -> dict[tuple[str, int], int]:
            return {
                key: known.last_sequence
                for key in chosen
                for known in broker.writable_partition(*key).producers_info()
                if (known.producer_id, known.producer_epoch) == (producer_id, epoch)
            }

        return self._carry_out(questions.last_sequences(chosen, producer_id, epoch), look)

    # --- groups ---------------------------------------------------------------------------------------------------

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[tuple[str, int], OffsetAndMetadata],
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
    ) -> None:
        check_group_name(group)
        check_offsets(offsets)
        topic_ids = self._checked_topic_ids(offsets)
        self._change(
            questions.commit(group, offsets, topic_ids, member_id, generation, instance_id),
            lambda broker: broker.commit_offsets(
                group, offsets, member_id=member_id, generation=generation, instance_id=instance_id
            ),
        )

    def committed(
        self, group: str, partitions: Iterable[tuple[str, int]] | None = None
    ) -> dict[tuple[str, int], OffsetAndMetadata]:
        return self._followed.committed(group, partitions)

    def unstable_offsets(self, group: str, partitions: Iterable[tuple[str, int]] | None = None) -> set[tuple[str, int]]:
        return self._followed.unstable_offsets(group, partitions)

    def group_names(self) -> list[str]:
        """Also those that have members and nothing durable yet, as long as the coordinator can be asked."""
        try:
            return self._carry_out(questions.list_groups(), lambda broker: broker.group_names())
        except StorageError:
            return self._followed.group_names()

    def describe_group(self, group: str) -> GroupSummary:
        return self._do(
            lambda: questions.describe_any_group(self._calls, group), lambda broker: broker.describe_group(group)
        )

    def share_offsets(self, group: str) -> dict[TopicPartition, tuple[int, int]]:
        return self._carry_out(
            questions.share_offsets(group),
            lambda broker: {TopicPartition(*place): found for place, found in broker.share_offsets(group).items()},
        )

    def move_share_group(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        self._change(questions.move_share_group(group, offsets), lambda broker: broker.move_share_group(group, offsets))

    def taking(self, settings: QueueSettings) -> ServedTaking:
        """Join a share group of the writer's."""
        from foldlog.client.backends.served.queue import ServedTaking

        self._check_usable()
        topic_ids = {name: bytes.fromhex(self.topic(name).topic_id) for name in settings.topics}
        changes = settings.group_settings
        if changes:
            self._change(
                questions.alter_group(settings.group, changes),
                lambda broker: broker.group_configs.change(settings.group, lambda own: {**own, **changes}),
            )
        return ServedTaking(self._search, settings, topic_ids)

    def move_offsets(
        self, group: str, offsets: Mapping[tuple[str, int], OffsetAndMetadata], *, evict: bool = False
    ) -> None:
        if not evict:
            self.commit_offsets(group, offsets)
            return
        check_group_name(group)
        check_offsets(offsets)
        question = questions.commit(group, offsets, self._checked_topic_ids(offsets))
        self._do(
            lambda: questions.commit_evicting(self._calls, group, lambda: self._calls.ask(question)),
            lambda broker: broker.move_offsets(group, offsets, evict=True),
        )

    def delete_group(self, group: str) -> None:
        self._change(questions.delete_group(group), lambda broker: broker.delete_group(group))

    def delete_offsets(self, group: str, partitions: Iterable[tuple[str, int]]) -> None:
        chosen = list(partitions)
        self._change(questions.delete_offsets(group, chosen), lambda broker: broker.delete_offsets(group, chosen))

    # --- upkeep ---------------------------------------------------------------------------------------------------

    def compact(self, topic: str | None = None) -> dict[tuple[str, int], CompactionReport]:
        return self._only_here("compact", lambda broker: broker.compact(topic))

    def recompress(self, topic: str, codec: str) -> dict[tuple[str, int], RecompressionReport]:
        return self._only_here("recompress", lambda broker: broker.recompress(topic, codec))

    def enforce_retention(self, topic: str | None = None) -> int:
        return self._only_here("enforce_retention", lambda broker: broker.enforce_retention(topic))

    def warnings(self) -> list[str]:
        return self._followed.warnings()

    # --- closing --------------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        self._check_usable()

    def close(self) -> None:
        """Let go of the connections and the files. Idempotent; the writer goes on."""
        if self._refusal is None:
            self._refusal = LogClosed
            self._end.detach()
            self._link.close()
            self._calls.close()
        self._followed.close()

    def forked(self) -> None:
        """In a forked child: the connections are the parent's."""
        self._refusal = WrongProcess
        self._end.detach()
        self._link.forked()
        self._calls.forked()

    def _check_usable(self) -> None:
        if self._refusal is WrongProcess:
            raise WrongProcess(f"the log in {self.path} was opened before a fork; open it again in this process")
        if self._refusal is not None:
            raise LogClosed(f"the log in {self.path} is closed; open it again")

    # --- how it is done -------------------------------------------------------------------------------------------

    def learn_defaults(self) -> None:
        """Ask the writer what it sets for topics that do not; once for each writer, as each brings its own."""
        try:
            self.ask_defaults()
        except StorageError as error:
            _log.warning("what the writer of %s sets for topics is not known: %s", self.path, error)

    def ask_defaults(self) -> Mapping[str, str]:
        """`learn_defaults` for who will write: raises if the directory has a writer that cannot be asked."""
        with suppress(NobodyWrites):
            defaults = self._calls.ask(questions.topic_defaults(self._calls.ask(questions.node_id())))
            self._learned_from = self._search.writer
            self._search.topic_defaults = defaults
        return self._search.topic_defaults

    def _carry_out(self, question: Question[Answer, Done], by_hand: Callable[[Broker], Done]) -> Done:
        """Ask whoever serves the directory; or do it here, where nobody writes it."""
        return self._do(lambda: self._calls.ask(question), by_hand)

    def _do(self, asking: Callable[[], Done], by_hand: Callable[[Broker], Done]) -> Done:
        """`_carry_out` of what takes more than one question."""
        self._check_usable()
        while True:
            try:
                return asking()
            except NobodyWrites:
                with self._search.moment() as broker:
                    if broker is not None:
                        return by_hand(broker)

    def _change(self, question: Question[Answer, None], by_hand: Callable[[Broker], object]) -> None:
        """Carry out what has no answer but that it is done."""

        def do(broker: Broker) -> None:
            by_hand(broker)

        self._carry_out(question, do)

    def _only_here(self, method: str, by_hand: Callable[[Broker], Done]) -> Done:
        """What only the writer can do, and nobody can ask it for."""
        self._check_usable()
        holder = writer_of(self._files, self.path)
        if holder is None:
            with self._search.moment() as broker:
                if broker is not None:
                    return by_hand(broker)
        pid = "another process" if holder is None or holder.pid is None else f"process {holder.pid}"
        raise ReadOnly(DONE_BY_THE_WRITER[method].format(where=f" of {self.path}", writer=pid))

    def _change_topics(self, question: Question[Answer, None], by_hand: Callable[[Broker], object]) -> None:
        try:
            self._change(question, by_hand)
        finally:
            self._followed.look_again()  # also after an error: it may have been carried out

    def _checked_topic_ids(self, partitions: Iterable[tuple[str, int]]) -> dict[str, bytes]:
        """The ids of their topics; UnknownTopic or UnknownPartition before anything of it is asked for."""
        topic_ids: dict[str, bytes] = {}
        for name, number in partitions:
            topic = self.topic(name)
            if not 0 <= number < topic.partition_count:
                self.partition(name, number)  # says what is wrong, or that it was just added
            topic_ids[name] = bytes.fromhex(topic.topic_id)
        return topic_ids


def _let_go(link: ProduceLink, calls: Calls) -> None:
    link.let_go()
    calls.let_go()
