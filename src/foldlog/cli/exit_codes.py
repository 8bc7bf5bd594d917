"""The exit codes of the commands."""

from __future__ import annotations

from typing import Final

from foldlog.errors import (
    BrokerUnreachable,
    CallerError,
    CaptureRunning,
    ChangesLost,
    CoordinatorUnavailable,
    CopyConflict,
    DatabaseUnavailable,
    DirectoryLocked,
    DirectoryNotEmpty,
    FoldPaused,
    FoldRunning,
    FoldTimeout,
    GroupNotEmpty,
    LogNotFound,
    MissingCatalog,
    ReadOnly,
    TopicExists,
    UnknownFold,
    UnknownGroup,
    UnknownPartition,
    UnknownTopic,
    UnknownUser,
    UserExists,
    ViewInUse,
    WaitTimeout,
    WriterUnreachable,
)

DONE: Final = 0
FAILED: Final = 1
"""The command failed, something is damaged, or the user at the terminal answered no."""
USAGE: Final = 2
"""The command line is wrong."""
NOT_FOUND: Final = 3
"""There is no such log, topic, partition, group, user or fold."""
UNREACHABLE: Final = 4
"""There is no answer, or another process is in the way: the same command may work later."""
IN_THE_WAY: Final = 5
"""The present state does not allow it: the topic exists, the group has members, the fold is running or paused, the
directory holds something else."""
TIMED_OUT: Final = 124
"""The time given is over: what was done is stored, and the same command goes on from there. As timeout(1) says it."""
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141
"""The reader of the output is gone."""

_CODES: Final[tuple[tuple[tuple[type[Exception], ...], int], ...]] = (
    ((CallerError,), USAGE),
    ((FoldTimeout,), TIMED_OUT),
    ((LogNotFound, UnknownFold, UnknownGroup, UnknownPartition, UnknownTopic, UnknownUser), NOT_FOUND),
    (
        # ReadOnly: the directory's writer does not do this for other processes.
        (
            BrokerUnreachable,
            CaptureRunning,
            CoordinatorUnavailable,
            DatabaseUnavailable,
            DirectoryLocked,
            ReadOnly,
            WaitTimeout,
            WriterUnreachable,
        ),
        UNREACHABLE,
    ),
    (
        (
            ChangesLost,
            CopyConflict,
            DirectoryNotEmpty,
            FoldPaused,
            FoldRunning,
            GroupNotEmpty,
            MissingCatalog,
            TopicExists,
            UserExists,
            ViewInUse,
        ),
        IN_THE_WAY,
    ),
)


def code_of(error: Exception) -> int:
    """The exit code that tells a script the kind of the error.

    >>> code_of(TopicExists("orders")), code_of(OSError())
    (5, 1)
    """
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), FAILED)
