"""A sketch's life on the command line: create, update from every format, look, seal, stack, merge, ask.

At epsilon 30 the noise is zero with probability above 1 - 1e-12 a counter, so counts must be exact.
"""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.commands import Run

Made = Callable[..., Path]
Closed = Callable[..., None]

EVENTS = ["a", "b", "b", "c", "c", "c", "d", "d", "d"]
"""One item once, one twice, two three times."""
EXACT = ("--unit", "event", "--epsilon", "30")
ITEMS = "a\nb\nc\nd\ne\n"


def counts(run: Run, file: str, most: int = 5) -> list[float]:
    """Numbers of items by count, from the JSON of `profile`."""
    result = run("profile", file, "--max-count", str(most), "--format", "json")
    assert result.code == 0, result.err
    return [round(value, 4) for value in json.loads(result.out)["counts"]]


def quiet(result: Any) -> list[str]:
    """Lines on standard error, without the warning that epsilon 30 deserves."""
    return [line for line in result.err.splitlines() if "NO PRIVACY" not in line]


@pytest.fixture
def closed(run: Run, key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Closed:
    """Make an exact sketch of the items a to e; the key is named by the environment."""
    (tmp_path / "items.txt").write_text(ITEMS)
    monkeypatch.setenv("SKETCHSTREAM_KEY_FILE", os.fspath(key))

    def make(name: str, *more: str) -> None:
        result = run("create", "-o", name, *EXACT, "--items-file", "items.txt", "--max-count", "20", *more)
        assert result.code == 0, result.err

    return make


def as_lines() -> bytes:
    return "".join(f"{event}\n" for event in EVENTS).encode()


def as_jsonl() -> bytes:
    return b"".join(json.dumps({"user": {"id": event}, "n": 1}).encode() + b"\n" for event in EVENTS)


def as_csv() -> bytes:
    return b"n,user\r\n" + b"".join(f"1,{event}\r\n".encode() for event in EVENTS)


def as_parquet() -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"user": EVENTS, "n": [1] * len(EVENTS)}), out)
    return out.getvalue()


def as_avro() -> bytes:
    user = {"type": "record", "name": "U", "fields": [{"name": "id", "type": "string"}]}
    schema = {"type": "record", "name": "E", "fields": [{"name": "user", "type": user}, {"name": "n", "type": "int"}]}
    out = io.BytesIO()
    fastavro.writer(out, schema, [{"user": {"id": event}, "n": 1} for event in EVENTS])
    return out.getvalue()


FORMATS: list[tuple[str, Callable[[], bytes], list[str]]] = [
    ("lines", as_lines, []),
    ("jsonl", as_jsonl, ["--item", "user.id"]),
    ("csv", as_csv, ["--item", "user"]),
    ("parquet", as_parquet, ["--item", "user"]),
    ("avro", as_avro, ["--item", "user.id"]),
]


@pytest.mark.parametrize(("form", "data", "more"), FORMATS, ids=[form for form, _, _ in FORMATS])
def test_every_format_gives_the_exact_profile(
    run: Run, closed: Closed, tmp_path: Path, form: str, data: Callable[[], bytes], more: list[str]
) -> None:
    closed("s")
    (tmp_path / "events").write_bytes(data())
    result = run("update", "s", "events", "--format", form, *more)
    assert (result.code, result.out) == (0, ""), result.err
    assert run("seal", "s", "-o", "s.sealed").code == 0
    assert counts(run, "s.sealed") == [1, 1, 1, 2, 0, 0]


def test_packed_maps_of_ids_give_the_exact_profile(run: Run, tmp_path: Path) -> None:
    assert run("create", "-o", "s", *EXACT, "--size", "5", "--max-count", "20").code == 0
    ids = np.array([0, 1, 1, 2, 2, 2], "<u8")
    more = {"i": np.array([3, 3], "<u8").tobytes(), "w": np.array([1, 2], "<i4").tobytes()}
    (tmp_path / "e.msgpack").write_bytes(
        msgpack.packb({"i": ids.tobytes()}) + msgpack.packb(more)  # ids 3 with weights 1 and 2
    )
    weighted = run("update", "s", "e.msgpack")
    assert weighted.code == 0, weighted.err
    assert run("seal", "s", "-o", "s.sealed").code == 0
    # max_weight is 1: the event of weight 2 is left out, its neighbour counts
    assert counts(run, "s.sealed") == [1, 2, 1, 1, 0, 0]


def test_standard_input_and_several_files_add_up(spawn: Run, run: Run, closed: Closed, tmp_path: Path) -> None:
    closed("s")
    (tmp_path / "one.txt").write_bytes(as_lines()[:6])
    assert spawn("update", "s", "-", "--format", "lines", stdin=as_lines()[6:12]).code == 0
    (tmp_path / "two.txt").write_bytes(as_lines()[12:])
    assert run("update", "s", "one.txt", "two.txt").code == 0
    assert run("seal", "s", "-o", "s.sealed").code == 0
    assert counts(run, "s.sealed") == [1, 1, 1, 2, 0, 0]


def test_invalid_events_are_left_out_and_their_neighbours_count(run: Run, closed: Closed, tmp_path: Path) -> None:
    closed("s")
    lines = [
        '{"user":"a"}',
        "not json",
        '{"user":"b"}',
        '{"user":null}',
        '{"user":"b"}',
        "{}",
        '{"user":"nobody in the list"}',
        '{"user":1.5}',
        '{"user":true}',
        '{"user":["c"]}',
        '{"user":"c","n":7}',
        '{"user":"c","n":1.0}',
        '{"user":"c","n":"x"}',
        '{"user":"c","n":1}',
        "",
        '{"user":"c"}',
        '{"user":"c","n":null}',
    ]
    (tmp_path / "e.jsonl").write_text("\n".join(lines))
    result = run("update", "s", "e.jsonl", "--item", "user", "--weight", "n")
    assert (result.code, result.out, quiet(result)) == (0, "", []), result.err
    assert run("seal", "s", "-o", "s.sealed").code == 0
    assert counts(run, "s.sealed") == [2, 1, 1, 1, 0, 0]


def test_diagnostics_are_printed_only_on_request(run: Run, closed: Closed, tmp_path: Path) -> None:
    closed("s")
    (tmp_path / "e.jsonl").write_text('{"user":"a"}\nbroken\n')
    assert quiet(run("update", "s", "e.jsonl", "--item", "user")) == []
    (line,) = quiet(run("update", "s", "e.jsonl", "--item", "user", "--diagnostics", "exact"))
    assert line.startswith("1 events could not be read")


def test_an_open_quote_in_a_csv_file_takes_no_other_event_along(run: Run, closed: Closed, tmp_path: Path) -> None:
    closed("s")
    (tmp_path / "e.csv").write_bytes(b'user,n\na,1\n"b,1\ncaf\xe9,1\nc,1\nc,1,1\nc,1\n')
    result = run("update", "s", "e.csv", "--item", "user", "--weight", "n", "--diagnostics", "exact")
    assert (result.code, quiet(result)[0].partition(" ")[0]) == (0, "3")
    assert run("seal", "s", "-o", "s.sealed").code == 0
    assert counts(run, "s.sealed") == [3, 1, 1, 0, 0, 0]


def test_deletions_undo_events(run: Run, closed: Closed, tmp_path: Path) -> None:
    closed("s")
    (tmp_path / "e.csv").write_text("user,n\na,1\nb,1\nb,-1\n")
    assert run("update", "s", "e.csv", "--item", "user", "--weight", "n").code == 0
    assert run("seal", "s", "-o", "s.sealed").code == 0
    assert counts(run, "s.sealed") == [4, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("name", "data", "options", "code", "text"),
    [
        ("e.csv", b'us"er,"x\na,b\n', ["--item", "user"], 1, "first line"),
        ("e.csv", b"user\na\n", ["--item", "customer"], 2, "no column 'customer'"),
        ("e.csv", b"user\na\n", [], 2, "--item"),
        ("e.csv", b"", ["--item", "user"], 1, "empty"),
        ("e.parquet", b"PAR1 no", ["--item", "user"], 1, "parquet"),
        ("e.parquet", as_parquet(), ["--item", "customer"], 2, "no column 'customer'"),
        ("e.avro", b"PAR1 no", ["--item", "user"], 1, "not an Avro container"),
        ("e.avro", as_avro(), ["--item", "user.ident"], 2, "did you mean 'user.id'"),
        ("e.msgpack", b"\xc1\xc1", [], 1, "msgpack"),
        ("e.msgpack", b"\x81", [], 1, "ends inside"),
        ("e.txt", b"a\n", ["--item", "user"], 2, "no named fields"),
        ("e.jsonl", b"{}\n", ["--item", "a..b"], 2, "a..b"),
        ("e.log", b"a\n", [], 2, "give --format"),
        ("missing.txt", None, [], 1, "missing.txt"),
    ],
)
def test_files_that_cannot_be_read_add_nothing(
    run: Run,
    closed: Closed,
    tmp_path: Path,
    name: str,
    data: bytes | None,
    options: list[str],
    code: int,
    text: str,
) -> None:
    closed("s")
    before = (tmp_path / "s").read_bytes()
    (tmp_path / "good.txt").write_bytes(as_lines())
    if data is not None:
        (tmp_path / name).write_bytes(data)
    result = run("update", "s", *(["good.txt"] if not options else []), name, *options)
    assert result.code == code, result.err
    assert text in result.complaint
    assert (tmp_path / "s").read_bytes() == before


def test_open_files_are_secret_and_published_ones_are_not(run: Run, made: Made, key: Path, tmp_path: Path) -> None:
    umask = os.umask(0o022)
    os.umask(umask)
    made()
    (tmp_path / "e.txt").write_bytes(as_lines())
    assert run("update", "s.sketch", "e.txt", "--key-file", key).code == 0
    assert stat.S_IMODE((tmp_path / "s.sketch").stat().st_mode) == 0o600
    assert run("seal", "s.sketch", "-o", "s.sealed", "--key-file", key).code == 0
    assert stat.S_IMODE((tmp_path / "s.sealed").stat().st_mode) == 0o644 & ~umask
    assert not (tmp_path / "s.sketch").exists()


def test_seal_erases_the_open_state(run: Run, made: Made, key: Path, tmp_path: Path) -> None:
    path = made()
    os.link(path, tmp_path / "peek")
    assert run("seal", "s.sketch", "-o", "s.sealed", "--key-file", key).code == 0
    assert not any((tmp_path / "peek").read_bytes())


def test_update_erases_the_state_before_it(run: Run, made: Made, key: Path, tmp_path: Path) -> None:
    path = made()
    os.link(path, tmp_path / "peek")
    (tmp_path / "e.txt").write_bytes(as_lines())
    assert run("update", "s.sketch", "e.txt", "--key-file", key).code == 0
    assert not any((tmp_path / "peek").read_bytes())
    assert run("inspect", "s.sketch").code == 0


def test_size_of_an_open_file_does_not_depend_on_items(run: Run, made: Made, key: Path, tmp_path: Path) -> None:
    few, many = made("few.sketch"), made("many.sketch")
    (tmp_path / "few.txt").write_text("a\n")
    (tmp_path / "many.txt").write_text("".join(f"item {i}\n" for i in range(20_000)))
    for name in ("few", "many"):
        assert run("update", f"{name}.sketch", f"{name}.txt", "--key-file", key).code == 0
    assert few.stat().st_size == many.stat().st_size


def test_release_leaves_the_sketch_open_and_charges_it(run: Run, closed: Closed, tmp_path: Path) -> None:
    closed("s", "--epsilon-publish", "2")
    assert json.loads(run("ledger", "s", "--format", "json").out)["loss"] == "2"
    (tmp_path / "e.txt").write_bytes(as_lines())
    assert run("update", "s", "e.txt").code == 0
    released = run("release", "s", "-o", "look", "--epsilon", "30", "--format", "json")
    assert released.code == 0, released.err
    # An event before the look pays min(30, 30 + 2): the look and the publication, or the noise of the state.
    assert json.loads(released.out)["loss"] == "30"
    assert counts(run, "look") == [1, 1, 1, 2, 0, 0]
    assert json.loads(run("ledger", "s", "--format", "json").out)["loss"] == "30"
    assert run("update", "s", "e.txt").code == 0
    assert "the sketch stayed open" in run("inspect", "look").out


def test_stack_puts_disjoint_populations_side_by_side(run: Run, tmp_path: Path) -> None:
    for name, lines in (("p", "0\n1\n1\n"), ("q", "2\n2\n2\n")):
        assert run("create", "-o", name, *EXACT, "--size", "4", "--max-count", "20").code == 0
        (tmp_path / f"{name}.txt").write_text(lines)
        assert run("update", name, f"{name}.txt").code == 0
        assert run("seal", name, "-o", f"{name}.sealed").code == 0
    stacked = run("stack", "p.sealed", "q.sealed", "-o", "both", "--format", "json")
    assert stacked.code == 0, stacked.err
    assert json.loads(stacked.out) == {"file": "both", "parts": 2, "slots": 8}
    assert counts(run, "both") == [5, 1, 1, 1, 0, 0]
    assert json.loads(run("inspect", "both", "--format", "json").out)["parts"] == 2


def test_merge_adds_states_of_one_population_and_says_its_price(run: Run, tmp_path: Path) -> None:
    for name, lines in (("p", "0\n1\n"), ("q", "1\n2\n2\n2\n")):
        more = ("--publish", "state", "--no-intrusion", "--max-count", "20")
        assert run("create", "-o", name, *EXACT, "--size", "4", *more).code == 0
        (tmp_path / f"{name}.txt").write_text(lines)
        assert run("update", name, f"{name}.txt").code == 0
        assert run("seal", name, "-o", f"{name}.sealed").code == 0
    merged = run("merge", "p.sealed", "q.sealed", "-o", "both", "--format", "json")
    assert merged.code == 0, merged.err
    assert json.loads(merged.out) == {"file": "both", "parts": 2, "layers": 2, "error_factor": 1.0}
    assert counts(run, "both") == [1, 1, 1, 1, 0, 0]


def test_merge_factor_is_that_of_the_circle(run: Run) -> None:
    for name in ("p", "q", "r"):
        made = run(
            "create",
            "-o",
            name,
            "--unit",
            "event",
            "--epsilon",
            "1",
            "--size",
            "4",
            "--publish",
            "state",
            "--intrusion",
        )
        assert made.code == 0
        assert run("seal", name, "-o", f"{name}.sealed").code == 0
    merged = json.loads(run("merge", "p.sealed", "q.sealed", "r.sealed", "-o", "all", "--format", "json").out)
    gain = 1 / np.tanh(0.5 * 39 / 40) ** 2
    assert merged["error_factor"] == pytest.approx(gain**4, rel=1e-4)  # each part brings two layers


def test_two_updates_at_once_lose_nothing(spawn: Run, run: Run, closed: Closed, tmp_path: Path) -> None:
    closed("s")
    (tmp_path / "e.txt").write_bytes(as_lines())
    command = [sys.executable, "-m", "sketchstream.cli", "update", "s", "e.txt"]
    both = [subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE) for _ in range(2)]
    codes = [(process.communicate(timeout=60), process.returncode)[1] for process in both]
    assert set(codes) <= {0, 1}
    done = codes.count(0)
    assert done >= 1
    assert run("seal", "s", "-o", "s.sealed").code == 0
    expected = {1: [1, 1, 1, 2], 2: [1, 0, 1, 0, 1, 0, 2]}[done]
    assert counts(run, "s.sealed", 6)[: len(expected)] == expected


@pytest.mark.parametrize(
    ("step", "file"),
    [("cli.commands.sketches.seal.write_durably", "s.sealed"), ("cli.sketches.remove_durably", "s.sketch")],
)
def test_interrupted_seal_never_leaves_a_state_that_could_be_published_again(
    run: Run, made: Made, key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, file: str
) -> None:
    made()

    def killed(path: Path, *_arguments: Any, **_options: Any) -> None:
        assert path.name == file
        raise KeyboardInterrupt

    monkeypatch.setattr(f"sketchstream.{step}", killed)
    assert run("seal", "s.sketch", "-o", "s.sealed", "--key-file", key).code == 130
    monkeypatch.undo()
    publication = (tmp_path / "s.sketch").read_bytes()
    assert run("profile", tmp_path / "s.sketch").code == 0
    assert run("update", tmp_path / "s.sketch", key, "--format", "lines", "--key-file", key).code == 2
    # The same command again ends the work with the same bytes.
    assert run("seal", tmp_path / "s.sketch", "-o", tmp_path / "s.sealed", "--key-file", key).code == 0
    assert (tmp_path / "s.sealed").read_bytes() == publication
    assert not (tmp_path / "s.sketch").exists()


def test_interrupted_release_is_charged(
    run: Run, made: Made, key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made("s.sketch", "--epsilon", "2", "--epsilon-publish", "1/2")

    def killed(path: Path, *_arguments: Any, **_options: Any) -> None:
        assert path.name == "look"
        raise KeyboardInterrupt

    monkeypatch.setattr("sketchstream.cli.commands.sketches.release.write_durably", killed)
    assert run("release", "s.sketch", "-o", "look", "--epsilon", "1", "--key-file", key).code == 130
    monkeypatch.undo()
    assert not (tmp_path / "look").exists()
    assert json.loads(run("ledger", tmp_path / "s.sketch", "--format", "json").out)["loss"] == "3/2"


def test_the_total_is_what_was_counted_and_its_share_can_be_chosen(run: Run, tmp_path: Path) -> None:
    (tmp_path / "e.txt").write_text("\n".join(["1"] * 50_000 + ["2"] * 3) + "\n")
    widths = {}
    for share in ("1/40", "1/2", "0"):
        made = run("create", "-o", "t", "--unit", "event", "--epsilon", "1", "--size", "4", "--total-share", share)
        assert made.code == 0, made.err
        assert run("update", "t", "e.txt", "--format", "lines", "--item-type", "int").code == 0
        assert run("seal", "t", "-o", "t.sealed").code == 0
        found = json.loads(run("profile", "t.sealed", "--format", "json").out)
        assert found["epsilon"] == found["epsilon_publish"] == "1"
        total = found["total"]
        if share != "0":  # a noisy number of its own: its law is symmetric
            assert total["high"] - total["value"] == pytest.approx(total["value"] - total["low"], abs=1)
        widths[share] = total["high"] - total["low"]
        if share != "0":
            assert abs(total["value"] - 50_003) < 10 * widths[share], "forty standard deviations"
        for name in ("t", "t.sealed"):
            (tmp_path / name).unlink(missing_ok=True)
    assert widths["1/40"] == 330
    assert widths["1/2"] < 30
