"""`commits.json` of a staging area: what was decided to be appended, what is done, and the producers that are free.

Replacing the file is the only step by which anything is decided, so that a crash leaves the state before or after:

    nothing ── staged files ──► decided ── batches appended ──► done
                               (a Commit)                      (forgotten, but for its sender's last version)

What is decided will be appended, by whoever commits next, whatever becomes of the process that decided it. Who sends
(a query, by its id) sends versions (batches, by theirs) in order: one that is not above the last is done already.

A producer id is lent to one commit at a time, which gets an epoch of it that nobody had. So there are as many ids as
commits were ever under way at once, and the log has as many producers to remember.

    {"version":1,"senders":{"<name>":[<version>,<time>]},"producers":[[<id>,<epoch>]],"decided":[{...}],
    "crc32c":"89abcdef"}

Not safe by itself for two processes: who changes it holds the lock of the staging area.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from crc32c import crc32c

from foldlog.client.backends.served.resumable import EPOCH_MAX, Numbers
from foldlog.errors import CorruptLog, NewerVersion
from foldlog.files.base import Files, read_file, replace_file
from foldlog.limits import STAGED_SENDERS_MAX
from foldlog.spark.sink.staging import StagedFile

COMMITS_NAME: Final = "commits.json"
VERSION: Final = 1

_CHECKSUM: Final = re.compile(rb',\n"crc32c":"(?P<crc>[0-9a-f]{8})"\}\n')
_CHECKSUM_BYTES: Final = len(',\n"crc32c":"89abcdef"}\n')
_ADVICE: Final = (
    "restore the file, or remove it: what was staged and not appended is lost then, and a query that repeats its last"
    " batch appends it twice"
)


@dataclass(frozen=True, slots=True)
class SinkTarget:
    """A topic of a commit: which one it is, where its partitions ended when it was decided, and how many records each
    is to get."""

    topic_id: str
    ends: dict[int, int]
    record_counts: dict[int, int]


@dataclass(frozen=True, slots=True)
class Commit:
    """What is to be appended: these files, in this order. `sender` None: a write that has no name."""

    job: str
    files: tuple[StagedFile, ...]
    targets: dict[str, SinkTarget]
    numbers: Numbers
    decided_ms: int
    sender: str | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Commits:
    """The content of the file at one moment. Immutable: a change is a new one, in force once `store` has returned."""

    decided: tuple[Commit, ...] = ()
    senders: dict[str, tuple[int, int]] = field(default_factory=dict)
    producers: tuple[Numbers, ...] = ()

    def is_done(self, sender: str | None, version: int | None) -> bool:
        known = self.senders.get(sender) if sender is not None else None
        return known is not None and version is not None and version <= known[0]

    def with_decided(self, commit: Commit) -> Commits:
        """The commit's producer is taken from the free ones, if it is one of them."""
        free = tuple(one for one in self.producers if one.producer_id != commit.numbers.producer_id)
        return replace(self, decided=(*self.decided, commit), producers=free)

    def with_done(self, commit: Commit, now_ms: int) -> Commits:
        """Its producer is free again, for the next epoch."""
        senders = dict(self.senders)
        if commit.sender is not None and commit.version is not None:
            senders[commit.sender] = (commit.version, now_ms)
            while len(senders) > STAGED_SENDERS_MAX:
                del senders[min(senders, key=lambda name: senders[name][1])]
        free = self.producers if commit.numbers.epoch >= EPOCH_MAX else (*self.producers, commit.numbers)
        left = tuple(one for one in self.decided if one.job != commit.job)
        return Commits(left, senders, free)

    def free_numbers(self) -> Numbers | None:
        """An epoch that nobody had, of a producer that nobody uses."""
        return self.producers[0]._replace(epoch=self.producers[0].epoch + 1) if self.producers else None


def load(files: Files, directory: str) -> Commits:
    """CorruptLog if a byte of it is wrong. Nothing was ever committed where there is none."""
    path = f"{directory}/{COMMITS_NAME}"
    try:
        return decode(read_file(files, path), path)
    except FileNotFoundError:
        return Commits()


def store(files: Files, directory: str, commits: Commits) -> None:
    """Durable on return."""
    replace_file(files, f"{directory}/{COMMITS_NAME}", encode(commits))


def encode(commits: Commits) -> bytes:
    plain = {
        "version": VERSION,
        "senders": commits.senders,
        "producers": commits.producers,
        "decided": [asdict(commit) for commit in commits.decided],
    }
    body = json.dumps(plain, separators=(",", ":"))[:-1].encode()
    return body + f',\n"crc32c":"{crc32c(body):08x}"}}\n'.encode()


def decode(data: bytes, path: str) -> Commits:
    body, end = data[:-_CHECKSUM_BYTES], _CHECKSUM.fullmatch(data[-_CHECKSUM_BYTES:])
    if end is None:
        raise CorruptLog(path, len(body), "it does not end as it was written", _ADVICE)
    if int(end["crc"], 16) != crc32c(body):
        raise CorruptLog(path, 0, "its CRC-32C does not match its bytes", _ADVICE)
    plain: dict[str, Any] = json.loads(body + b"}")
    if plain["version"] != VERSION:
        raise NewerVersion(path, plain["version"], VERSION)
    return Commits(
        decided=tuple(_commit(one) for one in plain["decided"]),
        senders={name: (version, at_ms) for name, (version, at_ms) in plain["senders"].items()},
        producers=tuple(Numbers(*one) for one in plain["producers"]),
    )


def _commit(plain: dict[str, Any]) -> Commit:
    targets = {
        name: SinkTarget(target["topic_id"], _by_partition(target["ends"]), _by_partition(target["record_counts"]))
        for name, target in plain["targets"].items()
    }
    return Commit(
        job=plain["job"],
        files=tuple(StagedFile(*one) for one in plain["files"]),
        targets=targets,
        numbers=Numbers(*plain["numbers"]),
        decided_ms=plain["decided_ms"],
        sender=plain["sender"],
        version=plain["version"],
    )


def _by_partition(plain: dict[str, int]) -> dict[int, int]:
    return {int(number): value for number, value in plain.items()}
