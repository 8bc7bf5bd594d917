"""The `foldlog` command. One module per noun; `commands` has what they share.

`exit_codes` defines the exit codes. An error is one sentence on standard error.

Almost nothing is imported here: an interrupt while a module is loaded should reach the handler below.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

from foldlog.cli.exit_codes import DONE, FAILED, INTERRUPTED, PIPE_CLOSED

_STOPPED: Final = {"copy": "stopped; run the same command again to continue"}
"""What a command prints when it is interrupted, even before its module is loaded."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        from foldlog.cli.output import forget_output, occupy_standard_descriptors

        occupy_standard_descriptors()
        asked_by_shell = os.environ.get("_FOLDLOG_COMPLETE")
        try:
            if asked_by_shell:
                from foldlog.cli.completion import complete

                return complete(asked_by_shell)
            if list(words) == ["--version"]:
                return _tell_version()
            from foldlog.cli.commands import run_command
            from foldlog.cli.shown_secrets import warn_of_secrets

            if arguments is None:
                warn_of_secrets(words)
            return run_command(words)
        except BrokenPipeError:
            forget_output()
            return PIPE_CLOSED
    except KeyboardInterrupt:
        said = _STOPPED.get(next((word for word in words if not word.startswith("-")), ""))
        if said is not None and sys.stderr is not None:
            print(said, file=sys.stderr, flush=True)
        return INTERRUPTED


def _tell_version() -> int:
    """Printed before anything else is loaded: scripts ask for it all the time."""
    from foldlog import __version__
    from foldlog.cli.output import OutputRefused, remark, say

    try:
        say(f"foldlog {__version__}")
    except OutputRefused as error:
        remark(f"foldlog: {error}")
        return FAILED
    return DONE


if __name__ == "__main__":
    sys.exit(main())
