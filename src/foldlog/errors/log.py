"""Errors of the log, its groups, its producers and its brokers."""

from __future__ import annotations

from collections.abc import Iterable

REPR_CHARS_MAX = 80


def brief_repr(value: object) -> str:
    """`repr(value)` for a sentence, cut if it would bury the rest.

    >>> brief_repr("fraud"), len(brief_repr("x" * 100_000))
    ("'fraud'", 83)
    """
    try:
        text = repr(value)
    except ValueError:  # an int of thousands of digits
        text = f"<{type(value).__name__}>"
    return text if len(text) <= REPR_CHARS_MAX else text[:REPR_CHARS_MAX] + "..."


class FoldlogError(Exception):
    """The root of all errors raised by foldlog.

    >>> issubclass(UnknownTopic, FoldlogError)
    True
    """


class CallerError(FoldlogError, ValueError):
    """The call cannot be right, whatever the state of the log."""


class InvalidArgument(CallerError):
    """An argument has a value that no log accepts."""


class InvalidConfig(CallerError):
    """A setting of a topic or a broker has an unknown name or a value outside its range."""


class InvalidTopicName(CallerError):
    """A topic name is empty, too long, or could leave the directory."""


class SerializationError(CallerError):
    """A key or value could not be turned into bytes, or bytes back into a value."""


class InvalidBatch(CallerError):
    """Bytes that claim to be record batches are not: `reason`, at `position` in the given buffer."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"not a valid record batch: {reason} (byte {position} of what was given)")
        self.reason = reason
        self.position = position


class RefusedBatch(InvalidBatch):
    """A batch is sound, but not one that this topic, or any log, takes from a client."""

    record_errors: tuple[tuple[int, str], ...] = ()
    """(index from 0, reason) of each record that the batch is refused for; empty if it is the whole batch."""


class DecompressedTooLarge(RefusedBatch):
    """A batch expands to more than foldlog.max.decompressed.bytes allows. It is sound: a higher limit can read it."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason, position)
        sentence = (
            f"a batch is refused: {reason} (byte {position} of what was given). Send fewer or smaller records in a"
            " batch, or raise the topic's foldlog.max.decompressed.bytes; readers without the topic's settings raise"
            " FOLDLOG_MAX_DECOMPRESSED_BYTES in the environment"
        )
        self.args = (sentence,)


class InvalidTimestamp(RefusedBatch):
    """A batch has a timestamp that a producer may not set, or one too far from the clock for its topic."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason, position)
        self.args = (f"a batch is refused: {reason}; times are in milliseconds since 1970",)


class RecordTooLarge(CallerError):
    """A batch is larger than the topic's max.message.bytes, or than message.max.bytes of a cluster's URL."""

    def __init__(self, size_bytes: int, limit_bytes: int, setting: str = "max.message.bytes") -> None:
        whose = "the topic's" if setting == "max.message.bytes" else "the client's"
        super().__init__(
            f"a batch of {size_bytes} bytes is over {setting}={limit_bytes};"
            f" send smaller records or raise {whose} {setting}"
        )
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class TooManyProducers(CallerError):
    """A partition, or all partitions together, remember as many idempotent producers as they may, all of which have
    written recently."""

    def __init__(self, producer_id: int, limit: int, *, of_all: bool = False) -> None:
        who = "all partitions together remember" if of_all else "the partition remembers"
        super().__init__(
            f"{who} {limit} producers that have written in the last minutes, and there is no room for producer"
            f" {producer_id}; send again later, and use one producer for many records"
        )


class TooManyOffsets(CallerError):
    """The committed offsets of all groups use as much memory as they may."""

    def __init__(self, group: str, limit_bytes: int) -> None:
        super().__init__(
            f"group {group!r} cannot commit more: the committed offsets of all groups would take over {limit_bytes}"
            " bytes; delete groups that nobody needs"
        )


class TooManyPartitions(CallerError):
    """A directory has as many partitions as it may have."""

    def __init__(self, there: int, more: int, limit: int) -> None:
        super().__init__(
            f"the directory has {there} partitions, and {more} more would be over {limit}; delete topics that nobody"
            " needs"
        )


class TooManySettings(CallerError):
    """The topics of a directory together have as many settings of their own as they may have."""

    def __init__(self, topic: str, limit_bytes: int) -> None:
        super().__init__(
            f"topic {topic!r} cannot have these settings: with them, those of all topics would take over {limit_bytes}"
            " bytes; leave out what is the default anyway, or delete topics that nobody needs"
        )


class MetadataTooLarge(CallerError):
    """The text that goes with a committed offset is over offset.metadata.max.bytes."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"commit metadata of {size_bytes} bytes is over offset.metadata.max.bytes={limit_bytes};"
            " keep the text elsewhere and commit a reference to it"
        )
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class MalformedBytes(FoldlogError):
    """Bytes that claim to be `what` do not follow its format: `reason`, at `position`."""

    def __init__(self, what: str, reason: str, position: int) -> None:
        super().__init__(f"not a valid {what}: {reason} (byte {position})")
        self.what = what
        self.reason = reason
        self.position = position


class TopicExists(FoldlogError):
    """A topic of that name exists already, and was left as it is."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} exists; it was left as it is")
        self.topic = topic


class CopyConflict(FoldlogError):
    """The target of a copy holds something other than a part of its source; nothing was written."""


class UnknownTopic(FoldlogError):
    """No topic of that name."""

    def __init__(self, topic: str, known: list[str] | None = None) -> None:
        others = f"there are {', '.join(sorted(known)[:8])}; " if known else ""
        super().__init__(f"no topic {brief_repr(topic)}; {others}create it with create_topic()")
        self.topic = topic
        self.known = sorted(known or ())


class UnknownPartition(FoldlogError):
    """The topic has no partition of that number."""

    def __init__(self, topic: str, partition: int, count: int) -> None:
        if type(partition) is int:
            what = f"has no partition {brief_repr(partition)}; it has 0 to {count - 1}"
        else:
            what = f"has no partition {brief_repr(partition)}; a partition is an int, here from 0 to {count - 1}"
        super().__init__(f"topic {topic!r} {what}")
        self.topic = topic
        self.partition = partition


class OffsetOutOfRange(FoldlogError):
    """The wanted offset is not in the log; `why` says what happened to it."""

    def __init__(self, topic: str, partition: int, wanted: int, start: int, end: int, why: str) -> None:
        super().__init__(
            f"offset {wanted} of {topic}-{partition} is not in the log, which holds {start} to {end} (exclusive): {why}"
        )
        self.topic = topic
        self.partition = partition
        self.wanted = wanted
        self.start = start
        self.end = end
        self.why = why


class StorageError(FoldlogError):
    """The disk, or the directory on it, does not allow the operation."""


class CorruptLog(StorageError):
    """Bytes that were once durable have changed. Nothing was changed or served."""

    def __init__(self, path: str, position: int, reason: str, advice: str | None = None) -> None:
        advice = advice or "restore the file, or set the damaged part aside with 'foldlog check --cut-out'"
        super().__init__(f"{path} is damaged at byte {position}: {reason}; nothing was changed; {advice}")
        self.path = path
        self.position = position
        self.reason = reason


class StoreError(StorageError):
    """The store of tiered segments does not answer, or not as it should. What is on the disk is not concerned."""


class ObjectMissing(StoreError):
    """An object that the manifest names is not in the store."""


class NewerVersion(StorageError):
    """A file of a version that this foldlog does not know. It is not damaged, and nothing was changed."""

    def __init__(self, path: str, version: object, known: int, reason: str | None = None) -> None:
        reason = reason or f"it has version {brief_repr(version)}, and this foldlog knows versions up to {known}"
        super().__init__(
            f"{path} was written by a newer foldlog ({reason}); nothing was changed; upgrade foldlog to open it"
        )
        self.path = path
        self.version = version
        self.reason = reason


class CorruptGroupRecord(StorageError):
    """A record of __consumer_offsets that is neither a committed offset nor group metadata. It was skipped."""

    def __init__(self, key: bytes | None, reason: str) -> None:
        shown = "null" if key is None else key[:64].hex() + ("…" if len(key) > 64 else "")
        super().__init__(f"a record of __consumer_offsets was skipped: {reason} (key {shown})")
        self.key = key
        self.reason = reason


class CorruptTransactionRecord(StorageError):
    """A record of __transaction_state that is not the state of a transactional id. It was skipped."""

    def __init__(self, key: bytes | None, reason: str) -> None:
        shown = "null" if key is None else key[:64].hex() + ("…" if len(key) > 64 else "")
        super().__init__(f"a record of __transaction_state was skipped: {reason} (key {shown})")
        self.key = key
        self.reason = reason


class StorageFull(StorageError):
    """No space was left for a write. Nothing of it was kept; appending works again when space returns."""


class DescriptorsExhausted(StorageError):
    """The process, or the machine, may not open another file. Files that are open stay usable."""


class PartitionPoisoned(StorageError):
    """A sync failed, so records written since the last good one may not be on disk.

    Reading goes on below the durable offset; reopen the log to write again.
    """


class LockLost(PartitionPoisoned):
    """The lock file or the checkpoint was removed or replaced under its writer, or the checkpoint cut short, or the
    directory was renamed: another process may be the writer now, so this one acknowledges nothing more. Reading goes
    on; close this log before another is opened."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"the lock of {path} is lost: the directory, its .lock or its checkpoint was deleted under the log,"
            " renamed, replaced or cut short, so another process may write here; nothing more is acknowledged, reading"
            " goes on; close the log in every process that writes it, then open it again"
        )
        self.path = path


class DirectoryLocked(StorageError):
    """Another process is the directory's writer; `address` is where it listens, if it does.

    `lock_is_gone`: its lock file was removed, but it still has the checkpoint.
    """

    def __init__(self, path: str, pid: int | None, address: str | None = None, *, lock_is_gone: bool = False) -> None:
        holder = f"process {pid}" if pid else "another process"
        if lock_is_gone:
            way_out = ", whose .lock was removed; end it, then open again, or open with mode='r' to read beside it"
        elif address is None:
            way_out = (
                ", which does not listen; open it there with listen=True or run 'foldlog serve' instead, stop it,"
                " or open this one with mode='r' to read beside it"
            )
        else:
            way_out = (
                f", which listens on {address}; send to it there, or open this one with mode='r' to read beside it"
            )
        super().__init__(f"{path} is being written by {holder}{way_out}")
        self.path = path
        self.pid = pid
        self.address = address
        self.lock_is_gone = lock_is_gone


class WriterUnreachable(StorageError):
    """The process that serves the directory does not answer any more; reading goes on. `pid` is None if unknown."""

    def __init__(self, path: str, pid: int | None, address: str | None, why: str) -> None:
        holder = f"process {pid}" if pid else "the process"
        where = f" on {address}" if address else ""
        super().__init__(
            f"{holder}, which serves {path}{where}, cannot be reached: {why};"
            " start it again with 'foldlog serve' if it has ended, and try again"
        )
        self.path = path
        self.pid = pid
        self.address = address


class DirectoryInUse(StorageError):
    """A directory that is not in the catalog is where a partition has to be created. It was left as it is."""


class DirectoryNotEmpty(StorageError):
    """The directory is neither empty nor a log, so no log is made there unless asked for. Nothing was changed."""

    def __init__(self, path: str, names: list[str], taken: str | None = None) -> None:
        """`taken`: a name that a log needs, and that another file has: no log can be made there at all."""
        if taken is not None:
            super().__init__(
                f"{path} is not a log, and its {taken}, whose name a log needs, is not foldlog's; nothing was"
                " changed; name another directory"
            )
            self.path, self.names = path, names
            return
        shown = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
        super().__init__(
            f"{path} is not a log and not empty (it holds {shown}); nothing was changed; name an empty directory or a"
            " new one, or make a log there all the same with foldlog.open(path, init=True)"
        )
        self.path = path
        self.names = names


class LogNotFound(StorageError):
    """There is no log at that path to read from."""


class MissingCatalog(StorageError):
    """Topic directories are there, but not the catalog that names them. Nothing was changed."""

    def __init__(self, path: str, directories: list[str]) -> None:
        shown = ", ".join(directories[:4]) + (", ..." if len(directories) > 4 else "")
        super().__init__(
            f"{path} is missing although there are topic directories beside it ({shown}); restore it from a copy,"
            " or move those directories away to start an empty log"
        )
        self.path = path
        self.directories = directories


class ForeignDirectory(StorageError):
    """The directory is Apache Kafka's. It can be read, and nothing was changed."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} is Apache Kafka's, which alone may write there; open it with mode='r' to read it, or make a log of"
            " your own from it with 'foldlog copy'"
        )
        self.path = path


class PartitionElsewhere(StorageError):
    """A partition of a topic of Kafka's that is not in this directory."""

    def __init__(self, path: str, topic: str, partition: int) -> None:
        super().__init__(
            f"{topic}-{partition} is not in {path}; read it where it is: another broker, or another directory of this"
            " broker's log.dirs, holds it"
        )
        self.path = path
        self.topic = topic
        self.partition = partition


class ReadOnly(StorageError):
    """The log was opened with mode='r', or only its writer can do this: docs/clusters.md has the table."""


class LogClosed(FoldlogError):
    """The log, producer or consumer was closed; open it again."""


class MissingDependency(FoldlogError, ImportError):
    """The operation needs a package that is not installed."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(f"{what} needs {package}, which is not installed; run: pip install 'foldlog[{extra}]'")
        self.package = package


class WrongProcess(StorageError):
    """The log was opened before a fork; a child process has to open its own."""


class AddressUnavailable(FoldlogError):
    """A listener cannot use its address; `why` says what is in the way."""

    def __init__(self, address: str, why: str) -> None:
        super().__init__(f"cannot listen on {address}: {why}")
        self.address = address


class WaitTimeout(FoldlogError, TimeoutError):
    """The awaited event did not happen in the time given; it may still happen."""


class GroupError(FoldlogError):
    """The consumer group does not accept this from this member."""


class UnknownMember(GroupError):
    """The group does not know this member (it left, or was silent for too long)."""


class IllegalGeneration(GroupError):
    """The group has rebalanced since; what this member holds is from an older generation."""


class StaleMemberEpoch(IllegalGeneration):
    """The coordinator has given this member of a consumer group a newer epoch, or the partition to another member."""


class InvalidRecordState(GroupError):
    """A record is not this member's to acknowledge: its lock timed out, or it is acknowledged already."""


class RebalanceInProgress(GroupError):
    """The group is rebalancing; poll again to join the new generation."""


class NotAssigned(GroupError):
    """The member does not own this partition any more, so it cannot commit or move in it."""


class InconsistentProtocol(GroupError):
    """The group is of another kind (a queue's, or one of consumers), or shares no assignor with the member."""


class FencedMember(GroupError):
    """Another member took over this group.instance.id; two processes run with the same one."""


class GroupFull(GroupError):
    """The group has group.max.size members already."""


class GroupNotEmpty(GroupError):
    """The group has members; stop them before deleting it or moving its offsets. `members` names them, if known."""

    def __init__(self, sentence: str, members: Iterable[str] = ()) -> None:
        super().__init__(sentence)
        self.members = list(members)


class UnknownGroup(GroupError):
    """No group of that name has members or committed offsets."""


class UnknownUser(FoldlogError):
    """There is no user of that name."""


class UserExists(FoldlogError):
    """There is a user of that name."""


class CoordinatorUnavailable(GroupError):
    """The group's coordinator is closing or still loading; try again shortly."""


class ProducerError(FoldlogError):
    """A batch contradicts what its producer sent before."""


class OutOfOrderSequence(ProducerError):
    """A batch skips, or partly repeats, sequence numbers of its producer."""


class InvalidProducerEpoch(ProducerError):
    """A newer producer with the same id has taken over."""


class TransactionError(FoldlogError):
    """The transaction coordinator does not accept this from this producer."""


class ProducerFenced(InvalidProducerEpoch, TransactionError):
    """A newer producer has taken over the transactional id, or its transaction was aborted without it."""


class UndecidedTransaction(TransactionError):
    """A commit was asked for and not answered: nobody knows yet whether it is committed, as one, or not."""

    def __init__(self, transactional_id: str, why: str) -> None:
        super().__init__(
            f"the outcome of the transaction of {transactional_id!r} is unknown: {why}; run `foldlog transaction"
            f" describe {transactional_id}` to see it"
        )
        self.transactional_id = transactional_id
        self.why = why


class InvalidTransactionState(TransactionError):
    """The transaction is not in a state in which this can be done."""


class NothingToCommit(InvalidTransactionState):
    """A commit by the current producer found no open transaction."""


class ConcurrentTransactions(TransactionError):
    """The transaction before this one is still being ended; try again shortly."""


class InvalidProducerIdMapping(TransactionError):
    """The producer id is not the one that the transactional id has now; its producer has to be initialised again."""


class InvalidTransactionTimeout(TransactionError):
    """transaction.timeout.ms is below 1 or over the broker's transaction.max.timeout.ms."""


class TransactionAbortable(TransactionError):
    """The transaction cannot be committed any more; abort it, and begin another with the same producer."""


class UnknownTransactionalId(TransactionError):
    """No producer has used that transactional id, or none for transactional.id.expiration.ms."""


class TooManyTransactions(TransactionError):
    """The transactional ids, or the partitions in their open transactions, use as much memory as they may."""


class UnstableOffsets(TransactionError):
    """Offsets were committed in a transaction that is not ended yet, and only stable ones were asked for."""


class TransactionNotOpen(ProducerError):
    """A batch belongs to a transaction that its producer has not begun in this partition. Nothing was written."""


class TransactionOpen(ProducerError):
    """A batch outside of transactions comes from a producer whose transaction is open in this partition."""


class StaleCoordinatorEpoch(ProducerError):
    """A marker comes from a transaction coordinator that another has replaced."""


class RefusedByBroker(FoldlogError):
    """A broker answered with an error code that has no type here; `code` is Kafka's number."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class AuthenticationFailed(FoldlogError):
    """A broker does not accept our credentials, or cannot prove its own identity. Trying again changes nothing.

    Names the `user`, the `mechanism` and the `address`, never the password.
    """

    def __init__(self, address: str, user: str, mechanism: str, why: str) -> None:
        super().__init__(
            f"the broker at {address} does not let user {brief_repr(user)} in with sasl.mechanism={mechanism}: {why}"
        )
        self.address = address
        self.user = user
        self.mechanism = mechanism
        self.why = why


class BrokerUnreachable(FoldlogError):
    """No broker of a cluster answers, or not the one that is needed. `addresses` are those that were tried; `advice` is
    given if the cause is known."""

    def __init__(self, addresses: list[str], why: str, security_protocol: str = "PLAINTEXT", advice: str = "") -> None:
        named = ", ".join(addresses)
        super().__init__(
            f"the Kafka cluster at {named} cannot be talked to: {why}; {advice}"
            if advice
            else f"no answer from the Kafka cluster at {named}: {why}; check the addresses (also those that the brokers"
            f" advertise), that the brokers run, and that their listeners speak security.protocol={security_protocol}"
        )
        self.addresses = addresses
        self.why = why
