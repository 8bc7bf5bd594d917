"""The documentation cannot rot: its code runs, its commands exist, its tests exist, its links lead somewhere.

Every ```python block of README.md and docs/*.md is executed, in a process and an empty directory per file, one after
the other in one namespace. The only way out is a comment right before the block, `<!-- not run: reason -->`.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

import foldlog

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
BEHAVIOURS = DOCS / "reference" / "behaviours.md"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
BLOCKS_TIMEOUT_S = 120
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}

NODE_ID = re.compile(r"tests/[\w/]+\.py(?:::\w+)+")
NOT_RUN = re.compile(r"^<!-- not run: (?P<reason>.*\S) -->$")
OPTIONAL_TARGETS = {"help", "clean"}
INTERNAL_HOOKS = {"forked", "reached_through"}
"""Called by the package itself, public only because another module calls it."""

RUNNER = """
import json, sys
blocks = json.load(sys.stdin)
namespace = {"__name__": "__main__"}
for name, line, code in blocks:
    # Blank lines in front, so that a traceback names the line of the page.
    exec(compile("\\n" * (line - 1) + code, name, "exec"), namespace)
"""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, the page's line its code starts at, and why it is not run, if it is not."""

    language: str
    line: int
    code: str
    not_run: str | None


def page(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    blocks: list[Block] = []
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        opening = re.match(r"^(?P<indent> *)```(?P<language>\w*)", lines[number])
        number += 1
        if opening is None:
            continue
        start = number
        while number < len(lines) and not lines[number].strip().startswith("```"):
            number += 1
        indent = len(opening["indent"])
        code = "\n".join(line[indent:] for line in lines[start:number])
        before = [line.strip() for line in lines[: start - 1] if line.strip()]
        excuse = NOT_RUN.match(before[-1]) if before else None
        blocks.append(Block(opening["language"], start + 1, code, excuse["reason"] if excuse else None))
        number += 1
    return blocks


def code_pages() -> list[Path]:
    return [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]


@pytest.mark.parametrize("path", code_pages(), ids=lambda path: path.name)
def test_the_code_blocks_of_a_page_run(path: Path, tmp_path: Path) -> None:
    runnable = [
        (str(path), block.line, block.code)
        for block in blocks_of(page(path))
        if block.language == "python" and block.not_run is None
    ]
    if not runnable:
        return
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=json.dumps(runnable),
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=BLOCKS_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


def test_blocks_are_found_with_their_language_their_line_and_their_excuse() -> None:
    text = "a\n```python\nx = 1\ny = 2\n```\n<!-- not run: needs a cluster -->\n```python\nz()\n```\n```sh\nls\n```\n"
    assert blocks_of(text) == [
        Block("python", 3, "x = 1\ny = 2", None),
        Block("python", 8, "z()", "needs a cluster"),
        Block("sh", 11, "ls", None),
    ]


def glossary() -> list[tuple[str, str]]:
    """The words of ARCHITECTURE.md, each with what it means."""
    _, _, section = page(ROOT / "ARCHITECTURE.md").partition("\n## Words\n")
    section = re.split(r"^## ", section, maxsplit=1, flags=re.MULTILINE)[0]
    return re.findall(r"^- \*\*([^*]+)\*\*: (.+)$", section, flags=re.MULTILINE)


def test_the_glossary_has_each_word_once() -> None:
    words = [word for word, _ in glossary()]
    assert not [word for word in words if words.count(word) > 1]
    assert len(words) > 80
    assert all(word == word.strip() and not word[0].isupper() for word in words)


def test_the_glossary_says_each_in_a_line() -> None:
    assert not [f"{word}: {meaning}" for word, meaning in glossary() if len(meaning) > 110 or not meaning.endswith(".")]


def test_the_glossary_has_the_words_of_the_field() -> None:
    """Those that guarantees are made of."""
    of_the_field = {
        *("record", "batch", "segment", "partition", "topic", "offset", "log start offset", "log end offset"),
        *("durable offset", "high watermark", "leader epoch", "group", "member", "committed offset", "bookmark"),
        *("fold", "view", "rewind", "rebuild"),
    }
    assert of_the_field <= {word for word, _ in glossary()}


def modules_with_examples() -> list[str]:
    source = ROOT / "src"
    paths = [path for path in sorted(source.rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")]
    dotted = [".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__") for path in paths]
    return [name for name in dotted if not name.endswith("__main__")]


@pytest.mark.parametrize("name", modules_with_examples())
def test_the_examples_in_the_docstrings_are_true(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0, "run: python -m doctest on the module, or read the output above"


def public_callables(cls: type) -> list[str]:
    """The methods and properties that a class itself defines for its users."""
    return [
        name
        for name, member in vars(cls).items()
        if not name.startswith("_") and (callable(member) or isinstance(member, property | classmethod | staticmethod))
    ]


def test_everything_foldlog_exports_explains_itself() -> None:
    silent = []
    for exported in foldlog.__all__:
        thing = getattr(foldlog, exported)
        if isinstance(thing, str | ModuleType):
            continue
        if not inspect.getdoc(thing):
            silent.append(exported)
        if isinstance(thing, type):
            silent += [
                f"{exported}.{name}" for name in public_callables(thing) if not inspect.getdoc(getattr(thing, name))
            ]
    silent += [name for name, error in vars(foldlog.errors).items() if isinstance(error, type) and not error.__doc__]
    assert not silent, f"no docstring: {silent}"


def test_what_people_call_shows_an_example() -> None:
    """`open`, and every method of what it leads to."""
    unshown = [] if ">>> " in (inspect.getdoc(foldlog.open) or "") else ["open"]
    for cls in (foldlog.Log, foldlog.Producer, foldlog.Consumer):
        unshown += [
            f"{cls.__name__}.{name}"
            for name in public_callables(cls)
            if name not in INTERNAL_HOOKS and ">>> " not in (inspect.getdoc(getattr(cls, name)) or "")
        ]
    assert not unshown, f"no example: {unshown}"


def make_targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][a-z-]*):", makefile, flags=re.MULTILINE))


def commands_in(text: str) -> str:
    """What a page gives to type: its fenced blocks, but for those of mere text, and its `code` words."""
    fenced = "\n".join(block.code for block in blocks_of(text) if block.language != "text")
    return fenced + "\n" + "\n".join(re.findall(r"`([^`\n]+)`", text))


def test_the_readme_names_exactly_the_make_targets_that_exist() -> None:
    named = set(re.findall(r"^\s*\$?\s*make ([a-z][a-z-]*)", commands_in(page(ROOT / "README.md")), flags=re.MULTILINE))
    assert named <= make_targets(), f"there is no make {named - make_targets()}"
    assert make_targets() - OPTIONAL_TARGETS <= named, f"unnamed: {make_targets() - OPTIONAL_TARGETS - named}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_page_names_only_make_targets_that_exist(path: Path) -> None:
    named = set(re.findall(r"^\s*\$?\s*make ([a-z][a-z-]*)", commands_in(page(path)), flags=re.MULTILINE))
    assert named <= make_targets()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_nothing_stands_for_what_was_to_be_written(path: Path) -> None:
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)", "", page(path))
    left = re.findall(r"\b[A-Z]{3,}_[A-Z_]+\b|\bTBD\b|\bTODO\b|lorem ipsum", prose)
    assert not left, f"{path.name} still holds {left}"


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: path.name)
def test_every_page_says_first_whom_it_is_for(path: Path) -> None:
    said = page(path).partition("\n\n")[2]
    wanted = "**One durable log." if path == DOCS / "index.md" else "For "
    assert said.startswith(wanted), f"{path.name} begins with {said[:60]!r}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_and_paths_lead_to_files_that_exist(path: Path) -> None:
    text = page(path)
    links = [target.split("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]
    named = re.findall(r"`((?:src/foldlog|tests|docs|scripts|bench|demo)/[\w./-]+?)(?:::\w+)*`", text)
    gone = [link for link in links if link and not (path.parent / link).exists()]
    gone += [name for name in named if not (ROOT / name).exists()]
    assert not gone, f"{path.name} names what is not there: {gone}"


def test_the_architecture_names_only_modules_that_exist() -> None:
    named = re.findall(r"`(\w+/[\w/]+\.(?:py|pyx))`", page(ROOT / "ARCHITECTURE.md"))
    places = (ROOT / "src" / "foldlog", ROOT)
    gone = [name for name in named if not any((place / name).exists() for place in places)]
    assert named
    assert not gone


def rows(text: str) -> list[tuple[str, str]]:
    """(behaviour, test column) of every row of a table whose second column is headed 'test'."""
    found: list[tuple[str, str]] = []
    inside = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            inside = False
        elif len(cells) >= 2 and cells[1] == "test":
            inside = True
        elif inside and not set(cells[0]) <= {"-", ":", " "}:
            found.append((cells[0], cells[-1]))
    return found


def functions_of(path: Path) -> set[str]:
    """`name` of every function and `Class::name` of every method."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names.add(node.name)
            names |= {f"{node.name}::{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
        elif isinstance(node, ast.Assign):
            # A stateful machine's TestCase is a test by assignment.
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def test_every_behaviour_names_tests_that_exist() -> None:
    missing = []
    for behaviour, column in rows(page(BEHAVIOURS)):
        ids = NODE_ID.findall(column)
        if not ids:
            missing.append(f"no test: {behaviour}")
        for node_id in ids:
            file, _, name = node_id.partition("::")
            if not (ROOT / file).exists() or name not in functions_of(ROOT / file):
                missing.append(node_id)
    assert not missing, missing


def test_every_behaviour_test_stands_in_the_list() -> None:
    listed = set(NODE_ID.findall(page(BEHAVIOURS)))
    unlisted = [
        f"{path.relative_to(ROOT).as_posix()}::{name}"
        for path in sorted((ROOT / "tests" / "behaviours").glob("test_*.py"))
        for name in sorted(functions_of(path))
        if name.startswith("test_")
    ]
    unlisted = [node_id for node_id in unlisted if node_id not in listed]
    assert not unlisted, f"docs/reference/behaviours.md does not name {unlisted}"


def test_every_sub_command_is_documented() -> None:
    commands = importlib.import_module("foldlog.cli.commands").COMMANDS
    text = "\n".join(path.read_text(encoding="utf-8") for path in PAGES if path.exists())
    undocumented = [name for name in commands if f"foldlog {name}" not in text]
    assert not undocumented, f"say in the docs what 'foldlog {undocumented[0]}' does: {undocumented}"


def test_every_topic_setting_is_documented() -> None:
    settings = importlib.import_module("foldlog.broker.topics.config").TOPIC_SETTINGS
    text = page(DOCS / "reference" / "settings.md")
    undocumented = [name for name in settings if f"`{name}`" not in text]
    assert not undocumented, f"no word about {undocumented}"
