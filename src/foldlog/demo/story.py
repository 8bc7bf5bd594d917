"""The acts of the demo, in order. Each announces what it does, does it, and counts the result."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from foldlog.demo.payments import POISON, REFUND, TOPIC
from foldlog.demo.pipeline import FOLDS, MIRROR, PER_MINUTE
from foldlog.demo.proof import prove
from foldlog.demo.readers import read_whole_log
from foldlog.demo.stage import QUICK, SLOW, DemoStage, answer_of, epoch, told_total, total, wait_for_folds

WHILE_SPARK_STARTS_S: Final = 15
"""So many seconds' payments are written at most until the folds run."""


def tell(stage: DemoStage) -> None:
    """All acts; DemoFailed if something did not happen."""
    for act in ACTS:
        act(stage)


def a_log_and_its_readers(stage: DemoStage) -> None:
    stage.screen.title("1. A log, and who reads it")
    stage.screen.say(
        "A shop appends its payments to a log: a file that only grows. Every record gets a number, its offset, and is"
        " acknowledged when it is on disk. Reading removes nothing, so everybody reads at their own pace: the group"
        f" '{QUICK}' as fast as it can, the group '{SLOW}' slowly, and a stock Kafka client that has never heard of"
        " foldlog."
    )
    # Where Spark takes a minute to start, the folds would have a minute's payments to read before the story goes on.
    stage.writer.stop_at(WHILE_SPARK_STARTS_S * stage.writer.rate)
    stage.writer.resume()
    quick, slow = stage.readers[QUICK], stage.readers[SLOW]
    two_seconds = 2 * stage.writer.rate
    stage.wait_for(lambda: quick.records > max(slow.records, two_seconds) and slow.records > 0, "both groups read")
    stage.screen.say(f"'{QUICK}' has read {quick.records:,}, '{SLOW}' {slow.records:,}: neither waits for the other.")


def four_views(stage: DemoStage) -> None:
    stage.screen.title("2. Four views of one log")
    stage.screen.say(
        "Folds turn the log into what people query: a table, a search index, counters, a lake. Spark runs them, and"
        " takes some seconds to start; what is written meanwhile waits in the log."
    )
    stage.screen.command(f"foldlog fold run folds.py -b {stage.broker.bootstrap} --folds-key data")
    took_s = wait_for_folds(stage)
    stage.writer.stop_at(None)
    words = "gift coupon"
    found = stage.pipeline.find(words, 1)
    example = f"; the search index answers '{words}' with {found[0]['tx_id']}, “{found[0]['note']}”" if found else ""
    stage.screen.say(f"After {took_s:.0f} s all four have read what was there{example}.")


def the_broker_is_killed(stage: DemoStage) -> None:
    stage.screen.title("3. kill -9 of the broker, in the middle of it")
    broker, writer = stage.broker, stage.writer
    before = writer.acknowledged
    stage.wait_for(lambda: writer.acknowledged >= before + 1, "payments are being written")
    with broker.up:
        stage.screen.command(f"kill -9 {broker.pid}")
        broker.kill()
        # With the broker dead, the count cannot rise any more.
        acknowledged = writer.acknowledged
        stage.screen.say(
            f"It had acknowledged {acknowledged:,} payments. It is started again on the same directory; nobody is told."
        )
        started_s = time.monotonic()
        broker.start()
        took_s = time.monotonic() - started_s
    found = Counter(read_whole_log(broker.directory).numbers)
    missing = sum(number not in found for number in range(acknowledged))
    twice = sum(times > 1 for times in found.values())
    stage.wait_for(lambda: writer.acknowledged > acknowledged, "the writer goes on")
    stage.claim(
        "Everything that was acknowledged before kill -9 of the broker is there after it, once",
        missing == 0 and twice == 0 and acknowledged > 0,
        f"{acknowledged:,} acknowledged, {missing} missing, {twice} twice; it was back in {took_s:.1f} s,"
        " and writer and readers went on by themselves",
    )


def the_pipeline_is_killed(stage: DemoStage) -> None:
    stage.screen.title("4. kill -9 of the pipeline")
    pipeline = stage.pipeline
    stage.screen.command(f"kill -9 {pipeline.pid}")
    pipeline.kill()
    stage.observer.expect(None)
    at_death = {fold: pipeline.bookmark(fold) for fold in FOLDS}
    stage.screen.say(
        "Each view keeps its own bookmark, stored in one transaction with the rows it belongs to. Whoever runs the"
        " folds next goes on from there. Spark starts again."
    )
    pipeline.start()
    stage.observer.expect(pipeline.pid)
    a_late_reader(stage)
    stage.wait_for(lambda: all(told_total(stage, fold) > total(at_death[fold]) for fold in FOLDS), "the folds went on")
    skipped = sum(one.skipped for fold in FOLDS if (one := pipeline.bookmark(fold)) is not None)
    began_anew = [fold for fold in FOLDS if epoch(pipeline.bookmark(fold)) != epoch(at_death[fold])]
    stage.claim(
        "The pipeline was killed with -9, and every fold went on where its view's own bookmark stood",
        not skipped and not began_anew and all(at_death.values()),
        f"bookmarks at the kill: {', '.join(f'{fold} {total(at_death[fold]):,}' for fold in FOLDS)};"
        f" {skipped} records skipped; that none is counted twice, the last line shows",
    )


def a_late_reader(stage: DemoStage) -> None:
    """While Spark starts."""
    stage.screen.say("Meanwhile somebody comes late and wants all of it: a reader of the files, from offset 0.")
    acknowledged = stage.writer.acknowledged
    whole = read_whole_log(stage.broker.directory)
    meanwhile = stage.writer.acknowledged - acknowledged
    counts = Counter(record.partition for record in whole.records)
    in_order = all(
        [one.offset for one in whole.records if one.partition == partition] == list(range(count))
        for partition, count in counts.items()
    )
    everything = set(whole.numbers) >= set(range(acknowledged))
    stage.claim(
        "A reader that came late got the whole history, in order, and held nobody up",
        in_order and everything,
        f"{len(whole.records):,} records from offset 0 in {whole.took_s:.1f} s"
        + (f", while {meanwhile:,} more were written" if meanwhile else ""),
    )


def one_fold_is_rewound(stage: DemoStage) -> None:
    stage.screen.title("5. Rewind: read it again")
    stage.screen.say(
        f"The view '{MIRROR}' goes back to the start of the log. The pipeline notices, and reads all of it again;"
        " a table may be told the same thing twice."
    )
    wait_for_folds(stage)
    stage.screen.command(f"foldlog fold rewind {MIRROR} --to start")
    before = stage.pipeline.bookmark(MIRROR)
    told = stage.pipeline.command("rewind", MIRROR, "--to", "start")
    stage.screen.say(told)
    found = re.search(r"(\d+) offsets? to read again", told.replace(",", ""))
    again = int(found[1]) if found else 0
    took_s = stage.wait_for(lambda: total(stage.pipeline.bookmark(MIRROR)) > total(before), "the mirror is back")
    after = stage.pipeline.bookmark(MIRROR)
    stage.claim(
        "A fold was rewound while it ran, and read everything again",
        again > 0 and epoch(after) > epoch(before),
        f"{again:,} records read again in {took_s:.1f} s; everybody else stayed where they were",
    )


def one_fold_is_rebuilt(stage: DemoStage) -> None:
    stage.screen.title("6. Rebuild: a new view beside the old one, then swapped")
    stage.screen.say(
        f"The counters '{PER_MINUTE}' would count twice what they read twice, so they are not rewound: the running"
        " pipeline is asked to build them anew in the shadow, while the old ones go on serving."
    )
    before = stage.pipeline.bookmark(PER_MINUTE)
    asked = stage.pipeline.ask(PER_MINUTE, "rebuild")
    answer, took_s = answer_of(stage, PER_MINUTE, asked, "rebuilding")
    after = stage.pipeline.bookmark(PER_MINUTE)
    stage.claim(
        "Another was rebuilt from the log's first record, and took the old one's place",
        answer == "rebuilt" and epoch(after) > epoch(before),
        f"{answer} from {total(after):,} records in {took_s:.1f} s",
    )


def a_topic_is_compacted_and_expires(stage: DemoStage) -> None:
    stage.screen.title("7. What a log forgets")
    stage.screen.say(
        "A topic of prices, a hundred for each product. Compaction keeps the newest of each; retention takes what is"
        " older than an hour. The broker does both when they are due, so it has begun long ago."
    )
    written, compacted, grown, expired = stage.prices.wait()
    stage.claim(
        "Compaction kept the newest record of every key, where it was",
        compacted.newest == written.newest
        and compacted.records < written.records
        and (compacted.start, compacted.end) == (written.start, written.end),
        f"{written.records:,} records became {compacted.records:,}, {len(written.newest)} keys before and after,"
        f" offsets {compacted.start} to {compacted.end:,} as before",
    )
    stage.claim(
        "Retention moved the edge of the log, and nothing else",
        expired.start > 0
        and expired.end == grown.end
        and expired.newest == {key: at for key, at in grown.newest.items() if at >= expired.start},
        f"the log started at {grown.start} and starts at {expired.start:,} now; it ends at {expired.end:,}, as before:"
        f" {len(expired.newest)} keys of today are left",
    )


def everything_is_proven(stage: DemoStage) -> None:
    stage.screen.title("8. Is all of it right?")
    stage.screen.say("The writer stops, the folds read what is left, and everything is counted.")
    stage.writer.pause()
    prove(stage)
    made = stage.writer.made
    stage.screen.say(
        f"In all: {stage.writer.acknowledged:,} records in '{TOPIC}', {made[REFUND]:,} of them refunds and"
        f" {made[POISON]:,} poison."
    )


ACTS: Final[tuple[Callable[[DemoStage], None], ...]] = (
    a_log_and_its_readers,
    four_views,
    the_broker_is_killed,
    the_pipeline_is_killed,
    one_fold_is_rewound,
    one_fold_is_rebuilt,
    a_topic_is_compacted_and_expires,
    everything_is_proven,
)
