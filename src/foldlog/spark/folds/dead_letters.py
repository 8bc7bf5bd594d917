"""Records that do not parse, or that a fold fails at: kept in a dead letter topic, with coordinates and the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from foldlog.errors import FoldError
from foldlog.spark.folds.declaration import Fold
from foldlog.spark.origins.ledger import Ledger, LedgerEntry
from foldlog.views.topic_lists import located

if TYPE_CHECKING:
    import pyarrow as pa

_LETTER_BYTES_MAX: Final = 64 << 20

DEAD_LETTER_CONFIG: Final = {"cleanup.policy": "compact", "max.message.bytes": str(_LETTER_BYTES_MAX)}
"""Compacted: a record that is met again after a crash has the same key, and one of them is kept. The size limit is
raised, as the source topic may allow larger records than the default.
"""


def dead_letters(fold: Fold, dead: pa.Table, read_as: str) -> list[LedgerEntry]:
    """One entry per record: its value, and in the headers its topic, partition and offset, its key and the reason.

    The key is `<topic>/<partition>/<offset>`. A compacted topic takes no null value for a letter (it would be a
    tombstone), so a record without a value keeps an empty one, and the header `value` says "null".
    """
    entries: list[LedgerEntry] = []
    for row in dead.to_pylist():
        topic, partition = located(read_as, row["_partition"])
        coordinates = (topic, str(partition), str(row["_offset"]))
        headers = [("reason", row["reason"].encode()), ("fold", fold.name.encode())]
        headers += [
            (name, text.encode()) for name, text in zip(("topic", "partition", "offset"), coordinates, strict=True)
        ]
        if row["key"] is not None:
            headers.append(("key", row["key"]))
        if row["value"] is None:
            headers.append(("value", b"null"))
        entries.append(LedgerEntry("/".join(coordinates).encode(), row["value"] or b"", tuple(headers)))
    return entries


def bury(fold: Fold, dead: pa.Table, ledger: Ledger, read_as: str, *, strict: bool) -> None:
    """Store dead letters durably, before the fold continues. With `strict`, FoldError for the first of them instead.
    `read_as` is the name by which the topic is read, or several are.
    """
    if strict:
        first = dead.slice(0, 1).to_pylist()[0]
        topic, partition = located(read_as, first["_partition"])
        raise FoldError(
            f"fold {fold.name!r} stops at offset {first['_offset']} of {topic}-{partition}:"
            f" {first['reason']}; mend the schema or the fold, or run without --strict to set it aside in"
            f" {fold.dead_letters}"
        )
    ledger.ensure_topic(fold.dead_letters, 1, DEAD_LETTER_CONFIG)
    ledger.append(fold.dead_letters, dead_letters(fold, dead, read_as))
