"""The page's sections of single requests, beside kfake."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bench.kafka.page_parts import Aim, Comparison, SectionPage, Write, cell, megabytes, per_second, seconds, table
from bench.kafka.requests import DISK, DURABLE, LOOPBACK, PERCENTS, SPEED, UNSYNCED
from bench.kafka.results import Case, Rounds
from bench.kafka.sides import FOLDLOG, KAFKA, KFAKE, LABELS
from bench.table import bytes_per_second, factor

_HEADS = dict(LABELS) | {
    DISK: "write of 200 B into blocks written before, and fdatasync",
    LOOPBACK: "loopback alone",
}
_RATE_MAX = 3.0
"""Times the disk's own p99."""
_REQUEST_MAX = 2.0
"""Times the disk's own p50, at the lowest rate."""
_FETCH_SHARE = 0.6
_FETCH_AIM = 1.2


def requests_page(rounds: Rounds) -> SectionPage:
    def name(case: Case) -> str:
        connections = "1 connection" if case["connections"] == 1 else f"{case['connections']} connections"
        return f"{int(case['request_bytes']) // 1000} KB, {connections}"

    tables = _speed_tables(rounds, DURABLE, name)
    cases = rounds.cases()
    findings = [
        Comparison(rounds, cases, SPEED, FOLDLOG, other).sentence(f"Synced, beside {LABELS[other]}, which is not", name)
        for other in (KFAKE, KAFKA)
    ]
    small = Comparison(rounds, [case for case in cases if case["request_bytes"] != 900_000], SPEED, FOLDLOG, KFAKE)
    aim = small.aim("durable requests of 4, 16 and 64 KB, at least as fast as kfake that does not sync", 1.0)
    return SectionPage("Requests, by size", tables, [], findings, [aim])


def round_robin_page(rounds: Rounds) -> SectionPage:
    def name(case: Case) -> str:
        return f"{int(case['request_bytes']) // 1000} KB"

    cases = rounds.cases()
    many = f"{cases[0]['partitions']:,} partitions in turn"
    findings = [
        Comparison(rounds, cases, SPEED, FOLDLOG, other).sentence(f"Synced, beside {LABELS[other]}, which is not", name)
        for other in (KFAKE, KAFKA)
    ]
    aim = Comparison(rounds, cases, SPEED, FOLDLOG, KFAKE).aim(
        f"durable requests to {many}, at least as fast as kfake that does not sync", 1.0
    )
    return SectionPage(f"Requests to {many}", _speed_tables(rounds, UNSYNCED, name), [], findings, [aim])


def fetches_page(rounds: Rounds) -> SectionPage:
    def name(case: Case) -> str:
        return "1 connection" if case["connections"] == 1 else f"{case['connections']} connections"

    cases = rounds.cases()
    findings = [
        Comparison(rounds, cases, SPEED, FOLDLOG, other).sentence(f"Beside {LABELS[other]}", name)
        for other in (KFAKE, KAFKA)
    ]
    several = [case for case in cases if case["connections"] != 1]
    aims = [
        Comparison(rounds, cases, SPEED).aim(f"raw fetches from the page cache {_FETCH_AIM:g}x Kafka", _FETCH_AIM),
        Comparison(rounds, several, SPEED, FOLDLOG, LOOPBACK).aim(
            f"raw fetches of several connections, {_FETCH_SHARE:g} of the loopback", _FETCH_SHARE
        ),
    ]
    return SectionPage("Fetches, by connections", _speed_tables(rounds, UNSYNCED, name, LOOPBACK), [], findings, aims)


def rates_page(rounds: Rounds) -> SectionPage:
    sides = (*DURABLE, DISK)
    lines, findings, aims = [], [], []
    for case in rounds.cases():
        rate = f"{case['rate']:,} requests/s"
        lines += [
            [rate, f"p{percent}", *(cell(rounds, case, side, f"p{percent}_s", seconds) for side in sides)]
            for percent in PERCENTS
        ]
        found = {percent: _median(rounds, case, FOLDLOG, percent) for percent in PERCENTS}
        disk = {percent: _median(rounds, case, DISK, percent) for percent in PERCENTS}
        told = ", ".join(f"p{percent} {factor(found[percent] / disk[percent])}" for percent in PERCENTS)
        findings.append(f"At {rate}, foldlog beside one preallocated fdatasync of the same rounds: {told}.")
        percent, most = (50, _REQUEST_MAX) if case["rate"] == 500 else (99, _RATE_MAX)
        aims.append(
            Aim(
                f"p{percent} of a durable request at {rate} within {most:g}x one preallocated fdatasync",
                f"{seconds(found[percent])}, allowed {seconds(most * disk[percent])}",
                int(found[percent] <= most * disk[percent]),
                1,
            )
        )
    tables = [table(["rate", "", *(_HEADS[side] for side in sides)], lines)]
    return SectionPage("Requests, at a rate", tables, [], findings, aims)


def footprint_page(rounds: Rounds) -> SectionPage:
    (case,) = rounds.cases()
    rows: list[tuple[str, str, Write]] = [
        ("start to the first acknowledged record", "seconds", seconds),
        ("memory, idle", "idle_bytes", megabytes),
    ]
    lines = [[what, *(cell(rounds, case, side, figure, write) for side in UNSYNCED)] for what, figure, write in rows]
    findings = []
    for what, figure, write in rows:
        told = (f"{LABELS[side]} {write(rounds.spread(case, side, figure).median)}" for side in UNSYNCED)
        findings.append(f"{what[0].upper()}{what[1:]}: {', '.join(told)}.")
    tables = [table(["", *(_HEADS[side] for side in UNSYNCED)], lines)]
    return SectionPage("Start and memory, beside kfake", tables, [], findings)


def _speed_tables(rounds: Rounds, sides: Sequence[str], name: object, *more: str) -> list[str]:
    """Bytes a second, requests a second, and the broker's processor time for a gigabyte."""
    label = name if callable(name) else str
    beside = [side for side in (KFAKE, KAFKA) if side in sides]
    lines = []
    for case in rounds.cases():
        line = [label(case), *(cell(rounds, case, side, SPEED, bytes_per_second) for side in (*sides, *more))]
        lines.append([*line, *(factor(rounds.ratio(case, FOLDLOG, side, SPEED)) for side in beside)])
    ratios = [f"foldlog ÷ {LABELS[side]}" for side in beside]
    found = [table(["", *(_HEADS[side] for side in (*sides, *more)), *ratios], lines)]
    for title, figure, write in (
        ("requests a second", "requests_per_s", per_second),
        ("the broker's processor time for a gigabyte", "cpu_s_per_gb", seconds),
    ):
        plain = partial(_median_text, rounds, figure=figure, write=write)
        lines = [[label(case), *(plain(case, side) for side in sides)] for case in rounds.cases()]
        found.append(f"**{title}**\n\n" + table(["", *(_HEADS[side] for side in sides)], lines))
    return found


def _median_text(rounds: Rounds, case: Case, side: str, *, figure: str, write: Write) -> str:
    return write(rounds.spread(case, side, figure).median)


def _median(rounds: Rounds, case: Case, side: str, percent: int) -> float:
    return rounds.spread(case, side, f"p{percent}_s").median
