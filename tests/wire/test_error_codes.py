"""The codes are Kafka's, every error of foldlog has one, and a client gets back the type that was raised."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from foldlog import errors
from foldlog.wire.error_codes import CODES, ErrorCode, code_of, exception_of

EVERY_ERROR = [
    errors.InvalidArgument("x"),
    errors.InvalidConfig("x"),
    errors.InvalidTopicName("x"),
    errors.SerializationError("x"),
    errors.InvalidBatch("x", 0),
    errors.RefusedBatch("x", 0),
    errors.InvalidTimestamp("x", 0),
    errors.RecordTooLarge(2, 1),
    errors.MetadataTooLarge(2, 1),
    errors.MalformedBytes("x", "y", 0),
    errors.TopicExists("orders"),
    errors.UnknownTopic("orders"),
    errors.UnknownPartition("orders", 7, 3),
    errors.OffsetOutOfRange("orders", 7, 1, 2, 3, "x"),
    errors.StorageError("x"),
    errors.CorruptLog("path", 0, "x"),
    errors.StorageFull("x"),
    errors.PartitionPoisoned("x"),
    errors.LogClosed("x"),
    errors.WaitTimeout("x"),
    errors.UnknownMember("x"),
    errors.IllegalGeneration("x"),
    errors.RebalanceInProgress("x"),
    errors.NotAssigned("x"),
    errors.InconsistentProtocol("x"),
    errors.FencedMember("x"),
    errors.GroupFull("x"),
    errors.GroupNotEmpty("x"),
    errors.UnknownGroup("x"),
    errors.CoordinatorUnavailable("x"),
    errors.OutOfOrderSequence("x"),
    errors.InvalidProducerEpoch("x"),
]

ROOTS = {
    errors.FoldlogError,
    errors.CallerError,
    errors.GroupError,
    errors.ProducerError,
    errors.TransactionError,
}
"""What nobody raises as such."""

NEVER_ANSWERED = {
    errors.CopyConflict,
    errors.RefusedByBroker,
    errors.AddressUnavailable,
    errors.MissingDependency,
    errors.AuthenticationFailed,
    errors.BrokerUnreachable,
    errors.UndecidedTransaction,
    errors.UnknownUser,
    errors.UserExists,
}
"""What carries a code of its own, and what happens before there is anybody to answer."""


NEWER_THAN_KIO = range(134, 137)
"""Of Kafka 4.4."""


def test_the_codes_are_those_of_kafka() -> None:
    ours = {code.name: (int(code), code.is_retriable) for code in ErrorCode if code not in NEWER_THAN_KIO}
    assert ours == {code.name.upper(): (int(code), code.retriable) for code in KioErrorCode}


def test_every_error_has_a_code_of_its_own_choice() -> None:
    """A type added to foldlog.errors has to be placed, not to end as an unknown error by chance."""
    types = {value for value in vars(errors).values() if isinstance(value, type)}
    placed = {kind for kind in types if set(kind.__mro__) & set(CODES)}
    of_pipelines = {kind for kind in types if kind.__module__ == "foldlog.errors.pipeline"}  # no broker raises them
    assert types - placed - of_pipelines == ROOTS | NEVER_ANSWERED


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UnknownPartition("orders", 7, 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (errors.RecordTooLarge(2, 1), ErrorCode.MESSAGE_TOO_LARGE),
        (errors.InvalidBatch("its CRC does not match", 0), ErrorCode.CORRUPT_MESSAGE),
        (errors.RefusedBatch("a record without a key", 0), ErrorCode.INVALID_RECORD),
        (errors.InvalidTimestamp("log append time", 0), ErrorCode.INVALID_TIMESTAMP),
        (errors.StorageFull("x"), ErrorCode.KAFKA_STORAGE_ERROR),
        (errors.CorruptLog("path", 0, "x"), ErrorCode.KAFKA_STORAGE_ERROR),
        (errors.WaitTimeout("x"), ErrorCode.REQUEST_TIMED_OUT),
        (errors.RefusedByBroker(29, "x"), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (errors.RefusedByBroker(9999, "x"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (ZeroDivisionError("a fault of ours"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (KeyboardInterrupt(), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_error_has_the_code_that_kafka_would_answer(error: BaseException, code: ErrorCode) -> None:
    assert code_of(error) is code


@pytest.mark.parametrize("error", [errors.LogClosed("x"), errors.CoordinatorUnavailable("x")])
def test_what_passes_is_retried_by_clients(error: Exception) -> None:
    assert code_of(error).is_retriable


@pytest.mark.parametrize("error", EVERY_ERROR, ids=lambda error: type(error).__name__)
def test_a_client_raises_what_means_the_same_code(error: errors.FoldlogError) -> None:
    code = code_of(error)
    raised = exception_of(code, "said the broker", topic="orders", partition=7, group="g")
    assert code_of(raised) is code
    text = str(raised)
    assert all(part in text for part in (code.name, "orders-7", "group g", "said the broker"))
    repr(raised)


def test_a_client_knows_the_place_of_an_error() -> None:
    missing = exception_of(3, None, topic="orders")
    assert isinstance(missing, errors.UnknownTopic)
    assert (missing.topic, missing.known) == ("orders", [])
    missing_partition = exception_of(3, None, topic="orders", partition=7)
    assert isinstance(missing_partition, errors.UnknownPartition)
    assert (missing_partition.topic, missing_partition.partition) == ("orders", 7)
    out_of_range = exception_of(1, None, topic="orders", partition=7)
    assert isinstance(out_of_range, errors.OffsetOutOfRange)
    assert (out_of_range.topic, out_of_range.partition) == ("orders", 7)


@pytest.mark.parametrize("code", [29, 9999, -1])
def test_a_code_without_a_type_keeps_its_number(code: int) -> None:
    raised = exception_of(code, None, group="g")
    assert isinstance(raised, errors.RefusedByBroker)
    assert raised.code == code
    assert str(code) in str(raised)


@pytest.mark.parametrize("code", ErrorCode, ids=lambda code: code.name)
def test_every_code_becomes_an_error_of_foldlog(code: ErrorCode) -> None:
    assert isinstance(exception_of(code, None), errors.FoldlogError)
