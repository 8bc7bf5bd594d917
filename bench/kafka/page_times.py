"""The page's sections of what waits: latency, the first start, memory, and the start after kill -9."""

from __future__ import annotations

from collections.abc import Mapping

from bench.kafka.charts import Group, Line, Point, bar_chart, point_chart
from bench.kafka.latency import DISK, PERCENTS
from bench.kafka.page_parts import Aim, Picture, SectionPage, Write, bar, cell, megabytes, seconds, table
from bench.kafka.page_throughput import SYNCS
from bench.kafka.results import Case, Rounds
from bench.kafka.sides import FOLDLOG, KAFKA, LABELS, RELAXED
from bench.kafka.start import MEMORY, START
from bench.table import factor

ALLOWANCE_S = 0.002
OVERLOADED_S = 0.1
"""Half of the records wait this long: more are sent than are served."""
STARTS = 5.0
MEMORY_SHARE = 0.1
_LINES = {KAFKA: "other", FOLDLOG: "ours", RELAXED: "ours-2", DISK: "limit"}
_NAMES = {**LABELS, DISK: "the disk's fdatasync"}


def latency_page(rounds: Rounds) -> SectionPage:
    head = ["rate", "", SYNCS[KAFKA], SYNCS[FOLDLOG], SYNCS[RELAXED], "write and fdatasync of 200 B"]
    lines, pictures, findings, aims = [], [], [], []
    for case in rounds.cases():
        rate = f"{case['rate']:,} records/s"
        for percent in PERCENTS:
            figure = f"p{percent}_s"
            cells = [cell(rounds, case, side, figure, seconds) for side in _LINES]
            lines.append([rate, f"p{percent}", *cells])
        pictures.append(_latency_picture(rounds, case, rate))
        medians = {side: rounds.spread(case, side, "p99_s").median for side in _LINES}
        findings.append(_latency_finding(rate, medians) + _overload(rounds, case))
        allowed = medians[DISK] + ALLOWANCE_S
        aims.append(
            Aim(
                f"p99 at {rate} within the disk's own fdatasync p99 + 2 ms",
                f"{seconds(medians[FOLDLOG])}, allowed {seconds(allowed)}",
                int(medians[FOLDLOG] <= allowed),
                1,
            )
        )
    return SectionPage("End-to-end latency", [table(head, lines)], pictures, findings, aims)


def _latency_picture(rounds: Rounds, case: Case, rate: str) -> Picture:
    drawn = []
    for side, series in _LINES.items():
        points = []
        for percent in PERCENTS:
            value = rounds.spread(case, side, f"p{percent}_s").median
            points.append(Point(f"p{percent}", value, seconds(value)))
        drawn.append(Line(_NAMES[side], series, points))
    title = f"End-to-end latency at {rate}"
    told = "; ".join(f"{line.label}: " + ", ".join(f"{one.name} {one.text}" for one in line.points) for line in drawn)
    return Picture(
        f"benchmarks-latency-{case['rate']}.svg", title, point_chart(title, f"Medians of the rounds. {told}.", drawn)
    )


def _latency_finding(rate: str, p99: Mapping[str, float]) -> str:
    return (
        f"At {rate}, p99: foldlog {seconds(p99[FOLDLOG])}, of which the disk's own fdatasync is {seconds(p99[DISK])};"
        f" Kafka, which does not wait for it, {seconds(p99[KAFKA])}; foldlog relaxed, which does not either,"
        f" {seconds(p99[RELAXED])}. {_faster('Synced', p99[KAFKA] / p99[FOLDLOG])}"
        f" {_faster('Neither synced', p99[KAFKA] / p99[RELAXED])}"
    )


def _overload(rounds: Rounds, case: Case) -> str:
    """What a comparison with a side that does not keep up is worth."""
    late = [side for side in (KAFKA, FOLDLOG, RELAXED) if rounds.spread(case, side, "p50_s").median > OVERLOADED_S]
    told = " and ".join(LABELS[side] for side in late)
    return f" At this rate {told} did not keep up: what is compared there is a queue." if late else ""


def _faster(what: str, ratio: float) -> str:
    return f"{what}, foldlog's p99 is {factor(1 / ratio)} Kafka's: {'**ahead**' if ratio > 1 else '**behind**'}."


def start_page(rounds: Rounds) -> SectionPage:
    (started,), (memory,) = rounds.cases(what=START), rounds.cases(what=MEMORY)

    def both(case: Case, figure: str, write: Write) -> str:
        ours, theirs = (write(rounds.spread(case, side, figure).median) for side in (FOLDLOG, KAFKA))
        return f"{ours}, Kafka {theirs}"

    rows = [
        ("start to the first acknowledged record", started, "seconds", seconds),
        ("memory, idle", memory, "idle_bytes", megabytes),
        ("memory, the most under load", memory, "loaded_bytes", megabytes),
    ]
    lines = [
        [
            what, *(cell(rounds, case, side, figure, write) for side in (KAFKA, FOLDLOG)),
            factor(rounds.ratio(case, KAFKA, FOLDLOG, figure)),
        ]
        for what, case, figure, write in rows
    ]  # fmt: skip
    pictures = []
    for file, title, (_, case, figure, write) in (
        ("benchmarks-start.svg", "From the start of the process to the first acknowledged record", rows[0]),
        ("benchmarks-memory-idle.svg", "Resident memory of the broker, idle", rows[1]),
        ("benchmarks-memory-load.svg", "Resident memory of the broker, the most under load", rows[2]),
    ):
        bars = [bar(rounds, case, side, figure, write) for side in (KAFKA, FOLDLOG)]
        told = ", ".join(f"{one.name} {one.text}" for one in bars)
        svg = bar_chart(title, f"Medians, with the least and the most of the rounds: {told}.", [Group("", bars)])
        pictures.append(Picture(file, title, svg))
    faster = rounds.ratio(started, KAFKA, FOLDLOG, "seconds")
    states = {"idle": "idle_bytes", "under load": "loaded_bytes"}
    shares = {what: rounds.ratio(memory, FOLDLOG, KAFKA, figure) for what, figure in states.items()}
    findings = [
        f"foldlog has acknowledged its first record {factor(faster)} as fast as Kafka.",
        *(f"{what[0].upper()}{what[1:]} it needs {share:.0%} of Kafka's memory." for what, share in shares.items()),
    ]
    aims = [
        Aim("start 5x faster", f"{both(started, 'seconds', seconds)}: {factor(faster)}", int(faster >= STARTS), 1),
        *(
            Aim(
                f"a tenth of the memory, {what}",
                f"{both(memory, figure, megabytes)}: {shares[what]:.0%}",
                int(shares[what] <= MEMORY_SHARE),
                1,
            )
            for what, figure in states.items()
        ),
    ]
    head = ["", "Apache Kafka", "foldlog", "Kafka ÷ foldlog"]
    return SectionPage("Start and memory", [table(head, lines)], pictures, findings, aims)


def restart_page(rounds: Rounds) -> SectionPage:
    (case,) = rounds.cases()
    rows = (("first record read", "read_s"), ("first record acknowledged", "acknowledged_s"))
    lines = [
        [
            what, *(cell(rounds, case, side, figure, seconds) for side in (KAFKA, FOLDLOG)),
            factor(rounds.ratio(case, KAFKA, FOLDLOG, figure)),
        ]
        for what, figure in rows
    ]  # fmt: skip
    size = f"{int(case['stored_bytes']) / 1e9:g} GB"
    title = f"Back after kill -9, with {size} on disk"
    groups = [
        Group(what, [bar(rounds, case, side, figure, seconds) for side in (KAFKA, FOLDLOG)]) for what, figure in rows
    ]
    told = "; ".join(f"{group.label}: {', '.join(f'{one.name} {one.text}' for one in group.bars)}" for group in groups)
    findings = []
    for what, figure in rows:
        ours, theirs = (seconds(rounds.spread(case, side, figure).median) for side in (FOLDLOG, KAFKA))
        ratio = factor(rounds.ratio(case, KAFKA, FOLDLOG, figure))
        findings.append(f"{what.capitalize()}: foldlog after {ours}, Kafka after {theirs}: {ratio} as fast.")
    pictures = [Picture("benchmarks-restart.svg", title, bar_chart(title, f"Medians. {told}.", groups))]
    head = ["", "Apache Kafka", "foldlog", "Kafka ÷ foldlog"]
    return SectionPage(f"Restart after kill -9 with {size}", [table(head, lines)], pictures, findings)
