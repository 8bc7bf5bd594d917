"""The page's sections of transactions, rebalances, queues, and of TLS and ACLs."""

from __future__ import annotations

from bench.kafka.page_parts import Comparison, Name, SectionPage, Write, cell, per_second, seconds, table
from bench.kafka.page_throughput import SYNCS
from bench.kafka.results import Case, Rounds
from bench.kafka.sides import FOLDLOG, KAFKA, LABELS
from bench.table import bytes_per_second, factor

_SIDES = (KAFKA, FOLDLOG)


def transactions_page(rounds: Rounds) -> SectionPage:
    def name(case: Case) -> str:
        return "1 record" if case["records"] == 1 else f"{case['records']:,} records"

    cases = rounds.cases()
    read = [case for case in cases if rounds.has(case, FOLDLOG, "committed_per_s")]
    tables = [
        "**Produce**\n\n" + _beside(rounds, cases, "records_per_s", per_second, "a transaction", name),
        "**Time of a transaction, beside plain produce**\n\n" + _costs(rounds, cases, name),
        "**read_committed**\n\n" + _beside(rounds, read, "committed_per_s", per_second, "a transaction", name),
    ]
    findings = [
        Comparison(rounds, cases, "records_per_s").sentence("Produced in transactions, synced beside not synced", name),
        Comparison(rounds, read, "committed_per_s").sentence("Read with read_committed", name),
    ]
    for side in _SIDES:
        ratios = [rounds.spread(case, side, "committed_beside_all").median for case in read]
        findings += [f"{LABELS[side]}: read_committed is {factor(one)} of read_uncommitted." for one in ratios]
    return SectionPage("Transactions", tables, [], findings)


def _costs(rounds: Rounds, cases: list[Case], name: Name) -> str:
    lines = [
        [
            name(case),
            *(cell(rounds, case, side, "transaction_s", seconds) for side in _SIDES),
            *(factor(rounds.spread(case, side, "beside_plain").median) for side in _SIDES),
        ]
        for case in cases
    ]
    head = [f"{LABELS[side]}, in transactions ÷ plain" for side in _SIDES]
    return table(["a transaction", *(SYNCS[side] for side in _SIDES), *head], lines)


def rebalances_page(rounds: Rounds) -> SectionPage:
    def name(case: Case) -> str:
        return f"1 → {case['members']} members, {case['protocol']} protocol"

    cases, figure = rounds.cases(), "rebalances_per_s"
    lines = [
        [
            name(case),
            *(cell(rounds, case, side, "rebalance_s", seconds) for side in _SIDES),
            factor(rounds.ratio(case, FOLDLOG, KAFKA, figure)),
        ]
        for case in cases
    ]
    tables = [table(["group", *(LABELS[side] for side in _SIDES), "foldlog's speed ÷ Kafka's"], lines)]
    return SectionPage("Rebalances", tables, [], [Comparison(rounds, cases, figure).sentence("Rebalances", name)])


def shares_page(rounds: Rounds) -> SectionPage:
    def name(case: Case) -> str:
        records = "1 record" if case["a_fetch"] == 1 else f"{case['a_fetch']} records"
        return f"{records} a fetch, acknowledged {case['acknowledged']}"

    cases, figure = rounds.cases(), "records_per_s"
    tables = [_beside(rounds, cases, figure, per_second, "what", name)]
    findings = [Comparison(rounds, cases, figure).sentence("Taken and acknowledged, synced beside not synced", name)]
    return SectionPage("Share groups", tables, [], findings)


def security_page(rounds: Rounds) -> SectionPage:
    def name(case: Case) -> str:
        return f"{case['what']}, {case['way']}"

    cases, figure = rounds.cases(), "value_bytes_per_s"
    tables = [_beside(rounds, cases, figure, bytes_per_second, "what", name), _slowed(rounds, figure)]
    findings = [
        Comparison(rounds, rounds.cases(way=way), figure).sentence(f"With {way}", name)
        for way in dict.fromkeys(str(case["way"]) for case in cases)
    ]
    return SectionPage("TLS and ACLs", tables, [], findings)


def _slowed(rounds: Rounds, figure: str) -> str:
    """What each side keeps of its own speed without."""
    lines = []
    for case in rounds.cases():
        bare = rounds.cases(what=case["what"])[0]
        if case != bare:
            kept = [_median(rounds, case, side, figure) / _median(rounds, bare, side, figure) for side in _SIDES]
            lines.append([f"{case['what']}, {case['way']}", *map(factor, kept)])
    return table(["beside the same without TLS and ACLs", *(LABELS[side] for side in _SIDES)], lines)


def _median(rounds: Rounds, case: Case, side: str, figure: str) -> float:
    return rounds.spread(case, side, figure).median


def _beside(rounds: Rounds, cases: list[Case], figure: str, write: Write, what: str, name: Name) -> str:
    lines = [
        [
            name(case),
            *(cell(rounds, case, side, figure, write) for side in _SIDES),
            factor(rounds.ratio(case, FOLDLOG, KAFKA, figure)),
        ]
        for case in cases
    ]
    return table([what, *(SYNCS[side] for side in _SIDES), "foldlog ÷ Kafka"], lines)
