"""`foldlog completion`: a script that lets a shell complete foldlog's words.

The script runs foldlog at every tab: commands, options and choices are the current ones, names of topics and groups are
those of the log named by the line, or by FOLDLOG_DIR or FOLDLOG_BOOTSTRAP_SERVER.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from foldlog.cli.exit_codes import DONE, FAILED
from foldlog.cli.log_options import open_log
from foldlog.cli.output import say
from foldlog.cli.parsing import Argument, Arguments, Option, argument, command
from foldlog.client.backends.backend import backend_of
from foldlog.errors import FoldlogError

if TYPE_CHECKING:
    from foldlog.client.log import Log

VARIABLE: Final = "_FOLDLOG_COMPLETE"
"""The variable in which the scripts pass their request: the name of the shell and "_complete"."""

DESCRIPTION: Final = """\
Prints a script for your shell. To complete foldlog's commands, options, topics and groups with the tab key:

  foldlog completion bash > ~/.local/share/bash-completion/completions/foldlog
  foldlog completion zsh > "${fpath[1]}/_foldlog"
  foldlog completion fish > ~/.config/fish/completions/foldlog.fish

Write it again after an upgrade. To try it first: source <(foldlog completion bash)"""


class _Bash(BashComplete):
    """Passes the line as it was typed: bash also splits words at colons, and HOST:PORT has one."""

    source_template = """\
# bash completion of foldlog; written by: foldlog completion bash

%(complete_func)s() {
    local IFS=$'\\n' type value completion
    COMPREPLY=()
    for completion in $(env COMP_LINE="${COMP_LINE:0:COMP_POINT}" %(complete_var)s=bash_complete "$1" 2>/dev/null); do
        IFS=',' read -r type value <<<"$completion"
        case "$type" in
            dir | file)
                compopt -o filenames 2>/dev/null
                COMPREPLY=($(compgen "-${type:0:1}" -- "$value")) ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done
}

complete -o nosort -F %(complete_func)s %(prog_name)s 2>/dev/null || complete -F %(complete_func)s %(prog_name)s
"""

    def source(self) -> str:
        return ShellComplete.source(self)  # bash need not be installed to write a script for it

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_LINE"]
        words = _words(line)[1:]
        return (words, "") if line[-1:].isspace() or not words else (words[:-1], words[-1])


SHELLS: Final[dict[str, type[ShellComplete]]] = {"bash": _Bash, "zsh": ZshComplete, "fish": FishComplete}


@command(argument("shell", "SHELL", "bash, zsh or fish", choices=tuple(SHELLS)), description=DESCRIPTION)
def run(arguments: Arguments) -> int:
    from foldlog.cli.commands import NAME, root

    say(SHELLS[arguments.shell](root(), {}, NAME, VARIABLE).source().rstrip("\n"))
    return DONE


def complete(wanted: str) -> int:
    """Answer a script: the possible words at the end of the line; returns the exit code."""
    from foldlog.cli.commands import NAME, root

    shell = SHELLS.get(wanted.removesuffix("_complete"))
    if shell is None:
        return FAILED
    offered = shell(root(), {}, NAME, VARIABLE).complete()
    if offered:
        say(offered)
    return DONE


def words_for(
    ctx: click.Context, param: click.Parameter, choices: Sequence[str], incomplete: str
) -> list[CompletionItem]:
    """The completions of a value: its choices, or else by its metavar."""
    if choices:
        return _beginning(choices, incomplete)
    name: str | None = ""
    if isinstance(param, Option):
        name = param.metavar
    elif isinstance(param, Argument):
        name = param.label
    noun = ctx.parent.info_name if ctx.parent is not None else None
    if not name:
        return []
    if name.startswith("TOPIC") or (name == "PATTERN" and noun == "topic"):
        return _beginning(_names(ctx, lambda log: log.topics()), incomplete)
    if name.startswith("GROUP") or (name == "PATTERN" and noun == "group"):
        return _beginning(_names(ctx, lambda log: log.groups()), incomplete)
    if name == "USER":
        return _beginning(_names(ctx, _users), incomplete)
    if name.startswith("DIR") or name == "D":
        return [CompletionItem(incomplete, type="dir")]
    return [CompletionItem(incomplete, type="file")] if name.startswith("FILE") else []


def _users(log: Log) -> Sequence[str]:
    return [user.name for user in backend_of(log).access().users()]


def _names(ctx: click.Context, asked: Callable[..., Sequence[str]]) -> Sequence[str]:
    """Names from the log that the line or the environment names; none if it cannot be opened."""
    params = {"directory": None, "bootstrap": None, "properties": None, "command_config": None, **ctx.params}
    try:
        with open_log(Arguments(**params), write=False) as log:
            return sorted(asked(log))
    except (FoldlogError, OSError):
        return ()


def _beginning(words: Sequence[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def _words(line: str) -> list[str]:
    """Split like a shell does. An open quote is closed at the end."""
    for end in ("", "'", '"'):
        try:
            return shlex.split(line + end)
        except ValueError:
            continue
    return line.split()
