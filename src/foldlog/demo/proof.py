"""The end of the story: all is counted once more, from the log alone, and compared with what everybody has read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from foldlog import Record
from foldlog.demo.payments import TOPIC
from foldlog.demo.pipeline import FOLDS, HISTORY, MIRROR, PER_MINUTE, SEARCH
from foldlog.demo.progress import answer_of, are_at_the_end
from foldlog.demo.readers import left_to_read, read_whole_log
from foldlog.demo.recompute import Row, counted, is_same, kept, mirrored, poison_in
from foldlog.demo.stage import QUICK, SLOW, STOCK, Stage
from foldlog.demo.stock_clients import client_name
from foldlog.errors import UnknownTopic

_EXPECTED: Final[Mapping[str, Callable[[list[Record]], list[Row]]]] = {
    MIRROR: mirrored,
    SEARCH: mirrored,
    PER_MINUTE: counted,
    HISTORY: kept,
}


def prove(stage: Stage) -> None:
    """Count everything; nobody writes meanwhile."""
    stage.wait_for(lambda: are_at_the_end(stage), "the folds read everything")
    records = read_whole_log(stage.broker.directory).records
    the_groups(stage, len(records))
    the_stock_client(stage)
    the_dead_letters(stage, records)
    the_verifications(stage)
    the_replay(stage, records)


def the_groups(stage: Stage, written: int) -> None:
    stage.wait_for(lambda: left_to_read(stage.log, QUICK) == 0, f"the group {QUICK} read everything")
    quick, slow = left_to_read(stage.log, QUICK), left_to_read(stage.log, SLOW)
    stage.claim(
        "Two groups read at their own speed, and neither held up the other, nor the writer",
        quick == 0 < slow,
        f"'{QUICK}' has read all {written:,}, '{SLOW}' is {slow:,} behind; the log keeps what it has not read",
    )


def the_stock_client(stage: Stage) -> None:
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


def the_dead_letters(stage: Stage, records: list[Record]) -> None:
    poison = poison_in(records)
    letters = {fold: _letters(stage, fold) for fold in FOLDS}
    stage.claim(
        "Poison stopped nobody: each such record lies in the dead letters of every fold",
        set(letters.values()) == {poison} and poison > 0,
        f"{poison} records that are no payments; dead letters: "
        + ", ".join(f"{fold} {count}" for fold, count in letters.items()),
    )


def _letters(stage: Stage, fold: str) -> int:
    """Different ones: a letter may be written again after a crash, with the same key."""
    topic = f"{fold}.dead"
    try:
        return len({one.key for number in stage.log.offsets(topic) for one in stage.log.read(topic, number)})
    except UnknownTopic:
        return 0


def the_verifications(stage: Stage) -> None:
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


def the_replay(stage: Stage, records: list[Record]) -> None:
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
