"""A served directory for tests: in this process, and in another one."""

from __future__ import annotations

from collections.abc import Callable

WAIT_S = 60.0
"""How long a test waits for another process or thread before it fails; nothing is expected to take this long."""

SERVE = """
import foldlog
log = foldlog.open(sys.argv[1], listen=True)
say(log.bootstrap)
sys.stdin.readline()
log.close()
say("closed")
"""
"""A program that serves its directory until it is told a line."""


def wait_until(is_so: Callable[[], bool], step: Callable[[], object]) -> None:
    """Take steps, each of which waits for a moment by itself, until it is so."""
    for _ in range(2000):
        if is_so():
            return
        step()
    raise AssertionError("it never came to be so")
