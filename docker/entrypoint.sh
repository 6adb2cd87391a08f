#!/bin/sh
# Puts the compiled kernels of the image where numba may write too, and runs `sketchstream` with the arguments given.
set -eu
if [ -w "$NUMBA_CACHE_DIR" ] && [ ! -e "$NUMBA_CACHE_DIR/.from-image" ]; then
  cp -R /opt/kernels/. "$NUMBA_CACHE_DIR/"
  : >"$NUMBA_CACHE_DIR/.from-image"
fi
exec sketchstream "$@"
