"""`foldlog serve` as a process of its own, and where it listens: what the tests of the command share."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cli.command import COMMAND, WAIT_S, environment

ANY_PORT = ("--listen", "127.0.0.1:0")
READY = re.compile(r"foldlog is serving (?P<path>.+?) on (?P<host>[\d.]+|\[[\d:a-f]+\]):(?P<port>\d+)")


@dataclass
class Serving:
    """A broker that has said that it is ready. `errors` is what it logged, once it has ended."""

    process: subprocess.Popen[str]
    ready: str
    errors: list[str] = field(default_factory=list)

    @property
    def address(self) -> tuple[str, int]:
        match = READY.match(self.ready)
        assert match is not None, self.ready
        return match["host"].strip("[]"), int(match["port"])

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to leave; the exit code. Nothing but the ready line may have been printed."""
        self.process.send_signal(number)
        return self.finish()

    def finish(self) -> int:
        printed, logged = self.process.communicate(timeout=WAIT_S)
        assert printed == ""
        self.errors = logged.splitlines()
        return self.process.returncode


@contextmanager
def serving(
    *arguments: str,
    command: list[str] | None = None,
    before: Callable[[], object] | None = None,
    **variables: str,
) -> Iterator[Serving]:
    """Start it, wait for its line, and kill it at the end if it is still there. `before` runs in the new process."""
    process = subprocess.Popen(
        [*(command or COMMAND), "serve", *arguments],
        env={**environment(), **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=before,  # noqa: PLW1509 the tests' process has no other threads while it forks
    )
    with process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            if not ready:
                raise AssertionError(f"it did not start: {process.communicate(timeout=WAIT_S)[1]}")
            yield Serving(process, ready)
        finally:
            process.kill()
