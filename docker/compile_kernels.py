"""Runs what workers and services compute once, so that numba's cache in the image has the compiled kernels.

In: nothing. Out: files in NUMBA_CACHE_DIR. Touches: that folder.
"""

from __future__ import annotations

import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

import sketchstream as ss
from sketchstream.config.loader import Config
from sketchstream.testing.driver import Driver
from sketchstream_connectors import factory
from sketchstream_connectors.kafka.fetch import fetch_patch
from sketchstream_connectors.kafka.worker import warm_up

TEXT = """
[kafka]
"bootstrap.servers" = "unused:9092"
"group.id" = "image"
[input]
topic = "events"
format = "{form}"
item_type = "{item_type}"
partitioned_by = "item"
partitioner = "murmur2"
{fields}
[key]
file = "unused"
[[sketch]]
name = "sketch"
window = "1h"
epsilon = 1
unit = "{unit}"
domain = {domain}
"""
FIELDS = 'item = "user_id"\ntime = "ts"'


def configurations() -> list[Config]:
    """Every payload format, both units, both kinds of domain."""
    opened, closed = "{ slots = 65536, levels = 2 }", "{ size = 65536 }"  # so many that noise is drawn in blocks
    wanted = [
        ("json", "text", "event", opened),
        ("json", "text", "item", opened),
        ("json", "int", "event", closed),
        ("key", "text", "event", opened),
        ("packed", "int", "event", opened),
    ]
    return [
        Config.parse(
            TEXT.format(
                form=form, item_type=item_type, unit=unit, domain=domain, fields=FIELDS if form == "json" else ""
            )
        )
        for form, item_type, unit, domain in wanted
    ]


def compile_worker(config: Config) -> None:
    """What a worker runs before it joins its group, and a window from its first record to its answer."""
    key = ss.Key(bytes(16))
    rules = factory.rules(replace(config, key_file=None))
    warm_up(config, replace(rules, key=key))


def compile_answers() -> None:
    """A window from its first record to its profile."""
    for unit in ("event", "item"):
        text = TEXT.format(
            form="json", item_type="text", unit=unit, domain="{ slots = 1024, levels = 2 }", fields=FIELDS
        )
        start = 1_700_000_000_000
        driver = Driver(text, key=ss.Key(bytes(16)), now=start + 86_400_000)
        for number in range(600):
            driver.send(
                {"user_id": f"u{number % 97}", "ts": start + number * 20_000}, timestamp=start + number * 20_000
            )
        driver.run()
        for window in driver.windows("sketch"):
            window.result().profile()
    closed = ss.Sketch.create(ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(size=1000), max_count=50))
    closed.update(np.arange(500))
    closed.seal().profile()


def main() -> None:
    """Compile everything."""
    warnings.simplefilter("ignore")
    began = time.monotonic()
    fetch_patch.self_test()
    for config in configurations():
        compile_worker(config)
    compile_answers()
    from numba import config as numba_config

    folder = Path(numba_config.CACHE_DIR)
    files = list(folder.rglob("*.nbc"))
    size = sum(path.stat().st_size for path in files)
    sys.stdout.write(f"{len(files)} compiled functions, {size >> 10} KiB, in {time.monotonic() - began:.0f} s\n")


if __name__ == "__main__":
    main()
