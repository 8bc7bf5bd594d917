"""Drawings of a graph of folds: as a tree of text for terminals, and as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from foldlog.client.fold_graphs.graph import FoldGraph, GraphFold

# --- terminals --------------------------------------------------------------------------------------------------------


def as_text(graph: FoldGraph) -> str:
    """A tree from the topics that no fold writes. A fold that reads several topics is drawn at the first of them.

    >>> enrich = GraphFold("enrich", ("orders",), "topic enriched", "changes", "enriched")
    >>> print(as_text(FoldGraph([enrich, GraphFold("mirror", ("enriched",), "shop.db", "table")])))
    orders
    └─ enrich → topic enriched
       └─ mirror → table shop.db
    """
    lines: list[str] = []
    drawn: set[str] = set()
    for topic in graph.sources():
        lines.append(topic)
        lines += _branches(graph, topic, "", drawn)
    return "\n".join(lines)


def _branches(graph: FoldGraph, topic: str, indent: str, drawn: set[str]) -> Iterator[str]:
    readers = graph.readers(topic)
    for number, fold in enumerate(readers):
        is_last = number == len(readers) - 1
        yield f"{indent}{'└─' if is_last else '├─'} {_line(fold, topic, is_again=fold.name in drawn)}"
        if fold.name in drawn:
            continue
        drawn.add(fold.name)
        if fold.writes is not None:
            yield from _branches(graph, fold.writes, indent + ("   " if is_last else "│  "), drawn)


def _line(fold: GraphFold, topic: str, *, is_again: bool) -> str:
    if is_again:
        return f"{fold.name} (above)"
    others = [other for other in fold.reads if other != topic]
    also = f" (with {', '.join(others)})" if others else ""
    note = f"  [{fold.note}]" if fold.note else ""
    return f"{fold.name}{also} → {view_text(fold)}{note}"


def view_text(fold: GraphFold) -> str:
    """Where it writes; the places of topics and tables say what they are."""
    is_told = fold.writes is not None or fold.view.startswith(f"{fold.kind} ")
    return fold.view if is_told else f"{fold.kind} {fold.view}"


# --- SVG --------------------------------------------------------------------------------------------------------------

_CHARACTER_PX: Final = 7.3
_HEIGHT_PX: Final = 44
_GAP_PX: Final = 18
_BETWEEN_PX: Final = 64
_MARGIN_PX: Final = 16
_TEXT_MAX: Final = 34


@dataclass(frozen=True, slots=True)
class _Box:
    """A topic, a fold or a view, at its place."""

    key: str
    shape: str
    title: str
    detail: str
    x: float
    y: float
    width: float

    @property
    def middle(self) -> float:
        return self.y + _HEIGHT_PX / 2


@dataclass(frozen=True, slots=True)
class _Item:
    """What stands in a box."""

    key: str
    shape: str
    title: str
    detail: str


def as_svg(graph: FoldGraph) -> str:
    """A picture by itself, in columns from left to right: topics, folds that read them, what those write, and so on.
    It follows the colours of its reader's system, light or dark.
    """
    columns, arrows = _columns(graph)
    boxes = _placed(columns)
    width = max((box.x + box.width for box in boxes.values()), default=0) + _MARGIN_PX
    height = max((box.y + _HEIGHT_PX for box in boxes.values()), default=0) + _MARGIN_PX
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="The graph of folds">',
        _STYLE,
        _ARROW_HEAD,
        *(_arrow(boxes[one], boxes[other]) for one, other in arrows),
        *(_box(box) for box in boxes.values()),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


_STYLE: Final = (
    "<style>text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:#1d2530}.detail{font-size:10.5px;fill:#66707c}"
    "rect{stroke:#66707c;fill:#fff}.topic rect{fill:#e8f1fb;stroke:#3b78b5}.fold rect{fill:#fdf3dc;stroke:#b98a1d}"
    ".view rect{fill:#e9f6ec;stroke:#3f8f55}path{stroke:#66707c;fill:none}.head{fill:#66707c;stroke:none}"
    "@media(prefers-color-scheme:dark){text{fill:#e6e9ed}.detail{fill:#9aa4b0}.topic rect{fill:#15293d}"
    ".fold rect{fill:#3a2f14}.view rect{fill:#163021}}</style>"
)


_ARROW_HEAD: Final = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 8 4 0 8z" class="head"/></marker></defs>'
)


def _columns(graph: FoldGraph) -> tuple[list[list[_Item]], list[tuple[str, str]]]:
    """Topics at even places, folds at odd ones; views beside the topics that folds of the same depth write."""
    deepest = max((graph.depth(fold.name) for fold in graph.folds), default=-1)
    columns: list[list[_Item]] = [[] for _ in range(2 * deepest + 3)]
    arrows: list[tuple[str, str]] = []
    for topic in graph.sources():
        columns[0].append(_Item(f"topic {topic}", "topic", topic, "topic"))
    for fold in graph.folds:
        at = 2 * graph.depth(fold.name) + 1
        columns[at].append(_Item(f"fold {fold.name}", "fold", fold.name, fold.note or "fold"))
        arrows += [(f"topic {topic}", f"fold {fold.name}") for topic in fold.reads]
        if fold.writes is not None:
            end = _Item(f"topic {fold.writes}", "topic", fold.writes, "topic of changes")
        else:
            end = _Item(f"view {fold.name}", "view", fold.view, fold.kind)
        arrows.append((f"fold {fold.name}", end.key))
        if all(end.key != one.key for column in columns for one in column):
            columns[at + 1].append(end)
    return columns, arrows


def _placed(columns: Sequence[Sequence[_Item]]) -> dict[str, _Box]:
    boxes: dict[str, _Box] = {}
    x: float = _MARGIN_PX
    for column in columns:
        width = max((_width(item) for item in column), default=0.0)
        for number, item in enumerate(column):
            y = _MARGIN_PX + number * (_HEIGHT_PX + _GAP_PX)
            boxes[item.key] = _Box(item.key, item.shape, item.title, item.detail, x, y, width)
        x += width + _BETWEEN_PX
    return boxes


def _width(item: _Item) -> float:
    return _CHARACTER_PX * max(len(_cut(item.title)), len(_cut(item.detail)), 6) + 20


def _cut(text: str) -> str:
    """The end of a long text: the file at the end of a path tells more than its first directory."""
    return text if len(text) <= _TEXT_MAX else "…" + text[-(_TEXT_MAX - 1) :]


def _box(box: _Box) -> str:
    round_px = 20 if box.shape == "topic" else 4
    return (
        f'<g class="{box.shape}"><title>{escape(box.title)} ({escape(box.detail)})</title>'
        f'<rect x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" height="{_HEIGHT_PX}" rx="{round_px}"/>'
        f'<text x="{box.x + 10:.0f}" y="{box.y + 19:.0f}">{escape(_cut(box.title))}</text>'
        f'<text class="detail" x="{box.x + 10:.0f}" y="{box.y + 34:.0f}">{escape(_cut(box.detail))}</text></g>'
    )


def _arrow(one: _Box, other: _Box) -> str:
    start, end = one.x + one.width, other.x - 1
    bend = (start + end) / 2
    return (
        f'<path d="M{start:.0f} {one.middle:.0f}C{bend:.0f} {one.middle:.0f} {bend:.0f} {other.middle:.0f}'
        f' {end:.0f} {other.middle:.0f}" marker-end="url(#head)"/>'
    )
