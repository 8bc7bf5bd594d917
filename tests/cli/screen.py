"""A terminal that remembers what stands on it: what was drawn over is gone, as on a real one."""

from __future__ import annotations

import io
import re

_PART = re.compile(r"\x1b\[(?P<number>[0-9;?]*)(?P<letter>[A-Za-z])|(?P<text>[^\x1b\r\n]+)|(?P<move>[\r\n])")


class Terminal(io.StringIO):
    """A stream that says that somebody looks at it."""

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        """What stands there now, without what is blank at the ends of lines and below them."""
        rows, row, column = [""], 0, 0
        for part in _PART.finditer(self.getvalue()):
            letter, number = part["letter"], int(part["number"] or 1) if (part["number"] or "1").isdigit() else 0
            if part["text"]:
                rows[row] = rows[row].ljust(column)[:column] + part["text"] + rows[row][column + len(part["text"]) :]
                column += len(part["text"])
            elif part["move"] == "\r":
                column = 0
            elif part["move"]:
                row, column = row + 1, 0
                rows += [""] * (row + 1 - len(rows))
            elif letter == "A":
                row = max(0, row - number)
            elif letter == "K":
                rows[row] = "" if number == 2 else rows[row][:column]
            elif letter not in ("m", "h", "l"):
                raise ValueError(f"this terminal does not know {part[0]!r}")
        while rows and not rows[-1].strip():
            rows.pop()
        return [line.rstrip() for line in rows]
