"""`foldlog topic`: topics, their records, and the table behind them. One module a kind of verb."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Final

from foldlog.cli.parsing import add_verbs

DESCRIPTION: Final = """\
A topic is a named log of records in one or more partitions; each partition is written at its end only, and read from
anywhere. Where it is, is said with -d DIR or -b HOST:PORT, or by FOLDLOG_DIR or FOLDLOG_BOOTSTRAP_SERVER."""

VERB_MODULES: Final = ("topic_admin", "topic_produce", "topic_consume", "topic_table", "topic_upkeep")
"""Each has `configure(verbs)`, which adds its verbs. What a verb needs to run is imported when it runs."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    verbs = add_verbs(parser)
    for name in VERB_MODULES:
        import_module(f"foldlog.cli.{name}").configure(verbs)
