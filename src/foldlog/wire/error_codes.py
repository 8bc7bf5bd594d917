"""Kafka's error codes, and the mapping between them and foldlog's errors, for brokers and clients."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from foldlog import errors


class ErrorCode(IntEnum):
    """Every code of the protocol."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133
    GROUP_DELETION_FAILED = 134
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135
    CONTROLLER_ID_NOT_REGISTERED = 136

    @property
    def is_retriable(self) -> bool:
        """Whether clients retry by themselves."""
        return self in RETRIABLE


RETRIABLE: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)
"""Codes that clients treat as temporary. Kafka's own list."""

CODES: Final = MappingProxyType(
    {
        errors.InvalidArgument: ErrorCode.INVALID_REQUEST,
        errors.SerializationError: ErrorCode.INVALID_REQUEST,
        errors.MalformedBytes: ErrorCode.INVALID_REQUEST,
        errors.InvalidConfig: ErrorCode.INVALID_CONFIG,
        errors.InvalidTopicName: ErrorCode.INVALID_TOPIC_EXCEPTION,
        errors.InvalidBatch: ErrorCode.CORRUPT_MESSAGE,
        errors.RefusedBatch: ErrorCode.INVALID_RECORD,
        errors.TooManyOffsets: ErrorCode.COORDINATOR_NOT_AVAILABLE,  # clients retry the commit
        errors.TooManyPartitions: ErrorCode.POLICY_VIOLATION,
        errors.TooManySettings: ErrorCode.POLICY_VIOLATION,
        errors.TooManyProducers: ErrorCode.NOT_ENOUGH_REPLICAS,  # every producer retries this after a while
        errors.DecompressedTooLarge: ErrorCode.MESSAGE_TOO_LARGE,  # the producer splits the batch
        errors.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
        errors.RecordTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
        errors.MetadataTooLarge: ErrorCode.OFFSET_METADATA_TOO_LARGE,
        errors.TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
        errors.UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        errors.UnknownPartition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        errors.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
        errors.StorageError: ErrorCode.KAFKA_STORAGE_ERROR,
        # Clients retry, elsewhere or here: after a restart the log is open.
        errors.LogClosed: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        errors.WaitTimeout: ErrorCode.REQUEST_TIMED_OUT,
        errors.UnknownMember: ErrorCode.UNKNOWN_MEMBER_ID,
        errors.IllegalGeneration: ErrorCode.ILLEGAL_GENERATION,
        errors.StaleMemberEpoch: ErrorCode.STALE_MEMBER_EPOCH,
        errors.InvalidRecordState: ErrorCode.INVALID_RECORD_STATE,
        errors.RebalanceInProgress: ErrorCode.REBALANCE_IN_PROGRESS,
        errors.NotAssigned: ErrorCode.ILLEGAL_GENERATION,
        errors.InconsistentProtocol: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        errors.FencedMember: ErrorCode.FENCED_INSTANCE_ID,
        errors.GroupFull: ErrorCode.GROUP_MAX_SIZE_REACHED,
        errors.GroupNotEmpty: ErrorCode.NON_EMPTY_GROUP,
        errors.UnknownGroup: ErrorCode.GROUP_ID_NOT_FOUND,
        errors.CoordinatorUnavailable: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        errors.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        errors.InvalidProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
        errors.ProducerFenced: ErrorCode.PRODUCER_FENCED,
        errors.InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
        errors.ConcurrentTransactions: ErrorCode.CONCURRENT_TRANSACTIONS,
        errors.InvalidProducerIdMapping: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        errors.InvalidTransactionTimeout: ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        errors.TransactionAbortable: ErrorCode.TRANSACTION_ABORTABLE,
        errors.UnknownTransactionalId: ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        errors.TooManyTransactions: ErrorCode.COORDINATOR_NOT_AVAILABLE,  # clients ask again after a while
        errors.UnstableOffsets: ErrorCode.UNSTABLE_OFFSET_COMMIT,
        errors.TransactionNotOpen: ErrorCode.INVALID_TXN_STATE,
        errors.TransactionOpen: ErrorCode.INVALID_TXN_STATE,
        errors.StaleCoordinatorEpoch: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
"""A type that is not here has the code of its nearest base class."""


def code_of(error: BaseException) -> ErrorCode:
    """The code with which a client learns of this error.

    >>> code_of(errors.UnknownTopic("orders")).name
    'UNKNOWN_TOPIC_OR_PARTITION'
    """
    if isinstance(error, errors.RefusedByBroker):
        return known_code(error.code)
    for kind in type(error).__mro__:
        code = CODES.get(kind)
        if code is not None:
            return code
    return ErrorCode.UNKNOWN_SERVER_ERROR


def known_code(code: int) -> ErrorCode:
    """The code of that number; an unknown number, from a newer broker, is an unknown error."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


PLAIN: Final[Mapping[ErrorCode, type[errors.FoldlogError]]] = MappingProxyType(
    {
        ErrorCode.INVALID_REQUEST: errors.InvalidArgument,
        ErrorCode.INVALID_CONFIG: errors.InvalidConfig,
        ErrorCode.INVALID_TOPIC_EXCEPTION: errors.InvalidTopicName,
        ErrorCode.KAFKA_STORAGE_ERROR: errors.StorageError,
        ErrorCode.REQUEST_TIMED_OUT: errors.WaitTimeout,
        ErrorCode.UNKNOWN_MEMBER_ID: errors.UnknownMember,
        ErrorCode.ILLEGAL_GENERATION: errors.IllegalGeneration,
        ErrorCode.STALE_MEMBER_EPOCH: errors.StaleMemberEpoch,
        ErrorCode.INVALID_RECORD_STATE: errors.InvalidRecordState,
        ErrorCode.REBALANCE_IN_PROGRESS: errors.RebalanceInProgress,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL: errors.InconsistentProtocol,
        ErrorCode.FENCED_INSTANCE_ID: errors.FencedMember,
        ErrorCode.GROUP_MAX_SIZE_REACHED: errors.GroupFull,
        ErrorCode.NON_EMPTY_GROUP: errors.GroupNotEmpty,
        ErrorCode.GROUP_ID_NOT_FOUND: errors.UnknownGroup,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: errors.CoordinatorUnavailable,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: errors.CoordinatorUnavailable,
        ErrorCode.NOT_COORDINATOR: errors.CoordinatorUnavailable,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: errors.OutOfOrderSequence,
        ErrorCode.INVALID_PRODUCER_EPOCH: errors.InvalidProducerEpoch,
        ErrorCode.PRODUCER_FENCED: errors.ProducerFenced,
        ErrorCode.INVALID_TXN_STATE: errors.InvalidTransactionState,
        ErrorCode.CONCURRENT_TRANSACTIONS: errors.ConcurrentTransactions,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING: errors.InvalidProducerIdMapping,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT: errors.InvalidTransactionTimeout,
        ErrorCode.TRANSACTION_ABORTABLE: errors.TransactionAbortable,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: errors.UnknownTransactionalId,
        ErrorCode.UNSTABLE_OFFSET_COMMIT: errors.UnstableOffsets,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED: errors.StaleCoordinatorEpoch,
    }
)
"""Codes whose error type has nothing but its sentence."""

SIZE_ERRORS: Final = MappingProxyType(
    {
        ErrorCode.MESSAGE_TOO_LARGE: errors.RecordTooLarge,
        ErrorCode.RECORD_LIST_TOO_LARGE: errors.RecordTooLarge,
        ErrorCode.OFFSET_METADATA_TOO_LARGE: errors.MetadataTooLarge,
    }
)

BATCH_ERRORS: Final = MappingProxyType(
    {
        ErrorCode.CORRUPT_MESSAGE: errors.InvalidBatch,
        ErrorCode.INVALID_RECORD: errors.RefusedBatch,
        ErrorCode.INVALID_TIMESTAMP: errors.InvalidTimestamp,
    }
)

_NOT_ALLOWED: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)

UNSAID: Final = -1
"""For a number that the error type has and the answer does not."""


def exception_of(
    code: int,
    message: str | None,
    *,
    topic: str | None = None,
    partition: int | None = None,
    group: str | None = None,
) -> errors.FoldlogError:
    """The error a client raises for a broker's code: the type that the embedded log would have raised.

    >>> exception_of(3, None, topic="orders", partition=7)
    UnknownPartition('the broker answered UNKNOWN_TOPIC_OR_PARTITION (3) for orders-7')
    """
    known = known_code(code)
    sentence = f"the broker answered {known.name} ({code})" + _subject(topic, partition, group)
    if message:
        sentence += f": {message}"
    elif known in _NOT_ALLOWED:
        sentence += ": its ACLs do not allow it; an operator can, with 'foldlog acl create'"
    plain = PLAIN.get(known)
    if plain is not None:
        return plain(sentence)
    error = _with_details(known, sentence, topic or "", UNSAID if partition is None else partition)
    return errors.RefusedByBroker(code, sentence) if error is None else error


def _subject(topic: str | None, partition: int | None, group: str | None) -> str:
    subject = ""
    if topic is not None:
        subject += f" for {topic}" + ("" if partition is None else f"-{partition}")
    if group is not None:
        subject += f" in group {group}"
    return subject


def _with_details(code: ErrorCode, sentence: str, topic: str, partition: int) -> errors.FoldlogError | None:
    """Errors that hold more than a sentence; their own sentences would contain numbers that are not known here."""
    if code in {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}:
        if partition == UNSAID:
            return _said(errors.UnknownTopic, sentence, topic=topic, known=[])
        return _said(errors.UnknownPartition, sentence, topic=topic, partition=partition)
    if code is ErrorCode.TOPIC_ALREADY_EXISTS:
        return _said(errors.TopicExists, sentence, topic=topic)
    if code is ErrorCode.OFFSET_OUT_OF_RANGE:
        numbers = {"wanted": UNSAID, "start": UNSAID, "end": UNSAID}
        return _said(errors.OffsetOutOfRange, sentence, topic=topic, partition=partition, why=sentence, **numbers)
    if code in SIZE_ERRORS:
        return _said(SIZE_ERRORS[code], sentence, size_bytes=UNSAID, limit_bytes=UNSAID)
    if code in BATCH_ERRORS:
        return _said(BATCH_ERRORS[code], sentence, reason=sentence, position=UNSAID)
    return None


def _said(kind: type[errors.FoldlogError], sentence: str, **attributes: object) -> errors.FoldlogError:
    error = kind.__new__(kind, sentence)
    for name, value in attributes.items():
        setattr(error, name, value)
    return error
