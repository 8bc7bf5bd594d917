"""A served directory for tests: in this process, and in another one."""

from __future__ import annotations

import time
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
    """Take steps until it is so."""
    deadline_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline_s, "it never came to be so"
        step()
