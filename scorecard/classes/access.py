"""Every API, asked by every identity at a listener of every protocol: the answer is the one that Apache Kafka gives.

docs/reference/access.md holds the answers; `make test-kafka` compares each of its cells with Apache Kafka's own.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from scorecard.card import ROOT
from scorecard.outcome import FaultClass, Outcome, Plant, until
from server import test_every_api_asks as asking
from server.access_matrix import ALL_ROWS, CELLS
from server.api_access import ROWS
from server.small_node import Denies


def run(seed: int, seconds: float) -> Outcome:
    del seed
    outcome = Outcome()
    for _ in until(seconds):
        command = [sys.executable, "scripts/write_access_table.py", "--check"]
        compared = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        outcome.done["answers/to identities"] += len(ALL_ROWS) * len(CELLS)
        if compared.returncode != 0:
            outcome.found("wrong answer", compared.stderr, " ".join(command[1:]))
        outcome.done["answers/with one thing denied"] += len(ROWS)
        for name in rows_let_through():
            outcome.found("wrong answer", f"{name} was answered though that was denied", asking.__file__ or "")
    return outcome


def rows_let_through() -> list[str]:
    """The requests that were answered though exactly what they need was denied."""
    found = []
    for row in ROWS:
        try:
            asking.test_it_is_refused_where_exactly_that_is_denied(row)
        except AssertionError:
            found.append(f"{row.api} v{row.version}")
    return found


def allowing_everything_is_found() -> bool:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(asking, "Denies", lambda *_: Denies())
        return len(rows_let_through()) > len(ROWS) // 2  # some ask for two things, and are refused for neither


CLASS = FaultClass(
    name="access",
    title="Every API, every identity",
    what="""Every API is asked by every kind of identity (nobody, a wrong password, no ACL, denied, a super user, …)
over PLAINTEXT, SASL and TLS, and once more with exactly the one thing denied that it needs. The answers are those of
[Who is answered what](reference/access.md), which Apache Kafka agrees with.""",
    finds=("wrong answer",),
    share=0.02,
    run=run,
    plants=(Plant("an authorizer that denies nothing", allowing_everything_is_found),),
)
