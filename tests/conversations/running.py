"""The list of conversations, and how one of them is run with both brokers and compared.

A conversation is a function that asks one broker through a `Talk`. It is about some APIs: it is run once for each of
their versions, with all of them at their newest first, then at the one before, and so on until each has been at its
oldest. Everything else that it asks, it asks in the newest version that both brokers have.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Final

from conversations.comparing import ABSENT, CLOSED, Row, differing
from conversations.reviewed import REVIEWED, Reviewed
from conversations.talk import Exchange, Side, Talk
from foldlog.wire.messages import APIS, NAMES

SETTLING_S: Final = 30
"""How long Kafka may take to tell its broker what its controller knows."""

Told = Callable[[Talk], None]


@dataclass(frozen=True)
class Conversation:
    """A function that asks, what it is about, and the versions of each run."""

    name: str
    asks: Told
    apis: tuple[str, ...]
    runs: tuple[Mapping[str, int], ...]

    def versions(self, both: Mapping[str, tuple[int, int]]) -> Iterator[Mapping[str, int]]:
        """Of each run: the versions of what it is about, among those that both brokers have."""
        if self.runs:
            yield from self.runs
            return
        spans = {api: both[api] for api in self.apis if api in both}
        count = max((last - first + 1 for first, last in spans.values()), default=1)
        for back in range(count):
            yield {api: max(first, last - back) for api, (first, last) in spans.items()}


CONVERSATIONS: Final[list[Conversation]] = []
"""All of them: the modules beside this one add theirs when they are imported."""


def conversation(*apis: str, runs: tuple[Mapping[str, int], ...] = ()) -> Callable[[Told], Told]:
    """Put a function on the list: it is about these APIs, in all their versions or in those of `runs`."""

    def add(asks: Told) -> Told:
        name = asks.__name__
        assert name not in {one.name for one in CONVERSATIONS}, f"two conversations are called {name}"
        CONVERSATIONS.append(Conversation(name, asks, apis, runs))
        return asks

    return add


@dataclass
class Outcome:
    """What came of a conversation: differences nobody reviewed, those that were, and what Kafka was asked."""

    differences: list[str] = field(default_factory=list)
    reviewed: set[Reviewed] = field(default_factory=set)
    accepted: set[tuple[str, int]] = field(default_factory=set)
    refused: set[tuple[str, int]] = field(default_factory=set)


def run(one: Conversation, ours: Side, kafka: Side) -> Outcome:
    """Every run of it: with ours first, then with Kafka, whose answers are compared with ours."""
    outcome = Outcome()
    for number, versions in enumerate(one.versions(ours.versions)):
        prefix = _prefix(one, number)
        first = _told(one, ours, prefix, versions, lambda exchange: True)
        second = _told(one, kafka, prefix, versions, _Settling(one.name, first))
        shown = ", ".join(f"{api} {version}" for api, version in versions.items())
        for mine, other in zip_longest(first, second):
            for row, listed in _judged(one.name, mine, other):
                if listed is None:
                    step = (mine or other).step
                    outcome.differences.append(
                        f"{step} ({shown}): {row.path}: ours {row.ours!r}, Kafka's {row.kafka!r}"
                    )
                else:
                    outcome.reviewed.add(listed)
        for exchange in second:
            if exchange.api and exchange.told.get("") != CLOSED:  # who is disconnected was not understood
                told = outcome.refused if exchange.is_refused else outcome.accepted
                told.add((exchange.api, exchange.version))
    return outcome


def _prefix(one: Conversation, number: int) -> str:
    """What the names of this run's topics and groups begin with."""
    return f"{one.name}.{number}."


class _Settling:
    """Whether an answer of Kafka's can stay, beside those of ours: it is what ours said, or time is up."""

    def __init__(self, name: str, ours: list[Exchange]) -> None:
        self._name = name
        self._ours = {one.step: one for one in ours}
        self._until: dict[str, float] = {}
        self._is_lost = False

    def __call__(self, exchange: Exchange) -> bool:
        if self._is_lost:
            return True
        rows = _judged(self._name, self._ours.get(exchange.step), exchange)
        if all(listed is not None for _, listed in rows):
            return True
        until = self._until.setdefault(exchange.step, time.monotonic() + SETTLING_S)
        self._is_lost = time.monotonic() > until  # the comparison will say so; nothing else is waited for
        return self._is_lost


def _told(
    one: Conversation, side: Side, prefix: str, versions: Mapping[str, int], settles: Callable[[Exchange], bool]
) -> list[Exchange]:
    talk = Talk(side, prefix, versions, settles)
    try:
        one.asks(talk)
    finally:
        talk.close()
    return talk.exchanges


def _judged(name: str, mine: Exchange | None, other: Exchange | None) -> list[tuple[Row, Reviewed | None]]:
    """The differences of one step, each with its row in the table of those that were reviewed."""
    if mine is None or other is None or mine.step != other.step:
        row = Row("", ABSENT if mine is None else mine.step, ABSENT if other is None else other.step)
        return [(row, None)]
    listed = partial(_listed, name, mine.step, mine.version)
    return [(row, listed(row)) for row in differing(mine.told, other.told)]


def _listed(name: str, step: str, version: int, row: Row) -> Reviewed | None:
    return next((one for one in REVIEWED if one.covers(name, step, version, row)), None)


def unused(outcomes: list[Outcome]) -> list[Reviewed]:
    """Rows of the table that stand for nothing any more."""
    used = {listed for outcome in outcomes for listed in outcome.reviewed}
    return [one for one in REVIEWED if one not in used and not one.is_timing]


def never(outcomes: list[Outcome], both: Mapping[str, tuple[int, int]]) -> tuple[list[str], list[str]]:
    """The versions of APIs that Kafka never took a request in, and those that it never refused one in."""
    advertised = {(api, version) for api, (first, last) in both.items() for version in range(first, last + 1)}
    accepted = {pair for outcome in outcomes for pair in outcome.accepted}
    refused = {pair for outcome in outcomes for pair in outcome.refused}
    return _shown(advertised - accepted), _shown(advertised - refused)


def _shown(pairs: set[tuple[str, int]]) -> list[str]:
    return [f"{api} {version}" for api, version in sorted(pairs)]


def warm(side: Side) -> None:
    """Ask once for each coordinator: Kafka makes its own topics with the first question."""
    talk = Talk(side, "warm.", {}, lambda exchange: True)
    for kind, key in enumerate(("group", "transaction")):
        talk.ask("FindCoordinator", key_type=kind, coordinator_keys=[key])
    talk.ask("InitProducerId", transactional_id="warm", transaction_timeout_ms=60_000)
    talk.ask("OffsetFetch", groups=[{"group_id": "warm", "topics": None}])
    talk.close()


def both_have(ours: Mapping[int, tuple[int, int]], kafka: Mapping[int, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """The versions of each API that both brokers advertise, and that there are messages of."""
    return {
        NAMES[key]: (max(first, kafka[key][0], APIS[key].first), min(last, kafka[key][1]))
        for key, (first, last) in ours.items()
        if key in kafka
    }
