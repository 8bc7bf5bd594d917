"""`foldlog user`: users who log in with a password (SASL PLAIN, SCRAM-SHA-256 and -512).

A password comes from a prompt that does not show it, from a file, or from standard input; never from the command line,
where every process of the machine could read it.
"""

from __future__ import annotations

import sys
from getpass import getpass
from typing import TYPE_CHECKING, Final

from foldlog.cli.confirmation import dry_run_option, is_attended, is_confirmed, yes_option
from foldlog.cli.exit_codes import DONE, FAILED
from foldlog.cli.log_options import log_options, open_log
from foldlog.cli.output import remark
from foldlog.cli.parsing import Arguments, LazyVerb, Noun, Option, argument, command, option
from foldlog.cli.tables import Column, Outcome, format_option, quiet_option, show, show_names, show_outcomes
from foldlog.client.backends.backend import backend_of
from foldlog.errors import InvalidArgument, UnknownUser, UserExists
from foldlog.files.paths import open_to_others, read_bytes
from foldlog.limits import PASSWORD_CHARACTERS_MAX

if TYPE_CHECKING:
    from foldlog.client.access import AccessAdmin

DESCRIPTION: Final = """\
The users of a directory or a broker, who log in by SASL with a name and a password. ACLs say what they may do: see
foldlog acl --help"""

NOUN: Final = Noun(
    {
        "create": LazyVerb("access.user:create_user", "create a user"),
        "list": LazyVerb("access.user:list_users", "list users"),
        "password": LazyVerb("access.user:change_password", "replace a user's password"),
        "delete": LazyVerb("access.user:delete_users", "delete users"),
    },
    DESCRIPTION,
)

LIST_COLUMNS: Final = (
    Column("user", "USER"),
    Column("mechanisms", "MECHANISMS", text=lambda value: ", ".join(value) if isinstance(value, list) else str(value)),
    Column("iterations", "ITERATIONS", is_number=True, is_wide=True),
)

_STANDARD_INPUT: Final = "-"
_BYTES_MAX: Final = 4 * PASSWORD_CHARACTERS_MAX + 2
"""Of a file with a password: UTF-8, and the end of its line."""

PASSWORD: Final = """\
The command asks for the password and does not show it. In a script, give it in a file, or on standard input with
--password-file -, as the first line. There is no option for the password itself: everybody on the machine could read
it."""


def password_option() -> Option:
    return option("--password-file", metavar="FILE", told="the file with the password; - for standard input")


# --- looking --------------------------------------------------------------------------------------------------------


@command(quiet_option(), format_option(), *log_options())
def list_users(arguments: Arguments) -> int:
    with open_log(arguments, write=False) as log:
        found = backend_of(log).access().users()
    if arguments.quiet:
        return show_names([user.name for user in found])
    rows = [
        {
            "user": user.name,
            "mechanisms": sorted(user.iterations),
            "iterations": min(user.iterations.values(), default=None),
        }
        for user in found
    ]
    show(arguments, LIST_COLUMNS, rows, nothing="there are no users; to make one: foldlog user create NAME")
    return DONE


# --- changing -------------------------------------------------------------------------------------------------------


@command(
    argument("name", "NAME", "the user's name"),
    password_option(),
    format_option(),
    *log_options(),
    more=PASSWORD,
)
def create_user(arguments: Arguments) -> int:
    with open_log(arguments, write=True) as log:
        access = backend_of(log).access()
        if arguments.name in _names(access):
            raise UserExists(
                f"there is a user {arguments.name!r}; to change their password: foldlog user password {arguments.name}"
            )
        access.set_password(arguments.name, _password(arguments))
    return _tell(arguments, [arguments.name], "created")


@command(
    argument("name", "USER", "the user's name"),
    password_option(),
    format_option(),
    *log_options(),
    more=PASSWORD,
)
def change_password(arguments: Arguments) -> int:
    with open_log(arguments, write=True) as log:
        access = backend_of(log).access()
        _check_known(access, [arguments.name])
        access.set_password(arguments.name, _password(arguments))
    return _tell(arguments, [arguments.name], "password changed")


@command(
    argument("names", "USER", "a user's name", is_many=True),
    dry_run_option(),
    yes_option(),
    format_option(),
    *log_options(),
)
def delete_users(arguments: Arguments) -> int:
    names = list(dict.fromkeys(arguments.names))
    with open_log(arguments, write=not arguments.dry_run) as log:
        access = backend_of(log).access()
        _check_known(access, names)
        if not arguments.dry_run:
            if not is_confirmed(arguments, f"delete {', '.join(names)}?"):
                return FAILED
            for name in names:
                access.delete_user(name)
    return _tell(arguments, names, "would be deleted" if arguments.dry_run else "deleted")


def _names(access: AccessAdmin) -> list[str]:
    return [user.name for user in access.users()]


def _check_known(access: AccessAdmin, names: list[str]) -> None:
    known = _names(access)
    for name in names:
        if name not in known:
            raise UnknownUser(f"there is no user {name!r}; to see all: foldlog user list")


def _tell(arguments: Arguments, names: list[str], went: str) -> int:
    show_outcomes(arguments, [Outcome(f"{name}: {went}", {"user": name, "status": went}) for name in names])
    return DONE


def _password(arguments: Arguments) -> str:
    if arguments.password_file is None:
        return _asked()
    if arguments.password_file == _STANDARD_INPUT:
        data = b"" if sys.stdin is None else sys.stdin.buffer.read(_BYTES_MAX + 1)
    else:
        mode = open_to_others(arguments.password_file)
        if mode is not None:
            remark(f"foldlog: others can read {arguments.password_file}: its mode is {mode}; chmod 600 keeps it to you")
        data = read_bytes(arguments.password_file, _BYTES_MAX + 1)
    lines = data.splitlines()
    if len(data) > _BYTES_MAX or len(lines) != 1:
        raise InvalidArgument(
            f"the password is the one line of {arguments.password_file}, and it has {len(lines)} lines"
            if len(data) <= _BYTES_MAX
            else f"{arguments.password_file} is longer than any password"
        )
    try:
        return lines[0].decode()
    except UnicodeDecodeError:
        raise InvalidArgument(f"the password in {arguments.password_file} is not UTF-8") from None


def _asked() -> str:
    if not is_attended():
        raise InvalidArgument("nobody is at a terminal to give the password; use --password-file FILE, or - for a pipe")
    first = getpass("password: ")
    if getpass("repeat it: ") != first:
        raise InvalidArgument("the two passwords differ; nothing was changed")
    return first
