"""`fold init`: a first pipeline for a topic, from its records, as a Python file to run and to change."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from typing import Final

from foldlog.errors import FoldError
from foldlog.spark.advice.inference import Proposal, propose
from foldlog.spark.folds.ranges import last_ranges
from foldlog.spark.origins.origin import Origin

SAMPLED_RECORDS: Final = 1000
"""The last ones, an equal share of each partition."""

_NO_IDENTIFIER: Final = re.compile(r"[^A-Za-z0-9_]+")


def sampled_records(origin: Origin, topic: str, last: int = SAMPLED_RECORDS) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values of the last records; FoldError if there are none."""
    bounds = origin.bounds(topic)
    found: list[tuple[bytes | None, bytes | None]] = []
    for wanted in last_ranges(topic, bounds, last):
        for batch in origin.read(wanted, ["key", "value"]):
            found.extend(zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True))
    if not any(value is not None for _, value in found):
        raise FoldError(f"topic {topic!r} has no records with a value to learn its schema from; append some")
    return found


def pipeline_text(topic: str, records: Sequence[tuple[bytes | None, bytes | None]]) -> tuple[str, Proposal]:
    """The file, and what it declares."""
    found = propose(records)
    variable = _identifier(topic)
    lines = [
        f'"""Folds of the topic {topic}. Its schema was inferred from {len(records)} records: check it."""',
        "",
        "import foldlog.spark as fl",
        "",
        *(f"# {note}" for note in found.notes),
        f"{variable} = fl.topic({', '.join(_topic_arguments(topic, found))})",
        "",
        "",
        *_main_fold(variable, found),
    ]
    if found.group is not None and found.format == "json":
        lines += ["", "", *_counters(variable, found, found.group)]
    return "\n".join(lines) + "\n", found


def _topic_arguments(topic: str, found: Proposal) -> list[str]:
    arguments = [repr(topic)]
    if found.key is not None:
        arguments.append(f"key={found.key!r}")
    if found.columns:
        arguments.append(f"schema={found.schema!r}")
    if found.format != "json":
        arguments.append(f"format={found.format!r}")
    return [*arguments, *(f"{name}={value!r}" for name, value in found.options.items())]


def _main_fold(variable: str, found: Proposal) -> list[str]:
    if found.key is None:
        view, told = (
            f'fl.lake("views/{variable}", "parquet")',
            "Every record as a row: records have no key to update by.",
        )
    else:
        view, told = (
            f'fl.table("views/{variable}.db", "{variable}")',
            "The newest row of each key; a tombstone deletes.",
        )
    return [f"@fl.fold({variable}, into={view})", f"def {variable}_rows(rows):", f'    """{told}"""', "    return rows"]


def _counters(variable: str, found: Proposal, group: str) -> list[str]:
    measures = '"records": fl.count()'
    if found.measure is not None:
        measures += f', "{_identifier(found.measure)}_sum": fl.sum({found.measure!r})'
    into = f'fl.counters("views/{variable}_counts.db", by=[{group!r}], measures={{{measures}}})'
    return [
        f"@fl.fold({variable}, into={into})",
        f"def {variable}_by_{_identifier(group)}(rows):",
        f'    """Records for each {group}."""',
        "    return rows",
    ]


def _identifier(text: str) -> str:
    """
    >>> _identifier("shop.public-items"), _identifier("7 days"), _identifier("class")
    ('shop_public_items', 't_7_days', 'class_')
    """
    found = _NO_IDENTIFIER.sub("_", text).strip("_") or "topic"
    if found[0].isdigit():
        found = f"t_{found}"
    return f"{found}_" if keyword.iskeyword(found) or found == "fl" else found
