"""The end of the story: everything is counted again, from the log alone, and compared with the views and readers."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from foldlog import Record
from foldlog.demo.payments import TOPIC
from foldlog.demo.pipeline import FOLDS, HISTORY, MIRROR, PER_MINUTE, SEARCH
from foldlog.demo.readers import left_to_read, read_whole_log
from foldlog.demo.stage import QUICK, SLOW, STOCK, DemoStage, answer_of, are_at_the_end
from foldlog.demo.stock_clients import client_name
from foldlog.errors import UnknownTopic

# --- the expected contents of each view, computed in plain Python: no Spark, no folds, no ranges ----------------------
#
# An independent way to the same result, which shares no code with the folds: it decodes with `json`, keeps a dictionary
# by key, and adds up. A view that has read the whole log has to hold exactly this.

Row = dict[str, Any]
_KINDS: Final[Mapping[str, type]] = {"merchant": str, "amount_paise": int, "note": str, "at": datetime}
_MINUTE: Final = timedelta(minutes=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def decoded(value: bytes) -> Row | None:
    """The columns of a payment; None for poison."""
    try:
        given = json.loads(value)
    except ValueError:
        return None
    if not isinstance(given, dict):
        return None
    row: Row = {}
    for name, kind in _KINDS.items():
        one = given.get(name)
        if one is not None and kind is datetime:
            one = datetime.fromisoformat(one)
        elif one is not None and type(one) is not kind:
            return None
        row[name] = one
    return row


def rows_of(records: Iterable[Record]) -> list[tuple[Record, str, Row | None]]:
    """Each record that is not poison, with its key and its columns; None as columns for a refund."""
    found: list[tuple[Record, str, Row | None]] = []
    for record in records:
        key = (record.key or b"").decode()
        if record.value is None:
            found.append((record, key, None))
        elif (row := decoded(record.value)) is not None:
            found.append((record, key, row))
    return found


def mirrored(records: Iterable[Record]) -> list[Row]:
    """The newest row of each key; a refund deletes."""
    newest: dict[str, Row] = {}
    for _, key, row in rows_of(records):
        if row is None:
            newest.pop(key, None)
        else:
            newest[key] = {"tx_id": key, **row}
    return list(newest.values())


def counted(records: Iterable[Record]) -> list[Row]:
    """Payments by merchant and minute of event time: their number, sum and maximum."""
    amounts: dict[tuple[str, datetime], list[int]] = defaultdict(list)
    for _, _, row in rows_of(records):
        if row is not None and row["amount_paise"] is not None and row["amount_paise"] > 0:
            start = row["at"] - (row["at"] - _EPOCH) % _MINUTE
            amounts[row["merchant"], start].append(row["amount_paise"])
    return [
        {
            "merchant": merchant,
            "window_start": start,
            "payments": len(paid),
            "paise": sum(paid),
            "highest": max(paid),
        }
        for (merchant, start), paid in amounts.items()
    ]


def kept(records: Iterable[Record]) -> list[Row]:
    """Every record, refunds included, with its partition and offset."""
    return [
        {
            "tx_id": key,
            **(row if row is not None else dict.fromkeys(_KINDS)),
            "_partition": record.partition,
            "_offset": record.offset,
            "_timestamp": datetime.fromtimestamp(record.timestamp_ms / 1000, UTC),
            "_deleted": row is None,
        }
        for record, key, row in rows_of(records)
    ]


def poison_in(records: Iterable[Record]) -> int:
    """How many records are neither payments nor refunds."""
    return sum(record.value is not None and decoded(record.value) is None for record in records)


def is_same(rows: Iterable[Row], wanted: Iterable[Row]) -> bool:
    """Whether both hold the same rows, in any order."""
    return sorted(map(_comparable, rows)) == sorted(map(_comparable, wanted))


def _comparable(row: Row) -> str:
    """The row as text; equal instants give equal texts, whatever their zone."""
    told = {
        name: value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value
        for name, value in sorted(row.items())
    }
    return json.dumps(told, default=repr)


_EXPECTED: Final[Mapping[str, Callable[[list[Record]], list[Row]]]] = {
    MIRROR: mirrored,
    SEARCH: mirrored,
    PER_MINUTE: counted,
    HISTORY: kept,
}


# --- the proof --------------------------------------------------------------------------------------------------------


def prove(stage: DemoStage) -> None:
    """Count everything, while nothing is being written."""
    stage.wait_for(lambda: are_at_the_end(stage), "the folds read everything")
    records = read_whole_log(stage.broker.directory).records
    the_groups(stage, len(records))
    the_stock_client(stage)
    the_dead_letters(stage, records)
    the_verifications(stage)
    the_replay(stage, records)


def the_groups(stage: DemoStage, written: int) -> None:
    stage.wait_for(lambda: left_to_read(stage.log, QUICK) == 0, f"the group {QUICK} read everything")
    quick, slow = left_to_read(stage.log, QUICK), left_to_read(stage.log, SLOW)
    stage.claim(
        "Two groups read at their own speed, and neither held up the other, nor the writer",
        quick == 0 < slow,
        f"'{QUICK}' has read all {written:,}, '{SLOW}' is {slow:,} behind; the log keeps what it has not read",
    )


def the_stock_client(stage: DemoStage) -> None:
    ends = {number: end for number, (_, end) in stage.log.offsets(TOPIC).items()}
    reader = stage.readers[STOCK]
    stage.wait_for(lambda: reader.digests.ends == ends, "the stock client read everything")
    here, there = read_whole_log(stage.broker.directory).digests(), reader.digests.result()
    stage.claim(
        "A stock Kafka client read the same bytes over the network as are in the files",
        here == there,
        f"{client_name()}: {reader.records:,} records, SHA-256 of partition 0 {there[0][:12]}…,"
        f" {'the same' if here == there else f'not {here[0][:12]}…'} in the files",
    )


def the_dead_letters(stage: DemoStage, records: list[Record]) -> None:
    poison = poison_in(records)
    letters = {fold: _letters(stage, fold) for fold in FOLDS}
    stage.claim(
        "Poison stopped nobody: each such record lies in the dead letters of every fold",
        set(letters.values()) == {poison} and poison > 0,
        f"{poison} records that are no payments; dead letters: "
        + ", ".join(f"{fold} {count}" for fold, count in letters.items()),
    )


def _letters(stage: DemoStage, fold: str) -> int:
    """Counts distinct keys: a letter may be written again after a crash, with the same key."""
    topic = f"{fold}.dead"
    try:
        return len({one.key for number in stage.log.offsets(topic) for one in stage.log.read(topic, number)})
    except UnknownTopic:
        return 0


def the_verifications(stage: DemoStage) -> None:
    stage.screen.say(
        "The pipeline replays every fold with another split of the log, and compares (foldlog fold verify)."
    )
    asked = {fold: stage.pipeline.ask(fold, "verify") for fold in FOLDS}
    answers = {fold: answer_of(stage, fold, request, "verifying")[0] for fold, request in asked.items()}
    stage.claim(
        "A replay on Spark, with the log split differently, gives the same views",
        all(answer.startswith("equal") for answer in answers.values()),
        "; ".join(f"{fold} {answer.partition(', digest')[0]}" for fold, answer in answers.items()),
    )


def the_replay(stage: DemoStage, records: list[Record]) -> None:
    found: dict[str, str] = {}
    all_same = True
    for fold, expected in _EXPECTED.items():
        _, rows = stage.pipeline.snapshot(fold)
        is_equal = is_same(rows, expected(records))
        all_same = all_same and is_equal
        found[fold] = f"{fold} {len(rows):,} rows {'equal' if is_equal else 'DIFFERENT'}"
    stage.claim(
        "Every view equals a replay: what plain Python makes of the log, record by record, without Spark",
        all_same,
        f"{len(records):,} records replayed; {', '.join(found.values())}",
    )
