"""Pickling of the values of the record loops: by name, so that processes with and without compiled loops can read each
other's pickles."""

from __future__ import annotations

from typing import Any

REBUILT = frozenset({"BatchHeader", "CompactStats", "Record", "Walk"})


def rebuild(name: str, values: tuple[Any, ...]) -> Any:
    """An instance of this process's own class of that name."""
    from foldlog.records import loops

    if name not in REBUILT:
        raise ValueError(f"{name!r} is not a value of foldlog.records.loops")
    return getattr(loops, name)(*values)
