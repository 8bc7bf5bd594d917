"""What a broker does for groups: the calls that its users make, before the store that answers them.

Reading path of a commit: `commit_offsets`, then `group_store`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from foldlog.broker.bookmarks import OffsetAndMetadata, TopicPartition, check_offsets
from foldlog.broker.group_messages import GroupDescription, GroupListing, MemberDescription, MemberIdentity
from foldlog.broker.group_store import Acknowledged, GroupStore
from foldlog.broker.groups import GroupCoordinator
from foldlog.broker.offsets_format import CommittedOffset
from foldlog.errors import FoldlogError


class GroupCalls(ABC):
    """The part of a broker that is about groups. Any thread."""

    _groups: GroupStore

    @abstractmethod
    def _writable(self) -> object:
        """Raise unless the log is open, in this process, and for writing."""

    @abstractmethod
    def _refuse_unusable(self) -> None:
        """Raise unless the log is open, and in this process."""

    @property
    def groups(self) -> GroupCoordinator:
        """The coordinator as it is, for who holds `group_lock`: `coordinator()` does, and stores what it decides."""
        self._writable()
        return self._groups.loaded_coordinator()

    @property
    def group_lock(self) -> threading.RLock:
        return self._groups.lock

    @contextmanager
    def coordinator(self) -> Iterator[GroupCoordinator]:
        """The group coordinator, locked and up to date with the clock; what the block decides is stored at its end."""
        self._writable()
        with self._groups.coordinator() as coordinator:
            yield coordinator

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
    ) -> None:
        """Durable on return; all of them or none. A member of the group gives its id and generation: what an older
        generation held is refused with a GroupError, as is a commit from outside while the group has members.
        """
        self._writable()
        check_offsets(offsets)
        self._groups.commit(group, offsets, member_id=member_id, generation=generation, instance_id=instance_id)

    def begin_commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        acknowledged: Acknowledged,
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
    ) -> None:
        """The same without waiting: `acknowledged` is called once, from any thread, with what went wrong or None.

        It is called while the partition is busy: it must be quick, and must not call the log again.
        """
        self._writable()
        self._groups.begin_commit(
            group, offsets, acknowledged, member_id=member_id, generation=generation, instance_id=instance_id
        )

    def committed(
        self, group: str, partitions: Iterable[TopicPartition] | None = None, *, with_negative: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group committed, for `partitions` or for all; a partition without a commit is left out.

        So is a negative offset, which some clients commit to say that there is none, unless it is asked for.
        """
        self._refuse_unusable()
        return self._groups.committed(group, partitions, with_negative=with_negative)

    def commits(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """What the group committed, as it is kept: with the time of each commit, negative offsets too."""
        self._refuse_unusable()
        return self._groups.commits(group)

    def group_names(self) -> list[str]:
        """Every group that has members, a generation or committed offsets, in order."""
        return [listing.group for listing in self.list_groups()]

    def list_groups(self) -> list[GroupListing]:
        """The same with state and protocol type; both of the last look of a process that only reads."""
        self._refuse_unusable()
        return self._groups.list_groups()

    def describe_group(self, group: str) -> GroupDescription:
        """State, protocol and members. A group of which nothing is known is Dead."""
        self._refuse_unusable()
        return self._groups.describe_group(group)

    def evict_members(self, group: str) -> tuple[MemberDescription, ...]:
        """Have everybody leave who is in the group now, as Kafka's admin client removes members. They may come back."""
        with self.coordinator() as coordinator:
            members = coordinator.describe(group).members
            if members:
                coordinator.leave(group, [MemberIdentity(one.member_id, one.group_instance_id) for one in members])
        return members

    def move_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        evict: bool = False,
        on_evicted: Callable[[tuple[MemberDescription, ...]], None] = lambda members: None,
    ) -> None:
        """Commit as nobody's member; with `evict`, members are sent away first, and none comes back in between.

        Durable on return. A GroupError where the group has members, or with `evict` waits for some: those who were sent
        away are gone all the same, and `on_evicted` has heard of them.
        """
        self._writable()
        check_offsets(offsets)
        done = threading.Event()
        failures: list[FoldlogError] = []

        def acknowledged(error: FoldlogError | None) -> None:
            if error is not None:
                failures.append(error)
            done.set()

        with self.group_lock:
            if evict:
                on_evicted(self.evict_members(group))
            self.begin_commit_offsets(group, offsets, acknowledged)
        done.wait()  # not under the lock: a sync takes long, and others commit meanwhile
        if failures:
            raise failures[0].with_traceback(None)

    def delete_group(self, group: str) -> None:
        """Forget a group without members, and its offsets. Durable on return; UnknownGroup, GroupNotEmpty."""
        self._writable()
        self._groups.delete_group(group)

    def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget what a group committed in these partitions. Durable on return; GroupNotEmpty while it reads them."""
        self._writable()
        self._groups.delete_offsets(group, partitions)
