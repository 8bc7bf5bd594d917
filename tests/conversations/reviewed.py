"""Every difference between our answers and Apache Kafka's that is meant to be, with the reason.

A difference that is not here fails its test; a row here that stands for no difference any more fails, too.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from conversations.comparing import ABSENT, Row

ANY: Final = "any"
"""Whatever a side says there."""


class Reviewed(NamedTuple):
    """Where two answers differ (patterns: conversation, step, field), what each says there, and why."""

    conversation: str
    step: str
    path: str
    ours: Any
    kafka: Any
    why: str
    versions: tuple[int, int] = (-1, 99)

    def covers(self, conversation: str, step: str, version: int, row: Row) -> bool:
        return (
            fnmatchcase(conversation, self.conversation)
            and fnmatchcase(step, self.step)
            and fnmatchcase(row.path, self.path)
            and self.versions[0] <= version <= self.versions[1]
            and self.ours in (ANY, row.ours)
            and self.kafka in (ANY, row.kafka)
        )

    def __hash__(self) -> int:
        return hash(self[:3])


REVIEWED: Final[tuple[Reviewed, ...]] = (
    # --- settings of topics ---
    Reviewed("*", "*", "*configs.flush.messages.*", ANY, ANY, "what is acknowledged is durable"),
    Reviewed("*", "*", "*configs.foldlog.*", ANY, ABSENT, "a setting of ours"),
    Reviewed("*", "*", "*configs.message.downconversion.enable", ANY, ABSENT, "taken without effect, as Kafka 3 had it"),
    Reviewed("*", "*", "*configs.message.format.version", ANY, ABSENT, "taken without effect, as Kafka 3 had it"),
    Reviewed(
        "*", "*", "*configs.message.timestamp.difference.max.ms", ANY, ABSENT, "taken without effect, as Kafka 3 had it"
    ),
)
