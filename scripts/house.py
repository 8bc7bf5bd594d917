"""Print the figures of the house: files, lines, imports, importers, folders, names, complexity, repetition, paths.

Counts what stands under src/foldlog; messages that are generated count as files and lines, and in nothing else.

    python scripts/house.py              the table
    python scripts/house.py --list NAME  what is behind one figure
"""

from __future__ import annotations

import argparse
import ast
import io
import keyword
import sys
import tempfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "foldlog"
PAIR_LINES = 6
"""Two places with this many lines of one shape after each other are a pair."""

COMMON_PLACES = 8


@cache
def modules() -> dict[str, Path]:
    """Every module by its dotted name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def is_generated(path: Path) -> bool:
    return "messages" in path.parts


def written() -> dict[str, Path]:
    """Those that people wrote."""
    return {name: path for name, path in modules().items() if not is_generated(path)}


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


def lines_of(path: Path) -> int:
    return len(text_of(path).splitlines())


def relative(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


# --- imports ----------------------------------------------------------------------------------------------------------


def imports(path: Path) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node


def import_lines() -> int:
    return sum(
        (node.end_lineno or node.lineno) - node.lineno + 1 for path in written().values() for node in imports(path)
    )


def imported(path: Path) -> set[str]:
    """The modules of ours that a module names, also for types only and inside functions."""
    found: set[str] = set()
    for node in imports(path):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        found.update(name for name in names if name in modules())
    return found


def single_importers() -> list[str]:
    """Modules under 150 lines that exactly one other module imports."""
    importers = defaultdict(set)
    for name, path in modules().items():
        for one in imported(path) - {name}:
            importers[one].add(name)
    return sorted(
        f"{relative(path)} ({lines_of(path)} lines) <- {relative(modules()[next(iter(importers[name]))])}"
        for name, path in written().items()
        if len(importers[name]) == 1 and lines_of(path) < 150 and path.name != "__init__.py"
    )


# --- folders, names, complexity ---------------------------------------------------------------------------------------


def folders() -> list[tuple[int, str]]:
    """Modules in each folder, the fullest first; messages and handlers apart, as there is one for each API."""
    counts = Counter(
        relative(path.parent)
        for path in written().values()
        if path.name != "__init__.py" and "handlers" not in path.parts
    )
    return sorted(((count, folder) for folder, count in counts.items()), reverse=True)


def repeated_classes() -> list[str]:
    """Public classes that share a name."""
    places = defaultdict(list)
    for path in written().values():
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(relative(path))
    return sorted(f"{name}: {', '.join(where)}" for name, where in places.items() if len(where) > 1)


BRANCHES = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler)


def complexity(function: ast.AST) -> int:
    """McCabe's number: one, and one for each way that the function can part."""
    total = 1
    for node in ast.walk(function):
        if isinstance(node, BRANCHES):
            total += 1
        elif isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            total += 1 + len(node.ifs)
        elif isinstance(node, ast.Match):
            total += len(node.cases) - 1
    return total


def complexities() -> list[tuple[int, str]]:
    found = [
        (complexity(node), f"{relative(path)}::{node.name}")
        for path in written().values()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return sorted(found, reverse=True)


# --- repetition -------------------------------------------------------------------------------------------------------


def import_numbers(path: Path) -> set[int]:
    return {number for node in imports(path) for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def declarations(path: Path) -> set[int]:
    """The lines that only declare: imports, docstrings, fields, constants and their tables, signatures, decorators."""
    found = import_numbers(path)
    for node in ast.walk(tree_of(path)):
        if is_declaration(node):
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            found.update(range(first, node.body[0].lineno))
    return found


def is_declaration(node: ast.AST) -> TypeGuard[ast.stmt]:
    """A field or a constant that calls nothing (but `field` and the like), a text on its own, `...` and `pass`."""
    if isinstance(node, ast.AnnAssign | ast.Assign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        is_name = all(isinstance(target, ast.Name) for target in targets)
        return is_name and (node.col_offset == 0 or (isinstance(node, ast.AnnAssign) and not has_work(node.value)))
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def has_work(value: ast.expr | None) -> bool:
    calls = [node for node in ast.walk(value or ast.Constant(None)) if isinstance(node, ast.Call)]
    return any(not (isinstance(call.func, ast.Name) and call.func.id == "field") for call in calls)


def shapes(path: Path, *, with_declarations: bool) -> list[tuple[int, str]]:
    """The lines of code with their numbers: names, texts and numbers replaced, comments, imports and docstrings left
    out, and unless they are wanted all that only declares."""
    skipped = declarations(path) if not with_declarations else import_numbers(path)
    lines: dict[int, list[str]] = defaultdict(list)
    for token in tokenize.generate_tokens(io.StringIO(text_of(path)).readline):
        if token.type == tokenize.NAME:
            word = token.string if keyword.iskeyword(token.string) else "a"
        elif token.type == tokenize.STRING:
            word = "''"
        elif token.type == tokenize.NUMBER:
            word = "0"
        elif token.type == tokenize.OP:
            word = token.string
        else:
            continue
        if token.start[0] not in skipped:
            lines[token.start[0]].append(word)
    # A docstring is a line that is one text. Brackets alone say nothing, nor does an argument that is only a name.
    silent = [["''"]] if with_declarations else [["''"], ["a", ","]]
    return [
        (number, " ".join(words))
        for number, words in sorted(lines.items())
        if any(word not in "()[]{},:" for word in words) and words not in silent
    ]


def pairs(*, with_declarations: bool = False) -> list[str]:
    """Two files, or places of one, with PAIR_LINES or more lines of one shape after each other, and where they begin.

    Lines that only declare are left out: imports, docstrings, fields and constants, signatures, decorators, arguments
    that are a name on a line of its own. They are alike wherever something is declared, and nobody could share them.
    What stands in over COMMON_PLACES places is how this house writes, and nobody's copy.
    """
    windows: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for path in written().values():
        found = shapes(path, with_declarations=with_declarations)
        for index in range(len(found) - PAIR_LINES + 1):
            shape = tuple(shape for _, shape in found[index : index + PAIR_LINES])
            windows[shape].append((relative(path), found[index][0]))
    together: dict[tuple[str, str], tuple[int, int]] = {}
    for places in windows.values():
        if len(places) <= COMMON_PLACES:
            for (one, at), (other, there) in combinations(places, 2):
                if one != other or there - at >= PAIR_LINES:
                    together.setdefault((one, other), (at, there))
    return sorted(f"{one}:{at} ~ {other}:{there}" for (one, other), (at, there) in together.items())


# --- paths ------------------------------------------------------------------------------------------------------------


def paths() -> list[tuple[str, int, int, list[str]]]:
    """What an append, a produce request and a woken fetch enter: files, switches between them, the files."""
    sys.path.insert(0, str(ROOT / "tests"))
    import traced_paths

    found = []
    for trace in (traced_paths.append, traced_paths.produce_request, traced_paths.woken_fetch):
        with tempfile.TemporaryDirectory() as directory:
            traced = trace(Path(directory) / "log")
        found.append((trace.__name__, len(traced.files), traced.switches, traced.files))
    return found


# --- what is printed --------------------------------------------------------------------------------------------------


def table() -> Iterator[tuple[str, str]]:
    lines = sum(lines_of(path) for path in modules().values())
    by_hand = sum(lines_of(path) for path in written().values())
    yield "files", f"{len(modules())} ({len(written())} written by hand)"
    yield "lines", f"{lines} ({by_hand} written by hand)"
    yield "lines that import", f"{import_lines()} ({100 * import_lines() / by_hand:.1f} %)"
    yield "modules under 150 lines with one importer", str(len(single_importers()))
    yield (
        "folders with over 20 modules",
        ", ".join(f"{name} {count}" for count, name in folders() if count > 20) or "none",
    )
    for name, files, switches, _ in paths():
        yield f"path of {name}", f"{files} files, {switches} switches"
    yield "names that several public classes have", str(len(repeated_classes()))
    yield (
        f"pairs of files with {PAIR_LINES} or more lines of one shape",
        f"{len(pairs())} in code that does something ({len(pairs(with_declarations=True))} with what only declares)",
    )
    yield "worst complexity", "{} in {}".format(*complexities()[0])


LISTS: dict[str, Callable[[], Iterator[str]]] = {
    "single-importers": lambda: iter(single_importers()),
    "folders": lambda: (f"{count:4} {folder}" for count, folder in folders()),
    "names": lambda: iter(repeated_classes()),
    "pairs": lambda: iter(pairs()),
    "complex": lambda: (f"{count:4} {where}" for count, where in complexities()[:30]),
    "paths": lambda: (f"{name}: {' → '.join(files)}" for name, _, _, files in paths()),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the figures of the house.")
    parser.add_argument("--list", choices=LISTS, help="what is behind one of them")
    wanted = parser.parse_args().list
    if wanted is not None:
        print(*LISTS[wanted](), sep="\n")
        return
    rows = list(table())
    width = max(len(name) for name, _ in rows)
    for name, figure in rows:
        print(f"{name:{width}}  {figure}")


if __name__ == "__main__":
    main()
