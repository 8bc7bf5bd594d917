"""A copy of the repository that may be broken: one file is changed at a time, tests run in it, and it is put back."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
BUILD: Final = ROOT / "build" / "mutants"
_LEFT_OUT: Final = {".git", ".venv", "build", "dist", "site", "node_modules", "__pycache__", ".hypothesis"}
_TEST_S: Final = 60
_TIMEOUT: Final = "+ Timeout +"
_PASSED, _FAILED, _INTERRUPTED, _INTERNAL = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of some tests. `is_caught`: one failed, could not be collected, or the run did not end."""

    is_caught: bool
    how: str
    seconds: float
    output: str

    @property
    def failed(self) -> str:
        """The test that failed, or could not be set up; empty if the tests could not even be collected."""
        found = re.search(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", self.output, re.MULTILINE)
        return found[1] if found else ""


class NotRun(Exception):
    """Pytest ran no test: a name is wrong, or everything is skipped here."""


class CopiedTree:
    """The repository as it is now, in a directory of its own, which `close` removes. One user at a time."""

    def __init__(self, name: str) -> None:
        self.path = path = BUILD / f"tree-{name}-{os.getpid()}"
        shutil.copytree(ROOT, path, ignore=lambda _, names: _LEFT_OUT.intersection(names), symlinks=True)

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    @contextmanager
    def changed(self, file: str, text: str) -> Iterator[None]:
        """The file holds `text`; afterwards what it held before."""
        path = self.path / file
        before = path.read_text()
        self._write(path, text)
        try:
            yield
        finally:
            self._write(path, before)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text)
        # Python compares seconds and sizes: two changes of one length within a second would share their bytecode.
        for cached in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            cached.unlink()

    def run(self, tests: Sequence[str], limit_s: float) -> Outcome:
        """Run the tests until one fails, in a fresh process; not the long ones of `make test-faults`. Raises NotRun."""
        begun = time.monotonic()
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
        # By a thread, which ends the process: a bug that makes one thread wait for ever keeps others from ending, too.
        command += [f"--timeout={_TEST_S}", "--timeout-method=thread", *tests]
        environment = {
            **os.environ,
            # First, so that processes which tests start import the copy, too.
            "PYTHONPATH": os.pathsep.join([str(self.path / "src"), str(self.path / "tests")]),
            # One that was found once would be replayed against every later mutant, and make the score depend on order.
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self.path / ".hypothesis"),
        }
        with subprocess.Popen(
            command,
            cwd=self.path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # its own group: brokers and JVMs that tests started
                process.communicate()
                return Outcome(True, "did not end", time.monotonic() - begun, "")
        shutil.rmtree(self.path / ".hypothesis", ignore_errors=True)
        seconds = time.monotonic() - begun
        if process.returncode == _PASSED:
            if " passed" not in output:
                raise NotRun(f"every one of these tests is skipped here: {' '.join(tests)}")
            return Outcome(False, "survived", seconds, output)
        if _TIMEOUT in output:
            return Outcome(True, "did not end", seconds, "")
        if process.returncode in (_FAILED, _INTERRUPTED, _INTERNAL) or process.returncode < 0:
            return Outcome(True, "caught", seconds, output)
        raise NotRun(f"pytest could not run {' '.join(tests)}:\n{output[-2000:]}")
