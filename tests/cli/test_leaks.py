"""A marked item goes through every command, in good records and in bad ones: no output of any of them has it."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.commands import Run

pytestmark = pytest.mark.statistics

Made = Callable[..., Path]
MARK = "zebra-7731-marked"
WEIGHT = "918273645"


def parquet() -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"user": [MARK, MARK]}), out)
    return out.getvalue()


INPUTS: dict[str, tuple[bytes, list[str]]] = {
    "good.jsonl": (
        f'{{"user":"{MARK}"}}\n{{"user":"{MARK}","n":{WEIGHT}}}\n'.encode(),
        ["--item", "user", "--weight", "n"],
    ),
    "bad.jsonl": (
        f'{{"user":"{MARK}"\n{{"user":["{MARK}"]}}\n"{MARK}"\n{{"{MARK}":1}}\n{MARK}\n{{"user":{WEIGHT}e5}}\n'.encode(),
        ["--item", "user"],
    ),
    "good.csv": (f"user,n\n{MARK},1\n{MARK},{WEIGHT}\n".encode(), ["--item", "user", "--weight", "n"]),
    "long.csv": (f"user\n{MARK},{MARK}\n".encode(), ["--item", "user"]),
    "quoted.csv": (f'user\n"{MARK}"x\n'.encode(), ["--item", "user"]),
    "bytes.csv": (f"user\n{MARK}\xff\n".encode("latin-1"), ["--item", "user"]),
    "lines.txt": (f"{MARK}\n{MARK}\r\n".encode() + MARK.encode() + b"\xff\n", []),
    "good.parquet": (parquet(), ["--item", "user"]),
    "bad.parquet": (b"PAR1" + MARK.encode(), ["--item", "user"]),
    "bad.msgpack": (msgpack.packb({"i": MARK.encode(), "w": MARK.encode(), "t": MARK}), []),
    "cut.msgpack": (msgpack.packb({"i": MARK.encode()})[:-3], []),
    "ids.msgpack": (msgpack.packb({"i": np.array([int(WEIGHT)], "<u8").tobytes()}), []),
}


def test_marked_item_is_in_no_output_of_any_command(run: Run, made: Made, key: Path, tmp_path: Path) -> None:
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    for name, (data, _) in INPUTS.items():
        (inputs / name).write_bytes(data)
    said: list[str] = []
    codes: dict[str, int] = {}

    def call(*arguments: str | Path) -> int:
        result = run(*arguments)
        said.append(result.out + result.err)
        return int(result.code)

    made()
    for name, (_, options) in INPUTS.items():
        codes[name] = call("update", "s.sketch", inputs / name, *options, "--key-file", key, "--diagnostics", "exact")
    # both kinds of ends were met: files that could be read to their end, and files that could not
    good = {name for name, code in codes.items() if code == 0}
    assert good >= {"good.jsonl", "bad.jsonl", "good.csv", "long.csv", "quoted.csv", "bytes.csv", "lines.txt"}
    assert {name for name, code in codes.items() if code == 1} >= {"bad.parquet", "cut.msgpack"}
    for form in ("table", "json", "csv"):
        call("inspect", "s.sketch", "--format", form)
        call("ledger", "s.sketch", "--format", form)
        call("profile", "s.sketch", "--format", form)
    call("release", "s.sketch", "-o", "look", "--epsilon", "1", "--key-file", key)
    (tmp_path / "open").write_bytes((tmp_path / "s.sketch").read_bytes())
    call("seal", "s.sketch", "-o", "s.sealed", "--key-file", key)
    for form in ("table", "json", "csv"):
        for name in ("look", "s.sealed"):
            call("profile", name, "--format", form)
            call("inspect", name, "--format", form)
            call("ledger", name, "--format", form)
    call("profile", "s.sealed", "--plot", "profile.svg")
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and inputs not in path.parents]
    assert len(written) >= 5
    everything = "\n".join(said).encode() + b"\0".join(written)
    assert MARK.encode() not in everything
    assert WEIGHT.encode() not in everything


CONFIG = """
[input]
file = "{file}"
item = "user"
time = "ts"
lateness = "1m"
quorum = 1
quorum_time = "1ms"
close_at_end = true
[key]
file = "key"
[[sketch]]
name = "s"
unit = "event"
window = "1h"
epsilon = "1"
domain = {{ slots = 1024, levels = 2 }}
"""


@pytest.mark.parametrize("name", ["good.jsonl", "bad.jsonl", "broken.csv"])
def test_marked_item_is_in_no_output_of_the_worker(spawn: Run, run: Run, key: Path, tmp_path: Path, name: str) -> None:
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    start = 1_357_000_000_000
    contents = {
        "good.jsonl": f'{{"user":"{MARK}","ts":{start}}}\n{{"user":"{MARK}","ts":{start + 8_000_000}}}\n',
        "bad.jsonl": f'{{"user":"{MARK}","ts":{start}}}\n{MARK}\n{{"user":1.5,"ts":"{MARK}"}}\n{{"ts":"{MARK}"}}\n',
        "broken.csv": f"user,ts\n{MARK},{start}\n{MARK},{MARK},{MARK}\n",
    }
    (inputs / name).write_text(contents[name])
    (tmp_path / "c.toml").write_text(CONFIG.format(file=f"inputs/{name}"))
    said = []
    for command in (
        ["worker", "--log-level", "debug"],
        ["worker"],
        ["profile", "--all", "--format", "json"],
        ["ledger"],
    ):
        result = spawn(*command, "-c", "c.toml")
        said.append(result.out + result.err)
        assert "Traceback" not in result.err
    assert "sealed" in said[0] or "error" in said[0]
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and inputs not in path.parents]
    everything = "\n".join(said).encode() + b"\0".join(written)
    assert MARK.encode() not in everything
