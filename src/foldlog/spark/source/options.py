"""The options of `spark.read` and `spark.readStream`: names, defaults and precedence are those of Spark's Kafka source.

Names are case-insensitive. Three options are new: `path`, in place of `kafka.bootstrap.servers`, `latestPerKey`, and
`isolation.level`, which `kafka.isolation.level` is, too: read_uncommitted, the default, or read_committed.
Unknown options are ignored, as Spark ignores them, unless they begin with `kafka.`. `groupIdPrefix`, `kafka.group.id`,
`fetchOffset.numRetries`, `fetchOffset.retryIntervalMs` and `kafkaConsumer.pollTimeoutMs` are accepted and have no
effect: reading uses no group, and retries by itself.

`subscribePattern` is a Python regular expression, and has to match the whole name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import unquote, urlsplit

from foldlog.client.isolation import ISOLATION_LEVELS
from foldlog.client.wire.property_names import refuse_unknown
from foldlog.durations import milliseconds
from foldlog.errors import InvalidArgument, brief_repr
from foldlog.files.paths import STORE_MARK, absolute, is_store_url, is_there
from foldlog.spark.origins.origin import ISOLATION_LEVEL, OriginSpec

TopicPartition = tuple[str, int]

EARLIEST: Final = -2
LATEST: Final = -1
"""Special values in JSON offsets."""

DEFAULT_TRIGGER_DELAY_MS: Final = 15 * 60 * 1000
MAX_INT64: Final = (1 << 63) - 1

BOOTSTRAP: Final = "kafka.bootstrap.servers"

Side = Literal["starting", "ending"]
OnNoMatch = Literal["error", "latest"]

_CHOICES: Final = ("subscribe", "subscribePattern", "assign")
_IGNORED_IN_BATCH: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_BATCH_ONLY: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
_REFUSED: Final = {
    "kafka.auto.offset.reset": "say where to begin with startingOffsets",
    "kafka.key.deserializer": "keys are bytes; decode them with DataFrame functions",
    "kafka.value.deserializer": "values are bytes; decode them with DataFrame functions",
    "kafka.enable.auto.commit": "reading commits nothing; leave it out",
    "kafka.interceptor.classes": "no Java runs here; change the rows with DataFrame functions",
}
_NOT_FOR_THE_CONNECTION: Final = frozenset({"bootstrap.servers", "group.id"})
_OFFSETS_EXAMPLE: Final = '{"topicA": {"0": 23, "1": -1}, "topicB": {"0": -2}}'
_TIMES_EXAMPLE: Final = '{"topicA": {"0": 1700000000000, "1": 1700000000000}}'
_ASSIGN_EXAMPLE: Final = '{"topicA": [0, 1], "topicB": [2]}'


@dataclass(frozen=True, slots=True)
class Earliest:
    """The log start of every partition."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The end of every partition."""


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition; may be EARLIEST or LATEST."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after one time, in every partition."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The first record at or after a time for each partition."""

    times_ms: Mapping[TopicPartition, int]


Limit = Earliest | Latest | AtOffsets | AtTime | AtTimes
"""Where to begin (inclusive) or to end (exclusive)."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """These topics, with all their partitions."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """Every topic whose whole name matches the expression, with all their partitions. May be none."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Assign:
    """These partitions."""

    partitions: tuple[TopicPartition, ...]


TopicChoice = Subscribe | SubscribePattern | Assign


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """All options of a reader, checked. `ignored` names given options that have no effect in a batch."""

    origin: OriginSpec
    topics: TopicChoice
    starting: Limit
    ending: Limit = field(default_factory=Latest)
    on_no_match: OnNoMatch = "error"
    fail_on_data_loss: bool = True
    include_headers: bool = False
    latest_per_key: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = DEFAULT_TRIGGER_DELAY_MS
    ignored: tuple[str, ...] = ()


def batch_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of `spark.read`. InvalidArgument, in one sentence, if they are wrong."""
    options = _Given(given)
    starting = options.limit("starting", Earliest())
    if isinstance(starting, Latest):
        raise InvalidArgument("startingOffsets cannot be 'latest' in a batch; use 'earliest', offsets or a time")
    _refuse_offset(starting, LATEST, "startingOffsets", "latest")
    ending = options.limit("ending", Latest())
    if isinstance(ending, Earliest):
        raise InvalidArgument("endingOffsets cannot be 'earliest' in a batch; use 'latest', offsets or a time")
    _refuse_offset(ending, EARLIEST, "endingOffsets", "earliest")
    return options.read_options(starting, ending, ignored=options.present(_IGNORED_IN_BATCH))


def stream_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of `spark.readStream`. InvalidArgument, in one sentence, if they are wrong."""
    options = _Given(given)
    for name in options.present(_BATCH_ONLY):
        raise InvalidArgument(f"{name} cannot be used in a stream, which has no end; leave it out, or use spark.read")
    return options.read_options(options.limit("starting", Latest()), Latest())


def origin_spec(given: Mapping[str, str]) -> OriginSpec:
    """Where the log is: exactly one of `path` and `kafka.bootstrap.servers`. For readers and writers.

    >>> origin_spec({"kafka.bootstrap.servers": "h:9092", "kafka.client.id": "a", "kafka.group.id": "b"}).properties
    {'client.id': 'a'}
    """
    options = _Given(given)
    path, bootstrap = options.text("path"), options.text(BOOTSTRAP)
    if path is not None and bootstrap is not None:
        raise InvalidArgument(f"give either path or {BOOTSTRAP}, not both: they are two ways to one log")
    level = options.text(ISOLATION_LEVEL)
    if level is None:
        level = options.text(f"kafka.{ISOLATION_LEVEL}")
    isolation = {} if level is None else {ISOLATION_LEVEL: _isolation_level(level)}
    if path is not None:
        return OriginSpec(path=_place_of_log(path), properties=isolation)
    if bootstrap is None:
        raise InvalidArgument(
            f"say where the log is: path, a log's directory, or {BOOTSTRAP}, such as 'localhost:9092'"
        )
    properties = options.kafka_properties() | isolation
    refuse_unknown(properties)
    return OriginSpec(bootstrap=bootstrap, properties=properties)


def _isolation_level(text: str) -> str:
    if text.lower() not in ISOLATION_LEVELS:
        known = " or ".join(ISOLATION_LEVELS)
        raise InvalidArgument(f"{ISOLATION_LEVEL}={brief_repr(text)} is not known; it is {known}")
    return text.lower()


def includes_headers(given: Mapping[str, str]) -> bool:
    """Whether `includeHeaders` is set."""
    return _Given(given).flag("includeHeaders", default=False)


def _place_of_log(path: str) -> str:
    """An absolute path, since executors may have another working directory, or the URL of a store of segments. A file:
    URL is of either."""
    parts = urlsplit(path)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        plain = absolute(unquote(parts.path))
        return f"file://{plain}" if is_there(f"{plain}/{STORE_MARK}") else plain
    if is_store_url(path) and parts.scheme != "file":
        return path
    if "://" in path or parts.scheme == "file":
        raise InvalidArgument(
            f"path {brief_repr(path)} is not on a file system that this process can open; mount it,"
            f" or serve the log and read it with {BOOTSTRAP}"
        )
    return absolute(path)


def _refuse_offset(limit: Limit, refused: int, name: str, word: str) -> None:
    if isinstance(limit, AtOffsets):
        for (topic, partition), offset in limit.offsets.items():
            if offset == refused:
                raise InvalidArgument(f"{name} of {topic}-{partition} cannot be {refused} ({word}) in a batch")


class _Given:
    """Options by case-insensitive name."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._texts = {name.lower(): value for name, value in given.items()}

    def present(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name.lower() in self._texts)

    def text(self, name: str) -> str | None:
        """The stripped text of an option; InvalidArgument if it is empty."""
        given = self._texts.get(name.lower())
        if given is None:
            return None
        if not given.strip():
            raise InvalidArgument(f"{name} is empty; give it a value, or leave it out")
        return given.strip()

    def flag(self, name: str, *, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise InvalidArgument(f"{name}={brief_repr(text)} is neither true nor false")
        return text.lower() == "true"

    def count(self, name: str, most: int = MAX_INT64) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        number = _integer(text)
        if number is None or not 1 <= number <= most:
            raise InvalidArgument(f"{name}={brief_repr(text)} is not a count: a whole number from 1 to {most}")
        return number

    def kafka_properties(self) -> dict[str, str]:
        """The properties of the connection, without their prefix."""
        names = {name: name.removeprefix("kafka.") for name in self._texts if name.startswith("kafka.")}
        return {short: self._texts[name] for name, short in names.items() if short not in _NOT_FOR_THE_CONNECTION}

    def limit(self, side: Side, default: Limit) -> Limit:
        """A single time overrides times per partition, and those override offsets, as in Spark's Kafka source."""
        name = f"{side}Timestamp"
        text = self.text(name)
        if text is not None:
            time_ms = _integer(text)
            if time_ms is None or abs(time_ms) > MAX_INT64:
                raise InvalidArgument(f"{name}={brief_repr(text)} is not a time: milliseconds since 1970")
            return AtTime(time_ms)
        name = f"{side}OffsetsByTimestamp"
        text = self.text(name)
        if text is not None:
            return AtTimes(_per_partition(name, text, _TIMES_EXAMPLE, -MAX_INT64))
        name = f"{side}Offsets"
        text = self.text(name)
        if text is None:
            return default
        if text.lower() == "earliest":
            return Earliest()
        if text.lower() == "latest":
            return Latest()
        return AtOffsets(_per_partition(name, text, _OFFSETS_EXAMPLE, EARLIEST))

    def read_options(self, starting: Limit, ending: Limit, ignored: tuple[str, ...] = ()) -> ReadOptions:
        spec = origin_spec(self._texts)
        for name, instead in _REFUSED.items():
            if name in self._texts:
                raise InvalidArgument(f"{name} is not for this source: {instead}")
        most, least = self.count("maxOffsetsPerTrigger"), self.count("minOffsetsPerTrigger")
        if most is not None and least is not None and least > most:
            raise InvalidArgument(f"minOffsetsPerTrigger={least} is more than maxOffsetsPerTrigger={most}")
        return ReadOptions(
            origin=spec,
            topics=self._topics(),
            starting=starting,
            ending=ending,
            on_no_match=self._on_no_match(),
            fail_on_data_loss=self.flag("failOnDataLoss", default=True),
            include_headers=self.flag("includeHeaders", default=False),
            latest_per_key=self.flag("latestPerKey", default=False),
            min_partitions=self.count("minPartitions", (1 << 31) - 1),
            max_records_per_partition=self.count("maxRecordsPerPartition"),
            max_offsets_per_trigger=most,
            min_offsets_per_trigger=least,
            max_trigger_delay_ms=self._trigger_delay_ms(),
            ignored=ignored,
        )

    def _on_no_match(self) -> OnNoMatch:
        name = "startingOffsetsByTimestampStrategy"
        text = self.text(name) or "error"
        match text.lower():
            case "error":
                return "error"
            case "latest":
                return "latest"
            case _:
                raise InvalidArgument(f"{name}={brief_repr(text)} is neither 'error' nor 'latest'")

    def _trigger_delay_ms(self) -> int:
        text = self.text("maxTriggerDelay")
        if text is None:
            return DEFAULT_TRIGGER_DELAY_MS
        delay_ms = milliseconds(f"{text}ms" if text.isdecimal() else text)
        if delay_ms is None:
            raise InvalidArgument(
                f"maxTriggerDelay={brief_repr(text)} is not a time such as '15m'; units are us, ms, s, m, min, h, d"
            )
        return delay_ms

    def _topics(self) -> TopicChoice:
        given = self.present(_CHOICES)
        if len(given) != 1:
            what = "none was given" if not given else f"{' and '.join(given)} were given"
            raise InvalidArgument(f"exactly one of {', '.join(_CHOICES)} says which topics to read; {what}")
        text = self.text(given[0]) or ""
        if given[0] == "assign":
            return Assign(_assigned(text))
        if given[0] == "subscribePattern":
            return SubscribePattern(_checked_pattern(text))
        names = tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
        if not names:
            raise InvalidArgument(f"subscribe={brief_repr(text)} names no topic; give names separated by commas")
        return Subscribe(names)


def _integer(text: str) -> int | None:
    """The integer, or None. int() alone would accept the digits of other scripts."""
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else None


def _checked_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidArgument(f"subscribePattern={brief_repr(text)} is not a regular expression: {error}") from error
    return text


def _json_object(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _not_json(name, text, example)
    return found


def _not_json(name: str, text: str, example: str) -> InvalidArgument:
    return InvalidArgument(f"{name}={brief_repr(text)} cannot be understood; it is JSON such as {example}")


def _per_partition(name: str, text: str, example: str, least: int) -> dict[TopicPartition, int]:
    """A number for each partition of each topic."""
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in _json_object(name, text, example).items():
        if not isinstance(partitions, dict):
            raise _not_json(name, text, example)
        for written, number in partitions.items():
            partition = _integer(written)
            if partition is None or partition < 0 or type(number) is not int or not least <= number <= MAX_INT64:
                raise _not_json(name, text, example)
            numbers[topic, partition] = number
    return numbers


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    chosen: dict[TopicPartition, None] = {}
    for topic, partitions in _json_object("assign", text, _ASSIGN_EXAMPLE).items():
        if not isinstance(partitions, list) or any(type(number) is not int or number < 0 for number in partitions):
            raise _not_json("assign", text, _ASSIGN_EXAMPLE)
        chosen.update(dict.fromkeys((topic, number) for number in partitions))
    if not chosen:
        raise InvalidArgument(f"assign={brief_repr(text)} names no partition; give some, as in {_ASSIGN_EXAMPLE}")
    return tuple(chosen)
