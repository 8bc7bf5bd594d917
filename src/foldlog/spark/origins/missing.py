"""The error for offsets that are gone, with the reason in words; common to files and brokers."""

from __future__ import annotations

from typing import Final

from foldlog.errors import RecordsMissing
from foldlog.spark.origins.origin import Bounds, OffsetRange

_GONE: Final = "the topic was deleted"
_ADVICE: Final = "begin at {begin}, or set failOnDataLoss=false to go on with what is left"
_ADVICE_ANEW: Final = "begin anew with startingOffsets, or set failOnDataLoss=false to go on without it"


def records_missing(wanted: OffsetRange, cause: str, bounds: Bounds | None, location: str) -> RecordsMissing:
    """`wanted` is what was not read of a range; `bounds` is what the log holds now, None if it has no such partition.

    `cause` is one of MISSING_CAUSES; `location` says where the log is.
    """
    start, end = (None, None) if bounds is None else (bounds.start, bounds.end)
    sentences = {
        "expired": f"retention has removed everything below offset {start}",
        "deleted": _GONE if bounds is None else f"everything below offset {start} was deleted on request",
        "recreated": "the topic was deleted, and another one made under its name",
        "truncated": f"the log was cut back: it ends at {end}, or holds other records there than before",
        "unwritten": _GONE if bounds is None else f"the log ends at offset {end}; they were never written",
    }
    advice = _ADVICE.format(begin=start) if cause in ("expired", "deleted") and bounds is not None else _ADVICE_ANEW
    return RecordsMissing(
        wanted.topic,
        wanted.partition,
        (wanted.start, wanted.stop),
        cause,
        f"{sentences[cause]} (in {location})",
        advice,
    )
