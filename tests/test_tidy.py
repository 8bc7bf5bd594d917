"""The habits of the code, checked: every rule here is one sentence, and a failure lists every place that breaks it.

Reads the sources with `ast`; nothing is imported, so a broken module is judged like any other.
"""

from __future__ import annotations

import ast
import gc
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "foldlog"

MODULE_LINES_MAX = 1000
FUNCTION_LINES_MAX = 70

LONG_MODULES: dict[str, str] = {}
"""Modules that may be longer, each with the reason. A reason that fits many modules is a reason to split one."""

LONG_FUNCTIONS: dict[str, str] = {}
"""Functions that may be longer, as `path::name`, each with the reason."""

COMPLEXITY_MAX = 20

COMPLEX_FUNCTIONS: dict[str, str] = {}
"""Functions that may part in more ways, as `path::name`, each with the reason."""

BRANCHES = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler)

FOLDER_MODULES_MAX = 20

SMALL_MODULE_LINES = 150

SMALL_MODULES: dict[str, str] = {
    "broker/access/buckets.py": "the maths of quotas, without a clock and sockets",
    "broker/groups/consumer/migration.py": "how a group changes its protocol, as pure functions",
    "broker/kafka_files/settings.py": "reads the KRaft metadata log, a format of its own",
    "broker/kafka_files/storage.py": "loaded only where a directory is Apache Kafka's",
    "broker/producer_ids.py": "blocks of ids, in a file format of its own",
    "broker/share/assignor.py": "who takes from which partitions, as a pure function",
    "capture/from_mysql/catalog.py": "what the server's catalog says of tables, beside what its binlog says",
    "capture/from_mysql/json_binary.py": "a format of MySQL's own, as pure functions",
    "capture/from_mysql/replication.py": "the connection and its positions, beside what events mean",
    "capture/from_mysql/settings.py": "what a server is set to, and why that does not do",
    "capture/from_mysql/statements.py": "what DDL does to tables, as pure functions of texts",
    "capture/from_postgres/catalog.py": "what the server's catalog says of tables, beside what its stream says",
    "capture/from_sqlite/triggers.py": "statements and what they leave, as pure functions",
    "cli/fold/graph.py": "a verb of its own, and what rewinds and rebuilds ask of the graph",
    "spark/watch/schema_versions.py": "a watch of its own, beside those of metrics and lineage",
    "broker/stored.py": "loaded only where a store is read without its directory",
    "log/tier/stored.py": "the one partition without files, loaded with the storage that needs it",
    "cli/files/check_store.py": "asks the network, where the rest of the check reads files",
    "log/tier/cache.py": "blocks that several readers wait for, without what is in them",
    "server/schema_guard.py": "what the registry asks of other clients, beside what folds ask",
    "client/backends/cluster/queue.py": "one of the three ways to take records, loaded where it is used",
    "client/backends/cluster/reading.py": "one partition of a cluster as records, or its tail",
    "client/backends/cluster/tables.py": "Arrow tables of a cluster, loaded with pyarrow only",
    "client/backends/cluster/wire.py": "lends our own connections beside those of librdkafka",
    "client/backends/served/backend.py": "one of the three backends, and whole",
    "client/copy/directory.py": "one of the two sides that a copy can have",
    "client/copy/growths.py": "when a topic has grown, decided without any I/O",
    "client/copy/parallel.py": "the threads of a copy, whatever they do with a partition",
    "client/queue/local.py": "one of the three ways to take records, loaded where it is used",
    "client/wire/logins/jaas.py": "a syntax of Java's, without any I/O",
    "client/wire/logins/scram.py": "the arithmetic of a login, after its RFC, without any I/O",
    "client/wire/propagation.py": "waits until every broker has heard of a change",
    "records/kernels_py.py": "the twin of the compiled kernels, chosen at import",
    "records/pickles.py": "pickles name this module, and older ones have to be read",
    "server/console/admin/transaction_pages.py": "one kind of thing that is changed, beside the others",
    "server/console/sessions.py": "who uses the console, as the broker's users",
    "spark/advice/first_pipeline.py": "writes a file for people, whatever was inferred",
    "spark/decoders/plain.py": "the decoders of one format, beside those of the others",
    "spark/folds/command_claims.py": "which runner carries out a command, decided without any I/O",
    "spark/folds/dead_letters.py": "where what a fold failed at is buried",
    "spark/folds/shipping.py": "how a pipeline's functions travel to workers",
    "spark/functions.py": "functions for users, which nobody here calls",
    "spark/interpreter.py": "runs at import, before Spark is there",
    "spark/origins/several.py": "a kind of origin, beside the two that it reads",
    "spark/queries/sql.py": "what users call, and what Spark is given of a query",
    "spark/sink/wire_commits.py": "a topic of its own, and how it is read",
    "spark/sink/wire_committing.py": "the driver's side of a write by wire, and why it is so",
    "spark/source/newest.py": "the newest record of each key, as a reader of its own",
    "spark/source/stream.py": "what Spark calls of a stream, beside that of a batch",
    "testing/power_cuts.py": "a fault model, beside the histories that it cuts",
    "testing/sim_clock.py": "clocks that tests turn: of the broker under test, and of our own tests",
    "views/counters/duckdb.py": "one of the three engines of counters, loaded where it is used",
    "views/lake/lake.py": "what users call, and which engine that means",
    "views/peek/lake.py": "one kind of view, beside the peeks into the others",
    "views/peek/search.py": "one kind of view, beside the peeks into the others",
    "views/reduce/reduce.py": "what users call, and what can be wrong with it",
    "views/search/search.py": "what users call, and which engine that means",
}
"""Modules below src/foldlog that are small, used by one other, and a concept of their own all the same."""

VAGUE_NAMES = {"util", "utils", "helper", "helpers", "common", "manager", "managers", "misc", "base_utils"}

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@pytest.fixture(scope="module", autouse=True)
def trees() -> Iterator[None]:
    """Of all sources they are millions of objects: no garbage is looked for among them, and no later test has them."""
    gc.disable()
    yield
    for kept in (nodes_of, tree_of, text_of):
        kept.cache_clear()
    gc.enable()


@cache
def sources(*folders: str, suffix: str = ".py") -> list[Path]:
    """Every source file below the folders, sorted."""
    found = [path for folder in folders for path in (ROOT / folder).rglob(f"*{suffix}")]
    return sorted(path for path in found if "__pycache__" not in path.parts)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path), filename=str(path))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Every node of a file: walking the trees takes longer than parsing them, and most rules look at every node."""
    return walk(tree_of(path))


def walk(node: ast.AST) -> list[ast.AST]:
    """As ast.walk, without the nodes that only say how a name is used: in a third of its time."""
    found = [node]
    for one in found:  # which grows meanwhile
        for value in one.__dict__.values():
            if value.__class__ is list:
                found += [inner for inner in value if isinstance(inner, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                found.append(value)
    return found


def definitions(body: list[ast.stmt]) -> Iterator[tuple[str, Definition]]:
    """Functions and classes, with their dotted names; not those inside functions."""
    for node in body:
        if isinstance(node, Definition):
            yield node.name, node
            if isinstance(node, ast.ClassDef):
                for name, inner in definitions(node.body):
                    yield f"{node.name}.{name}", inner
        elif isinstance(node, ast.If | ast.Try):
            yield from definitions([child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)])


def calls(path: Path, names: set[str]) -> list[str]:
    """Where a plain function of one of these names is called."""
    return [
        f"{relative(path)}:{node.lineno}"
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
    ]


def line_count(path: Path) -> int:
    return len(text_of(path).splitlines())


def code_lines(node: Definition) -> int:
    """Lines of a definition without its docstring: what has to be said is not held against it."""
    total = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        total -= (first.end_lineno or first.lineno) - first.lineno + 1
    return total


def test_no_module_is_longer_than_a_reader_can_hold() -> None:
    long = [
        f"{relative(path)}: {line_count(path)} lines"
        for path in sources("src", "demo", "scripts")
        if line_count(path) > MODULE_LINES_MAX and relative(path) not in LONG_MODULES
    ]
    assert not long, f"over {MODULE_LINES_MAX} lines: {long}"


def test_a_folder_holds_a_family_of_modules() -> None:
    """Messages and handlers apart: there is one for each API."""
    counts = Counter(
        path.parent.relative_to(SOURCE).as_posix()
        for path in sources("src")
        if path.name != "__init__.py" and path.parent.name not in ("messages", "handlers")
    )
    full = [f"{folder}: {count} modules" for folder, count in counts.items() if count > FOLDER_MODULES_MAX]
    assert not full, f"over {FOLDER_MODULES_MAX} modules: {full}"


def test_no_two_public_classes_share_a_name() -> None:
    """Messages are Kafka's, and repeat its names."""
    found: dict[str, list[str]] = {}
    for path in sources("src"):
        if "messages" not in path.parts:
            for node in tree_of(path).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found.setdefault(node.name, []).append(path.relative_to(SOURCE).as_posix())
    assert not {name: where for name, where in found.items() if len(where) > 1}


def test_a_small_module_has_several_importers_or_a_reason() -> None:
    found = {path.relative_to(SOURCE).as_posix() for path in sources("src") if is_small_and_used_by_one(path)}
    unlisted, stale = sorted(found - set(SMALL_MODULES)), sorted(set(SMALL_MODULES) - found)
    assert not unlisted, f"let the one module that uses it have it, or list it with the reason: {unlisted}"
    assert not stale, f"take it off the list: {stale}"


def is_small_and_used_by_one(path: Path) -> bool:
    if path.name == "__init__.py" or path.parent.name in ("messages", "handlers"):
        return False
    return line_count(path) < SMALL_MODULE_LINES and len(importers()[dotted(path)]) == 1


@cache
def importers() -> dict[str, set[str]]:
    """Who imports each module of ours, also for types only and inside functions."""
    found: dict[str, set[str]] = defaultdict(set)
    known = {dotted(path) for path in sources("src")}
    for path in sources("src"):
        for node in nodes_of(path):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            for name in names:
                if name in known and name != dotted(path):
                    found[name].add(dotted(path))
    return found


def dotted(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_functions_fit_on_a_screen() -> None:
    long = []
    for path in sources("src", "demo", "scripts"):
        for name, node in definitions(tree_of(path).body):
            if isinstance(node, FunctionNode) and code_lines(node) > FUNCTION_LINES_MAX:
                place = f"{relative(path)}::{name}"
                if place not in LONG_FUNCTIONS:
                    long.append(f"{place}: {code_lines(node)} lines")
    assert not long, f"over {FUNCTION_LINES_MAX} lines: {long}"


def test_exceptions_to_the_lengths_are_still_needed_and_say_why() -> None:
    for table in (LONG_MODULES, LONG_FUNCTIONS):
        for place, reason in table.items():
            assert len(reason.split()) >= 5, f"{place}: say why"
    for module in LONG_MODULES:
        assert line_count(ROOT / module) > MODULE_LINES_MAX, f"{module} is short enough now: take it off the list"
    for place in LONG_FUNCTIONS:
        file, _, name = place.partition("::")
        nodes = dict(definitions(tree_of(ROOT / file).body))
        assert name in nodes, f"{place} is gone: take it off the list"
        assert code_lines(nodes[name]) > FUNCTION_LINES_MAX, f"{place} is short enough now: take it off the list"


def complexity(function: ast.AST) -> int:
    """McCabe's number: one, and one for each way that the function can part."""
    total = 1
    for node in walk(function):
        if isinstance(node, BRANCHES):
            total += 1
        elif isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            total += 1 + len(node.ifs)
        elif isinstance(node, ast.Match):
            total += len(node.cases) - 1
    return total


def test_functions_part_in_few_ways() -> None:
    found = {
        f"{relative(path)}::{name}": complexity(node)
        for path in sources("src")
        for name, node in definitions(tree_of(path).body)
        if isinstance(node, FunctionNode)
    }
    wild = [
        f"{place}: {number}"
        for place, number in found.items()
        if number > COMPLEXITY_MAX and place not in COMPLEX_FUNCTIONS
    ]
    assert not wild, f"over {COMPLEXITY_MAX} by McCabe: {wild}"


def docstrings(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Every text that stands for itself, with its line: of modules, classes, functions, and constants."""
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def leans_on_another(text: str) -> bool:
    return text.lstrip().startswith("The same")


def test_every_docstring_can_be_read_alone() -> None:
    """One that begins with "The same" makes its reader look for what it is the same as."""
    leaning = [
        f"{relative(path)}:{line}"
        for path in sources("src", "bench", "clusters", "demo", "scripts")
        for line, text in docstrings(nodes_of(path))
        if leans_on_another(text)
    ]
    assert not leaning, f"say what it is: {leaning}"


FILE_NAME = re.compile(r"(?<![\w/.*-])[\w/]+\.pyx?\b")

USERS_FILES = {"folds.py", "pipeline.py", "conftest.py", "f.py"}
"""Named in texts as what a user writes."""


def lost_files(path: Path, text: str) -> list[str]:
    """The files that a text names and that are neither beside it, nor a folder up, nor in the source or the project."""
    places = (path.parent, path.parent.parent, SOURCE, ROOT)
    named = {name for name in FILE_NAME.findall(text) if name not in USERS_FILES}
    return sorted(name for name in named if not any((place / name).exists() for place in places))


def test_files_that_texts_name_exist() -> None:
    lost = {
        f"{relative(path)}:{line}": names
        for path in sources("src", "bench", "clusters", "demo", "scripts")
        for line, text in (*docstrings(nodes_of(path)), *comments(path))
        if (names := lost_files(path, text))
    }
    assert not lost, f"renamed, moved or gone: {lost}"


def comments(path: Path) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text_of(path).splitlines(), 1):
        _, mark, text = line.partition("# ")
        if mark:
            yield number, text


def test_the_code_is_formatted_without_exception() -> None:
    """Lines that are squeezed by hand save a screen and cost a reader."""
    skips = [
        f"{relative(path)}:{number}"
        for path in sources("src")
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if "fmt: skip" in line or "fmt: off" in line
    ]
    assert not skips, f"let the formatter have them: {skips}"


def test_module_names_say_what_is_inside() -> None:
    vague = [
        relative(path)
        for suffix in (".py", ".pyx")
        for path in sources("src", suffix=suffix)
        if path.stem in VAGUE_NAMES
    ]
    assert not vague, f"name them after what they do: {vague}"


def test_nothing_is_left_for_later() -> None:
    # Spelled apart, so that this file passes its own rule.
    mark = re.compile(r"\b(" + "TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
    marks = [
        f"{relative(path)}:{number}"
        for suffix in (".py", ".pyx", ".pxi", ".pyi")
        for path in sources("src", "tests", "bench", "clusters", "demo", "scripts", suffix=suffix)
        if mark.search(text_of(path))
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if mark.search(line)
    ]
    assert not marks, f"do it, or leave it out: {marks}"


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        relative(path)
        for path in sources("src", "bench", "clusters", "demo", "scripts")
        if not ast.get_docstring(tree_of(path)) and tree_of(path).body
    ]
    assert not silent, f"no docstring: {silent}"


def test_every_test_module_says_what_it_proves() -> None:
    silent = [
        relative(path) for path in sources("tests") if not ast.get_docstring(tree_of(path)) and tree_of(path).body
    ]
    assert not silent, f"no docstring: {silent}"


def test_every_class_explains_itself() -> None:
    """Its format, its owner thread or what it does not promise; a small function may speak through its name.

    Messages are generated, and Kafka's documentation explains them.
    """
    silent = [
        f"{relative(path)}::{node.name}"
        for path in sources("src")
        if path.parent.name != "messages"
        for node in tree_of(path).body
        if isinstance(node, ast.ClassDef) and not ast.get_docstring(node)
    ]
    assert not silent, f"no docstring: {silent}"


def test_the_source_asserts_nothing() -> None:
    """`python -O` drops asserts, and what a disk or a peer says is no place for them: raise an error type."""
    asserts = [
        f"{relative(path)}:{node.lineno}"
        for path in sources("src")
        if SOURCE / "testing" not in path.parents
        for node in nodes_of(path)
        if isinstance(node, ast.Assert)
    ]
    assert not asserts, f"raise an error of foldlog.errors instead: {asserts}"


def test_only_the_command_line_prints() -> None:
    prints = [
        place
        for path in sources("src")
        if SOURCE / "cli" not in path.parents
        for place in calls(path, {"print", "breakpoint"})
    ]
    assert not prints, f"log or return it: {prints}"


def swallows(handler: ast.ExceptHandler) -> bool:
    """An `except` that takes everything: bare, or Exception that neither raises, nor uses, nor logs the error."""
    if handler.type is None:
        return True
    if not isinstance(handler.type, ast.Name) or handler.type.id not in {"Exception", "BaseException"}:
        return False
    raises = any(isinstance(node, ast.Raise) for node in walk(handler))
    uses = handler.name is not None and any(
        isinstance(node, ast.Name) and node.id == handler.name for node in walk(handler)
    )
    logs = any(isinstance(node, ast.Attribute) and node.attr == "exception" for node in walk(handler))
    return not (raises or uses or logs)


FILE_ROOMS = ("files", "cli", "demo", "testing")


def test_only_who_may_touch_the_file_system_opens_files() -> None:
    """`.importlinter` names who may import `os`; `open` needs no import, so it is looked for here."""
    found = [
        place
        for path in sources("src/foldlog")
        if path.relative_to(SOURCE).parts[0] not in FILE_ROOMS and not imports_os(path)
        for place in calls(path, {"open"})
    ]
    assert not found, f"ask foldlog.files.paths for it: {found}"


def imports_os(path: Path) -> bool:
    return any(isinstance(node, ast.Import) and node.names[0].name == "os" for node in nodes_of(path))


def test_no_error_is_swallowed() -> None:
    swallowed = [
        f"{relative(path)}:{node.lineno}"
        for path in sources("src", "tests", "bench", "clusters", "demo")
        for node in nodes_of(path)
        if isinstance(node, ast.ExceptHandler) and swallows(node)
    ]
    assert not swallowed, f"name the error, or pass it on: {swallowed}"


def test_tests_do_not_sleep_to_wait() -> None:
    """Waiting is for an event, a join or a poll with a timeout; `sleep` hides a race until the machine is busy."""
    sleeps = [
        f"{relative(path)}:{node.lineno}"
        for path in sources("tests")
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute) and node.attr == "sleep"
    ]
    assert not sleeps, f"wait for the thing itself: {sleeps}"


def planted(code: str) -> ast.Module:
    return ast.parse(code)


@pytest.mark.parametrize(
    ("rule", "bad", "good"),
    [
        (
            lambda tree: [node for node in walk(tree) if isinstance(node, ast.ExceptHandler) and swallows(node)],
            "try:\n    f()\nexcept Exception:\n    pass\n",
            "try:\n    f()\nexcept OSError:\n    pass\n",
        ),
        (
            lambda tree: [node for node in walk(tree) if isinstance(node, ast.ExceptHandler) and swallows(node)],
            "try:\n    f()\nexcept:\n    raise\n",
            "try:\n    f()\nexcept Exception as error:\n    g(error)\n",
        ),
        (
            lambda tree: [name for name, node in definitions(tree.body) if code_lines(node) > FUNCTION_LINES_MAX],
            "class A:\n    def f(self):\n" + "        x = 1\n" * FUNCTION_LINES_MAX,
            'def f():\n    """' + "said\n" * FUNCTION_LINES_MAX + '    """\n    x = 1\n',
        ),
        (
            lambda tree: [node for node in tree.body if complexity(node) > COMPLEXITY_MAX],
            "def f():\n" + "    if a and b:\n        return\n" * (COMPLEXITY_MAX // 2),
            "def f():\n" + "    if a:\n        return\n" * (COMPLEXITY_MAX - 1),
        ),
        (
            lambda tree: [line for line, text in docstrings(walk(tree)) if leans_on_another(text)],
            'A = 1\n"""The same in bytes."""\n',
            'A = 1\n"""In bytes, the same."""\n',
        ),
        (
            lambda tree: [name for _, text in docstrings(walk(tree)) for name in lost_files(SOURCE, text)],
            '"""See no_such_module.py."""\n',
            '"""See log/partition.py, files/base.py."""\n',
        ),
    ],
)
def test_the_rules_catch_what_they_are_for(rule: Callable[[ast.Module], list[object]], bad: str, good: str) -> None:
    assert rule(planted(bad))
    assert not rule(planted(good))
