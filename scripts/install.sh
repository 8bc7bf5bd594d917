#!/bin/sh
# Install foldlog, editable and with its kernels compiled, into the virtual environment.
# usage: install.sh VENV
set -eu

venv=$1

# On a terminal pip says what it does, with a bar for each download. Elsewhere it draws no bars, and its lines are
# hundreds: of those, the ones that take long are kept. Its errors and warnings come by stderr, and are always shown.
install() {
    if [ -t 1 ]; then
        "$venv/bin/python" -m pip --disable-pip-version-check install "$@"
    else
        {
            code=0
            "$venv/bin/python" -m pip --disable-pip-version-check install "$@" || code=$?
            echo "pip ended with $code"
        } | what_takes_long
    fi
}

what_takes_long() {
    while IFS= read -r line; do
        case $line in
        # 10 MB and more.
        *Downloading\ *\([1-9][0-9]*MB\)) echo "      downloading ${line##*Downloading }" ;;
        Building\ wheel*:\ *) echo "      building ${line#*: }" ;;
        Installing\ collected\ *) echo "      installing $(($(echo "$line" | tr -cd , | wc -c) + 1)) packages" ;;
        pip\ ended\ with\ *) return "${line##* }" ;;
        esac
    done
}

echo "[3/3] installing about 95 packages and compiling the kernels: 680 MB to download, 456 MB of them Spark, and 1.5 GB"
echo "      on disk; it takes 2 minutes with a quick network"

# Without build isolation the kernels are compiled by the Cython that stands in the environment: a changed kernel is
# rebuilt in seconds, and nothing is downloaded twice. So the build tools come first.
install --quiet "setuptools>=78.1.1" "Cython>=3.1"
install --no-build-isolation --editable ".[dev]"

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
