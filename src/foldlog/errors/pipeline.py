"""Errors of folds, their views, of Spark reading and writing the log, and of captures."""

from __future__ import annotations

from collections.abc import Iterable

from foldlog.errors.log import CallerError, FoldlogError, StorageError


class FoldError(FoldlogError):
    """A fold, or the view it feeds, cannot go on."""


class UnknownFold(FoldError):
    """There is no fold of that name in the pipeline."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"there is no fold {name!r}; there are {', '.join(known)}")
        self.name = name


class FoldRunning(FoldError):
    """A runner is at work on the fold, and has to stop first."""


class FoldPaused(FoldError):
    """A fold was to be brought up to date, and somebody has paused it."""


class FoldTimeout(FoldError, TimeoutError):
    """The time for a run is over, and a fold has not caught up. What it has read is stored."""


class StaleBookmark(FoldError):
    """The view's bookmark is not the expected one: another runner has moved it. Nothing was changed."""

    def __init__(self, place: str, stored: str, expected: str) -> None:
        super().__init__(
            f"{place} has moved on: it is at {stored} and not at {expected}; nothing was changed;"
            " read its bookmark and go on from there"
        )
        self.place = place
        self.stored = stored
        self.expected = expected


class SchemaChanged(FoldError):
    """The rows of a fold no longer fit into its view. Nothing was changed. A view does not know its fold's name."""

    def __init__(self, place: str, why: str, fold: str = "NAME") -> None:
        super().__init__(
            f"{place} does not fit the fold any more: {why}; rebuild it with 'foldlog fold rebuild {fold}'"
        )
        self.place = place
        self.why = why


class ViewUnavailable(FoldError):
    """The engine behind a view cannot be reached, or refused."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"{place} cannot be used: {why}")
        self.place = place
        self.why = why


class ViewInUse(FoldError):
    """Other objects depend on a view that would be replaced or dropped. Nothing was changed."""

    def __init__(self, place: str, dependents: list[str]) -> None:
        super().__init__(
            f"{place} cannot be replaced or dropped while others depend on it: {', '.join(dependents)};"
            " drop them first, and create them again afterwards"
        )
        self.place = place
        self.dependents = dependents


class RegistryUnavailable(FoldError):
    """The schema registry does not answer, or its answer is not valid."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"the schema registry {place} cannot be used: {why}")
        self.place = place
        self.why = why


class UnlawfulFold(FoldError, CallerError):
    """A fold whose result would depend on how the log is split into ranges."""

    def __init__(self, fold: str, what: str, instead: str) -> None:
        super().__init__(
            f"fold {fold!r} breaks the law of folds: {what}; splitting the log differently would change the view;"
            f" {instead}"
        )
        self.fold = fold


class CaptureError(FoldlogError):
    """A capture of a database cannot go on. What it has written is whole, and the same command goes on from there."""


class DatabaseUnavailable(CaptureError):
    """The captured database cannot be reached, or the connection to it was lost."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"{place} cannot be reached: {why}")
        self.place = place
        self.why = why


class DatabaseRefused(CaptureError):
    """The captured database is not set up for it, or does not allow it. `sqlstate` is the server's code, if any."""

    def __init__(self, message: str, sqlstate: str = "") -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class CaptureRunning(CaptureError):
    """Another process reads the changes of the capture."""


class ChangesLost(CaptureError):
    """The database no longer has the changes since the bookmark: topics and tables have parted."""

    def __init__(self, capture: str, why: str) -> None:
        super().__init__(
            f"capture {capture!r} cannot go on from its bookmark: {why}; the changes since then are lost, and a new"
            " snapshot brings the topics to the tables' state: run it with --snapshot again"
        )
        self.capture = capture
        self.why = why


class UnreadableCheckpoint(FoldlogError):
    """The offsets that Spark kept for a stream belong to another source, or to a later version of it."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the query's checkpoint cannot be used: {why};"
            " start the query with a new checkpointLocation, and say where with startingOffsets"
        )


class DirectoryElsewhere(StorageError):
    """A process cannot see the log's directory that it was given; `host` is where it runs."""

    def __init__(self, host: str, path: str, why: str) -> None:
        super().__init__(
            f"host {host} does not see the log in {path} that the driver uses: {why}; share the directory with that"
            " host under the same path, or serve the log and use kafka.bootstrap.servers (for folds, -b)"
        )
        self.host = host
        self.path = path


class UnfinishedCommit(StorageError):
    """Rows of a Spark sink are staged and decided, but not all of them are in the log yet. They will be."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"the rows are staged in {path} and will be appended, but not all of them are yet: {why}; the next write to"
            " that directory finishes it, and so does foldlog.spark.finish_writes(path); do not write them again"
        )
        self.path = path
        self.why = why


class RecordsMissing(FoldError):
    """Offsets that should be read are not in the log any more. `cause` is one word of `MISSING_CAUSES`."""

    def __init__(self, topic: str, partition: int, wanted: tuple[int, int], cause: str, why: str, advice: str) -> None:
        span = f"offsets {wanted[0]} to {wanted[1]}" if wanted[1] > wanted[0] else f"offset {wanted[0]}"
        super().__init__(f"{span} of {topic}-{partition} cannot be read: {why}; {advice}")
        self.topic = topic
        self.partition = partition
        self.wanted = wanted
        self.cause = cause
        self.why = why


MISSING_CAUSES = ("expired", "deleted", "recreated", "truncated", "unwritten")
"""In order: retention removed them; they were deleted on request, or their topic was; the topic is a new one of the
same name; the log was cut before them; they were never written."""
