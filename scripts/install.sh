#!/bin/sh
# Install foldlog, editable and with its kernels compiled, into the virtual environment.
# usage: install.sh VENV
set -eu

venv=$1
pip="$venv/bin/python -m pip --disable-pip-version-check --quiet"

echo "[3/3] installing about 75 packages and compiling the kernels: 680 MB to download, 456 MB of them Spark, and 1.5 GB"
echo "      on disk; it takes 2 minutes with a quick network, and says nothing meanwhile"

# Without build isolation the kernels are compiled by the Cython that stands in the environment: a changed kernel is
# rebuilt in seconds, and nothing is downloaded twice. So the build tools come first.
$pip install "setuptools>=78.1.1" "Cython>=3.1"
$pip install --no-build-isolation --editable ".[dev]"

# pip compiles what it copies, and an editable install copies nothing. Where bytecode cannot be written later (a read-only
# image, PYTHONDONTWRITEBYTECODE), every start would compile each module anew.
"$venv/bin/python" -m compileall -q src

"$venv/bin/python" - <<'PYTHON'
from importlib.util import find_spec

if find_spec("foldlog.records.kernels"):
    print("foldlog is installed, with compiled kernels")
else:
    print("foldlog is installed, with the slower pure-Python kernels: they could not be compiled")
    print("  (Debian: apt-get install gcc python3-dev; then: make clean setup)")
PYTHON
