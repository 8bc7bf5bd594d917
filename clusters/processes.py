"""Processes of a cluster on this machine: free ports, waiting until they are up, and an end to all of them."""

from __future__ import annotations

import atexit
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from clusters.watchdog import watchdog

HOST: Final = "127.0.0.1"
READY_TIMEOUT_S: Final = 120
STOP_TIMEOUT_S: Final = 60
_PORTS: Final = range(20_000, 32_000)
"""Below those that systems give to outgoing connections: what is free now is free when a broker comes back to it."""


class StartFailed(Exception):
    """A process ended or said nothing where it should have come up. The text ends with the end of its log."""


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens at, all different."""
    found: set[int] = set()
    while len(found) < count:
        port = random.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            found.add(port)
    return sorted(found)


class ClusterProcess:
    """One program with its output in a file, which can be killed and started again.

    It, and what it has started, ends with this process, however this one ends (watchdog.py).
    """

    def __init__(
        self, name: str, command: Sequence[str], output: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.output = output
        self._command = list(command)
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.kill)

    @property
    def pid(self) -> int:
        if self._process is None:
            raise StartFailed(f"{self.name} is not running")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Begin it; `wait_until` says when it is up."""
        if not self.is_running:
            with self.output.open("ab") as output:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=self._environment,
                    start_new_session=True,  # Ctrl-C at a test run is for the tests, which end it in order
                )
            watchdog().watch(self._process.pid)

    def wait_until(self, is_up: Callable[[], bool]) -> None:
        """Returns once it is up, or has done what is waited for; StartFailed if it ended, or takes two minutes."""
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while not is_up():
            if not self.is_running or time.monotonic() > deadline_s:
                reason = "took too long" if self.is_running else "ended"
                raise StartFailed(f"{self.name} {reason}; its log ends with:\n{self.tail()}")
            time.sleep(0.02)

    def kill(self) -> None:
        """As `kill -9` does it."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """As its operator does it: it may finish, and is killed if it takes a minute."""
        self._end(signal.SIGTERM)

    def tail(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")[-3000:] if self.output.exists() else ""

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it has started itself, if anything is left of it
        watchdog().forget(process.pid)


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0
