"""How a command ends, for whoever called it."""

from __future__ import annotations

from typing import Final

from foldlog.errors import (
    BrokerUnreachable,
    CallerError,
    CoordinatorUnavailable,
    CopyConflict,
    DirectoryLocked,
    DirectoryNotEmpty,
    FoldRunning,
    GroupNotEmpty,
    LogNotFound,
    MissingCatalog,
    ReadOnly,
    TopicExists,
    UnknownFold,
    UnknownGroup,
    UnknownPartition,
    UnknownTopic,
    ViewInUse,
    WaitTimeout,
    WriterUnreachable,
)

DONE: Final = 0
FAILED: Final = 1
"""It could not be done, or something is damaged, or somebody at the terminal said no."""
USAGE: Final = 2
"""The command line is wrong."""
NOT_FOUND: Final = 3
"""There is no such log, topic, partition, group or fold."""
UNREACHABLE: Final = 4
"""Nobody answers, or another process is in the way: the same command may work later."""
IN_THE_WAY: Final = 5
"""Not as things stand: the topic exists, the group has members, the fold is running, the directory holds something
else."""
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141
"""Nobody reads the output any more."""

_CODES: Final[tuple[tuple[tuple[type[Exception], ...], int], ...]] = (
    ((CallerError,), USAGE),
    ((LogNotFound, UnknownFold, UnknownGroup, UnknownPartition, UnknownTopic), NOT_FOUND),
    (
        # ReadOnly is what the writer of a directory does not do for others.
        (BrokerUnreachable, CoordinatorUnavailable, DirectoryLocked, ReadOnly, WaitTimeout, WriterUnreachable),
        UNREACHABLE,
    ),
    (
        (CopyConflict, DirectoryNotEmpty, FoldRunning, GroupNotEmpty, MissingCatalog, TopicExists, ViewInUse),
        IN_THE_WAY,
    ),
)


def code_of(error: Exception) -> int:
    """The exit code that tells a script what kind of error it was.

    >>> code_of(TopicExists("orders")), code_of(OSError())
    (5, 1)
    """
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), FAILED)
