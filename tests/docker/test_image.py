"""The commands of the Dockerfile, run in clean roots: what they make works without root and without writing.

Slow, and needs root and debootstrap: no container engine is at hand where this runs. Base images are replaced by a
Debian from debootstrap, so the size of those is not measured.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers import images
from helpers.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]
LIMIT = 400 << 20
"""Most bytes of the image as registries store it, with 45 MiB for python:3.11-slim-bookworm."""
BASE = 45 << 20

WORKER = """
[input]
file = "events.jsonl"
item = "user_id"
time = "ts"
close_at_end = true
[key]
file = "key"
[store]
kind = "dir"
path = "state"
[output]
directory = "sealed"
[[sketch]]
name = "hourly"
window = "1h"
epsilon = 1
unit = "event"
domain = { slots = 1024, levels = 2 }
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> images.Stage:
    folder = tmp_path_factory.mktemp("image")
    images.debootstrap(folder / "base")
    (folder / "stages").mkdir()
    return images.build(ROOT / "docker" / "Dockerfile", ROOT, folder / "base", folder / "stages")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder that the container's user may write to."""
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def test_the_image_counts_a_file_as_nobody_in_particular_with_a_root_that_cannot_be_written(
    image: images.Stage, data: Path
) -> None:
    mounts = {"/etc/sketchstream": data}
    (data / "sketchstream.toml").write_text(WORKER)
    lines = [json.dumps({"user_id": f"u{n % 500}", "ts": 1_700_000_000_000 + n}) for n in range(2000)]
    (data / "events.jsonl").write_text("\n".join(lines) + "\n")
    assert image.user == "10001:10001"
    assert images.contained(image, ["keygen", "-o", "key"], mounts).returncode == 0
    assert (data / "key").stat().st_uid == 10001
    done = images.contained(image, ["worker", "-c", "sketchstream.toml", "--log-format", "json"], mounts)
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stderr.splitlines()]
    assert {one["event"] for one in said} >= {"published", "ended"}
    assert all(one["level"] == "info" for one in said)
    asked = ["profile", "-c", "sketchstream.toml", "--sketch", "hourly", "--all", "--format", "json"]
    answer = json.loads(images.contained(image, asked, mounts).stdout)
    assert 350 < answer["distinct"]["value"] < 650


def test_the_root_cannot_be_written(image: images.Stage, data: Path) -> None:
    refused = images.contained(image, ["keygen", "-o", "/opt/key"], {"/etc/sketchstream": data})
    assert refused.returncode == 1
    assert "Read-only file system" in refused.stderr


def test_the_kernels_of_a_worker_are_compiled_in_the_build(image: images.Stage, data: Path) -> None:
    (data / "sketchstream.toml").write_text((ROOT / "docker" / "sketchstream.toml").read_text())
    look = (
        "import os, pathlib; from dataclasses import replace; import sketchstream as ss;"
        "from sketchstream.config.loader import Config; from sketchstream_connectors import factory;"
        "from sketchstream_connectors.kafka.worker import warm_up;"
        "folder = pathlib.Path(os.environ['NUMBA_CACHE_DIR']);"
        "before = {str(one) for one in folder.rglob('*.nbc')};"
        "config = Config.load(pathlib.Path('sketchstream.toml'));"
        "rules = factory.rules(replace(config, key_file=None));"
        "warm_up(config, replace(rules, key=ss.Key(bytes(16))));"
        "after = {str(one) for one in folder.rglob('*.nbc')};"
        "print(len(before), sorted(after - before))"
    )
    seen = images.contained(
        images.Stage(
            image.root,
            image.environment,
            folder=image.folder,
            user=image.user,
            entrypoint=["/bin/sh", "-c", 'cp -R /opt/kernels/. "$NUMBA_CACHE_DIR/"; exec python -c "$1"', "sh"],
        ),
        [look],
        {"/etc/sketchstream": data},
    )
    assert seen.returncode == 0, seen.stderr
    number, new = seen.stdout.split(" ", 1)
    assert int(number) > 20
    assert new.strip() == "[]"


def test_the_image_is_small(image: images.Stage) -> None:
    ours = images.size(image.root) - image.before
    packed = sum(images.packed_size(image.root / part) for part in ("opt/sketchstream", "opt/kernels"))
    print(f"unpacked {ours >> 20} MiB and packed {packed >> 20} MiB beyond the base image")
    assert BASE + packed < LIMIT
