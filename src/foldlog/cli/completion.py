"""`foldlog completion`: a script that teaches a shell to complete foldlog's words.

Verbs, options and choices are written into the script, from the parsers themselves. Names of topics and groups are
asked for when they are wanted, of the log that the line names or that FOLDLOG_DIR or FOLDLOG_BOOTSTRAP_SERVER does.
"""

from __future__ import annotations

import argparse
from typing import Final

from foldlog.cli.completion_scripts import SCRIPTS
from foldlog.cli.completion_words import places_in
from foldlog.cli.exit_codes import DONE
from foldlog.cli.output import say

DESCRIPTION: Final = """\
Prints a script for your shell. To complete foldlog's commands, options, topics and groups with the tab key:

  foldlog completion bash > ~/.local/share/bash-completion/completions/foldlog
  foldlog completion zsh > "${fpath[1]}/_foldlog"
  foldlog completion fish > ~/.config/fish/completions/foldlog.fish

Write it again after an upgrade. To try it first: source <(foldlog completion bash)"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument("shell", metavar="SHELL", choices=tuple(SCRIPTS), help="bash, zsh or fish")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from foldlog.cli.commands import COMMANDS, parser_with

    say(SCRIPTS[arguments.shell](places_in(parser_with(list(COMMANDS)))).rstrip("\n"))
    return DONE
