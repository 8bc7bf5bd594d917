"""Mutants by rule: one expression or statement of a module changed, as a slip of the hand would.

Comparisons, arithmetic, boolean operators, constants by one, branches swapped, statements removed. Left alone is what
changes nothing that a test should see: docstrings, annotations, log lines, the words of errors, __slots__, and what is
for type checkers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARED: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.GtE(),
    ast.GtE: ast.Gt(),
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
    ast.Is: ast.IsNot(),
    ast.IsNot: ast.Is(),
    ast.In: ast.NotIn(),
    ast.NotIn: ast.In(),
}
_CALCULATED: dict[type[ast.operator], ast.operator] = {
    ast.Add: ast.Sub(),
    ast.Sub: ast.Add(),
    ast.Mult: ast.FloorDiv(),
    ast.FloorDiv: ast.Mult(),
    ast.Mod: ast.FloorDiv(),
    ast.LShift: ast.RShift(),
    ast.RShift: ast.LShift(),
    ast.BitAnd: ast.BitOr(),
    ast.BitOr: ast.BitAnd(),
}
_UNTOUCHED = (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Assert)
_SAID = {"logger", "warnings", "say", "report", "logging"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of `file`: `before` at `line`, which reads `context`, becomes `after`. `at_import`: in no function."""

    file: str
    line: int
    kind: str
    before: str
    after: str
    context: str
    at_import: bool
    start: int
    end: int

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line} {self.kind}: {_short(self.before)} -> {_short(self.after)}"

    def text(self, source: str) -> str:
        """The whole file with the change."""
        data = source.encode()
        return (data[: self.start] + self.after.encode() + data[self.end :]).decode()


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 80 else words[:77] + "..."


def mutants_of(file: str, source: str) -> Iterator[Mutant]:
    """Every mutant of a module."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def place(node: ast.expr | ast.stmt) -> tuple[int, int]:
        last, column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        return starts[node.lineno - 1] + node.col_offset, starts[last - 1] + column

    tree = ast.parse(source)
    in_functions = _lines_in_functions(tree)
    for node, kind, after in _changes(tree):
        start, end = place(node)
        before = source.encode()[start:end].decode()
        if before != after:
            context = source.splitlines()[node.lineno - 1].strip()
            yield Mutant(file, node.lineno, kind, before, after, context, node.lineno not in in_functions, start, end)


def _changes(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.stmt, str, str]]:
    for node in _walked(tree):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARED:
            other = ast.Compare(node.left, [_COMPARED[type(node.ops[0])]], node.comparators)
            yield node, "comparison", f"({ast.unparse(other)})"
        elif isinstance(node, ast.BinOp) and type(node.op) in _CALCULATED and not _is_text(node):
            yield node, "arithmetic", f"({ast.unparse(ast.BinOp(node.left, _CALCULATED[type(node.op)], node.right))})"
        elif isinstance(node, ast.BoolOp):
            opposite = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield node, "boolean", f"({ast.unparse(ast.BoolOp(opposite, node.values))})"
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node, "boolean", f"({ast.unparse(node.operand)})"
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield node, "boolean", str(not node.value)
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            for by in (1, -1):
                yield node, "constant", f"({node.value + by})"
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            if not (isinstance(node, ast.If) and _names(node.test) & {"TYPE_CHECKING", "__name__"}):
                yield node.test, "branch", f"(not ({ast.unparse(node.test)}))"
        elif isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            yield node, "removed", "pass"
        elif isinstance(node, ast.Return) and node.value is not None and not _is_nothing(node.value):
            yield node.value, "returned", "None"


def _walked(node: ast.AST) -> Iterator[ast.AST]:
    """Every node below that may be changed."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and (isinstance(child.value, ast.Constant | ast.Yield) or _is_said(child.value)):
            continue
        if isinstance(child, _UNTOUCHED):
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            for part in child.body:
                yield from _from(part)
            for default in (*child.args.defaults, *child.args.kw_defaults):
                if default is not None:
                    yield from _from(default)
            continue
        if isinstance(child, ast.AnnAssign):
            if child.value is not None:
                yield from _from(child.value)
            continue
        if isinstance(child, ast.Assign) and _names(*child.targets) & {"__slots__", "__all__"}:
            continue
        yield child
        yield from _walked(child)


def _from(node: ast.AST) -> Iterator[ast.AST]:
    """The node itself, if it may be changed, and those below."""
    if isinstance(node, ast.expr):
        if not isinstance(node, _UNTOUCHED):
            yield node
            yield from _walked(node)
    elif isinstance(node, ast.stmt):
        yield from _walked(ast.Module([node], []))


def _is_said(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and bool(_names(node.func) & _SAID)


def _names(*nodes: ast.AST) -> set[str]:
    return {one.id for node in nodes for one in ast.walk(node) if isinstance(one, ast.Name)}


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(one, ast.JoinedStr) or (isinstance(one, ast.Constant) and isinstance(one.value, str | bytes))
        for one in (node.left, node.right)
    )


def _is_nothing(node: ast.expr) -> bool:
    """None, or False, which callers cannot tell from it."""
    return isinstance(node, ast.Constant) and node.value in (None, False)


def _lines_in_functions(tree: ast.Module) -> set[int]:
    """The lines that do not run when the module is imported."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for line in range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)
    }
