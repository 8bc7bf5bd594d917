"""Writes docs/reference/python.md: what `foldlog`, its `spark`, `capture` and `testing` offer, from their docstrings.

    python scripts/write_python_reference.py            # write it
    python scripts/write_python_reference.py --check    # exit with 1 if it is not what would be written

Signatures and docstrings are taken as they are; nothing is written here that is not said there. A test runs the check,
so the page cannot be stale, and another runs the examples.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, ForwardRef

import foldlog
import foldlog.capture
import foldlog.spark
import foldlog.testing
from foldlog import errors

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "python.md"
WIDTH: Final = 100
HEADING: Final = """\
# Python: every class and function

For Python programmers: what `help()` says of each class and function. Written by
`scripts/write_python_reference.py`.

- [foldlog](#foldlog): [open](#foldlogopen), [connect](#foldlogconnect), [Log](#foldloglog),
  [Producer](#foldlogproducer), [Consumer](#foldlogconsumer), [Record](#foldlogrecord), [errors](#foldlogerrors)
- [foldlog.spark](#foldlogspark): folds and views; [Spark](../spark.md) has `format("foldlog")`, its options and columns
- [foldlog.capture](#foldlogcapture): a database's own log as topics; [Capture](../capture.md)
- [foldlog.testing](#foldlogtesting): the broker for tests; [Testing](../testing.md) has the fixtures
"""

FIRST: Final = ("open", "connect", "Log", "Producer", "Consumer", "Record")
"""What people meet first stands first; the rest follows by name."""

VALUES: Final = {"Record", "RecordMetadata", "TopicPartition"}
"""Classes that are no more than their fields, beside dataclasses."""

ANOTHER_NAME: Final = "Another name of [Log](#foldloglog), from when a cluster's log was a class of its own."


def reference() -> str:
    """The page."""
    return "\n".join([HEADING, *_foldlog(), *_spark(), *_capture(), *_testing()]).rstrip() + "\n"


def _foldlog() -> Iterator[str]:
    yield "## foldlog\n"
    names = [name for name in foldlog.__all__ if name not in ("__version__", "errors", *FIRST)]
    for name in (*FIRST, *names):
        thing = _pure(getattr(foldlog, name))
        if name == "KafkaLog":
            yield f"### foldlog.{name}\n\n{ANOTHER_NAME}\n"
        else:
            yield from _entry(f"foldlog.{name}", thing)
    yield "### foldlog.errors\n\nEverything that is raised on purpose, each below what it derives from.\n"
    yield from _errors(errors.FoldlogError, 0)
    yield ""


def _spark() -> Iterator[str]:
    yield "## foldlog.spark\n\n`import foldlog.spark as fl`. [Folds](../folds.md), [Views](../views.md).\n"
    for name in sorted(foldlog.spark.__all__, key=str.lower):
        if name != "META":
            yield from _entry(f"fl.{name}", getattr(foldlog.spark, name))


def _capture() -> Iterator[str]:
    yield "## foldlog.capture\n"
    for name in foldlog.capture.__all__:
        yield from _entry(f"foldlog.capture.{name}", getattr(foldlog.capture, name))


def _testing() -> Iterator[str]:
    yield "## foldlog.testing\n"
    for name in foldlog.testing.__all__:
        thing = getattr(foldlog.testing, name)
        if thing.__name__ == name:  # `Broker` is KafkaBroker's short name
            yield from _entry(f"foldlog.testing.{name}", thing)


def _errors(error: type, depth: int) -> Iterator[str]:
    yield f"{'    ' * depth}- **{error.__name__}**: {_paragraphs(inspect.getdoc(error) or '')[0]}"
    for inner in sorted(error.__subclasses__(), key=lambda one: one.__name__):
        if inner.__module__.startswith(errors.__name__):
            yield from _errors(inner, depth + 1)


# --- one thing ------------------------------------------------------------------------------------------------------


def _entry(name: str, thing: Any) -> Iterator[str]:
    signature = f"{_signature(name.rpartition('.')[2], thing)}\n" if _is_made_by_users(thing) else ""
    yield f"### {name}\n\n{signature}{_described(thing)}"
    if isinstance(thing, type):
        for inner, member in _members(thing):
            yield _member(thing, inner, member)


def _is_made_by_users(thing: Any) -> bool:
    """Functions, and values that are no more than their fields; other objects are given out by methods."""
    is_value = hasattr(thing, "__dataclass_fields__") or thing.__name__ in VALUES
    return not isinstance(thing, type) or is_value


def _members(cls: type) -> list[tuple[str, Any]]:
    """Methods and properties, also those of the package's own base classes; an overridden one where it is newest."""
    found: dict[str, Any] = {}
    for base in reversed([base for base in cls.__mro__ if base.__module__.partition(".")[0] == "foldlog"]):
        found.update({name: member for name, member in vars(base).items() if not name.startswith("_")})
    fields = getattr(cls, "__dataclass_fields__", {})
    return sorted(
        (name, member)
        for name, member in found.items()
        if name not in fields
        and (inspect.isfunction(member) or isinstance(member, property | classmethod | staticmethod))
    )


def _member(cls: type, name: str, member: Any) -> str:
    called = f"{cls.__name__}.{name}"
    if isinstance(member, property):
        return f"#### {called}\n\n{_described(member)}"
    function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
    return f"#### {called}\n\n{_signature(name, function)}\n{_described(function)}"


def _pure(thing: Any) -> Any:
    """The Python twin of a compiled class: the same for its users, and it knows its own signatures."""
    module = f"{getattr(thing, '__module__', '')}_py"
    if isinstance(thing, type) and importlib.util.find_spec(module) is not None:
        return getattr(importlib.import_module(module), thing.__name__)
    return thing


# --- signatures and docstrings --------------------------------------------------------------------------------------


def _signature(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    parameters = [one for one in signature.parameters.values() if one.name not in ("self", "cls")]
    words = [_parameter(one) for one in parameters]
    for number, parameter in enumerate(parameters):
        if parameter.kind is parameter.VAR_POSITIONAL:
            break
        if parameter.kind is parameter.KEYWORD_ONLY:
            words.insert(number, "*")
            break
    gives = "" if signature.return_annotation in (signature.empty, "None", None) else signature.return_annotation
    end = f") -> {_annotation(gives)}" if gives and not isinstance(function, type) else ")"
    line = f"{name}({', '.join(words)}{end}"
    if len(line) > WIDTH:
        line = f"{name}(\n" + "".join(f"    {word},\n" for word in words) + end
    return f"```python\n{line}\n```\n"


def _parameter(parameter: inspect.Parameter) -> str:
    star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    word = f"{star}{parameter.name}"
    if parameter.annotation is not parameter.empty:
        word += f": {_annotation(parameter.annotation)}"
    if parameter.default is parameter.empty:
        return word
    equals = " = " if parameter.annotation is not parameter.empty else "="
    is_shown = parameter.default is not ... and not repr(parameter.default).startswith("<")
    return f"{word}{equals}{parameter.default!r}" if is_shown else f"{word}{equals}..."


def _annotation(annotation: Any) -> str:
    if isinstance(annotation, ForwardRef):
        return annotation.__forward_arg__
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _described(thing: Any) -> str:
    """A docstring as Markdown: prose as it is, examples in blocks."""
    parts: list[str] = []
    for paragraph in _paragraphs(inspect.getdoc(thing) or ""):
        if paragraph.lstrip().startswith(">>>"):
            parts.append(f"```pycon\n{paragraph}\n```")
        else:
            parts.append(_outside_code(paragraph))
    return "\n\n".join(parts) + "\n"


def _paragraphs(text: str) -> list[str]:
    return [part.strip("\n") for part in re.split(r"\n\s*\n", text) if part.strip()] or [""]


def _outside_code(text: str) -> str:
    """Angle brackets of prose are no tags."""
    parts = text.split("`")
    return "`".join(part if number % 2 else part.replace("<", "&lt;") for number, part in enumerate(parts))


def main(arguments: list[str]) -> int:
    text = reference()
    if "--check" in arguments:
        is_current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        print(f"{PAGE} is {'current' if is_current else 'stale: run scripts/write_python_reference.py'}")
        return 0 if is_current else 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
