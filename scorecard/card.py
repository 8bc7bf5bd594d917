"""What was counted so far, in a file: runs add to it. It begins anew when the source of the log is another one."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from scorecard.outcome import Finding, Outcome

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "scorecard"


def source_of_the_log() -> str:
    """The name that git has for src/ as it is now, committed or not."""

    def git(*arguments: str) -> str:
        environment = {**os.environ, "GIT_INDEX_FILE": str(BUILD / "index")}
        return subprocess.run(
            ["git", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    BUILD.mkdir(parents=True, exist_ok=True)
    try:
        git("read-tree", "HEAD")
        git("add", "-A", "src")
        return git("rev-parse", "--short=12", f"{git('write-tree')}:src")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


@dataclass(slots=True)
class Tally:
    """Of one class."""

    seeds: list[int] = field(default_factory=list)
    seconds: float = 0.0
    done: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    plants: dict[str, bool] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def add(self, seed: int, seconds: float, outcome: Outcome) -> None:
        self.seeds.append(seed)
        self.seconds += seconds
        self.done.update(outcome.done)
        self.findings += outcome.findings
        self.notes.update(outcome.notes)

    def stored(self) -> dict[str, Any]:
        return {
            "seeds": self.seeds,
            "seconds": self.seconds,
            "done": dict(self.done),
            "findings": [asdict(finding) for finding in self.findings],
            "plants": self.plants,
            "notes": self.notes,
        }


@dataclass(slots=True)
class Card:
    """All classes. `path` is None for a card that is not kept."""

    source: str
    path: Path | None = None
    tallies: dict[str, Tally] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path, source: str) -> Card:
        """What was counted of this source; nothing of another one."""
        card = cls(source, path)
        if not path.exists():
            return card
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if stored["source"] == source:
            card.tallies = {name: _tally(one) for name, one in stored["classes"].items()}
        return card

    def of(self, name: str) -> Tally:
        return self.tallies.setdefault(name, Tally())

    def next_seed(self, name: str) -> int:
        return max(self.of(name).seeds, default=0) + 1

    def save(self) -> None:
        """As a whole or not at all: a run that is interrupted has what its finished slices counted."""
        if self.path is None:
            return
        stored = {"source": self.source, "classes": {name: one.stored() for name, one in self.tallies.items()}}
        draft = self.path.with_suffix(".tmp")
        draft.write_text(json.dumps(stored, indent=1), encoding="utf-8")
        draft.replace(self.path)


def _tally(stored: dict[str, Any]) -> Tally:
    findings = [Finding(**one) for one in stored.pop("findings")]
    return Tally(**{**stored, "done": Counter(stored["done"])}, findings=findings)
