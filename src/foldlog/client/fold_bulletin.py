"""The records of the topic `__folds`: runners publish the status of their folds there, and take commands from it.

It has one partition and is compacted, so it holds the newest of each key, all of them JSON:

    status/<fold>           the state of a fold, from its runners, at most once a second
    command/<fold>          a request to it: pause, resume, rewind, rebuild, verify
    claim/<fold>/<runner>   the command that a runner takes on; of several claims of one command the first one counts

Any client may read and write a topic, also an older or a newer foldlog: unknown fields are ignored, later ones have a
default, and other records are skipped. Pure: bytes in, values out.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Final, Literal, TypeVar

from foldlog.broker.topics.config import TopicConfig
from foldlog.broker.topics.names import CHANGES_PREFIX as CHANGES_PREFIX
from foldlog.broker.topics.names import FOLDS_TOPIC as FOLDS_TOPIC
from foldlog.broker.topics.names import SIDES_PREFIX as SIDES_PREFIX
from foldlog.errors import InvalidArgument, InvalidTopicName

FOLD_GROUP_PREFIX: Final = "fold."
"""A fold commits its bookmark to the group of this prefix and its own name, for other tools; it never joins it."""

FOLDS_CONFIG: Final = {
    "cleanup.policy": "compact",
    # Every runner writes once a second, and a starting one reads all of it: small segments are compacted soon.
    "segment.bytes": str(4 << 20),
    "segment.ms": str(60 * 60 * 1000),
}

_REFUSING: Final = ("max.message.bytes", "message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
"""Settings that could keep runners and commands from writing to the topic at all."""

MADE_BY_FOLDS: Final = (
    "topic '__folds' is made by the folds themselves, with settings of their own; choose another name, or serve with"
    " foldlog.folds.accept.unproven"
)
"""The error for creating the topic with other settings."""

SILENT_AFTER_MS: Final = 15_000
"""A runner that has not published for this long counts as gone."""

MIXED: Final = "its function has changed since the view was built, and old and new logic mix in it until a rebuild"

Verb = Literal["pause", "resume", "rewind", "rebuild", "verify"]
VERBS: Final = ("pause", "resume", "rewind", "rebuild", "verify")

ONE_RUNNER_VERBS: Final = frozenset({"rewind", "rebuild", "verify"})
"""Commands that one runner of a fold carries out for all, and so claims first. A pause is for each of them."""

_log = logging.getLogger("foldlog")


def is_made_otherwise(name: object, partitions: int, settings: Mapping[str, str]) -> bool:
    """Whether this would create `__folds` with other settings than the folds do: they would hold for all of them."""
    return name == FOLDS_TOPIC and (partitions != 1 or dict(settings) != FOLDS_CONFIG)


def refuse_made_otherwise(name: object, partitions: int, config: Mapping[str, object] | None) -> None:
    """Raises InvalidTopicName if `is_made_otherwise`."""
    if name == FOLDS_TOPIC and is_made_otherwise(name, partitions, TopicConfig.parse(config or {}).settings):
        raise InvalidTopicName(MADE_BY_FOLDS)


def mending(settings: Mapping[str, str]) -> dict[str, str | None]:
    """The changes of `__folds`'s settings that are needed so that no record is refused or lost; None: the default."""
    changes: dict[str, str | None] = {name: None for name in _REFUSING if name in settings}
    if settings.get("cleanup.policy") != FOLDS_CONFIG["cleanup.policy"]:
        changes["cleanup.policy"] = FOLDS_CONFIG["cleanup.policy"]
    return changes


@dataclass(frozen=True, slots=True)
class Status:
    """The state of one fold as its runner last reported it. Offsets are per partition; times are ms since 1970."""

    fold: str
    topic: str
    view: str
    kind: str
    state: str
    bookmark: Mapping[str, int]
    end: Mapping[str, int]
    lag: int
    records: int
    rows: int
    rows_per_s: float
    dead_letters: int
    skipped: int
    last_range: str
    error: str | None
    runner: str
    updated_ms: int
    last_command: str | None = None
    result: str | None = None
    """The outcome of the last command, in one sentence."""
    engine: str | None = None
    view_description: Mapping[str, Any] | None = None
    """How to open the view for a look: see `foldlog.views.peek`. No passwords. None if only the fold can."""
    doing: Mapping[str, Any] | None = None
    """{"verb", "done", "total"} while a rebuild, a verification or the reading after a rewind is under way."""
    adds: bool = False
    """The view adds up what it reads: it is rebuilt, never rewound."""
    file: str | None = None
    """The file that declares the fold, on the runner's machine."""
    stopped: bool = False
    """The runner's last report: it has released the fold."""
    mixes: int = 0
    """How often the fold's function has changed since its view was built; above 0, see MIXED."""
    writes: str | None = None
    """The topic that is the fold's view, if it is one."""
    topics: Mapping[str, Any] | None = None
    """Of a fold of several topics, by topic: {"bookmark", "end", "lag"}. `topic`, `bookmark` and `end` are the first
    one's, and `lag` is that of all."""

    def is_live(self, now_ms: int) -> bool:
        """Whether its runner still publishes, and so takes commands, even if the fold has failed."""
        return not self.stopped and self.state != "stopped" and now_ms - self.updated_ms < SILENT_AFTER_MS


@dataclass(frozen=True, slots=True)
class Command:
    """A request to a running fold. `to` is for rewind; `id` distinguishes requests."""

    fold: str
    verb: Verb
    asked_ms: int
    to: str | None = None
    accept_loss: bool = False
    id: str = ""

    @classmethod
    def ask(cls, fold: str, verb: str, now_ms: int, *, to: str | None = None, accept_loss: bool = False) -> Command:
        """A new request."""
        for known in VERBS:
            if verb == known:
                return cls(fold, known, now_ms, to, accept_loss, uuid.uuid4().hex)
        raise InvalidArgument(f"{verb!r} is not something a fold can be asked; there are {', '.join(VERBS)}")


@dataclass(frozen=True, slots=True)
class Claim:
    """A runner takes on the command `command`. `runner` is unique, also among runners of one process."""

    fold: str
    command: str
    runner: str
    claimed_ms: int


Item = Status | Command | Claim

_KINDS: Final[dict[str, type[Item]]] = {"status": Status, "command": Command, "claim": Claim}
_TYPES: Final[dict[str, type | tuple[type, ...]]] = {
    "str": str,
    "str | None": (str, type(None)),
    "float": (int, float),
    "bool": bool,
    "Verb": str,
    "Mapping[str, Any] | None": (dict, type(None)),
}
"""The JSON types that are valid for a field of that annotation."""

Known = TypeVar("Known", bound=Item)


def encode(item: Item) -> tuple[bytes, bytes]:
    """The key and the value of a record.

    >>> encode(Claim("mirror", "4f2c", "7d1e", 5))[0]
    b'claim/mirror/7d1e'
    """
    return key_of(item), json.dumps(asdict(item), sort_keys=True).encode()


def key_of(item: Item) -> bytes:
    """The key under which a newer record of the same kind replaces it."""
    if isinstance(item, Claim):
        return f"claim/{item.fold}/{item.runner}".encode()
    return f"{'status' if isinstance(item, Status) else 'command'}/{item.fold}".encode()


def decode(key: bytes | None, value: bytes | None) -> Item | None:
    """The inverse; None for a tombstone, and for foreign records: any client may write to a topic."""
    kind = (key or b"").partition(b"/")[0].decode("ascii", "replace")
    if value is None or kind not in _KINDS:
        return None
    try:
        item = _made(_KINDS[kind], json.loads(value))
        if key_of(item) != key:
            raise ValueError("its key is another one's")
    except (ValueError, TypeError, RecursionError):
        _log.warning("a record of %s with key %r was skipped: it is not a %s", FOLDS_TOPIC, key, kind)
        return None
    if isinstance(item, Command) and item.verb not in VERBS:
        return None
    return item


def dropped_fold(key: bytes | None, value: bytes | None) -> str | None:
    """The fold that a tombstone removes; None for every other record.

    >>> dropped_fold(b"status/mirror", None), dropped_fold(b"command/mirror", None)
    ('mirror', None)
    """
    if key is None or value is not None or not key.startswith(b"status/"):
        return None
    return key.partition(b"/")[2].decode("utf-8", "replace")


def _made(kind: type[Known], found: Any) -> Known:
    """Raises TypeError unless `found` has every required field, in its type."""
    if not isinstance(found, dict):
        raise TypeError("it is no object")
    chosen: dict[str, Any] = {}
    for field in fields(kind):
        if field.name not in found:
            if field.default is MISSING:
                raise TypeError(f"it has no {field.name}")
            continue
        if not _fits(str(field.type), found[field.name]):
            raise TypeError(f"its {field.name} is not what it should be")
        chosen[field.name] = found[field.name]
    return kind(**chosen)


def _fits(annotation: str, value: Any) -> bool:
    if annotation == "int":
        return type(value) is int  # JSON's true and false are not numbers
    if annotation == "Mapping[str, int]":
        return type(value) is dict and all(type(one) is int for one in value.values())
    return isinstance(value, _TYPES[annotation])
