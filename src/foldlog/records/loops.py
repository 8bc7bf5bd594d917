"""The loops over batches, compiled if they were built, else in Python. All other modules import them from here.

`FOLDLOG_PURE_PYTHON=1` in the environment selects the Python ones; `COMPILED` says which are in use.
"""

from __future__ import annotations

import warnings
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

            warnings.warn(
                "foldlog's compiled loops were not built, so their Python twins are used: the same results, some"
                " hundred times slower; install a C compiler and install foldlog again",
                RuntimeWarning,
                stacklevel=2,
            )
    COMPILED = _chosen.__name__.endswith(".kernels")
    for _name in _chosen.__all__:
        globals()[_name] = getattr(_chosen, _name)
