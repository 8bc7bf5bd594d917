"""Which folds lie behind which: a fold that writes a topic feeds the folds that read it. Pure values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from foldlog.errors import FoldError


@dataclass(frozen=True, slots=True)
class GraphFold:
    """A fold as its graph shows it. `writes` is the topic that its view is; None for a view that ends the pipeline.
    `note` is a word on its state, for drawings.
    """

    name: str
    reads: tuple[str, ...]
    view: str
    kind: str
    writes: str | None = None
    note: str = ""


class FoldGraph:
    """Folds, upstream before downstream; else in the order in which they were given.

    >>> enrich = GraphFold("enrich", ("orders",), "topic enriched", "changes", "enriched")
    >>> mirror = GraphFold("mirror", ("enriched",), "shop.db", "table")
    >>> [fold.name for fold in FoldGraph([mirror, enrich]).folds]
    ['enrich', 'mirror']
    """

    def __init__(self, folds: Iterable[GraphFold]) -> None:
        """FoldError if a fold lies behind itself."""
        given = list(folds)
        self._writers: dict[str, list[GraphFold]] = {}
        for fold in given:
            if fold.writes is not None:
                self._writers.setdefault(fold.writes, []).append(fold)
        _refuse_cycle(given, self._writers)
        self._depths: dict[str, int] = {}
        for fold in given:
            self._find_depth(fold)
        self.folds = sorted(given, key=lambda fold: self._depths[fold.name])

    def _find_depth(self, fold: GraphFold) -> int:
        """How many folds lie before it, on the longest way. (It ends: there is no cycle.)"""
        if fold.name not in self._depths:
            before = [self._find_depth(other) for other in self.upstream(fold)]
            self._depths[fold.name] = max(before, default=-1) + 1
        return self._depths[fold.name]

    def depth(self, name: str) -> int:
        """0 for a fold that reads no other fold's topic."""
        return self._depths[name]

    def upstream(self, fold: GraphFold) -> list[GraphFold]:
        """The folds whose topics it reads."""
        return [one for topic in fold.reads for one in self._writers.get(topic, ())]

    def readers(self, topic: str) -> list[GraphFold]:
        """The folds that read a topic."""
        return [fold for fold in self.folds if topic in fold.reads]

    def downstream(self, name: str) -> list[GraphFold]:
        """All folds behind one, in the order in which they run."""
        found: set[str] = {name}
        for fold in self.folds:
            if any(one.name in found for one in self.upstream(fold)):
                found.add(fold.name)
        return [fold for fold in self.folds if fold.name in found - {name}]

    def sources(self) -> list[str]:
        """The topics that no fold writes, in the order in which they are first read."""
        return list(dict.fromkeys(topic for fold in self.folds for topic in fold.reads if topic not in self._writers))


def _refuse_cycle(folds: Iterable[GraphFold], writers: Mapping[str, list[GraphFold]]) -> None:
    done: set[str] = set()
    for fold in folds:
        under_way: list[str] = []
        stack = [iter([fold])]
        while stack:
            one = next(stack[-1], None)
            if one is None:
                stack.pop()
                if under_way:
                    done.add(under_way.pop())
                continue
            if one.name in under_way:
                _tell_cycle([*under_way[under_way.index(one.name) :], one.name])
            if one.name not in done:
                under_way.append(one.name)
                stack.append(iter([before for topic in one.reads for before in writers.get(topic, ())]))


def _tell_cycle(names: list[str]) -> None:
    shown = " <- ".join(names)
    raise FoldError(
        f"folds read what they write, in a circle ({shown}): a change would go round for ever; let one of them read"
        " another topic"
    )
