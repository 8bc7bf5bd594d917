"""What the handlers of transactions share: who may use a transactional id, and with which codes clients are refused.

The coordinator says PRODUCER_FENCED for an epoch that is not the current one. Clients below a version of each API know
only INVALID_PRODUCER_EPOCH, and what is written (Produce, TxnOffsetCommit) is refused with that code in all versions.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.errors import FoldlogError, LogClosed, StorageError
from foldlog.limits import EARLY_COMMITS_MAX
from foldlog.wire.error_codes import ErrorCode, code_of

if TYPE_CHECKING:
    from foldlog.server.call import Call

logger: Final = logging.getLogger("foldlog.server")

VERSION_1: Final = 1
VERSION_2: Final = 2
"""Transaction versions of clients: with the second (KIP-890) the epoch rises at each end, and Produce and
TxnOffsetCommit add what they write to."""

_NO_COORDINATOR: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)


class EarlyCommits:
    """Commits of transaction version 2 that came before anything to commit; each may come again once. Event loop only.

    Java's producer can send EndTxn before the first Produce of its transaction, if its threads are slow: one asks
    whether there are records to send, the other adds some and commits, and the first then takes the commit from its
    queue. Told CONCURRENT_TRANSACTIONS, as Kafka says while it still ends the transaction before, it sends the records
    first; INVALID_TXN_STATE ends it. Seen once in some thousand transactions on busy processors.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}

    def is_first(self, transactional_id: str, producer_id: int, producer_epoch: int) -> bool:
        """Whether it is the first such commit of that producer in that epoch, as far as is remembered."""
        known = self._seen.pop(transactional_id, None)
        self._seen[transactional_id] = producer_id, producer_epoch
        if len(self._seen) > EARLY_COMMITS_MAX:
            del self._seen[next(iter(self._seen))]
        return known != (producer_id, producer_epoch)


def transaction_refusal(
    call: Call, transactional_id: str | None, operation: AclOperation = AclOperation.WRITE
) -> ErrorCode:
    """Why this caller may not do that to a transactional id; NONE if it may."""
    if transactional_id is None or not call.allows(operation, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.NONE if transactional_id else ErrorCode.INVALID_REQUEST


def transaction_error_code(transactional_id: str, error: FoldlogError, *, knows_fenced: bool) -> ErrorCode:
    """The error code for a client of the transaction coordinator."""
    if isinstance(error, StorageError | LogClosed):
        # Clients look the coordinator up and ask again: disks are emptied, brokers restarted.
        logger.warning("transactional id %r is refused for now: %s", transactional_id, error)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    code = code_of(error)
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED and not knows_fenced else code


def append_error_code(error: FoldlogError, *, is_version_2: bool, knows_abortable: bool) -> ErrorCode:
    """The error code for a transactional batch that is refused.

    Producers before transaction version 2 do not expect the codes of a coordinator here, and retry this one.
    """
    code = code_of(error)
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    if code in _NO_COORDINATOR or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not is_version_2):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return code
