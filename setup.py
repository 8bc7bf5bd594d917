"""Builds the compiled loops: every .pyx under src. pyproject.toml has everything else.

A machine without a C compiler still gets a working package: each extension is optional, setuptools warns, and the
Python twin beside it is used.
"""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCE = Path("src")


def extensions() -> list[Extension]:
    found = []
    for path in sorted(SOURCE.glob("foldlog/**/*.pyx")):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        included = [str(piece) for piece in sorted(path.parent.glob("compiled/*.pxi"))]
        included += [str(piece) for piece in sorted(SOURCE.glob("foldlog/**/*.pxd"))]
        found.append(
            Extension(
                name,
                [str(path)],
                depends=included,
                extra_compile_args=["-O3", "-fno-strict-aliasing", "-Wno-unreachable-code"],
            )
        )
    return found


modules = cythonize(extensions(), language_level=3, include_path=[str(SOURCE)])
for module in modules:
    module.optional = True  # cythonize makes new objects and does not carry it over

setup(ext_modules=modules)
