"""The loops over batches, compiled where they were built, else in Python. Everybody imports them from here.

`FOLDLOG_PURE_PYTHON=1` in the environment chooses the Python ones; `COMPILED` tells which are in use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foldlog.environment import PURE_PYTHON

if TYPE_CHECKING:
    from foldlog.records.kernels import *  # noqa: F403  kernels.pyi lists the names

    COMPILED: bool
else:
    try:
        if PURE_PYTHON:
            raise ImportError
        from foldlog.records import kernels as _chosen

        COMPILED = True
    except ImportError:
        from foldlog.records import kernels_py as _chosen

        COMPILED = False
    for _name in _chosen.__all__:
        globals()[_name] = getattr(_chosen, _name)
