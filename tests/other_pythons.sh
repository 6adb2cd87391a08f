#!/bin/sh
# Installs the wheel under another Python, beside the tests of the sdist, and runs the quick ones of them.
#
# In: a Python; a folder to fill; the folder of wheel and sdist. Out: the tests' report. Touches: the folder to fill.
# `make pythons` and `make newer-python` call it, the latter inside the folder of another Debian release.
set -eu
python=$1 place=$2 dist=$3
rm -rf "$place"
mkdir -p "$place"
"$python" -m venv "$place/env"
tar xzf "$dist"/*.tar.gz --strip-components=1 -C "$place"
"$place/env/bin/pip" install --quiet --disable-pip-version-check -c "$place/constraints.txt" "$(ls "$dist"/*.whl)[all,dev]"
cd "$place"
rm -rf sketchstream connectors examples/sketchstream_demo # what is tested is the wheel
PATH=$place/env/bin:$PATH NUMBA_CACHE_DIR=$place/numba env/bin/python -m pytest -q \
  -m 'not slow and not statistics and not kafka and not browser' \
  tests/sketch tests/wire tests/noise tests/config tests/query
