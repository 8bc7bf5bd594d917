"""docs/reference/attacks.md names tests that exist, and every attack that was promised has a line."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "reference" / "attacks.md"

ATTACKS = (
    "lowered",
    "cut off",
    "sent again",
    "iteration counts",
    "huge tokens",
    "alg=none",
    "another authority",
    "leave its quoting",
    "time of a refusal",
    "half-open",
    "decompression bombs and declared counts before a login",
    "become a path",
    "HTTP smuggling",
    "DNS rebinding",
    "cross-site",
)


def lines() -> list[list[str]]:
    rows = [
        line.strip("|").split("|") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")
    ]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_every_attack_has_a_line() -> None:
    attacks = "\n".join(attack for attack, _, _ in lines())
    assert [attack for attack in ATTACKS if attack not in attacks] == []


def test_every_test_that_is_named_exists() -> None:
    named = 0
    for _, _, tests in lines():
        files = re.findall(r"`(tests/[\w/]+\.py)`: ((?:`test_\w+`(?:, )?)+)", tests)
        assert files, tests
        for file, names in files:
            text = (ROOT / file).read_text(encoding="utf-8")
            for name in re.findall(r"`(test_\w+)`", names):
                assert re.search(rf"^(?:async )?def {name}\(", text, re.MULTILINE), f"{file} has no {name}"
                named += 1
        assert sum(len(re.findall("`test_", names)) for _, names in files) == len(re.findall("`test_", tests)), tests
    assert named >= len(ATTACKS)
