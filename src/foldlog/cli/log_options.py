"""Which log a command opens: -d DIR for a directory, -b HOST:PORT for a broker, and how either is opened.

A directory that a broker serves is accessed through that broker, and one without a writer is opened here: the user need
not know which it is. Reading takes no lock, so it also works beside a writer that accepts no connections. A directory
that Apache Kafka wrote is only read, and so is a store of segments, named by its URL.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import foldlog
from foldlog.cli.client_properties import client_properties, property_options, refuse_properties
from foldlog.cli.parsing import Arguments, Option, in_section, one_of, option, switch
from foldlog.errors import InvalidArgument, LogNotFound
from foldlog.files.paths import is_store_url

if TYPE_CHECKING:
    from foldlog.client.log import Log

SCHEME: Final = "kafka://"
ISOLATION_LEVEL: Final = "isolation.level"
READ_UNCOMMITTED: Final = "read_uncommitted"
"""Kafka's default, for clusters and directories alike."""

ISOLATION_LEVELS: Final = (READ_UNCOMMITTED, "read_committed")

UNSERVED: Final = "that no broker serves"

_NOWHERE: Final = "say where the log is: -d DIR or -b HOST:PORT, or set FOLDLOG_DIR or FOLDLOG_BOOTSTRAP_SERVER"


def log_options(*, is_for_brokers: bool = True) -> list[Option]:
    """-d, -b, -X and --command-config, in their own section of the help.

    A command that works only on files hides the options for brokers: it refuses them with its own message.
    """
    about = "a data directory" if is_for_brokers else f"a data directory {UNSERVED}"
    return in_section(
        "where the log is",
        *one_of(
            option("-d", "--dir", dest="directory", metavar="DIR", told=about),
            option(
                "-b",
                "--bootstrap-server",
                dest="bootstrap",
                metavar="HOST:PORT[,…]",
                told="a broker: foldlog's, or any Kafka",
                is_hidden=not is_for_brokers,
            ),
        ),
        *property_options(is_hidden=not is_for_brokers),
    )


def isolation_option() -> Option:
    """For the commands that print records; see `open_log`."""
    return option(
        "--isolation",
        metavar="LEVEL",
        choices=ISOLATION_LEVELS,
        told="read_committed: no records of aborted transactions, and none behind an open one (default:"
        " read_uncommitted)",
    )


def init_option() -> Option:
    """For the commands that create a log if there is none."""
    return switch("--init", told="create the log even in a directory that holds something else")


@contextmanager
def open_log(arguments: Arguments, *, write: bool, make: bool = False) -> Iterator[Log]:
    """The log that the options name, closed at the end of the block.

    With `write`, this process becomes the writer of a directory that is not served. A directory without a log is
    LogNotFound, unless `make` is set, which creates one.
    """
    # A file of properties may be set once for all commands; a directory does not use it.
    file = None if arguments.directory else arguments.command_config
    properties = client_properties(arguments.properties, file)
    if getattr(arguments, "isolation", None) is not None:
        properties[ISOLATION_LEVEL] = arguments.isolation
    init = make and arguments.init
    with open_named(arguments.directory, arguments.bootstrap, properties, write=write, make=make, init=init) as log:
        yield log


@contextmanager
def open_named(
    directory: str | None,
    bootstrap: str | None,
    properties: Mapping[str, str] | None = None,
    *,
    write: bool,
    make: bool = False,
    init: bool = False,
) -> Iterator[Log]:
    """The log that other options name: a directory or a broker, not both."""
    if directory:
        log: Log = _open_directory(directory, write, make, properties or {}, init)
    elif bootstrap:
        log = foldlog.connect(broker_url(bootstrap), properties=properties)
    else:
        raise InvalidArgument(_NOWHERE)
    with log:
        yield log


def broker_url(bootstrap: str) -> str:
    """The URL for -b, which is never a path. InvalidArgument in terms of what was typed.

    >>> broker_url("one:9092,two:9092")
    'kafka://one:9092,two:9092'
    """
    if bootstrap.startswith(SCHEME):
        return bootstrap
    addresses = bootstrap.partition("?")[0].removesuffix("/")  # the properties may contain a password
    if "/" in addresses:
        raise InvalidArgument(
            f"{addresses.rpartition('@')[2]!r} is not a broker's address, which is HOST:PORT or kafka://HOST:PORT"
        )
    return SCHEME + bootstrap


def is_kafkas(path: str) -> bool:
    """Whether Apache Kafka wrote the directory."""
    from foldlog.broker.kafka_files.directory import find_kafka
    from foldlog.files.posix import PosixFiles

    return find_kafka(PosixFiles(), path.rstrip("/") or "/") is not None


def _open_directory(path: str, write: bool, make: bool, properties: Mapping[str, str], init: bool) -> Log:
    from foldlog.broker.data_directory import check_path, refuse_unmakable, writer_of
    from foldlog.broker.kafka_files.directory import find_kafka, refuse_kafka
    from foldlog.broker.topics.catalog import CATALOG_NAME
    from foldlog.files.posix import PosixFiles

    if is_store_url(path):
        if write:
            raise InvalidArgument(
                f"{path} is a store of segments, which is only read; name the log's directory with -d"
            )
        refuse_properties(name for name in properties if name != ISOLATION_LEVEL)
        return foldlog.open(path, mode="r", isolation_level=properties.get(ISOLATION_LEVEL, READ_UNCOMMITTED))
    check_path(path)
    plain = path.rstrip("/") or "/"
    kafka = find_kafka(PosixFiles(), plain)
    refuse_properties(name for name in properties if name != ISOLATION_LEVEL)
    level = properties.get(ISOLATION_LEVEL, READ_UNCOMMITTED)
    if kafka is not None:
        if write:
            refuse_kafka(PosixFiles(), plain)
        return foldlog.open(plain, mode="r", isolation_level=level)
    if not make and not os.path.exists(os.path.join(plain, CATALOG_NAME)):
        refuse_unmakable(PosixFiles(), plain)
        raise LogNotFound(
            f"there is no log in {plain}; name the directory that holds its catalog.json, or make one there with"
            f" 'foldlog topic create{_init_word(plain)}'"
        )
    if not write:
        writer = writer_of(PosixFiles(), plain)
        if writer is None or writer.address is None:
            return foldlog.open(plain, mode="r", isolation_level=level)
    # If a broker serves the directory, this reads its files and asks the broker for everything else.
    return foldlog.open(plain, isolation_level=level, init=init)


def _init_word(path: str) -> str:
    """The option needed to create a log in that directory: none if it is empty or does not exist."""
    try:
        return " --init" if os.listdir(path) else ""
    except OSError:
        return ""
