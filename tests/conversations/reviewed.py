"""Every difference between our answers and Apache Kafka's that is meant to be, with the reason.

A difference that is not here fails its test; a row here that stands for no difference any more fails, too.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from conversations.comparing import ABSENT, Row

ANY: Final = "any"
"""Whatever a side says there."""


ONE_MORE: Final = "one more than ours"
TWO_MORE: Final = "two more than ours"


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
            and (self.kafka in (ANY, row.kafka) or self._is_more(row))
        )

    def _is_more(self, row: Row) -> bool:
        more = {ONE_MORE: 1, TWO_MORE: 2}.get(str(self.kafka))
        return more is not None and isinstance(row.ours, int) and row.kafka == row.ours + more

    def __hash__(self) -> int:
        return hash(self[:3])


REVIEWED: Final[tuple[Reviewed, ...]] = (
    # --- consumer groups ---
    *(
        Reviewed("*", "*", f"*{kind}_epoch", ANY, ONE_MORE, "a new group begins at epoch 1 here, at 2 in Kafka 4.3")
        for kind in ("member", "group", "assignment")
    ),
    *(
        Reviewed("*share*", "*", f"*{kind}_epoch", ANY, TWO_MORE, "Kafka counts once more when it has made its state")
        for kind in ("member", "group", "assignment")
    ),
    # --- settings of topics ---
    Reviewed("*", "*", "*configs.flush.messages.*", ANY, ANY, "what is acknowledged is durable"),
    Reviewed("*", "*", "*configs.foldlog.*", ANY, ABSENT, "a setting of ours"),
    Reviewed("*", "*", "*configs.message.downconversion.enable", ANY, ABSENT, "taken without effect, as Kafka 3 had it"),
    Reviewed("*", "*", "*configs.message.format.version", ANY, ABSENT, "taken without effect, as Kafka 3 had it"),
    Reviewed(
        "*", "*", "*configs.message.timestamp.difference.max.ms", ANY, ABSENT, "taken without effect, as Kafka 3 had it"
    ),
)
