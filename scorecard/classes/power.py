"""The power goes after every file operation of a workload; what could be left on disk is opened and judged.

The harness and its fault model are foldlog.testing.power_cuts and power_loss; the workloads are those of the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from broker.share import test_share_power_cuts as share
from faults import test_planted_bugs as planted
from faults import test_planted_journal as planted_journal
from faults import test_planted_transactions as planted_transactions
from faults import test_power_loss as partition
from faults import test_power_loss_journal as journal
from faults import test_power_loss_tier as tier
from faults import test_power_loss_topics as topics
from faults import test_power_loss_transactions as transactions
from faults import test_power_loss_whole_transactions as whole
from foldlog.testing.power_cuts import Violation
from scorecard.outcome import FaultClass, Outcome, Plant, passes, shuffled, until

WHOLE_FROM_S = 240.0
"""A slice that is shorter takes a share of the images at each cut, so that it comes to several workloads."""

Workload = Callable[[int, int], int]
"""(seed, every) → images."""


def workloads() -> Iterator[tuple[str, Workload]]:
    for name, plan in partition.PLANS.items():
        yield name, lambda seed, every, plan=plan: partition.run_with_cuts(plan, seed, every=every)  # type: ignore[misc]
        journaled, idempotent = journal.as_journaled(plan), plan.idempotent
        yield (
            f"{name}, journaled",
            lambda seed, every, plan=journaled, idempotent=idempotent: journal.run_with_cuts(  # type: ignore[misc]
                plan, seed, every=every, idempotent=idempotent
            ),
        )
    for name, shared in journal.JOURNAL_PLANS.items():
        yield (
            f"journal, {name}",
            lambda seed, every, plan=shared: journal.run_with_cuts(plan, seed, every=every),  # type: ignore[misc]
        )
    for name, one in transactions.PLANS.items():
        yield (
            f"transactions in a partition, {name}",
            lambda seed, every, plan=one: transactions.run_with_cuts(plan, seed, every=every),  # type: ignore[misc]
        )
    for name in topics.WORKLOADS:
        yield f"topics, {name}", lambda seed, every, name=name: topics.run_with_cuts(name, seed, every=every)  # type: ignore[misc]
    for name in whole.WORKLOADS:
        yield (
            f"transactions, {name}",
            lambda seed, every, name=name: whole.run_with_cuts(name, 1 + seed % 2, seed, every=every),  # type: ignore[misc]
        )
    yield "share group", lambda seed, _: share.run(seed).finish()
    yield "tier", lambda seed, every: tier.run_with_cuts(seed, every=every)


def run(seed: int, seconds: float) -> Outcome:
    outcome = Outcome()
    every = 1 if seconds >= WHOLE_FROM_S else 6
    names = shuffled(workloads(), seed)
    for number in until(seconds):
        name, workload = names[number % len(names)]
        own_seed = seed * 1000 + number
        try:
            outcome.done[f"images/{name}"] += workload(own_seed, every)
        except Violation as violation:
            outcome.found("promise broken", violation, f"workload {name!r}, seed {own_seed}, every {every}")
    return outcome


CLASS = FaultClass(
    name="power",
    title="Power cuts",
    what="""The power goes after every file operation of a workload, and on the disk is what a disk may then hold: each
unsynced sector kept, lost, as it was earlier or torn; each unsynced name there or not. Every image is opened, read in
full and written to. Nothing acknowledged may be lost, doubled, reordered or invented; a transaction is whole or absent;
some recoveries are cut in turn.""",
    finds=("promise broken",),
    share=0.26,
    run=run,
    plants=(
        Plant("acknowledges before the sync", passes(planted.test_acknowledging_before_the_sync_is_found)),
        Plant("never syncs a directory", passes(planted.test_leaving_out_the_sync_of_the_directory_is_found)),
        Plant("does not check CRCs", passes(planted.test_not_checking_the_crc_is_found)),
        Plant("tries a failed sync again", passes(planted.test_trying_a_failed_sync_again_is_found)),
        Plant("a log start that is not durable", passes(planted.test_a_log_start_that_is_not_durable_is_found)),
        Plant(
            "the journal acknowledges before its sync",
            passes(planted_journal.test_acknowledging_before_the_sync_of_the_journal_is_found),
        ),
        Plant("the journal replays out of order", passes(planted_journal.test_replaying_out_of_order_is_found)),
        Plant(
            "a transaction completes before its markers are durable",
            passes(planted_transactions.test_completing_a_transaction_before_its_markers_are_durable_is_found),
        ),
        Plant("a share group answers before its sync", passes(share.test_an_answer_before_the_sync_is_found)),
    ),
)
