"""docs/benchmarks.md and its pictures, written from the rounds in bench/kafka_results.json and from nothing else.

Every sentence about who is faster follows from the figures. How they were measured stands in bench/kafka/method.md, and
why they are what they are in bench/kafka/reasons.md: written by people, under the name of the section.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from bench.kafka.effort import FULL, Effort
from bench.kafka.machine import CONNECTOR, SPARK
from bench.kafka.page_groups import rebalances_page, security_page, shares_page, transactions_page
from bench.kafka.page_parts import Aim, SectionPage, seconds, table
from bench.kafka.page_requests import fetches_page, footprint_page, rates_page, requests_page, round_robin_page
from bench.kafka.page_spark import spark_page
from bench.kafka.page_throughput import consume_page, fan_out_page, produce_page
from bench.kafka.page_times import latency_page, restart_page, start_page
from bench.kafka.results import Rounds, SectionRun
from bench.table import bytes_per_second

METHOD = Path(__file__).parent / "method.md"
REASONS = Path(__file__).parent / "reasons.md"

PAGES: dict[str, Callable[[Rounds], SectionPage]] = {
    "produce": produce_page,
    "consume": consume_page,
    "latency": latency_page,
    "start": start_page,
    "restart": restart_page,
    "spark": spark_page,
    "fan-out": fan_out_page,
    "transactions": transactions_page,
    "rebalances": rebalances_page,
    "share-groups": shares_page,
    "security": security_page,
    "requests": requests_page,
    "round-robin-100": round_robin_page,
    "round-robin-1000": round_robin_page,
    "fetches": fetches_page,
    "rates": rates_page,
    "footprint": footprint_page,
}

TINY = """\
**These are tiny sizes (`--quick`), measured to see that everything runs: the figures mean nothing.**
"""


def page(sections: Mapping[str, SectionRun], reasons: str = "") -> tuple[str, dict[str, str]]:
    """The text, and the pictures by their file names, for the sections that there are."""
    how, why = by_section(METHOD.read_text(encoding="utf-8")), by_section(reasons)
    made = {name: PAGES[name](Rounds(sections[name].measurements)) for name in PAGES if name in sections}
    parts = [f"# Beside Apache Kafka\n\n{how['introduction']}\n"]
    if any(section.effort.name != FULL.name for section in sections.values()):
        parts.append(TINY)
    notes = {name: connector_note(sections[name].versions) if name == "spark" else [] for name in made}
    aims = [aim for one in made.values() for aim in one.aims]
    if aims:
        parts.append("## What we aimed for\n\n" + _aims(aims) + "\n")
    for name, one in made.items():
        parts.append(_section(one, filled_in(how[name], sections[name].effort), why.get(name, ""), notes[name]))
    parts.append(_conditions(sections, how["conditions"]))
    pictures = {picture.file: picture.svg for one in made.values() for picture in one.pictures}
    return "\n".join(parts), pictures


def write(sections: Mapping[str, SectionRun], docs: Path) -> None:
    """The page and its pictures, and no picture that it does not show."""
    text, pictures = page(sections, REASONS.read_text(encoding="utf-8") if REASONS.exists() else "")
    images = docs / "images"
    images.mkdir(parents=True, exist_ok=True)
    for old in images.glob("benchmarks-*.svg"):
        old.unlink()
    for file, svg in pictures.items():
        (images / file).write_text(svg, encoding="utf-8")
    (docs / "benchmarks.md").write_text(text, encoding="utf-8")


def by_section(text: str) -> dict[str, str]:
    """What stands below each heading.

    >>> by_section("Said before.\\n\\n## produce\\n\\nThe disk.\\n\\n## start\\n")
    {'produce': 'The disk.'}
    """
    found = {}
    for part in f"\n{text}".split("\n## ")[1:]:
        name, _, body = part.partition("\n")
        if body.strip():
            found[name.strip()] = body.strip()
    return found


def filled_in(text: str, effort: Effort) -> str:
    """The names in braces, from the sizes of the run."""
    found: dict[str, object] = {}
    for name, value in asdict(effort).items():
        found[name] = value
        if name.endswith("_bytes"):
            found[name.removesuffix("bytes") + "mb"] = f"{value / 1e6:,.0f}"
            found[name.removesuffix("bytes") + "gb"] = value / 1e9
    return text.format(**found)


def connector_note(versions: Mapping[str, str]) -> list[str]:
    """A connector that was made for another Spark is a condition that a reader has to know beside the figures."""
    spark, connector = versions.get(SPARK, ""), versions.get(CONNECTOR, "")
    if spark == connector:
        return []
    told = f"The connector here is {connector}, and Spark is {spark}: it was made for another version of Spark."
    return [f"{told} One that matches may be faster or slower."]


def _section(one: SectionPage, how: str, why: str, notes: list[str]) -> str:
    parts = [f"## {one.title}", how]
    parts += [f"![{picture.title}](images/{picture.file})" for picture in one.pictures]
    parts.append("**What this says.**")
    parts.append("\n".join(f"- {finding}" for finding in one.findings))
    parts += notes
    if why:
        parts += ["**Why.**", why]
    parts += ["**The figures.**", *one.tables]
    return "\n\n".join(parts) + "\n"


def _aims(aims: list[Aim]) -> str:
    return table(["aim", "measured", "reached"], [[aim.text, aim.measured, aim.verdict()] for aim in aims])


def _conditions(sections: Mapping[str, SectionRun], how: str) -> str:
    """The command, the versions and the machine; several values where sections were measured apart."""
    versions = _joined([section.versions for section in sections.values()])
    machine = _joined([section.machine for section in sections.values()])
    lines = [
        [
            name, f"`{run.command}`", run.day, f"{run.seconds / 60:.1f} min", f"{run.load_average:.1f}",
            bytes_per_second(run.limits["sequential_write_bytes_per_s"]),
            f"{seconds(run.limits['fdatasync_p50_s'])} / {seconds(run.limits['fdatasync_p99_s'])}",
            bytes_per_second(run.limits["loopback_bytes_per_s"]),
        ]
        for name, run in sections.items()
    ]  # fmt: skip
    head = [
        "section", "command", "day", "took", "load before", "disk, one write after the other, synced",
        "fdatasync p50 / p99", "loopback",
    ]  # fmt: skip
    return "\n\n".join([
        "## How it was measured",
        how,
        table(head, lines),
        table(["what", "version"], versions.items()),
        table(["machine", ""], machine.items()),
    ]) + "\n"  # fmt: skip


def _joined(found: list[Mapping[str, str]]) -> dict[str, str]:
    names = {name: None for one in found for name in one}
    return {name: ", ".join(dict.fromkeys(one[name] for one in found if name in one)) for name in names}
