"""Builds the compiled loops, every .pyx under src, and the readme as PyPI shows it. pyproject.toml has everything else.

A machine without a C compiler still gets a working package: each extension is optional, setuptools warns, and the
Python twin beside it is used. `foldlog version` says which are in use.
"""

import re
import tomllib
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
                # Without debug information, which many Pythons ask for: it is four fifths of a wheel's bytes.
                extra_compile_args=["-O3", "-g0", "-fno-strict-aliasing", "-Wno-unreachable-code"],
            )
        )
    return found


def readme() -> str:
    """README.md, its relative links made absolute: each leads to the file as it was at this version's tag."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    repository = project["urls"]["Repository"]
    package = (SOURCE / "foldlog" / "__init__.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'^__version__ = "(.+)"$', package, flags=re.MULTILINE)
    tag = f"v{version}"
    text = Path("README.md").read_text(encoding="utf-8")
    text = re.sub(r"(!\[[^]]*\])\((?!\w+:)([^)]+)\)", rf"\1({repository}/raw/{tag}/\2)", text)
    return re.sub(r"\]\((?!\w+:|#)([^)]+)\)", rf"]({repository}/blob/{tag}/\1)", text)


modules = cythonize(extensions(), language_level=3, include_path=[str(SOURCE)])
for module in modules:
    module.optional = True  # cythonize makes new objects and does not carry it over

setup(ext_modules=modules, long_description=readme(), long_description_content_type="text/markdown")
