"""The coordinator's error codes, with Kafka's numbers, and the exceptions that the library raises for them."""

from __future__ import annotations

from enum import IntEnum

from foldlog.errors import (
    CoordinatorUnavailable,
    FencedMember,
    FoldlogError,
    GroupError,
    GroupFull,
    GroupNotEmpty,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidArgument,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownGroup,
    UnknownMember,
    brief_repr,
)


class GroupErrorCode(IntEnum):
    """The subset of Kafka's error codes that groups use: the server sends them as they are."""

    NONE = 0
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_REQUEST = 42
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    INVALID_REGULAR_EXPRESSION = 128


_EXCEPTIONS: dict[GroupErrorCode, tuple[type[FoldlogError], str]] = {
    GroupErrorCode.COORDINATOR_LOAD_IN_PROGRESS: (CoordinatorUnavailable, "is still being loaded; try again shortly"),
    GroupErrorCode.COORDINATOR_NOT_AVAILABLE: (CoordinatorUnavailable, "has no coordinator now; try again shortly"),
    GroupErrorCode.NOT_COORDINATOR: (CoordinatorUnavailable, "is coordinated elsewhere; look its coordinator up again"),
    GroupErrorCode.ILLEGAL_GENERATION: (IllegalGeneration, "has rebalanced since; poll again to join its generation"),
    GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        InconsistentProtocol,
        "shares no assignor with this member; give all members a common one",
    ),
    GroupErrorCode.INVALID_GROUP_ID: (
        InvalidArgument,
        "is not a group name; it has to be UTF-8, and neither empty nor long",
    ),
    GroupErrorCode.UNKNOWN_MEMBER_ID: (
        UnknownMember,
        "does not know this member: it left or was silent for longer than session.timeout.ms; poll again to rejoin",
    ),
    GroupErrorCode.INVALID_SESSION_TIMEOUT: (InvalidArgument, "does not allow this session.timeout.ms"),
    GroupErrorCode.REBALANCE_IN_PROGRESS: (RebalanceInProgress, "is rebalancing; poll again to join"),
    GroupErrorCode.INVALID_REQUEST: (InvalidArgument, "does not accept this request: its metadata is over the limit"),
    GroupErrorCode.NON_EMPTY_GROUP: (GroupNotEmpty, "has members; stop them first"),
    GroupErrorCode.GROUP_ID_NOT_FOUND: (UnknownGroup, "does not exist"),
    GroupErrorCode.GROUP_MAX_SIZE_REACHED: (GroupFull, "has group.max.size members already"),
    GroupErrorCode.FENCED_INSTANCE_ID: (
        FencedMember,
        "has a newer member with this group.instance.id; give each process its own",
    ),
    GroupErrorCode.STALE_MEMBER_EPOCH: (
        StaleMemberEpoch,
        "has given this member a newer epoch, or the partition to another; poll again to hear of it",
    ),
    GroupErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: (GroupNotEmpty, "is subscribed to the topic; stop its members first"),
}


def exception_for(code: GroupErrorCode, group: str) -> FoldlogError | None:
    """The exception for `code`, or None for NONE.

    >>> str(exception_for(GroupErrorCode.REBALANCE_IN_PROGRESS, "fraud"))
    "group 'fraud' is rebalancing; poll again to join"
    """
    if code is GroupErrorCode.NONE:
        return None
    kind, sentence = _EXCEPTIONS.get(code, (GroupError, f"answered {code.name}"))
    return kind(f"group {brief_repr(group)} {sentence}")


def raise_for(code: GroupErrorCode, group: str) -> None:
    """Raise `exception_for(code, group)` unless the code is NONE."""
    error = exception_for(code, group)
    if error is not None:
        raise error
