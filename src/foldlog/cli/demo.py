"""`foldlog demo`: a shop's payments, four views, and what happens to them when everything around them is killed."""

from __future__ import annotations

import sys
from typing import Final

from foldlog.cli.exit_codes import DONE, FAILED
from foldlog.cli.parsing import Arguments, command, count_value, option, switch

RATE_MAX: Final = 20_000

DESCRIPTION: Final = """\
Shows foldlog at work, in about a minute and on this machine alone: a broker with its console, a stream of payments,
four folds on Spark, readers at different speeds. Then it kills the broker and the pipeline, rewinds one fold, rebuilds
another, lets a topic be compacted and expire, and ends with a checklist of counted facts.

It needs Java 17 and foldlog's extras (pip install 'foldlog[spark,views,kafka]'), and uses PostgreSQL if its server is
installed. Everything is in a temporary directory, on free ports of 127.0.0.1, and is removed at the end."""


@command(
    switch("--once", told="end after the checklist; the exit code is 0 only if every line holds"),
    option(
        "--rate",
        metavar="N",
        read=count_value(1, RATE_MAX),
        default="1000",
        told="payments to write each second (default: 1000)",
    ),
    description=DESCRIPTION,
)
def run(arguments: Arguments) -> int:
    from foldlog.demo.run import Options, run_demo

    return DONE if run_demo(Options(arguments.once, arguments.rate), sys.stdout) else FAILED
