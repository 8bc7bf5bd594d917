"""The loops over batches, compiled if they were built, else in Python. All other modules import them from here.

`FOLDLOG_PURE_PYTHON=1` in the environment selects the Python ones; `COMPILED` says which are in use. Neither choice
prints anything: the install and `foldlog version` say it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foldlog.environment import PURE_PYTHON

if TYPE_CHECKING:
    from foldlog.records.kernels import *  # noqa: F403  kernels.pyi lists the names

    COMPILED: bool
else:
    if PURE_PYTHON:
        from foldlog.records import kernels_py as _chosen
    else:
        try:
            from foldlog.records import kernels as _chosen
        except ImportError:
            from foldlog.records import kernels_py as _chosen
    COMPILED = _chosen.__name__.endswith(".kernels")
    for _name in _chosen.__all__:
        globals()[_name] = getattr(_chosen, _name)
