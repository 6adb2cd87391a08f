"""How quick commands that only read are, when everything is warm: ledger, validate, inspect, profile.

In: nothing. Out: the median seconds of each command over the rounds, on the clock and of the processor, and the medians
of both ratios to the named peer of the same round, `python -c "import numpy"`. Touches: a temporary folder; numba's
cache and the package's byte code, as users' do.

    python bench/commands.py [--rounds 9] [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import sketchstream as ss

CONFIG = """
[input]
file = "events.jsonl"
format = "json"
item = "user"
item_type = "int"
time = "ts"
close_at_end = true
[output]
directory = "sealed"
[[sketch]]
name = "hourly"
unit = "event"
window = "1h"
epsilon = "1"
max_count = 20
domain = { size = 2000 }
"""
PEER = [sys.executable, "-c", "import numpy"]
STORED = ("profile, a kept answer", "profile -c, a kept answer")
LEAST_RECORDS = 20_000


def prepare(folder: Path) -> dict[str, list[str]]:
    """Files for the commands, and the commands."""
    hour = 1_764_000_000_000
    rows = ({"user": i % 1700, "ts": hour + i * 100} for i in range(LEAST_RECORDS))
    (folder / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "c.toml").write_text(CONFIG)
    sketch = ss.Sketch.create(ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(size=2000), max_count=20))
    sketch.update([i % 1700 for i in range(LEAST_RECORDS)])
    (folder / "one.sealed").write_bytes(sketch.seal().to_bytes())
    program = [sys.executable, "-c", "from sketchstream.cli import main; main()"]
    subprocess.run([*program, "worker", "-c", "c.toml"], cwd=folder, check=True, capture_output=True)
    return {
        name: program + words.split()
        for name, words in (
            ("ledger of a file", "ledger one.sealed"),
            ("ledger -c", "ledger -c c.toml"),
            ("inspect", "inspect one.sealed"),
            ("validate of a file", "validate -c c.toml"),
            ("profile of 2,000 slots", "profile one.sealed"),
            (STORED[0], "profile one.sealed"),
            ("profile by inversion", "profile one.sealed --method inverse"),
            ("profile -c", "profile -c c.toml"),
            (STORED[1], "profile -c c.toml"),
        )
    }


def seconds(command: list[str], folder: Path, answers: str = "") -> tuple[float, float]:
    """Of one run, on the clock and of the processor; byte code is kept, as it is by default."""
    around = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    around["SKETCHSTREAM_ANSWERS"] = answers
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env=around)
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    """Every command once to warm up, then in rounds, each beside the peer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="three rounds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        commands = {"import numpy (peer)": PEER} | prepare(folder)
        found: dict[str, list[tuple[float, ...]]] = {one: [] for one in commands}
        for warm in range(1 + (3 if options.quick else options.rounds)):
            for one, command in commands.items():
                peer = seconds(PEER, folder)
                mine = seconds(command, folder, "answers" if one in STORED else "")
                if warm:
                    found[one].append((*mine, mine[0] / peer[0], mine[1] / peer[1]))
    print(f"{'median of':26}{'clock':>8}{'processor':>11}{'to the peer':>13}{'processor':>11}")
    for one, runs in found.items():
        clock, processor, ratio, share = map(statistics.median, zip(*runs, strict=True))
        print(f"{one:26}{clock:6.2f} s{processor:9.2f} s{ratio:12.2f}x{share:10.2f}x")


if __name__ == "__main__":
    main()
