"""Which modules a fold's function takes with it to the Python workers: its file, and what that imports from beside it.

Workers cannot import these: the file was run by its path, and its directory is only on the driver's path. So their
functions are pickled by value, which works on this machine and on others. Installed packages are not touched: they have
to be installed on the workers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

from pyspark.cloudpickle import list_registry_pickle_by_value, register_pickle_by_value

from foldlog.spark.folds.declaration import PIPELINE_MODULE, Fold

_OURS: Final = "foldlog"


def ship(fold: Fold) -> None:
    """Have functions of the fold's file and of its neighbours pickled by value. Does nothing for a fold that was not
    loaded from a file: Python can import its module, or Spark sends it by itself.
    """
    home = sys.modules.get(fold.function.__module__)
    if home is None or not home.__name__.startswith(PIPELINE_MODULE) or home.__file__ is None:
        return
    known = list_registry_pickle_by_value()  # type: ignore[no-untyped-call]
    for module in (home, *_beside(Path(home.__file__).resolve().parent)):
        if module.__name__ not in known:
            register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _beside(directory: Path) -> Iterator[ModuleType]:
    """Modules and packages that were imported from the directory itself, not from a subdirectory."""
    for name, module in list(sys.modules.items()):
        if "." in name or name in (_OURS, "__main__") or not isinstance(module, ModuleType):
            continue
        path = getattr(module, "__file__", None)
        if path is None:
            continue
        file = Path(path).resolve()
        if (file.parent.parent if file.name == "__init__.py" else file.parent) == directory:
            yield module
