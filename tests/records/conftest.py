"""Both sets of loops, so that each test of behaviour holds for the compiled ones and for their Python twins."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import pytest

NOT_BUILT = "the compiled loops were not built; enable with: python setup.py build_ext --inplace"


def compiled_loops() -> ModuleType:
    try:
        return import_module("foldlog.records.kernels")
    except ImportError:
        pytest.skip(NOT_BUILT)


@pytest.fixture(scope="module", params=["compiled", "python"])
def loops(request: pytest.FixtureRequest) -> ModuleType:
    """One set of loops after the other."""
    if request.param == "compiled":
        return compiled_loops()
    return import_module("foldlog.records.kernels_py")


@pytest.fixture(scope="module")
def compiled() -> ModuleType:
    """The compiled loops, for tests that compare."""
    return compiled_loops()
