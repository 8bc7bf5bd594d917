"""The same questions to our broker and to Apache Kafka, field by field the same answers, but for what was reviewed.

The conversations are in tests/conversations: every API that our broker advertises, in every version that Kafka has too,
taken and refused. Where an answer differs, the difference stands with its reason in tests/conversations/reviewed.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from clusters.apache_kafka import ApacheKafka
from clusters.maven import JarsUnavailable

from conversations.all_of_them import CONVERSATIONS
from conversations.coverage import NEVER_REFUSED, NEVER_TAKEN
from conversations.reviewed import REVIEWED
from conversations.running import Conversation, Outcome, both_have, never, run, unused, warm
from conversations.sides import HEAP, KAFKAS, OURS, PLUGINS
from conversations.talk import Side
from foldlog.testing import KafkaBroker
from foldlog.wire.messages import APIS, NAMES

ALL_OF_THEM_S = 1200
"""Longer than every conversation takes on a busy machine: who runs one of these tests alone runs them all."""


class Compared:
    """Both brokers, and what came of each conversation: it is run when it is first asked for."""

    def __init__(self, ours: Side, kafka: Side) -> None:
        self._ours = ours
        self._kafka = kafka
        advertised = ours.advertised(), kafka.advertised()
        self.both = both_have(*advertised)
        self.only_ours = {NAMES[key] for key in advertised[0].keys() - advertised[1].keys()}
        ours.versions = kafka.versions = self.both
        self._outcomes: dict[str, Outcome] = {}
        for side in (ours, kafka):
            warm(side)

    def of(self, conversation: Conversation) -> Outcome:
        if conversation.name not in self._outcomes:
            self._outcomes[conversation.name] = run(conversation, self._ours, self._kafka)
        return self._outcomes[conversation.name]

    def all(self) -> list[Outcome]:
        return [self.of(one) for one in CONVERSATIONS]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compared]:
    """A Kafka of this file's own, since its settings are changed, and ours with its files in a directory."""
    try:
        kafka = ApacheKafka.launch(tmp_path_factory.mktemp("compared"), properties=KAFKAS, heap=HEAP, plugins=PLUGINS)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    with kafka, KafkaBroker.launch(OURS, path=tmp_path_factory.mktemp("ours")) as ours:
        yield Compared(Side(str(ours)), Side(kafka.bootstrap))


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda one: one.name)
def test_the_same_questions_have_the_same_answers(compared: Compared, conversation: Conversation) -> None:
    differences = compared.of(conversation).differences
    assert not differences, "\n".join(["neither alike nor reviewed:", *differences])


@pytest.mark.timeout(ALL_OF_THEM_S)
def test_every_api_is_compared_in_every_version_taken_and_refused(compared: Compared) -> None:
    never_taken, never_refused = never(compared.all(), compared.both)
    assert never_taken == sorted(NEVER_TAKEN), "versions in which Kafka took no request, and those listed"
    assert never_refused == sorted(NEVER_REFUSED), "versions in which Kafka refused no request, and those listed"


def test_every_api_of_ours_is_one_of_kafka(compared: Compared) -> None:
    assert not compared.only_ours
    assert set(compared.both) == {NAMES[key] for key in APIS}


@pytest.mark.timeout(ALL_OF_THEM_S)
def test_every_reviewed_difference_is_still_there(compared: Compared) -> None:
    assert not unused(compared.all())


def test_every_reviewed_difference_has_its_reason() -> None:
    assert not [one for one in REVIEWED if len(one.why.split()) < 3]
