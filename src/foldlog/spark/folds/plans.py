"""The law of folds, as far as a plan shows it: splitting the log differently must not change the view.

Spark's analysed plan shows what a fold does with its rows. An operator that looks at several rows at once (aggregation,
windows, limits), at the clock, at random numbers, or at rows that do not come from the topic would give another view
for another split. It is refused before anything is stored. A plan does not show what happens inside a user's own
function: a trial (reference.py) and `verify` find that by running it.

A plan also shows which of the topic's columns a fold needs, and which it passes on unchanged. Both are answered only if
every node on the way is of a known kind; any other node means that all columns are needed, and that none is known to be
unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary

from py4j.java_collections import JavaArray
from py4j.java_gateway import JavaObject, is_instance_of
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from foldlog.errors import FoldError, UnlawfulFold

ROWS_FUNCTION: Final = "foldlog_rows"
"""The name of the function that reads the topic, or the alias of rows that the driver has read itself: it marks the
topic's rows in a plan."""

_AGGREGATE = "aggregate in the view instead: fl.counters(..., measures={...})"
_PER_ROW = "a fold may look at one row at a time"

_REFUSED: Final[dict[str, tuple[str, str]]] = {
    "Aggregate": ("it aggregates", _AGGREGATE),
    "Pivot": ("it pivots", _AGGREGATE),
    "Distinct": ("it drops duplicates", "a table view keeps one row per key by itself"),
    "Deduplicate": ("it drops duplicates", "a table view keeps one row per key by itself"),
    "DeduplicateWithinWatermark": ("it drops duplicates", "a table view keeps one row per key by itself"),
    "GlobalLimit": ("it takes a limited number of rows", "limit when you query the view"),
    "LocalLimit": ("it takes a limited number of rows", "limit when you query the view"),
    "Offset": ("it skips a number of rows", "skip when you query the view"),
    "Tail": ("it takes the last rows", "order and limit when you query the view"),
    "Window": ("it uses a window function over rows", _AGGREGATE),
    "Sample": ("it samples", "filter by a hash of the key instead"),
    "Except": ("it subtracts rows from each other", "filter, or join a static frame with 'leftanti'"),
    "Intersect": ("it intersects rows", "join a static frame with 'leftsemi'"),
    "UnionLoop": ("it runs the topic's rows through a recursion", _PER_ROW),
    "AttachDistributedSequence": ("it numbers rows", "use the columns _partition and _offset instead"),
}
_PER_ROW_NODES: Final = frozenset(
    {
        "CTERelationRef",
        "CollectMetrics",
        "EventTimeWatermark",
        "Expand",
        "Filter",
        "Generate",
        "Join",
        "LateralJoin",
        "MapInArrow",
        "MapInPandas",
        "PipeOperator",
        "Project",
        "PythonMapInArrow",
        "RebalancePartitions",
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "ScriptTransformation",
        "Sort",
        "SubqueryAlias",
        "Union",
        "View",
        "WithCTE",
    }
)
"""Operators that look at one row at a time, or pass partitions to a user's function, which the trial checks. Any other
operator on the topic's rows is refused: a new one of Spark's may look at several rows."""

_REFUSED_SIGNS: Final = ("Groups", "CoGroup", "AggregateIn", "WindowIn", "TransformWithState")
"""Parts of the names of Python's and Scala's grouped operators."""

_CLOCKS: Final = frozenset(
    {
        "CurrentTimestamp",
        "CurrentTimestampLike",
        "Now",
        "CurrentDate",
        "CurrentTime",
        "LocalTimestamp",
        "CurDateExpressionBuilder",
    }
)

_CLOCK_WORD: Final = re.compile(r"\s*(?:now|today|tomorrow|yesterday)\b", re.IGNORECASE)
"""Texts that Spark reads as a time that depends on the clock, optionally followed by a zone, when it casts a constant.
In the rows themselves they have no such meaning."""
_CASTS: Final = frozenset({"Cast", "ParseToDate", "ParseToTimestamp", "ParseToTimestampNTZ", "ParseToTimestampLTZ"})
_TIMES: Final = ("date", "time")
"""Prefixes of the names of date and time types."""
_TYPED_TEXT: Final = re.compile(r"\s*\w+\s*r?['\"]\s*(?P<text>.*)", re.DOTALL | re.IGNORECASE)
"""A literal with its type before it, as in TIMESTAMP 'now'."""
_FIXED_TIME: Final = re.compile(r"T?[-+0-9:]|epoch\b", re.IGNORECASE)
"""Matches such a literal's text if it denotes a fixed time."""

_SURROUNDINGS: Final = frozenset(
    {
        "CurrentUser",
        "SessionUser",
        "CurrentDatabase",
        "CurrentCatalog",
        "CurrentPath",
        "CurrentTimeZone",
        "SparkVersion",
        "VariableReference",
    }
)
"""Expressions that depend on the user, the session or the version of Spark."""

_PASSING: Final = frozenset(
    {"Filter", "Sort", "SubqueryAlias", "Repartition", "RepartitionByExpression", "ResolvedHint"}
)
"""Nodes with their child's output: they may drop or reorder rows, but change no value."""

_IN_TASK: Final = frozenset(
    {"Filter", "Generate", "MapInArrow", "MapInPandas", "Project", "PythonMapInArrow", "ResolvedHint", "SubqueryAlias"}
)
"""Nodes that Spark computes where their rows are, without a shuffle."""

_EXPRESSIONS: Final = "org.apache.spark.sql.catalyst.expressions."
"""The package of Spark's own expressions: they read nothing but their children."""
_PLAN_EXPRESSION: Final = _EXPRESSIONS + "PlanExpression"
_AGGREGATES: Final = _EXPRESSIONS + "aggregate."
_LITERAL: Final = _EXPRESSIONS + "Literal"
_PYTHON_UDTF: Final = _EXPRESSIONS + "PythonUDTF"

_FIELDS_MAX: Final = 2**31 - 1
_ROWS_LEAF: Final = re.compile(
    rf"MapInArrow {ROWS_FUNCTION}\([^)]*\)#(\d+)|SubqueryAlias {ROWS_FUNCTION}\n[ :+-]*LocalRelation (.*)"
)
_EXPRESSION_ID: Final = re.compile(r"#(\d+)")
_NUMBERS_MAX: Final = 100_000
"""More expression ids than one plan uses. Ids count up, so those of a range are below its rows' first id plus this."""
_TASKS: Final = re.compile(
    rf"^([ :+'-]*MapInArrow {ROWS_FUNCTION}\(.*\n[ :+'-]*Range) \(0, \d+, step=1, splits=.*\)$", re.MULTILINE
)
"""The number of tasks that read the topic's rows: what a plan does with them does not depend on it."""
_COUNTED: Final = re.compile(r"(?:\blambda \w+?_|\b(?:CTERelation(?:Def|Ref)|UnionLoop(?:Ref)?) )\d+\b")
"""Other numbers that Spark counts up through a session: variables of higher-order functions, and CTEs."""
_COUNTED_NODES: Final = re.compile(r"^[ :+'-]*(?:CTERelation(?:Def|Ref)|UnionLoop(?:Ref)?) \d+\b", re.MULTILINE)
"""Those that also appear in a canonicalized plan."""
_PASSING_NAMES: Final = re.compile(r"_pyspark_[0-9a-f]{32}")
"""Spark's names of the temporary views behind `spark.sql("... {rows}", rows=rows)`."""


def check_plan(fold: str, rows: DataFrame, result: object) -> None:
    """UnlawfulFold if the plan of what a fold returned shows that it breaks the law."""
    frame = checked_frame(fold, result)
    if not hasattr(rows, "_jdf"):
        raise FoldError("folds need a classic Spark session, and this is a Spark Connect one; unset SPARK_REMOTE")
    # The analysed plan, not the optimised one: it has the user's operators, node for node, before Spark folds
    # constants, prunes and reorders. In the optimised plan, a clock function may already be a literal.
    _check_source(fold, rows, _analysed_text(frame))
    _check(fold, _tree(frame), checked=set())


def checked_frame(fold: str, result: object) -> DataFrame:
    """What a fold returned, if it is a DataFrame; FoldError if not."""
    if not isinstance(result, DataFrame):
        raise FoldError(
            f"fold {fold!r} returned {type(result).__name__} and not a DataFrame; end it with 'return rows'"
        )
    return result


def check_source(fold: str, rows: DataFrame, text: PlanText) -> None:
    """UnlawfulFold if a plan with this text reads topic rows other than these, or none."""
    _check_source(fold, rows, text.analysed)


def _check_source(fold: str, rows: DataFrame, text: str) -> None:
    if set(_ROWS_LEAF.findall(text)) != set(_ROWS_LEAF.findall(_analysed_text(rows))):
        raise UnlawfulFold(fold, "what it returns does not come from the rows it is given", "return a change of rows")


def used_columns(result: DataFrame, names: Collection[str] | None = None) -> frozenset[str] | None:
    """The topic's columns that these columns of a fold's result, or all, depend on; the others need not be read. None
    if the plan has a node of unknown kind: then any column may be used.
    """
    root = _tree(result)
    labels = {_label(one): one for one in _output(root)}
    wanted = _output(root) if names is None or not labels.keys() >= set(names) else [labels[name] for name in names]
    return _used(root, _ids(wanted))


def keeps_tasks(result: DataFrame) -> bool:
    """Whether the rows certainly stay in the tasks that read them."""
    node = _tree(result)
    while not node.is_rows:
        if node.inner or node.kind not in _IN_TASK or len(node.children) != 1:
            return False
        (node,) = node.children
    return True


def kept_columns(result: DataFrame) -> frozenset[str]:
    """The topic's columns that the result has under their own names and certainly with unchanged values."""
    root = _tree(result)
    return frozenset(
        _label(attribute) for attribute in _output(root) if _origin(root, _id(attribute)) == _label(attribute)
    )


def is_cached(rows: DataFrame, result: DataFrame) -> bool:
    """Whether the result would be computed from something of these rows in Spark's cache."""
    manager = cache_of(rows)
    if manager.isEmpty():
        return False
    # On a new frame: a frame's plan goes through the cache once, and would miss what is cached later.
    execution = result.select("*")._jdf.queryExecution()
    # In that plan, cached data is a leaf without the rows below it.
    return _rows_leaves(_Trees().of(execution.withCachedData())) != _rows_leaves(_Trees().of(execution.analyzed()))


def cache_of(frame: DataFrame) -> Any:
    """Spark's cache manager, shared by all sessions."""
    session = frame.sparkSession
    if session not in _managers:
        _managers[session] = session._jsparkSession.sharedState().cacheManager()
    return _managers[session]


_managers: WeakKeyDictionary[SparkSession, Any] = WeakKeyDictionary()


@dataclass(frozen=True)
class PlanText:
    """A plan as text, with nothing left out."""

    analysed: str
    """With all names, and with expression ids, which a literal such as '#17' looks like."""
    compared: str
    """Canonicalized, as Spark compares plans: columns are positions, so anything that looks like an id is a literal."""


def plan_text(frame: DataFrame, *others: DataFrame) -> PlanText:
    """The text of the frame's analysed plan. Those of the others are made with it, for whoever asks for them next: each
    change of the active session takes five calls into the JVM.
    """
    with _all_fields(frame.sparkSession):
        plan = frame._jdf.queryExecution().analyzed()
        text = _texts.get(frame)
        if text is None:
            text = _texts[frame] = _text(plan)
        for other in others:
            if other not in _texts:
                _texts[other] = _text(other._jdf.queryExecution().analyzed())
        try:
            compared = _text(plan.canonicalized())
        except Py4JError:
            compared = text  # the node cannot be canonicalized: no plan equals this one
    return PlanText(text, compared)


_texts: WeakKeyDictionary[DataFrame, str] = WeakKeyDictionary()
"""The texts of frames' analysed plans, which never change."""


def _analysed_text(frame: DataFrame) -> str:
    text = _texts.get(frame)
    if text is None:
        with _all_fields(frame.sparkSession):
            text = _texts[frame] = _text(frame._jdf.queryExecution().analyzed())
    return text


def column_numbers(frame: DataFrame) -> set[str]:
    """The numbers that Spark gave to the columns of a plan's frames and expressions: each is unique in its session."""
    return set(_EXPRESSION_ID.findall(_analysed_text(frame)))


def plan_key(rows: DataFrame, text: PlanText) -> tuple[str, int]:
    """A key that is equal for plans that do the same with rows of different ranges, under the same session settings.
    `text` is the plan's. The code of Python functions is not in it: see `python_functions`.
    """
    # Spark numbers expressions through a session. Ids below those of these rows belong to expressions from before the
    # range, such as static frames, and stay as they are: another frame is another plan.
    first = min(map(int, _EXPRESSION_ID.findall(_analysed_text(rows))), default=0)
    analysed = normal_text(_TASKS.sub(r"\1", text.analysed), first)
    compared = _recounted(_COUNTED_NODES, _TASKS.sub(r"\1", text.compared), {})
    both = f"{len(analysed)} {analysed}{compared}"
    return both, int(_settings_of(rows.sparkSession).hashCode())


def normal_text(text: str, first: int = 0) -> str:
    """A plan's text with its expression ids, from `first` on, renumbered from 0 in order of appearance: equal for each
    call of the same function.

    >>> normal_text("Project [upper(id#17) AS id#23]")
    'Project [upper(id#0) AS id#1]'
    >>> normal_text("Filter (id#500 = order#17)", first=500)
    'Filter (id#0 = order#17)'
    """
    numbers: dict[str, str] = {}

    def counted(found: re.Match[str]) -> str:
        if not first <= int(found[1]) < first + _NUMBERS_MAX:
            return found[0]  # a text that looks like an id
        return "#" + numbers.setdefault(found[1], str(len(numbers)))

    text = _EXPRESSION_ID.sub(counted, text)
    names: dict[str, str] = {}
    text = _recounted(_COUNTED, text, names)
    return _PASSING_NAMES.sub(lambda found: names.setdefault(found[0], f"_pyspark_{len(names)}"), text)


def _recounted(counted: re.Pattern[str], text: str, names: dict[str, str]) -> str:
    """The text with Spark's counters replaced by numbers from 0."""
    return counted.sub(lambda found: names.setdefault(found[0], f"{found[0].rstrip('0123456789')}{len(names)}"), text)


def logic_text(result: DataFrame) -> str:
    """What a plan does with the topic's rows: its nodes with all their arguments, but without expression ids and
    without columns just passed on. Empty if it does nothing but select some of the topic's columns.
    """
    return _LogicText().text(_tree(result))


Path = tuple[tuple[str, int | None], ...]
"""A path through a plan: methods to call, and which item to take of the sequence that each returns."""


def python_functions(result: DataFrame) -> list[Path]:
    """The paths to the Python functions of a plan, in plan order. In plans with the same key they are the same: reusing
    them takes a few calls into the JVM instead of hundreds.
    """
    return [
        node.path + part_path
        for node in _all_nodes(_tree(result))
        for part, part_path in zip(node.parts, node.part_paths, strict=True)
        if _name(part) in (_EXPRESSIONS + "PythonUDF", _PYTHON_UDTF)
    ]


def functions_at(result: DataFrame, paths: Iterable[Path]) -> list[JavaObject]:
    """The Python functions at these paths: each a PythonUDF or PythonUDTF of the JVM."""
    analysed = result._jdf.queryExecution().analyzed()
    return [_at(analysed, path) for path in paths]


def _at(java: Any, path: Path) -> Any:
    for method, number in path:
        java = getattr(java, method)()
        if number is not None:
            java = java.apply(number)
    return java


_wide: WeakKeyDictionary[SparkSession, Any] = WeakKeyDictionary()
"""Copies of sessions in which texts leave out no fields, with the class of sessions."""
_settings: WeakKeyDictionary[SparkSession, Any] = WeakKeyDictionary()


@contextmanager
def _all_fields(session: SparkSession) -> Iterator[None]:
    """While active, expressions print all their fields, not only the first 25 (`spark.sql.debug.maxToStringFields`). A
    copy of the session becomes the thread's active one: the user's session and its settings are not touched.
    """
    if session not in _wide:
        copied = session._jsparkSession.cloneSession()
        for name in ("spark.sql.debug.maxToStringFields", "spark.sql.maxPlanStringLength"):
            copied.sessionState().conf().setConfString(name, str(_FIELDS_MAX - 15))  # the longest text there can be
        _wide[session] = copied, session.sparkContext._gateway.jvm.SparkSession  # type: ignore[union-attr]
    wide, sessions = _wide[session]
    before = sessions.getActiveSession()
    sessions.setActiveSession(wide)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def _settings_of(session: SparkSession) -> Any:
    if session not in _settings:
        _settings[session] = session._jsparkSession.sessionState().conf().settings()
    return _settings[session]


def settings_text(session: SparkSession) -> str:
    """The session's settings, as Java prints a map."""
    return str(_settings_of(session).toString())


def _text(plan: Any) -> str:
    try:
        return str(plan.treeString(True, True, _FIELDS_MAX, False, False))
    except Py4JError:
        return str(plan.treeString(True, True, _FIELDS_MAX, False))  # Spark 4.2 has one argument less


# --- the tree of a plan ---------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Node:
    """A node of the analysed plan, with the plan's children, except that a reference to a common table expression has
    the expression's plan as its child, and the topic's rows have no children. `inner` are the plans of subqueries.
    """

    java: Any
    kind: str
    children: list[_Node] = field(default_factory=list)
    path: Path = ()
    parts: list[Any] = field(default_factory=list)
    part_paths: list[Path] = field(default_factory=list)
    """The path from this node to each of the parts."""
    inner: list[_Node] = field(default_factory=list)
    is_rows: bool = False
    is_fed: bool = False
    """Whether the topic's rows reach this node, through a child or a subquery."""


_known: WeakKeyDictionary[DataFrame, _Node] = WeakKeyDictionary()
"""Cached: a frame's plan never changes, and each call into the JVM is slow."""


def _tree(frame: DataFrame) -> _Node:
    tree = _known.get(frame)
    if tree is None:
        tree = _known[frame] = _Trees().of(frame._jdf.queryExecution().analyzed())
    return tree


class _Trees:
    """Builds the tree of one plan. A common table expression is built once, however often it is referenced."""

    def __init__(self) -> None:
        self._definitions: dict[int, _Node] = {}

    def of(self, plan: Any, path: Path = ()) -> _Node:
        node = _Node(plan, _kind(plan), path=path)
        if _is_rows(node):
            node.is_rows = node.is_fed = True
            return node
        if node.kind == "WithCTE":
            for number, definition in enumerate(_items(plan.cteDefs())):  # each may refer to those before it
                at = (*path, ("cteDefs", number), ("child", None))
                self._definitions[int(definition.id())] = self.of(definition.child(), at)
            node.children = [self.of(plan.plan(), (*path, ("plan", None)))]
        elif node.kind == "CTERelationRef":
            known = self._definitions.get(int(plan.cteId()))
            node.children = [] if known is None else [known]
        else:
            children = enumerate(_many(plan, "children"))
            node.children = [self.of(child, (*path, ("children", number))) for number, child in children]
        for number, expression in enumerate(_many(plan, "expressions")):
            for part, part_path in _parts(expression, (("expressions", number),)):
                node.parts.append(part)
                node.part_paths.append(part_path)
        node.inner = [
            self.of(part.plan(), (*path, *part_path, ("plan", None)))
            for part, part_path in zip(node.parts, node.part_paths, strict=True)
            if _is_a(part, _PLAN_EXPRESSION)
        ]
        node.is_fed = any(one.is_fed for one in (*node.children, *node.inner))
        return node


def _is_rows(node: _Node) -> bool:
    if node.kind == "SubqueryAlias":
        return str(node.java.alias()) == ROWS_FUNCTION
    return node.kind.startswith("MapInArrow") and f" {ROWS_FUNCTION}(" in str(node.java.simpleString(1))


def _rows_leaves(node: _Node) -> int:
    return int(node.is_rows) + sum(map(_rows_leaves, node.children))


def _items(sequence: Any) -> Iterator[Any]:
    """A Scala sequence's items."""
    for index in range(sequence.size()):
        yield sequence.apply(index)


def _asked(java: Any, what: str, ask: Callable[[Any], Any]) -> Any:
    """What a part of a plan says of itself, asked once: it never changes, and each call into the JVM costs. The answer
    is kept with the handle, and goes with it.
    """
    answers = vars(java).setdefault("_foldlog_answers", {})
    if what not in answers:
        answers[what] = ask(java)
    return answers[what]


def _many(java: Any, method: str) -> list[Any]:
    """The items of the sequence that a method gives."""
    items: list[Any] = _asked(java, method, lambda one: list(_items(getattr(one, method)())))
    return items


def _output(node: _Node) -> list[Any]:
    return _many(node.java, "output")


def _id(attribute: Any) -> int:
    return int(_asked(attribute, "id", lambda one: one.exprId().id()))


def _ids(attributes: Iterable[Any]) -> set[int]:
    return {_id(attribute) for attribute in attributes}


def _label(attribute: Any) -> str:
    return str(_asked(attribute, "name", lambda one: one.name()))


def _name(java: Any) -> str:
    return str(_asked(java, "class", lambda one: one.getClass().getName()))


_kinds: dict[str, str] = {}
_kinships: dict[tuple[str, str], bool] = {}
"""Both by the names of classes."""


def _kind(node: Any) -> str:
    name = _name(node)
    if name not in _kinds:
        _kinds[name] = str(node.getClass().getSimpleName()).rstrip("$")
    return _kinds[name]


def _is_a(java: Any, kind: str) -> bool:
    from pyspark import SparkContext

    name = _name(java)
    if (name, kind) not in _kinships:
        answer = bool(is_instance_of(SparkContext._gateway, java, kind))
        if "$$Lambda" in name:
            return answer  # each has a class of its own
        _kinships[name, kind] = answer
    return _kinships[name, kind]


def _parts(expression: Any, path: Path) -> Iterator[tuple[Any, Path]]:
    yield expression, path
    for number, child in enumerate(_many(expression, "children")):
        yield from _parts(child, (*path, ("children", number)))


def _all_nodes(node: _Node) -> Iterator[_Node]:
    yield node
    for one in (*node.inner, *node.children):
        yield from _all_nodes(one)


# --- the logic of a plan --------------------------------------------------------------------------------------------

_TREE_NODE: Final = "org.apache.spark.sql.catalyst.trees.TreeNode"
_SORTS: Final = {
    "query": _PLAN_EXPRESSION,
    "tree": _TREE_NODE,
    "type": "org.apache.spark.sql.types.DataType",
    "many": "scala.collection.Iterable",
    "some": "scala.Product",
}
"""The kinds of JVM objects that are told apart here."""
_sorts: dict[str, str] = {}
"""Kinds by class name, cached because a call into the JVM is slow."""

_NO_VALUES: Final = (_EXPRESSIONS + "ExprId", "org.apache.spark.api.python.SimplePythonFunction")
"""Left out: expression ids, and functions, whose code is fingerprinted separately."""
_UNSTABLE: Final = re.compile(r"@[0-9a-f]+\b|\$\$Lambda\S*|#\d+L?|, splits=\w+(?:\(\d+\))?")
"""Parts of Spark's texts that differ between runs or machines: addresses, ids, and the number of splits."""
_DEPTH_MAX: Final = 8
"""How deep objects inside a node's argument are followed."""


class _LogicText:
    """Turns a plan into lines, one for each node that does something. Spark's own texts shorten long values and omit
    defaults, so each expression is written with all its arguments.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._numbers: dict[int, int] = {}
        """The number of a node's line, by the id of the node."""
        self._columns: dict[int, str] = {}
        """The origin of each column, by expression id: a topic's column, or one that a line has created."""
        self._variables = 0
        self._loops: dict[int, int] = {}
        """Numbers of recursive queries, by Spark's id."""
        self._subqueries: Iterator[int] = iter(())

    def text(self, root: _Node) -> str:
        """All lines; the last ones are the output columns, except for topic columns that are passed on."""
        self._number(root)
        picked = [f"{_label(one)!r} is {told}" for one, told in self._output(root) if told != _of_rows(one)]
        return "" if self._lines == ["rows"] and not picked else "\n".join([*self._lines, *picked])

    def _output(self, node: _Node) -> list[tuple[Any, str]]:
        return [(one, self._column(one)) for one in _output(node)]

    def _column(self, attribute: Any) -> str:
        number = _id(attribute)
        if number not in self._columns:  # a variable of a higher-order function
            self._columns[number] = f"variable {self._variables}"
            self._variables += 1
        return self._columns[number]

    def _number(self, node: _Node) -> int:
        if id(node) not in self._numbers:
            below = [self._number(one) for one in node.children]
            self._subqueries = iter([self._number(one) for one in node.inner])
            self._numbers[id(node)] = self._added(node, below)
        return self._numbers[id(node)]

    def _added(self, node: _Node, below: list[int]) -> int:
        if node.is_rows:
            self._columns.update((_id(one), _of_rows(one)) for one in _output(node))
            return self._line("rows")
        line = self._told_node(node)
        if line is None:
            # Such a node returns its child's columns by position; they may have other ids.
            new = [one for one in _output(node) if _id(one) not in self._columns]
            if new:
                self._columns.update(
                    (_id(one), told)
                    for one, (_, told) in zip(_output(node), self._output(node.children[0]), strict=False)
                )
            return below[0]
        new = [one for one in _output(node) if _id(one) not in self._columns]
        if node.children and node.kind != "Project":
            line += "".join(f", {_label(one)!r} {one.dataType().catalogString()}" for one in new)
        number = self._line(f"{line} of {below}")
        for index, one in enumerate(new):
            twice = sum(_label(other) == _label(one) for other in new[:index])
            self._columns[_id(one)] = f"{number}.{_label(one)!r}" + f"/{twice}" * bool(twice)
        return number

    def _line(self, text: str) -> int:
        self._lines.append(text)
        return len(self._lines) - 1

    def _told_node(self, node: _Node) -> str | None:
        """The node's line; None for a node that only renames things or selects columns."""
        if node.kind == "UnionLoopRef":
            return f"{node.kind} {self._loop(node.java.loopId())} {node.java.accumulated()}"
        if not node.children:
            return _UNSTABLE.sub("", str(node.java.simpleString(_FIELDS_MAX)))
        if node.kind in ("SubqueryAlias", "View", "WithCTE", "CTERelationRef"):
            return None
        made = [one for one in _many(node.java, "expressions") if not self._is_column(node, one)]
        if node.kind == "Project":
            return f"Project [{', '.join(map(self._told, made))}]" if made else None
        own = _arguments(node.java, 0)
        if node.kind == "UnionLoop":
            own[0] = str(self._loop(node.java.id()))
        told = [*map(self._told, made), *own]
        if node.kind == "Union":
            told += [self._picked(node, child) for child in node.children]
        return f"{node.kind} [{', '.join(told)}]"

    def _loop(self, number: Any) -> int:
        return self._loops.setdefault(int(number), len(self._loops))

    def _is_column(self, node: _Node, expression: Any) -> bool:
        """Whether the expression is a column that is just passed on, or one that the node itself creates."""
        if _kind(expression) != "AttributeReference":
            return False
        return node.kind == "Project" or _id(expression) not in self._columns

    def _picked(self, union: _Node, child: _Node) -> str:
        """The columns that a branch of a union returns under other names than its own."""
        pairs = zip(_output(union), self._output(child), strict=True)
        return str([f"{_label(one)} is {told}" for one, (_, told) in pairs if told != _of_rows(one)])

    def _told(self, part: Any) -> str:
        name = _name(part)
        kind = name.rpartition(".")[2]
        if name == _LITERAL:
            return f"{part.dataType().catalogString()} {part.sql()}"
        if kind in ("AttributeReference", "NamedLambdaVariable"):
            return self._column(part)
        if kind == "Alias":
            return f"{self._told(part.child())} as {part.name()!r}"
        own = [f"subquery {next(self._subqueries)}"] if _sort(part, name) == "query" else []
        own += [self._told(child) for child in _many(part, "children")]
        if kind == "Cast" and not any("date" in one or "time" in one for one in _types(part)):
            return f"Cast({', '.join([*own, *_types(part), str(part.evalMode().toString())])})"  # in any time zone
        return f"{kind}({', '.join([*own, *_arguments(part, 0)])})"


def _of_rows(attribute: Any) -> str:
    return f"rows.{_label(attribute)!r}"


def _types(cast: Any) -> tuple[str, str]:
    return str(cast.child().dataType().catalogString()), str(cast.dataType().catalogString())


def _arguments(java: Any, depth: int) -> list[str]:
    """The constructor arguments of an object, without child nodes."""
    try:
        arguments = [java.productElement(number) for number in range(java.productArity())]
    except Py4JError:
        return [_UNSTABLE.sub("", str(java.toString()))]  # not a case class: use its text
    return [told for one in arguments if (told := _argument(one, depth)) is not None]


def _argument(value: Any, depth: int) -> str | None:
    """The argument as text; None if it is an id, a function or a child node, which are written separately."""
    if not isinstance(value, JavaObject):
        return repr(value)
    if isinstance(value, JavaArray):
        return str(list(value))
    name = _name(value)
    if name in _NO_VALUES:
        return None
    sort = _sort(value, name)
    if sort in ("query", "tree"):
        return None
    if sort == "type":
        return str(value.catalogString())
    if sort == "other" or depth == _DEPTH_MAX:
        return _UNSTABLE.sub("", str(value.toString()))
    if sort == "some":
        return f"{name.rpartition('.')[2]}({', '.join(_arguments(value, depth + 1))})"
    return _told_many(value, name, depth)


def _told_many(value: Any, name: str, depth: int) -> str | None:
    told = []
    for one in _items(value.toSeq()):
        text = _argument(one, depth + 1)
        if text is None:
            return None  # all of them are nodes
        told.append(text)
    return str(told if "Seq" in name or "List" in name or "Vector" in name or "$colon$colon" in name else sorted(told))


def _sort(value: Any, name: str) -> str:
    if name not in _sorts:
        sort = next((sort for sort, kind in _SORTS.items() if _is_a(value, kind)), "other")
        if "$$Lambda" in name:
            return sort  # every lambda has its own class
        _sorts[name] = sort
    return _sorts[name]


# --- what is refused ------------------------------------------------------------------------------------------------


def _check(fold: str, node: _Node, checked: set[int]) -> None:
    """Check a node and those below it. Static frames may do anything but read the clock or random numbers."""
    if node.is_rows or id(node) in checked:
        return
    checked.add(id(node))
    _check_expressions(fold, node)
    for one in (*node.inner, *node.children):
        _check(fold, one, checked)
    if not node.is_fed:
        return
    what = _REFUSED.get(node.kind)
    if what is None and any(sign in node.kind for sign in _REFUSED_SIGNS):
        what = ("it groups rows", _AGGREGATE)
    if what is not None:
        raise UnlawfulFold(fold, *what)
    if any(one.is_fed for one in node.inner):
        raise UnlawfulFold(fold, "a subquery looks at the topic's other rows", _PER_ROW)
    if node.kind not in _PER_ROW_NODES:
        raise UnlawfulFold(
            fold, f"its plan has a {node.kind}, of which it is not known that it looks at one row at a time", _PER_ROW
        )
    fed = [child.is_fed for child in node.children]
    if node.kind == "Union" and not all(fed):
        raise UnlawfulFold(
            fold, "it adds rows that do not come from the topic, again with every range", "join a static frame instead"
        )
    if "Join" in node.kind and len(fed) == 2:
        _check_join(fold, node.java, *fed)


def _check_join(fold: str, node: Any, left: bool, right: bool) -> None:
    if left and right:
        raise UnlawfulFold(
            fold,
            "it joins the topic's rows with each other",
            "join with a static frame, or look the other row up in a view",
        )
    how = str(node.joinType().sql())
    keeps_left = how.startswith(("LEFT", "FULL"))
    keeps_right = how.startswith(("RIGHT", "FULL"))
    if (keeps_left and right) or (keeps_right and left):
        raise UnlawfulFold(
            fold,
            f"its {how.lower()} join keeps rows of the static frame that have no partner in this range",
            "put the topic's rows on the side that is kept",
        )


def _check_expressions(fold: str, node: _Node) -> None:
    for part in node.parts:
        if _kind(part) in _CLOCKS or _is_clock_word(part) or _is_clock_literal(part):
            raise UnlawfulFold(fold, f"{_told(part)} looks at the clock", "use the column _timestamp instead")
        if _kind(part) in _SURROUNDINGS:
            raise UnlawfulFold(
                fold, f"{_brief(part)} depends on who runs it, and where", "write the value that you mean as a literal"
            )
        if _kind(part) == "AesEncrypt" and _has_random_iv(part):
            raise UnlawfulFold(
                fold,
                f"{_brief(part)} begins with other random bytes each time",
                "give it an iv that is made of the record, or hash instead: sha2(...)",
            )
        if part.deterministic() or not all(child.deterministic() for child in _many(part, "children")):
            continue  # only the innermost one is reported
        if not node.is_fed and (_name(part).startswith(_AGGREGATES) or _is_a(part, _PLAN_EXPRESSION)):
            continue  # first() in a static frame, for example: the user is responsible for its order
        if _is_a(part, _PLAN_EXPRESSION) or (node.kind in _REFUSED and _name(part).startswith(_AGGREGATES)):
            continue  # its plan is checked separately; or the node is refused with a better message
        advice = f"{_PER_ROW}, and must always give the same result for it"
        if _name(part) == _PYTHON_UDTF:
            advice += "; Spark expects that of no table function unless you say so: udtf(...).asDeterministic()"
        raise UnlawfulFold(fold, f"{_brief(part)} gives another result each time", advice)


def _is_clock_word(part: Any) -> bool:
    """Whether it is a cast of a constant such as cast('now' as timestamp)."""
    if _kind(part) not in _CASTS or (_kind(part) == "Cast" and not _is_time(part)):
        return False
    return any(_CLOCK_WORD.match(_constant(child)) for child in _many(part, "children"))


def _constant(part: Any) -> str:
    """The value of a constant text expression; empty if it is not constant, or not a text."""
    if str(part.dataType().typeName()) != "string" or not part.foldable():
        return ""
    try:
        return str(part.eval(None))
    except Py4JError:
        return ""  # it cannot be computed


def _is_clock_literal(part: Any) -> bool:
    """Whether it is a literal such as TIMESTAMP 'now': the plan holds only its value, so its SQL text is checked."""
    if _name(part) != _LITERAL or not _is_time(part):
        return False
    typed = _TYPED_TEXT.match(_written(part))
    return typed is not None and _FIXED_TIME.match(typed["text"]) is None


def _is_time(part: Any) -> bool:
    return str(part.dataType().typeName()).startswith(_TIMES)


def _written(part: Any) -> str:
    """The SQL text of an expression; empty if it was not written in SQL."""
    origin = part.origin()
    if not (origin.sqlText().isDefined() and origin.startIndex().isDefined() and origin.stopIndex().isDefined()):
        return ""
    start, last = int(origin.startIndex().get()), int(origin.stopIndex().get())
    return str(origin.sqlText().get())[start : last + 1]


def _has_random_iv(encryption: Any) -> bool:
    """Whether aes_encrypt chooses a random iv: in every mode but ECB, unless an iv is given."""
    _, _, mode, _, iv, _ = _many(encryption, "children")
    if _constant(mode).upper() == "ECB":
        return False
    return _kind(iv) == "Cast" and _name(iv.child()) == _LITERAL and str(iv.child().toString()) == ""


def _told(part: Any) -> str:
    return _written(part) if _name(part) == _LITERAL else _brief(part)


def _brief(expression: Any) -> str:
    text = str(expression.sql())
    return text if len(text) <= 80 else text[:80] + "..."


# --- columns used, and columns kept ---------------------------------------------------------------------------------


def _used(node: _Node, wanted: set[int]) -> frozenset[str] | None:
    """The topic's columns that the columns `wanted` of a node depend on; None if a node between is of unknown kind."""
    if node.is_rows:
        return frozenset(_label(one) for one in _output(node) if _id(one) in wanted)
    if node.inner or not all(_name(part).startswith(_EXPRESSIONS) for part in node.parts):
        return None
    fed = [child for child in node.children if child.is_fed]
    if len(fed) != 1:
        return None
    if node.kind == "Project":
        return _used(fed[0], _references(one for one in _many(node.java, "projectList") if _id(one) in wanted))
    if node.kind in _PASSING or node.kind in ("Join", "Generate"):
        return _used(fed[0], wanted | _ids(_items(node.java.references().toSeq())))
    return None


def _references(expressions: Iterable[Any]) -> set[int]:
    return {number for one in expressions for number in _ids(_items(one.references().toSeq()))}


def _origin(node: _Node, number: int) -> str | None:
    """The topic's column that the column with this id is, unchanged; None if that is not certain."""
    if node.is_rows:
        return next((_label(one) for one in _output(node) if _id(one) == number), None)
    if node.kind == "Project":
        return _projected_origin(node, number)
    if node.kind in ("CTERelationRef", "Union"):
        # Columns correspond by position: each branch has its own ids.
        index = [_id(one) for one in _output(node)].index(number)
        origins = {_origin(child, _id(_output(child)[index])) for child in node.children}
        return origins.pop() if len(origins) == 1 else None
    if node.kind in _PASSING or node.kind in ("Join", "Generate", "View", "WithCTE"):
        for child in node.children:
            if child.is_fed and number in _ids(_output(child)):
                return _origin(child, number)
    return None


def _projected_origin(node: _Node, number: int) -> str | None:
    for one in _many(node.java, "projectList"):
        if _id(one) != number:
            continue
        inner = one.child() if _kind(one) == "Alias" else one
        return _origin(node.children[0], _id(inner)) if _kind(inner) == "AttributeReference" else None
    return None
