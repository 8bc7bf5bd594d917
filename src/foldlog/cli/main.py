"""The `foldlog` command. One module a noun; `commands` has what they share.

`exit_codes` says how it ends. What went wrong is one sentence on standard error.

Next to nothing is imported up here: an interrupt while a module is loaded should find the handler below.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from foldlog.cli.exit_codes import INTERRUPTED, PIPE_CLOSED

_STOPPED: Final = {"copy": "stopped; the same command goes on from here"}
"""What a command says when it is interrupted, at whatever moment: also before its module is there."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        from foldlog.cli.output import forget_output, occupy_standard_descriptors

        occupy_standard_descriptors()
        from foldlog.cli.commands import run_command

        try:
            return run_command(words)
        except BrokenPipeError:
            forget_output()
            return PIPE_CLOSED
    except KeyboardInterrupt:
        said = _STOPPED.get(next((word for word in words if not word.startswith("-")), ""))
        if said is not None and sys.stderr is not None:
            print(said, file=sys.stderr, flush=True)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
