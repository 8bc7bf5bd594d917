"""Every example in a docstring of the library runs and prints what it says.

The compiled handles have the same docstrings as their Python twins, so both are run where both are there.
"""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from types import ModuleType

import pytest

import foldlog
import foldlog.client

MODULES = ["foldlog", *(module.name for module in pkgutil.walk_packages(foldlog.client.__path__, "foldlog.client."))]


@pytest.mark.parametrize("name", MODULES)
def test_every_example_prints_what_it_says(name: str) -> None:
    module: ModuleType = importlib.import_module(name)
    results = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert results.failed == 0
