"""Small SVG charts, written without a library: bars in groups, and points on a logarithmic axis.

Every bar and point has its figure and its name beside it, so nothing depends on a colour alone. The picture brings its
own background and follows the reader's light or dark setting, so it can be read on any page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

WIDTH: Final = 760
LABELS_WIDTH: Final = 236
_TEXT_ROOM: Final = 190
_TOP: Final = 46
_BAR: Final = 15
_BAR_STEP: Final = 20
_GROUP_GAP: Final = 14
_POINT_STEP: Final = 44
_BOTTOM: Final = 16
_AXIS: Final = 30
_CHARACTER: Final = 6.4
"""About the width of a letter at 12 pixels, to keep labels apart."""

_COLOURS: Final = {
    # series: (on light, on dark)
    "other": ("#8b93a3", "#8d96a8"),
    "other-2": ("#b9bfca", "#667085"),
    "ours": ("#3f51b5", "#8c9eff"),
    "ours-2": ("#8591d6", "#5c6bc0"),
    "ours-3": ("#b9c1ea", "#46508f"),
    "limit": ("#c77c11", "#e0a64b"),
}


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure with its spread. `series` chooses the colour, `name` stands beside it."""

    series: str
    name: str
    value: float
    low: float
    high: float
    text: str


@dataclass(frozen=True, slots=True)
class Group:
    """Bars that are compared with each other."""

    label: str
    bars: Sequence[Bar]


@dataclass(frozen=True, slots=True)
class Point:
    """A figure on a line of its own, such as a percentile."""

    name: str
    value: float
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """Points that belong together, from the least to the most."""

    label: str
    series: str
    points: Sequence[Point]


def bar_chart(title: str, description: str, groups: Sequence[Group]) -> str:
    """Horizontal bars from zero, all on one scale."""
    most = max((bar.high for group in groups for bar in group.bars), default=0.0) or 1.0
    room = WIDTH - LABELS_WIDTH - _TEXT_ROOM
    body: list[str] = []
    y = float(_TOP)
    for group in groups:
        middle = y + len(group.bars) * _BAR_STEP / 2 - 1
        body.append(_text(LABELS_WIDTH - 12, middle, group.label, "label", anchor="end"))
        for bar in group.bars:
            body += _bar(bar, y, room / most)
            y += _BAR_STEP
        y += _GROUP_GAP
    height = y - _GROUP_GAP + _BOTTOM
    axis = f'<line class="axis" x1="{LABELS_WIDTH}" y1="{_TOP - 6}" x2="{LABELS_WIDTH}" y2="{_round(height - 10)}"/>'
    return _document(title, description, height, [*body, axis])


def _bar(bar: Bar, y: float, scale: float) -> list[str]:
    end = LABELS_WIDTH + bar.value * scale
    middle = y + _BAR / 2
    low, high = (LABELS_WIDTH + edge * scale for edge in (bar.low, bar.high))
    size = f'width="{_round(max(1.0, end - LABELS_WIDTH))}" height="{_BAR}"'
    found = [f'<rect class="{bar.series}" x="{LABELS_WIDTH}" y="{_round(y)}" {size} rx="2"/>']
    if high > low:
        found.append(
            f'<path class="spread" d="M{_round(low)} {_round(middle)}H{_round(high)}'
            f'M{_round(low)} {_round(middle - 3)}v6M{_round(high)} {_round(middle - 3)}v6"/>'
        )
    found.append(
        f'<text class="value" x="{_round(max(end, high) + 7)}" y="{_round(middle + 4)}">{escape(bar.text)}'
        f'<tspan class="name" dx="6">{escape(bar.name)}</tspan></text>'
    )
    return found


def point_chart(title: str, description: str, lines: Sequence[Line]) -> str:
    """Points on a logarithmic axis: for latencies, whose tails are far away."""
    values = [point.value for line in lines for point in line.points if point.value > 0]
    least, most = math.log10(min(values)), math.log10(max(values))
    least, most = math.floor(least * 2) / 2, math.ceil(most * 2) / 2 + (0.5 if least == most else 0)
    room = WIDTH - LABELS_WIDTH - 90

    def x_of(value: float) -> float:
        return LABELS_WIDTH + 10 + (math.log10(max(value, 10**least)) - least) / (most - least) * room

    body: list[str] = []
    height = _TOP + len(lines) * _POINT_STEP + _AXIS
    for power in range(math.ceil(least), math.floor(most) + 1):
        x = _round(x_of(10.0**power))
        body.append(f'<line class="grid" x1="{x}" y1="{_TOP - 8}" x2="{x}" y2="{height - _AXIS}"/>')
        body.append(f'<text class="name" x="{x}" y="{height - 10}" text-anchor="middle">{_seconds(10.0**power)}</text>')
    for number, line in enumerate(lines):
        y = _TOP + number * _POINT_STEP + _POINT_STEP / 2
        body.append(_text(LABELS_WIDTH - 12, y, line.label, "label", anchor="end"))
        places = [x_of(point.value) for point in line.points]
        body.append(
            f'<line class="{line.series}" x1="{_round(places[0])}" y1="{_round(y)}" x2="{_round(places[-1])}"'
            f' y2="{_round(y)}" stroke-width="3"/>'
        )
        body += _points(line, places, y)
    return _document(title, description, height, body)


def _points(line: Line, places: Sequence[float], y: float) -> list[str]:
    """Each with its text: above, or below where the last one above is too near."""
    found = []
    free_above = -math.inf
    for point, x in zip(line.points, places, strict=True):
        text = f"{point.name} {point.text}"
        half = len(text) * _CHARACTER / 2
        is_above = x - half > free_above
        if is_above:
            free_above = x + half + 4
        found.append(f'<circle class="{line.series}" cx="{_round(x)}" cy="{_round(y)}" r="5"/>')
        found.append(_text(x, y - 13 if is_above else y + 17, text, "value", anchor="middle"))
    return found


def _document(title: str, description: str, height: float, body: Sequence[str]) -> str:
    light = "".join(_rules(name, colours[0]) for name, colours in _COLOURS.items())
    dark = "".join(_rules(name, colours[1]) for name, colours in _COLOURS.items())
    style = (
        "text{font:12px system-ui,sans-serif}.title{font-size:14px;font-weight:600}"
        ".paper{fill:#fff;stroke:#d8dce4}.title,.label,.value{fill:#1d2330}.name{fill:#5a6375}"
        ".axis,.spread{stroke:#3b4252;fill:none}.grid{stroke:#e3e6ec}"
        f"{light}@media (prefers-color-scheme:dark){{.paper{{fill:#1e2129;stroke:#3a4150}}"
        ".title,.label,.value{fill:#e8eaf0}.name{fill:#a9b1c2}.axis,.spread{stroke:#cfd4e0}.grid{stroke:#343a47}"
        f"{dark}}}"
    )
    size, role = _round(height), 'role="img" aria-labelledby="title description"'
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {size}" width="{WIDTH}" height="{size}" {role}>',
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="description">{escape(description)}</desc>',
        f"<style>{style}</style>",
        f'<rect class="paper" x="0.5" y="0.5" width="{WIDTH - 1}" height="{_round(height - 1)}" rx="8"/>',
        f'<text class="title" x="16" y="26">{escape(title)}</text>',
        *body,
        "</svg>",
        "",
    ])  # fmt: skip


def _rules(name: str, colour: str) -> str:
    return f".{name}{{fill:{colour};stroke:{colour};stroke-width:0}}line.{name}{{stroke-width:3}}"


def _text(x: float, y: float, text: str, kind: str, *, anchor: str) -> str:
    return f'<text class="{kind}" x="{_round(x)}" y="{_round(y + 4)}" text-anchor="{anchor}">{escape(text)}</text>'


def _round(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _seconds(value: float) -> str:
    if value >= 1:
        return f"{value:.0f} s"
    return f"{value * 1e3:.0f} ms" if value >= 1e-3 else f"{value * 1e6:.0f} µs"
