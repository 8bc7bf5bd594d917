"""Writes docs/reference/access.md: what every API answers to every identity at a listener of every protocol.

    python scripts/write_access_table.py            # ask a broker in memory, and write the page
    python scripts/write_access_table.py --check    # exit with 1 if the page is not what would be written

The cells are those of tests/server/access_matrix.py, as our broker answers them. `make test` compares the page,
`make test-kafka` compares each cell with Apache Kafka's.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from foldlog.wire.messages import APIS, NAMES  # noqa: E402
from server.access_matrix import (  # noqa: E402
    ALL_ROWS,
    CELLS,
    DENIED,
    DESCRIBES,
    IDENTITIES,
    LESS,
    NO_ACL,
    NO_TOPICS,
    NOBODY,
    PREFIX,
    PROTOCOLS,
    REFUSALS,
    SUPER,
    WRONG,
    YES,
    Answers,
    Cell,
    our_answers,
)
from server.api_access import ASKS_NOTHING, Row  # noqa: E402

PAGE: Final = ROOT / "docs" / "reference" / "access.md"

WORDS: Final = {
    NOBODY: "nobody",
    WRONG: "wrong password",
    NO_ACL: "no ACL",
    DESCRIBES: "describe only",
    NO_TOPICS: "no topics",
    PREFIX: "prefix",
    DENIED: "denied",
    SUPER: "super user",
}

HEAD: Final = """\
# Who is answered what

For people who check what each API answers to whom. `scripts/write_access_table.py` writes it, and asks a
broker for every cell. `make test-kafka` asks Apache Kafka's
StandardAuthorizer for the same {cells} cells, {rows} requests of {identities} identities at {protocols} protocols: the
answers are the same. Another test denies exactly what a row says it needs, and nothing else, and gets the answer of the
column "or else". An API without a row fails the tests.

Where all protocols answer an identity alike, it has one column. The identities:

| identity | `SASL_PLAINTEXT`, `SASL_SSL` | `SSL` | `PLAINTEXT` |
| --- | --- | --- | --- |
| nobody | does not log in | has no certificate | comes from an address without an ACL |
| wrong password | logs in with one | has a certificate of another authority | tries to log in where nobody does |
| no ACL | a user | a name in a certificate | an address |
| describe only | `DESCRIBE` on all | likewise | likewise, for that address |
| no topics | all on groups and transactional ids, `CLUSTER_ACTION` | likewise | likewise |
| prefix | all on names with a prefix | likewise | likewise |
| denied | all allowed, and these names denied | likewise | likewise |
| super user | `super.users` | `super.users` | `super.users` has `User:ANONYMOUS` |

| answer | means |
| --- | --- |
| **yes** | it is answered; what was asked for is done, or refused for another reason than who asks |
| topic, group, cluster, id | `TOPIC_`, `GROUP_`, `CLUSTER_` or `TRANSACTIONAL_ID_AUTHORIZATION_FAILED` |
| less | the answer leaves out what this identity may not see |
| no login | `ILLEGAL_SASL_STATE`: there is no login to be had, or none was begun |
| closed | the connection is closed without an answer |

"""


def page(answers: Answers) -> str:
    """The whole page."""
    columns = _columns(answers)
    titles = [f"{WORDS[identity]}{_at(protocols)}" for identity, protocols in columns]
    counts = {
        "cells": f"{len(ALL_ROWS) * len(CELLS):,}",
        "rows": len(ALL_ROWS),
        "identities": len(IDENTITIES),
        "protocols": len(PROTOCOLS),
    }
    lines = [f"| API | needs | or else | {' | '.join(titles)} |", "| --- " * (3 + len(titles)) + "|"]
    names = {api.module: NAMES[key] for key, api in APIS.items()}
    for number, row in enumerate(ALL_ROWS):
        cells = [_cell(answers[number, _first(identity, protocols)]) for identity, protocols in columns]
        lines.append(f"| {names[row.api]} | {_needs(row)} | {_or_else(row)} | {' | '.join(cells)} |")
    return HEAD.format(**counts) + "\n".join(dict.fromkeys(lines)) + "\n"


def _columns(answers: Answers) -> list[tuple[str, tuple[str, ...]]]:
    """Each identity with the protocols that answer it alike."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for identity in IDENTITIES:
        alike: dict[tuple[str, ...], list[str]] = {}
        for cell in CELLS:
            if cell.identity == identity:
                every = tuple(answers[number, cell] for number in range(len(ALL_ROWS)))
                alike.setdefault(every, []).append(cell.protocol)
        found += [(identity, tuple(protocols)) for protocols in alike.values()]
    return found


def _first(identity: str, protocols: tuple[str, ...]) -> Cell:
    return Cell(identity, protocols[0])


def _at(protocols: tuple[str, ...]) -> str:
    return "" if len(protocols) == len(PROTOCOLS) else f", {', '.join(f'`{protocol}`' for protocol in protocols)}"


def _cell(answer: str) -> str:
    return "**yes**" if answer == YES else answer


def _needs(row: Row) -> str:
    return row.asked_for or f"nothing: {ASKS_NOTHING[row.api]}"


def _or_else(row: Row) -> str:
    if row.code is None:
        return LESS if row.asks else ""
    return REFUSALS[row.code]


def wanted() -> str:
    """The page as our broker answers now."""
    with tempfile.TemporaryDirectory() as directory:
        return page(our_answers(Path(directory)))


def main() -> None:
    text = wanted()
    if "--check" in sys.argv[1:]:
        is_same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        sys.exit(0 if is_same else "docs/reference/access.md is stale; run: python scripts/write_access_table.py")
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
