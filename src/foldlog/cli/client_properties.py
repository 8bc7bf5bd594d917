"""Properties of Kafka clients on a command line: -X NAME=VALUE, and a file of them, so that no password has to be on
the command line.

No error shows a value: it may be a password, or a part of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from foldlog.cli.output import remark
from foldlog.cli.parsing import Option, option
from foldlog.errors import InvalidArgument, InvalidConfig
from foldlog.files.paths import open_to_others

_SAID_BY_B: Final = "bootstrap.servers"


def property_options(*, prefix: str = "", of: str = "", is_hidden: bool = False) -> list[Option]:
    """-X and --command-config; with a prefix, for one of two logs, such as --from-property and --from-config."""
    only = "" if prefix else "; with -d only isolation.level"
    return [
        option(
            *([f"--{prefix}-property"] if prefix else ["-X", "--property"]),
            dest=f"{prefix}_properties" if prefix else "properties",
            metavar="NAME=VALUE",
            told=f"a property of Kafka clients{of}, such as security.protocol=SSL; repeatable{only}",
            is_repeated=True,
            is_hidden=is_hidden,
        ),
        option(
            f"--{prefix}-config" if prefix else "--command-config",
            dest=f"{prefix}_config" if prefix else "command_config",
            metavar="FILE",
            told=f"a file with such properties{of}, as for Kafka's tools; keep passwords here",
            is_hidden=is_hidden,
        ),
    ]


def client_properties(assignments: Sequence[str] | None, file: str | None) -> dict[str, str]:
    """The properties of the file, overridden by -X. InvalidArgument if either cannot be read."""
    return {**(_of_file(file) if file else {}), **parse_assignments(assignments or ())}


def parse_assignments(assignments: Sequence[str]) -> dict[str, str]:
    """
    >>> parse_assignments(["client.id=me & you"])
    {'client.id': 'me & you'}
    """
    given: dict[str, str] = {}
    for number, text in enumerate(assignments, 1):
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            which = "-X" if len(assignments) == 1 else f"-X, the {number}. of {len(assignments)},"
            raise InvalidArgument(f"{which} is not NAME=VALUE, such as -X security.protocol=SSL")
        given[name.strip()] = value
    return given


def refuse_properties(names: Iterable[str]) -> None:
    """InvalidArgument for a directory, which does not use them. Values are not shown: one may be a password."""
    for name in names:
        raise InvalidArgument(f"-X {name} is for clients of a broker; say -b HOST:PORT, or leave it out")


def _of_file(file: str) -> dict[str, str]:
    from foldlog.server.config.properties_file import has_secret_name, parse_properties

    try:
        text = Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidArgument(f"the properties in {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"the properties in {file} cannot be read: it is not UTF-8") from error
    try:
        given = parse_properties(text)
    except InvalidConfig as error:
        raise InvalidArgument(f"the properties in {file} cannot be read: {error}") from None
    mode, secret = open_to_others(file), next(filter(has_secret_name, given), None)
    if mode is not None and secret is not None:
        remark(f"foldlog: others can read {secret} in {file}: its mode is {mode}; chmod 600 keeps it to you")
    given.pop(_SAID_BY_B, None)  # many such files have it; here the command line names the cluster
    return given
