"""`foldlog version`: what is installed here, which parts of it are compiled, and which extras are installed."""

from __future__ import annotations

import platform
import textwrap
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import foldlog
from foldlog.cli.exit_codes import DONE
from foldlog.cli.output import remark, say
from foldlog.cli.parsing import Arguments, command
from foldlog.cli.tables import Column, format_option, print_table, show_json
from foldlog.environment import PURE_PYTHON

DESCRIPTION: Final = """\
Shows the versions of foldlog, Python and the packages that foldlog uses. "foldlog --version" is the short form.
Include this when you report a bug."""

REQUIRED: Final = ("click", "crc32c", "cramjam", "google-re2", "h11", "rich", "uvloop")
EXTRAS: Final = {
    "kafka": ("confluent-kafka",),
    "arrow": ("pyarrow",),
    "spark": ("pyspark", "pyarrow", "pandas"),
    "views": ("tantivy", "duckdb", "deltalake", "psycopg", "pyarrow", "obstore"),
    "tier": ("obstore",),
    "capture": ("psycopg",),
    "mysql": ("PyMySQL",),
    "iceberg": ("pyiceberg", "pyarrow"),
    "decoders": ("fastavro", "protobuf", "pyarrow"),
    "registry": ("fastavro", "jsonschema", "protobuf"),
    "sql": ("sqlglot",),
    "lineage": ("openlineage-python",),
    "oauth": ("PyJWT",),
    "secure": ("cryptography",),
}
"""The packages of `pip install 'foldlog[EXTRA]'`, by extra."""

_MISSING: Final = "(missing)"
_WIDTH: Final = 80
_GLUE: Final = "\N{NO-BREAK SPACE}"

COLUMNS: Final = (
    Column("extra", "EXTRA"),
    Column("packages", "PACKAGES"),
)


@command(format_option(), description=DESCRIPTION)
def run(arguments: Arguments) -> int:
    if arguments.format == "json":
        show_json(facts())
        return DONE
    say(f"foldlog {foldlog.__version__}, {kernels_text()}")
    say(f"Python {platform.python_version()} ({platform.python_implementation()}) on {platform.platform()}")
    for line in _lines(f"with {_packages_text(REQUIRED)}", _WIDTH):
        say(line)
    say("")
    # Most extras include pyarrow: the table shows it once.
    rows = [
        {"extra": " " if number else extra, "packages": line}
        for extra, packages in EXTRAS.items()
        for number, line in enumerate(
            _lines(
                _packages_text([each for each in packages if extra == "arrow" or each != "pyarrow"]),
                _WIDTH - max(map(len, EXTRAS)) - 2,
            )
        )
    ]
    print_table(arguments, COLUMNS, rows)
    if any(_MISSING in row["packages"] for row in rows):
        remark("to install an extra: pip install 'foldlog[EXTRA]'")
    return DONE


def _lines(packages: str, width: int) -> list[str]:
    """Of at most that width; none ends between a package and its version."""
    glued = packages.replace(" ", _GLUE).replace(f",{_GLUE}", ", ")
    return [line.replace(_GLUE, " ") for line in textwrap.wrap(glued, width)]


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
    """From the installer's metadata: importing some of these takes seconds."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _packages_text(packages: Iterable[str]) -> str:
    return ", ".join(f"{package} {installed_version(package) or _MISSING}" for package in packages)
