#!/usr/bin/env bash
# Builds gpipe-train if need be and runs it: bash app/run.sh train configs/digits.yaml
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/setup.sh"
install_packages
build release gpipe-train
exec "$tree/gpipe-train" "$@"
