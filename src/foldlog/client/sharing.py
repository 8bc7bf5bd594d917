"""A log that this process reads for long and writes only now and then, beside whoever else writes it."""

from __future__ import annotations

import os

from foldlog.client.log import Log
from foldlog.client.remote_broker import open_remote


def open_shared(path: str | os.PathLike[str]) -> Log:
    """The log of an existing directory, without becoming its writer: reading is from the files; each call that writes
    goes to the process that writes the directory, if it listens, or takes the lock for as long as the call takes.

    LogNotFound if there is no log. A writer that does not listen is met only by who writes: DirectoryLocked.

    >>> import tempfile, foldlog
    >>> with tempfile.TemporaryDirectory() as path:
    ...     with foldlog.open(path) as log:
    ...         _ = log.create_topic("orders")
    ...     with open_shared(path) as one, open_shared(path) as other:
    ...         _ = one.append("orders", "paid")
    ...         other.append("orders", "shipped").offset
    1
    """
    followed, remote = open_remote(os.fspath(path), None, None, None)
    return Log(followed, remote)
