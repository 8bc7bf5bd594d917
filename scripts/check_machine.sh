#!/bin/sh
# Is everything here that foldlog needs? Each thing that is missing is named in one sentence, with the way to get it.
# usage: check_machine.sh PYTHON VENV
set -eu

python=$1
venv=$2
disk_needed_mb=2500 # 1.5 GB stay; unpacking Spark takes the rest for a moment
java_oldest=17
failed=0

missing() {
    echo "  missing: $1" >&2
    failed=1
}

warning() {
    echo "  warning: $1" >&2
}

echo "[1/3] checking this machine"

if ! command -v "$python" >/dev/null 2>&1; then
    missing "$python was not found; install Python 3.11 or newer (Debian: apt-get install python3 python3-venv)."
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    missing "$("$python" --version) is too old; install Python 3.11 or newer and name it: make PYTHON=python3.12 setup."
else
    if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        missing "this Python has no venv module (Debian: apt-get install python3-venv)."
    fi
    if ! command -v "${CC:-cc}" >/dev/null 2>&1; then
        warning "there is no C compiler, so the slower pure-Python kernels will be used (Debian: apt-get install gcc)."
    elif ! "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))'; then
        warning "Python's headers are missing, so the slower pure-Python kernels will be used (Debian: apt-get install python3-dev)."
    fi
fi

# Only Spark needs it, so that everything else can be tried without.
java=java
[ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java
if ! command -v "$java" >/dev/null 2>&1; then
    warning "there is no Java (looked for $java), so tests that start Spark will be skipped (Debian: apt-get install default-jre-headless)."
else
    java_version=$("$java" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1)
    if [ "${java_version:-0}" -lt "$java_oldest" ]; then
        warning "Java ${java_version:-of an unknown version} is too old for Spark, whose tests will be skipped; install Java $java_oldest or newer (Debian: apt-get install default-jre-headless)."
    fi
fi

# The environment may not exist yet: ask the file system of the nearest directory that does.
place=$venv
while [ ! -d "$place" ]; do
    place=$(dirname "$place")
done
free_mb=$(df -Pk "$place" | awk 'NR == 2 { print int($4 / 1024) }')
if [ "$free_mb" -lt "$disk_needed_mb" ]; then
    missing "$venv needs about $disk_needed_mb MB and $place has $free_mb MB free; free some, or choose another place: make VENV=/elsewhere/venv setup."
fi

exit "$failed"
