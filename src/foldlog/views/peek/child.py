"""The process that looks into views for another: a question per line of standard input, an answer per line of output.

A file may be a pipe that nothing writes to, a database may hang in the middle of an answer, a page of Parquet may
exceed the memory. Here that costs one small process: it ends itself when a look takes too long (even if its parent is
gone), uses too much memory, or when no question has come for a while.

    {"description": {…}, "q": null, "after": null, "measure": null, "limit": 50}
    {"page": {"kind", "columns", "rows", "total", "next", "series"}} or {"fault": "view" or "question", "text": "…"}
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from typing import Any, BinaryIO

from foldlog.errors import FoldlogError, InvalidArgument
from foldlog.limits import PEEK_DEADLINE_MS, PEEK_IDLE_MS, PEEK_MEMORY_BYTES
from foldlog.views.peek.peek import open_peek


def look(question: dict[str, Any]) -> dict[str, Any]:
    """The page for a question. FoldlogError if there is none."""
    with open_peek(question["description"]) as peek:
        text, after = question["q"], question["after"]
        page = peek.search(text, question["limit"]) if text else peek.rows(question["limit"], after)
        series = peek.series(question["measure"]) if not text and not after else None
    return {
        "kind": peek.kind,
        "columns": page.columns,
        "rows": page.rows,
        "total": page.total,
        "next": page.next,
        "series": series and [{"name": one.name, "points": one.points} for one in series],
    }


def answer_to(line: bytes) -> dict[str, Any]:
    question = json.loads(line)
    try:
        return {"page": look(question)}
    except InvalidArgument as error:
        return {"fault": "question", "text": str(error)}
    except FoldlogError as error:
        return {"fault": "view", "text": str(error)}
    except MemoryError:
        return {"fault": "view", "text": "a look into the view takes more memory than there is for that"}


def serve(questions: BinaryIO, answers: BinaryIO, deadline_ms: int) -> None:
    """Answer until standard input ends."""
    while True:
        # The signal's default action ends the process wherever it waits, even in a call that Python cannot interrupt.
        signal.setitimer(signal.ITIMER_REAL, PEEK_IDLE_MS / 1000)
        line = questions.readline()
        if not line:
            return
        signal.setitimer(signal.ITIMER_REAL, deadline_ms / 1000)
        answers.write(json.dumps(answer_to(line)).encode() + b"\n")
        answers.flush()


def main() -> None:
    deadline_ms = int(sys.argv[1]) if len(sys.argv) > 1 else PEEK_DEADLINE_MS
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or hard > PEEK_MEMORY_BYTES:
        resource.setrlimit(resource.RLIMIT_DATA, (PEEK_MEMORY_BYTES, hard))
    # An engine that prints something must not corrupt an answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, answers, deadline_ms)


if __name__ == "__main__":
    main()
