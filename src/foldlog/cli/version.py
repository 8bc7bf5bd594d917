"""`foldlog version`: what is installed here, which parts of it are compiled, and which extras are there."""

from __future__ import annotations

import argparse
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import foldlog
from foldlog.cli.exit_codes import DONE
from foldlog.cli.output import say
from foldlog.cli.tables import Column, add_format_option, print_table, show_json
from foldlog.environment import PURE_PYTHON

DESCRIPTION: Final = """\
The version of foldlog and of what it stands on. "foldlog --version" is the short form. Report this with a fault."""

REQUIRED: Final = ("crc32c", "cramjam", "h11", "uvloop")
EXTRAS: Final = {
    "kafka": ("confluent-kafka",),
    "arrow": ("pyarrow",),
    "spark": ("pyspark", "pyarrow", "pandas"),
    "views": ("tantivy", "duckdb", "deltalake", "psycopg", "pyarrow"),
    "iceberg": ("pyiceberg", "pyarrow"),
    "decoders": ("fastavro", "protobuf", "pyarrow"),
}
"""What `pip install 'foldlog[EXTRA]'` brings, by extra."""

COLUMNS: Final = (
    Column("extra", "EXTRA"),
    Column("state", "STATE"),
    Column("packages", "PACKAGES"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    add_format_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.format == "json":
        show_json(facts())
        return DONE
    say(f"foldlog {foldlog.__version__}, {kernels_text()}")
    say(f"Python {platform.python_version()} ({platform.python_implementation()}) on {platform.platform()}")
    say(f"with {_packages_text(REQUIRED)}")
    say("")
    rows = [
        {"extra": extra, "state": _state(packages), "packages": _packages_text(packages)}
        for extra, packages in EXTRAS.items()
    ]
    print_table(arguments, COLUMNS, rows)
    return DONE


def facts() -> dict[str, object]:
    """Everything, for programs. The version of a package that is not installed is null."""
    return {
        "version": foldlog.__version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "kernels": "compiled" if is_compiled() else "python",
        "requires": {package: installed_version(package) for package in REQUIRED},
        "extras": {
            extra: {package: installed_version(package) for package in packages} for extra, packages in EXTRAS.items()
        },
    }


def is_compiled() -> bool:
    from foldlog.records.loops import COMPILED

    return COMPILED


def kernels_text() -> str:
    if is_compiled():
        return "with compiled kernels"
    why = (
        "FOLDLOG_PURE_PYTHON asks for it"
        if PURE_PYTHON
        else "they were not built; install a C compiler and foldlog again"
    )
    return f"with its kernels in Python, which is slow: {why}"


def installed_version(package: str) -> str | None:
    """From what the installer noted: importing some of these takes seconds."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _state(packages: tuple[str, ...]) -> str:
    missing = [package for package in packages if installed_version(package) is None]
    if not missing:
        return "installed"
    return "not installed" if len(missing) == len(packages) else "incomplete"


def _packages_text(packages: tuple[str, ...]) -> str:
    return ", ".join(f"{package} {installed_version(package) or '(missing)'}" for package in packages)
