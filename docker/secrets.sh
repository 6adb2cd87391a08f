#!/bin/sh
# Makes the secrets of docker/compose.yaml: the hash key, and a token with which Prometheus and you ask the service.
# What is there already stays. Needs sketchstream (pip, or the image that compose builds) and python3.
set -eu
umask 077
folder=${1:-$(dirname "$0")/secrets}
mkdir -p "$folder"
if [ ! -e "$folder/sketch.key" ]; then
  if command -v sketchstream >/dev/null; then
    sketchstream keygen -o "$folder/sketch.key"
  else
    docker run --rm --user "$(id -u):$(id -g)" --volume "$(realpath "$folder"):/out" sketchstream keygen -o /out/sketch.key
  fi
fi
if [ ! -e "$folder/metrics.token" ]; then
  python3 -c 'import secrets; print(secrets.token_urlsafe(32), end="")' >"$folder/metrics.token"
fi
cat >"$folder/tokens.toml" <<END
[[token]]
name = "metrics"
sha256 = "$(sha256sum <"$folder/metrics.token" | cut -d " " -f 1)"
sketches = "*"
END
echo "secrets are in $folder"
