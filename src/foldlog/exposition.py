"""Prometheus' text exposition format, version 0.0.4: families of samples in, text out. Without any I/O.

    # HELP foldlog_connections Open connections.
    # TYPE foldlog_connections gauge
    foldlog_connections 12

Not promised: OpenMetrics, timestamps and exemplars; every Prometheus reads this version.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, Literal, NamedTuple

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]
"""Names and values; the names are ours, values may be any text."""

Kind = Literal["counter", "gauge", "histogram"]


class Sample(NamedTuple):
    """One line. A histogram appends `suffix` to the name of its family."""

    value: float
    labels: Labels = ()
    suffix: str = ""


class Family(NamedTuple):
    """One metric with all its samples."""

    name: str
    kind: Kind
    help: str
    samples: Sequence[Sample]


class Histogram:
    """Counts of values by bounds. Not synchronised: one thread observes, or all observers hold a lock.

    >>> sizes = Histogram((1, 10))
    >>> for value in (1, 2, 30):
    ...     sizes.observe(value)
    >>> sizes.counts, sizes.sum
    ([1, 1, 1], 33.0)
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds` are inclusive and in order; larger values are counted, too."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def samples(self, labels: Labels = ()) -> list[Sample]:
        """Its lines: every bucket includes the lower ones, as the format requires."""
        totals = list(accumulate(self.counts))
        bounds = [format_value(bound) for bound in self.bounds] + ["+Inf"]
        buckets = [
            Sample(total, (*labels, ("le", bound)), "_bucket") for total, bound in zip(totals, bounds, strict=True)
        ]
        return [*buckets, Sample(self.sum, labels, "_sum"), Sample(totals[-1], labels, "_count")]


def render(families: Iterable[Family]) -> bytes:
    """The families as text. One without samples is left out."""
    lines: list[str] = []
    for name, kind, text, samples in families:
        if not samples:
            continue
        lines.append(f"# HELP {name} {_escape_help(text)}")
        lines.append(f"# TYPE {name} {kind}")
        for value, labels, suffix in samples:
            lines.append(f"{name}{suffix}{_format_labels(labels)} {format_value(value)}")
    lines.append("")
    # A name that is not valid text (half a surrogate pair) must not break the whole page.
    return "\n".join(lines).encode("utf-8", "replace")


def format_value(value: float) -> str:
    """
    >>> [format_value(value) for value in (12, 0.25, 10.0, float("inf"), float("-inf"), float("nan"))]
    ['12', '0.25', '10.0', '+Inf', '-Inf', 'NaN']
    """
    if isinstance(value, int):
        return str(value)
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def _format_labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape_label(value)}"' for name, value in labels) + "}"


def _escape_label(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
