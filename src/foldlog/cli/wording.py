"""The wording of the commands: errors with advice that fits a command line, and counts."""

from __future__ import annotations

from typing import Final

from foldlog.errors import (
    CorruptLog,
    DirectoryLocked,
    DirectoryNotEmpty,
    FoldlogError,
    ForeignDirectory,
    LogNotFound,
    PartitionPoisoned,
    UnknownTopic,
    brief_repr,
)

NOT_A_LOG: Final = "; name the directory that holds its catalog.json"


def counted(number: int, noun: str) -> str:
    """
    >>> counted(1, "record"), counted(2, "record")
    ('1 record', '2 records')
    """
    return f"{number} {noun}{'s' * (number != 1)}"


def error_text(error: Exception) -> str:
    """One sentence for a user of the command line, who cannot call open() with other arguments."""
    if isinstance(error, DirectoryLocked):
        holder = f"process {error.pid}" if error.pid else "another process"
        where = f", which listens on {error.address}" if error.address else ""
        if error.lock_is_gone:
            where = ", whose .lock was removed"
        return f"{error.path} is being written by {holder}{where}; stop it, then run this again"
    if isinstance(error, DirectoryNotEmpty):
        return str(error).replace("foldlog.open(path, init=True)", "--init")
    if isinstance(error, ForeignDirectory):
        return f"{error.path} is Apache Kafka's, and only read here; make a log of your own from it with 'foldlog copy'"
    if isinstance(error, LogNotFound):
        return str(error).replace(" to read; open it with mode='w' to make one", NOT_A_LOG)
    if isinstance(error, UnknownTopic):
        others = f"; there are {', '.join(error.known[:8])}" if error.known else ""
        return f"no topic {brief_repr(error.topic)}{others}"
    if isinstance(error, OSError) and not isinstance(error, FoldlogError) and error.strerror:
        problem = error.strerror[:1].lower() + error.strerror[1:]
        return f"{error.filename}: {problem}" if error.filename else problem
    return str(error)


def damage_text(error: Exception) -> str:
    """An error in a report of damage, which has its own advice: only file, byte and reason."""
    if isinstance(error, CorruptLog):
        return f"{error.path}: byte {error.position}: {error.reason}"
    return error_text(error)


def node_error_text(error: FoldlogError) -> str:
    """An error as the text for a client of a node."""
    if isinstance(error, UnknownTopic):
        return f"no topic {brief_repr(error.topic)}; the first append to it makes it"
    if isinstance(error, PartitionPoisoned):
        return f"{error} (restart the node)"
    return error_text(error)
