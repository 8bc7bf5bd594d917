"""Looks into views, each in a separate process that can be killed and runs `foldlog.views.peek.child`.

A process is kept for the next question, separately for those with and without secrets: only views in locations that the
operator has named are opened by a process that has this one's passwords.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from foldlog.errors import FoldError, InvalidArgument, ViewUnavailable
from foldlog.limits import PEEK_ANSWER_BYTES_MAX, PEEK_DEADLINE_MS

_READ_BYTES: Final = 1 << 20
_NOWHERE: Final = "/nonexistent/foldlog-sends-no-password"
"""Where libpq looks for passwords and keys instead of in the home directory."""


class _Child:
    """One process. One thread at a time."""

    def __init__(self, *, with_secrets: bool, deadline_ms: int) -> None:
        self._deadline_ms = deadline_ms
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "foldlog.views.peek.child", str(deadline_ms)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(os.environ) if with_secrets else without_secrets(os.environ),
            cwd="/",
            start_new_session=True,  # Ctrl-C at the terminal is for the broker
        )

    def ask(self, question: bytes) -> bytes | None:
        """Its answer; None if it ended without one. Raises TimeoutError at the deadline."""
        process = self._process
        if process.stdin is None or process.stdout is None:
            return None
        until_s = time.monotonic() + self._deadline_ms / 1000
        try:
            process.stdin.write(question)
            process.stdin.flush()
        except OSError:
            return None
        waiting = select.poll()  # unlike select, for any descriptor number, also with many connections
        waiting.register(process.stdout, select.POLLIN)
        parts: list[bytes] = []
        size = 0
        while size <= PEEK_ANSWER_BYTES_MAX:
            left_s = until_s - time.monotonic()
            if left_s <= 0 or not waiting.poll(left_s * 1000):
                raise TimeoutError
            part = os.read(process.stdout.fileno(), _READ_BYTES)
            if not part:
                return None
            parts.append(part)
            size += len(part)
            if part.endswith(b"\n"):
                return b"".join(parts)
        return None

    def end(self) -> None:
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        # One that hangs in the kernel ends when it can; it is not waited for.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.2)


class PeekProcesses:
    """Any thread; a look waits for no other."""

    def __init__(self, deadline_ms: int = PEEK_DEADLINE_MS) -> None:
        self._deadline_ms = deadline_ms
        self._lock = threading.Lock()
        self._idle: dict[bool, _Child] = {}
        self._busy: set[_Child] = set()
        self._is_closed = False

    def look(self, question: dict[str, Any], location: str, *, with_secrets: bool) -> dict[str, Any]:
        """The page that a process answers. Raises InvalidArgument for the question; FoldError for the view, and at the
        deadline."""
        line = json.dumps(question).encode() + b"\n"
        child, is_kept = self._taken(with_secrets)
        answer: bytes | None = None
        try:
            answer = child.ask(line)
            if answer is None and is_kept:  # it had ended before, after being idle for a while
                child = self._replaced(child, with_secrets)
                answer = child.ask(line)
        except TimeoutError:
            answer = None
        finally:
            self._give_back(child, with_secrets, is_good=answer is not None)
        if answer is None:
            seconds = self._deadline_ms / 1000
            raise ViewUnavailable(
                location, f"a look into it took over {seconds:g} s, or too much memory, and was ended"
            )
        return _page(json.loads(answer))

    def close(self) -> None:
        """End all processes, also those that are busy."""
        with self._lock:
            self._is_closed = True
            children = [*self._idle.values(), *self._busy]
            self._idle = {}
        for child in children:
            child.end()

    def _taken(self, with_secrets: bool) -> tuple[_Child, bool]:
        with self._lock:
            kept = self._idle.pop(with_secrets, None)
            child = kept or self._started(with_secrets)
            self._busy.add(child)
        return child, kept is not None

    def _replaced(self, child: _Child, with_secrets: bool) -> _Child:
        child.end()
        with self._lock:
            self._busy.discard(child)
            fresh = self._started(with_secrets)
            self._busy.add(fresh)
        return fresh

    def _started(self, with_secrets: bool) -> _Child:
        if self._is_closed:
            raise FoldError("the console is being closed")
        return _Child(with_secrets=with_secrets, deadline_ms=self._deadline_ms)

    def _give_back(self, child: _Child, with_secrets: bool, *, is_good: bool) -> None:
        with self._lock:
            self._busy.discard(child)
            if is_good and not self._is_closed and with_secrets not in self._idle:
                self._idle[with_secrets] = child
                return
        child.end()


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables from which libpq reads passwords, keys and tickets."""
    kept = {name: text for name, text in environment.items() if not name.startswith("PG")}
    return kept | {
        "PGPASSFILE": _NOWHERE,
        "PGSERVICEFILE": _NOWHERE,
        "PGSYSCONFDIR": _NOWHERE,
        "PGSSLCERTMODE": "disable",
        "PGGSSENCMODE": "disable",
        "PGREQUIREAUTH": "none",
    }


def _page(answer: dict[str, Any]) -> dict[str, Any]:
    if "page" in answer:
        found: dict[str, Any] = answer["page"]
        return found
    raise InvalidArgument(answer["text"]) if answer["fault"] == "question" else FoldError(answer["text"])
