#!/bin/sh
# Removes from a virtual environment what only developers need: tests, stubs, headers, symbols, pip.
set -eu
packages=$(echo "$1"/lib/python3*/site-packages)
"$1/bin/python" -m pip uninstall --yes --quiet pip setuptools
for package in numpy scipy numba matplotlib mpl_toolkits llvmlite contourpy kiwisolver; do
  [ -d "$packages/$package" ] || continue
  find "$packages/$package" -type d -name tests -prune -exec rm -rf {} +
done
find "$packages" -type d -name __pycache__ -prune -exec rm -rf {} +
find "$packages" -type f \( -name '*.pyi' -o -name '*.pxd' -o -name '*.pyx' -o -name '*.h' -o -name '*.hpp' -o -name '*.a' -o -name '*.c' \) -delete
rm -rf "$packages/matplotlib/mpl-data/sample_data"
