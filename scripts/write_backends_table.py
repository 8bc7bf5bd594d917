"""Writes the table of docs/clusters.md that says what each backend cannot do, from what the backends say themselves.

    python scripts/write_backends_table.py            # write it
    python scripts/write_backends_table.py --check    # exit with 1 if it is not what would be written

The sentences are those that ReadOnly says. A test runs the check, and another calls every method of the table.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from foldlog.client.backends.backend import Backend
from foldlog.client.backends.cluster.backend import ClusterBackend
from foldlog.client.backends.local import LocalBackend
from foldlog.client.backends.served.backend import ServedBackend

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "clusters.md"
BEGIN: Final = "<!-- what backends cannot do: written by scripts/write_backends_table.py -->\n"
END: Final = "<!-- end of what backends cannot do -->\n"

COLUMNS: Final[dict[str, type[Backend]]] = {
    "a directory that this process writes": LocalBackend,
    "a directory that another process writes": ServedBackend,
    "a cluster": ClusterBackend,
}


def table() -> str:
    """The lines between the marks."""
    methods = dict.fromkeys(method for backend in COLUMNS.values() for method in backend.LIMITS)
    lines = [f"| | {' | '.join(COLUMNS)} |", "| --- " * (len(COLUMNS) + 1) + "|"]
    for method in methods:
        cells = [_cell(backend.LIMITS.get(method)) for backend in COLUMNS.values()]
        lines.append(f"| `{method}()` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(reason: str | None) -> str:
    return "now" if reason is None else reason.format(where="", writer="another process")


def page(text: str) -> str:
    """The page with its table as it should be."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{PAGE.name} has lost the marks around its table")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    wanted = page(text)
    if "--check" in sys.argv[1:]:
        sys.exit(0 if text == wanted else "docs/clusters.md is stale; run: python scripts/write_backends_table.py")
    PAGE.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    main()
