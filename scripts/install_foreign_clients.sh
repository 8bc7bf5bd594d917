#!/bin/sh
# Installs the clients that PyPI does not have, for the tests in tests/clients/foreign: kcat, and KafkaJS with its codecs.
# What cannot be installed is named and passed over: its tests are skipped, and say so.
#
#   sh scripts/install_foreign_clients.sh
set -u
cd "$(dirname "$0")/.." || exit 1

packages=""
command -v kcat >/dev/null || packages="$packages kcat"
command -v node >/dev/null || packages="$packages nodejs"
command -v npm >/dev/null || packages="$packages npm"
if [ -n "$packages" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing$packages"
        apt-get update -qq
        for package in $packages; do
            DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq --no-install-recommends "$package" >/dev/null ||
                echo "apt-get could not install $package; its tests are skipped"
        done
    else
        echo "not installed, as that takes apt-get and root:$packages"
    fi
fi

if command -v npm >/dev/null; then
    echo "installing KafkaJS into build/kafkajs"
    mkdir -p build/kafkajs
    # No scripts of packages are run: these need none.
    timeout 300 npm install --prefix build/kafkajs --ignore-scripts --no-audit --no-fund --no-save --loglevel=error \
        kafkajs@2.2.4 kafkajs-snappy@1.1.0 lz4js@0.2.0 ||
        echo "npm could not install KafkaJS; its tests are skipped"
else
    echo "there is no npm to install KafkaJS with; its tests are skipped"
fi
