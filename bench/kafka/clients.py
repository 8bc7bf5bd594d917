"""The librdkafka clients of a measurement: processes of their own, connected and waiting until all are told to go.

with Clients([spec, spec]) as clients:      # each: python -m bench.kafka.librdkafka '{"do": "produce", ...}'
    watch = Watch(broker.pid)
    answers = clients.go()
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

ROOT: Final = Path(__file__).resolve().parent.parent.parent
READY: Final = "ready"
END_S: Final = 180.0


class ClientFailed(Exception):
    """A client ended without a figure. The text is what it said last."""


class Clients:
    """Started together; `go` lets them run, and waits for the answer of each."""

    def __init__(self, specs: Sequence[Mapping[str, Any]]) -> None:
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", "bench.kafka.librdkafka", json.dumps(spec)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for spec in specs
        ]

    def __enter__(self) -> Self:
        try:
            for process in self._processes:
                line = process.stdout.readline() if process.stdout else ""
                if line.strip() != READY:
                    process.kill()
                    raise ClientFailed(f"a client did not get ready: {line}{process.communicate()[1]}")
        except BaseException:
            self._end()
            raise
        return self

    def go(self) -> list[dict[str, Any]]:
        for process in self._processes:
            if process.stdin:
                process.stdin.write("go\n")
                process.stdin.flush()
        return [self._answer(process) for process in self._processes]

    def _answer(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        try:
            out, err = process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired as error:
            raise ClientFailed(f"a client was not done within {END_S:.0f} s") from error
        if process.returncode:
            raise ClientFailed(f"a client failed: {err.strip()[-2000:]}")
        answer: dict[str, Any] = json.loads(out)
        return answer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()


def elapsed_s(answers: Sequence[Mapping[str, Any]]) -> float:
    """From the first who began to the last who ended. Their clock is the machine's: the same in all processes."""
    return float(max(one["ended_s"] for one in answers) - min(one["began_s"] for one in answers))
