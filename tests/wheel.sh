#!/usr/bin/env bash
# Builds the wheel, installs it for a Python in a new environment, and runs there what a user starts
# with and then the tests that are not slow.
#
#   tests/wheel.sh PYTHON [CONSTRAINTS [PYTEST ARGUMENTS]]
#   tests/wheel.sh ~/.pyenv/versions/3.13.0/bin/python
#   tests/wheel.sh python3.11 lowest.txt tests/models
#
# The environment takes about 5 GB where torch is its CUDA build. It is removed at the end, unless
# ATTNLIGHT_VENV names its folder.
set -euo pipefail

python=${1:?a Python to install the wheel for} versions=$(realpath "${2:-constraints.txt}")
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
venv=${ATTNLIGHT_VENV:-$scratch/venv}
unset PYTHONPATH VIRTUAL_ENV
"$python" -m venv "$venv"
"$venv/bin/python" -m pip install -q build
"$venv/bin/python" -m build -o "$scratch/dist" .
ls -l "$scratch"/dist/*
"$venv/bin/python" -m pip install -q -c "$versions" "$(echo "$scratch"/dist/*.whl)[dev]"
mkdir "$scratch/home"
(cd "$scratch/home" && "$venv/bin/attnlight" env)
(cd "$scratch/home" && "$venv/bin/attnlight" explain sst "a gripping , funny film")
(cd "$scratch/home" && "$venv/bin/attnlight" demo)
"$venv/bin/python" -m pytest -n "${WORKERS:-2}" --dist worksteal -m 'not slow' "${@:3}"
