"""docs/scorecard.md, from what was counted."""

from __future__ import annotations

import platform
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator

from scorecard.card import ROOT, Card, Tally
from scorecard.classes import CLASSES
from scorecard.outcome import FaultClass

PAGE = ROOT / "docs" / "scorecard.md"
SHOWN_MAX = 10
"""Findings printed of a class; the state file has all."""

HEAD = """\
# The scorecard

For people who decide whether to trust the log with their data: what it was put through, how often, and what was found;
the losses as well as the zeros. `make scorecard` writes this page: `MINUTES=60` says for how long, and a second call
goes on where the first ended. Beside each zero stand bugs that were planted on purpose, and that the very check found:
a check that cannot fail proves nothing. `make mutants` prints more of them, and how many mutants of the code the tests
notice.

{facts}

| faults | done | found | planted bugs found |
| --- | --- | --- | --- |
{rows}
"""


def page(card: Card) -> str:
    """The whole page."""
    rows = [_row(fault, card.of(fault.name)) for fault in CLASSES]
    parts = [HEAD.format(facts=_facts(card), rows="\n".join(rows))]
    parts += [_section(fault, card.of(fault.name)) for fault in CLASSES]
    return "\n".join(parts)


def _facts(card: Card) -> str:
    from importlib.metadata import version

    import foldlog

    minutes = sum(tally.seconds for tally in card.tallies.values()) / 60
    packages = ", ".join(f"{name} {version(name)}" for name in ("confluent-kafka", "aiokafka", "kafka-python"))
    kernel = platform.release().partition("-")[0]
    return (
        f"foldlog {foldlog.__version__}, source `{card.source}`; Python {platform.python_version()},"
        f" {sys.platform} {kernel}, {packages}. {minutes:,.0f} minutes of runs in all. The command:\n\n"
        "```console\nmake scorecard MINUTES=60\n```"
    )


def totals(done: Counter[str]) -> dict[str, int]:
    """By what stands before the stroke."""
    found: defaultdict[str, int] = defaultdict(int)
    for name, count in done.items():
        found[name.partition("/")[0]] += count
    return dict(found)


def _row(fault: FaultClass, tally: Tally) -> str:
    done = ", ".join(f"{count:,} {name}" for name, count in totals(tally.done).items()) or "not run yet"
    caught = sum(tally.plants.values())
    found, planted = f"**{len(tally.findings)}**", f"{caught} of {len(fault.plants)}"
    if not tally.seeds:
        found = planted = "not yet"  # a zero of what was never tried would say something
    anchor = re.sub(r"[^a-z0-9 -]", "", fault.title.lower()).replace(" ", "-")
    return f"| [{fault.title}](#{anchor}) | {done} | {found} | {planted} |"


def _section(fault: FaultClass, tally: Tally) -> str:
    return "\n".join(_lines(fault, tally))


def _lines(fault: FaultClass, tally: Tally) -> Iterator[str]:
    yield f"## {fault.title}\n\n{fault.what}\n"
    if not tally.seeds:
        yield "Not run yet.\n"
        return
    by_head: defaultdict[str, list[str]] = defaultdict(list)
    for name, count in sorted(tally.done.items()):
        head, _, rest = name.partition("/")
        by_head[head].append(f"{rest} {count:,}")
    yield "| done | |\n| --- | --- |"
    for head, parts in by_head.items():
        yield f"| {totals(tally.done)[head]:,} {head} | {', '.join(parts)} |"
    kinds = Counter(finding.kind for finding in tally.findings)
    known = [kind for kind in fault.finds if kind not in kinds]
    counts = [f"**{kind} {count}**" for kind, count in kinds.items()] + [f"{kind} 0" for kind in known]
    yield f"\nFound: {', '.join(counts)}.\n"
    for finding in tally.findings[:SHOWN_MAX]:
        what = re.sub(r"\s+", " ", finding.what).replace("|", "\\|")[:300]
        yield f"- {finding.kind}: {what} (again with: {finding.replay[:200]})"
    if tally.findings:
        yield ""
    planted = [f"{name} ({'found' if is_found else '**not found**'})" for name, is_found in tally.plants.items()]
    if planted:
        yield f"Planted, and found by this check: {'; '.join(planted)}.\n"
    for name, note in tally.notes.items():
        yield f"{name[:1].upper()}{name[1:]}: {note}.\n"
    seeds = f"{min(tally.seeds)} to {max(tally.seeds)}" if len(tally.seeds) > 1 else str(tally.seeds[0])
    yield f"Seeds {seeds}; {tally.seconds / 60:,.1f} minutes.\n"
