"""The Consumer: reads topics forward, alone or as a member of a group, and keeps its position there.

This module has what it promises; `consumption.py` implements it for a directory. For a cluster,
`backends/cluster/consumption.py` does with a group, and `backends/cluster/direct.py` without one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType

from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.broker.topics.names import require_text
from foldlog.client.backends.backend import Backend, ReaderCursor, Reading
from foldlog.client.forks import watch_forks
from foldlog.client.groups import is_of_a_queue, not_of_consumers
from foldlog.client.positions import TopicPartition, checked_count, checked_offset, checked_partitions, commit_entries
from foldlog.errors import FoldlogError, InconsistentProtocol, InvalidArgument, LogClosed, WrongProcess, brief_repr
from foldlog.records.loops import Record


class Consumer:
    """Reads records in order, partition by partition. Make one with `Log.consumer`.

    With a group, the group's members share the partitions of their topics, and the group's committed offsets survive a
    restart. Without one, it reads all partitions of its topics by itself and commits nothing.

    Belongs to one thread, as in Kafka; only `close` may be called from another. A consumer that stands still blocks
    nothing: not producers, not other readers, not retention.

    Auto-commit (with a group, unless switched off) commits only what was handed out before the current `poll`: records
    that you are working on are not committed until you ask for more. So a crash repeats records, and loses none.
    `close` counts the last poll's records as handled; leaving a `with` block by an exception does not. In a `for` loop
    a record counts as handled when you ask for the next one.

    >>> import foldlog
    >>> with foldlog.open(":memory:") as log:
    ...     _ = log.create_topic("orders")
    ...     _ = log.append("orders", "paid")
    ...     with log.consumer(["orders"], group="fraud", auto_offset_reset="earliest", auto_commit=False) as consumer:
    ...         for record in consumer.poll(max_records=500, timeout_ms=1000):
    ...             record.offset, record.value
    ...         consumer.commit()
    (0, b'paid')
    """

    def __init__(
        self,
        backend: Backend,
        reading: Reading,
        max_records: int,
        topics: Iterable[str] | str | None = None,
        group: str | None = None,
    ) -> None:
        """Use `Log.consumer`, which explains the settings."""
        self._backend = backend
        self._reading = reading
        self._max_records = max_records
        self._group = group
        self._refusal: type[FoldlogError] | None = None
        self._holds_one = False
        watch_forks(self._forked)
        if topics is not None:
            self.subscribe(topics)

    def is_cut_off(self) -> bool:
        """Whether the brokers are unreachable now; always False for a directory. Reading resumes by itself.

        After a broken connection the cluster is asked, which takes some seconds.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     log.consumer().is_cut_off()
        False
        """
        self._check_usable()
        return self._reading.is_cut_off()

    # --- what to read ---------------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str] | str) -> None:
        """Read these topics, in place of the present ones. With a group, joins it: on return it has its assignment (on
        a cluster, unless other members keep the group waiting for long).

        Raises UnknownTopic if one does not exist; partitions that a topic gains later are read too, from their start.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders", partitions=2)
        ...     consumer = log.consumer(group="fraud")
        ...     consumer.subscribe(["orders"])
        ...     len(consumer.assignment())
        2
        """
        self._check_usable()
        names = tuple(dict.fromkeys(checked_topics(topics)))
        if not names:
            raise InvalidArgument("subscribe() was given no topics; use unsubscribe() to stop reading")
        for name in names:
            self._backend.check_topic(name)
        self._count_as_handled()
        try:
            self._reading.subscribe(names)
        except InconsistentProtocol as error:
            raise self._explained(error) from error

    def unsubscribe(self) -> None:
        """Stop reading, and leave the group. An auto-committing consumer commits what it has handed out.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     consumer = log.consumer(["orders"])
        ...     consumer.unsubscribe()
        ...     consumer.assignment()
        set()
        """
        self._check_usable()
        self._count_as_handled()
        self._reading.let_go()

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions, without the group's assignment. With a group, its committed offsets are used.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders", partitions=3)
        ...     consumer = log.consumer()
        ...     consumer.assign([("orders", 2)])
        ...     consumer.assignment()
        {TopicPartition(topic='orders', partition=2)}
        """
        self._check_usable()
        wanted = checked_partitions(partitions)
        self._backend.check_partitions(wanted)
        self._count_as_handled()
        self._reading.assign(wanted)

    def assignment(self) -> set[TopicPartition]:
        """The partitions this consumer reads now.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders", partitions=2)
        ...     with log.consumer(["orders"], group="fraud") as a, log.consumer(["orders"], group="fraud") as b:
        ...         len(a.assignment()), len(b.assignment()), a.assignment() & b.assignment()
        (1, 1, set())
        """
        self._check_usable()
        return self._reading.assignment()

    # --- reading --------------------------------------------------------------------------------------------------

    def poll(self, max_records: int | None = None, timeout_ms: float | None = 0) -> list[Record]:
        """The next records, at most `max_records` (default: the consumer's own), oldest first in each partition.

        Waits up to `timeout_ms` for a first one (None: until there is one), and returns [] if none came. Partitions
        take turns, so that a busy one cannot starve the others. For an auto-committing consumer, a poll means that the
        records of the one before are handled.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     with log.consumer(["orders"], auto_offset_reset="earliest") as consumer:
        ...         _ = log.append("orders", b"paid")
        ...         [record.value for record in consumer.poll(timeout_ms=1000)]
        [b'paid']
        """
        self._check_usable()
        limit = self._max_records if max_records is None else checked_count("max_records", max_records)
        self._count_as_handled()
        try:
            return self._reading.next_records(limit, timeout_ms)
        except InconsistentProtocol as error:
            raise self._explained(error) from error

    def __iter__(self) -> Iterator[Record]:
        """Every record from here on, waiting for new ones; ends when the consumer is closed.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     _ = log.append("orders", b"paid")
        ...     with log.consumer(["orders"], auto_offset_reset="earliest") as consumer:
        ...         for record in consumer:
        ...             print(record.value)
        ...             break
        b'paid'
        """
        if self._refusal is None:
            self._count_as_handled()
        while self._refusal is None:
            record = self._reading.next_record()
            if record is None:
                return
            self._holds_one = True
            yield record
            self._holds_one = False
            self._reading.count_last_as_handled()

    # --- moving about ---------------------------------------------------------------------------------------------

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Hand out `offset` next. Whether the log still holds it is checked when it is read.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     _ = [log.append("orders", str(n)) for n in range(3)]
        ...     with log.consumer(["orders"]) as consumer:
        ...         consumer.seek("orders", 0, 1)
        ...         [record.value for record in consumer.poll()]
        [b'1', b'2']
        """
        self._check_usable()
        self._reading.cursor(topic, partition).seek(checked_offset(offset))

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Hand out the oldest record next, in these partitions or in all that are assigned.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     _ = log.append("orders", b"paid")
        ...     with log.consumer(["orders"]) as consumer:
        ...         consumer.seek_to_beginning()
        ...         consumer.position("orders", 0)
        0
        """
        for cursor in self._chosen(partitions):
            cursor.seek(cursor.log.log_start_offset)

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Hand out only records written from now on, in these partitions or in all that are assigned.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     _ = log.append("orders", b"paid")
        ...     with log.consumer(["orders"], auto_offset_reset="earliest") as consumer:
        ...         consumer.seek_to_end()
        ...         consumer.position("orders", 0)
        1
        """
        for cursor in self._chosen(partitions):
            cursor.seek(cursor.log.acknowledged_end())

    def seek_to_time(self, timestamp_ms: int, *partitions: tuple[str, int]) -> None:
        """Hand out the first record at or after `timestamp_ms` next; the end of the log if there is none.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     _ = [log.append("orders", str(ms), timestamp_ms=ms) for ms in (1000, 2000, 3000)]
        ...     with log.consumer(["orders"]) as consumer:
        ...         consumer.seek_to_time(1500)
        ...         consumer.position("orders", 0)
        1
        """
        if type(timestamp_ms) is not int:
            raise InvalidArgument(f"timestamp_ms {timestamp_ms!r} is not a count of milliseconds since 1970")
        for cursor in self._chosen(partitions):
            found = cursor.log.offset_at_time(timestamp_ms)
            cursor.seek(cursor.log.acknowledged_end() if found is None else found[0])

    def position(self, topic: str, partition: int) -> int:
        """The offset that is handed out next.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     log.consumer(["orders"]).position("orders", 0)
        0
        """
        self._check_usable()
        return self._reading.cursor(topic, partition).known_position()

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets each assigned partition has that were not handed out yet.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     consumer = log.consumer(["orders"])
        ...     _ = log.append("orders", b"paid")
        ...     consumer.lag()
        {TopicPartition(topic='orders', partition=0): 1}
        """
        return {cursor.partition: cursor.lag() for cursor in self._chosen(())}

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Hand out nothing from these partitions (or from any) until `resume`; they stay assigned.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     consumer = log.consumer(["orders"])
        ...     consumer.pause(("orders", 0))
        ...     _ = log.append("orders", b"paid")
        ...     consumer.poll()
        []
        """
        for cursor in self._chosen(partitions):
            cursor.is_paused = True

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Go on where `pause` stopped.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     consumer = log.consumer(["orders"])
        ...     consumer.pause()
        ...     _ = log.append("orders", b"paid")
        ...     consumer.resume()
        ...     len(consumer.poll())
        1
        """
        for cursor in self._chosen(partitions):
            cursor.is_paused = False
        self._reading.arrivals.ring()

    # --- committing -----------------------------------------------------------------------------------------------

    def commit(
        self,
        offsets: Mapping[tuple[str, int], int | OffsetAndMetadata] | Record | None = None,
        *,
        metadata: str = "",
    ) -> None:
        """Commit the group's position: all that was handed out, or up to and including one record, or given offsets.

        An offset is the next one to read: one more than that of the last handled record. `metadata` is stored beside
        it. Durable on return. Raises NotAssigned with the partitions that this member does not hold any more: with
        `offsets` nothing is then committed; without, all that it still holds is, and the error says which records
        another member will see again.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     _ = [log.append("orders", str(n)) for n in range(3)]
        ...     with log.consumer(["orders"], group="fraud", auto_offset_reset="earliest") as consumer:
        ...         first, second, third = consumer.poll()
        ...         consumer.commit(second, metadata="third is being looked at")
        ...         consumer.committed("orders", 0)
        OffsetAndMetadata(offset=2, leader_epoch=0, metadata='third is being looked at')
        """
        self._check_usable()
        if offsets is None:
            self._holds_one = False
            self._reading.commit_all(metadata)
        elif isinstance(offsets, Record):
            committed = OffsetAndMetadata(offsets.offset + 1, offsets.leader_epoch, metadata)
            self._reading.commit({TopicPartition(offsets.topic, offsets.partition): committed})
        else:
            self._reading.commit(commit_entries(offsets, metadata))

    def committed(self, topic: str, partition: int) -> OffsetAndMetadata | None:
        """The group's committed offset in this partition; None if there is none.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     with log.consumer(["orders"], group="fraud") as consumer:
        ...         consumer.commit({("orders", 0): 0})
        ...         consumer.committed("orders", 0).offset
        0
        """
        self._check_usable()
        self._backend.check_partitions([(topic, partition)])
        return self._reading.committed(TopicPartition(topic, partition))

    def close(self) -> None:
        """Leave the group and release everything. An auto-committing consumer first commits all it handed out.

        May be called from another thread: a waiting `poll` then returns []. Closing twice is fine.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     consumer = log.consumer()
        ...     consumer.close()
        """
        if self._refusal is None and not self._holds_one:
            self._reading.count_as_handled()
        self._close()

    def _close(self) -> None:
        if self._refusal is not None:
            return
        self._refusal = LogClosed
        # First, so that a poll waiting in another thread releases the lock for good.
        self._reading.arrivals.close()
        self._reading.let_go()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            # The records handed out last may have caused the failure: they do not count as handled.
            self._close()

    def _forked(self) -> None:
        """In a forked child: the membership and the open files are the parent's."""
        self._refusal = WrongProcess
        self._reading.forked()

    def _check_usable(self) -> None:
        if self._refusal is None:
            return
        if self._refusal is WrongProcess:
            raise WrongProcess("the consumer was made before a fork; a child process has to open a log of its own")
        raise LogClosed("the consumer is closed; make another with log.consumer()")

    def _explained(self, error: InconsistentProtocol) -> InconsistentProtocol:
        """A coordinator has one code for two faults: another kind of group, and no assignor in common."""
        if self._group is not None and is_of_a_queue(self._backend, self._group):
            return not_of_consumers(self._group)
        return error

    def _count_as_handled(self) -> None:
        """A request for more means that the records handed out before are handled."""
        self._holds_one = False
        self._reading.count_as_handled()

    def _chosen(self, partitions: tuple[tuple[str, int], ...]) -> Sequence[ReaderCursor]:
        self._check_usable()
        return self._reading.chosen(checked_partitions(partitions))


def reading_of(consumer: Consumer, backend: Backend) -> Reading:
    """What a consumer reads with, for a transaction in the log of `backend`. InvalidArgument if it is another log's."""
    consumer._check_usable()
    if consumer._backend is not backend:
        raise InvalidArgument(
            "the consumer is one of another log, and a transaction commits offsets in its own; make both with one log"
        )
    return consumer._reading


def checked_topics(topics: Iterable[str] | str) -> list[str]:
    """What a consumer is to read: names, each of which is text; whether there are such topics is looked up later."""
    if isinstance(topics, str):
        return [topics]
    if not isinstance(topics, Iterable):
        raise InvalidArgument(f"topics={brief_repr(topics)} is neither a topic's name nor a list of names")
    return [require_text(name) for name in topics]
