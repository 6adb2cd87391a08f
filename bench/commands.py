"""How quick commands that only read are, when everything is warm: ledger, validate, inspect, profile.

In: nothing. Out: the least seconds of each command over the rounds, and its ratio to the named peer of the same round,
`python -c "import pandas"`. Touches: a temporary folder; numba's cache and the package's byte code, as users' do.

    python bench/commands.py [--rounds 9] [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
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
PEER = [sys.executable, "-c", "import pandas"]
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
            ("profile -c", "profile -c c.toml"),
        )
    }


def seconds(command: list[str], folder: Path) -> float:
    """Of one run; byte code is kept, as it is by default."""
    around = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env=around)
    return time.perf_counter() - began


def main() -> None:
    """Every command once to warm up, then in rounds, each beside the peer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="three rounds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        commands = prepare(folder)
        for command in (PEER, *commands.values()):
            seconds(command, folder)
        peers: list[float] = []
        found: dict[str, list[tuple[float, float]]] = {one: [] for one in commands}
        for _ in range(3 if options.quick else options.rounds):
            for one, command in commands.items():
                peers.append(seconds(PEER, folder))
                found[one].append((seconds(command, folder), peers[-1]))
    print(f"import pandas (peer): {min(peers):.2f} s")
    for one, runs in found.items():
        ratio = statistics.median(mine / peer for mine, peer in runs)
        print(f"{one:24} {min(mine for mine, _ in runs):5.2f} s at least, {ratio:4.2f} times the peer (median)")


if __name__ == "__main__":
    main()
