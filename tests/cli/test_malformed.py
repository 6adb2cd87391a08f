"""Malformed commands, keys, files and sketches: one clear line on standard error, the right exit code, no traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.commands import Run

Made = Callable[..., Path]

COMMANDS = [
    (["fly"], 2, "there is no command 'fly'"),
    (["profil"], 2, "did you mean 'profile'?"),
    (["create", "--epsilom", "1"], 2, "--epsilom"),
    (["keygen"], 2, "Missing option '-o'"),
    (["keygen", "-o", "missing/key"], 1, "missing"),
    (["seal", "s.sketch"], 2, "Missing option '-o'"),
    (["create", "-o", "s", "--unit", "event", "--epsilon", "1"], 2, "exactly one of --open"),
    (
        ["create", "-o", "s", "--unit", "event", "--epsilon", "1", "--size", "5", "--open", "--slots", "64"],
        2,
        "exactly one of",
    ),
    (["create", "-o", "s", "--unit", "event", "--epsilon", "1", "--open"], 2, "--open needs --slots"),
    (["create", "-o", "s", "--unit", "event", "--epsilon", "1", "--size", "5", "--levels", "2"], 2, "belong to --open"),
    (["create", "-o", "s", "--unit", "event", "--epsilon", "0", "--size", "5"], 2, "positive rational"),
    (["create", "-o", "s", "--unit", "event", "--epsilon", "-1", "--size", "5"], 2, "positive rational"),
    (["create", "-o", "s", "--unit", "event", "--epsilon", "nan", "--size", "5"], 2, "positive rational"),
    (["create", "-o", "s", "--unit", "event", "--epsilon", "1/0", "--size", "5"], 2, "positive rational"),
    (["create", "-o", "s", "--unit", "event", "--epsilon", "1e-9", "--size", "5"], 2, "at least 1e-6"),
    (["create", "-o", "s", "--unit", "event", "--epsilon", "51", "--size", "5"], 2, "above 50"),
    (["create", "-o", "s", "--unit", "event", "--epsilon", "one", "--size", "5"], 2, "found 'one'"),
    (["create", "-o", "s", "--unit", "event", "--epsilon", "1", "--size", "0"], 2, "size of a ClosedDomain"),
    (["create", "-o", "s", "--unit", "event", "--epsilon", "1", "--size", "many"], 2, "'many' is not a valid integer"),
    (
        ["create", "-o", "s", "--unit", "event", "--epsilon", "1", "--size", "5", "--unit", "person"],
        2,
        "'person' is not one of",
    ),
    (
        ["create", "-o", "s", "--unit", "event", "--epsilon", "1", "--size", "5", "--unit", "item", "--modulus", "1"],
        2,
        "modulus",
    ),
    (
        ["create", "-o", "s", "--unit", "event", "--epsilon", "1", "--size", "5", "--modulus", "32"],
        2,
        "belongs to unit = 'item'",
    ),
    (
        ["create", "-o", "s", "--unit", "event", "--epsilon", "1", "--size", "5", "--publish", "state"],
        2,
        "needs intrusion written out",
    ),
    (
        ["create", "-o", "s", "--unit", "event", "--epsilon", "1", "--size", "5", "--intrusion"],
        2,
        "belongs to publish = 'state'",
    ),
    (["create", "-o", "s", "--unit", "event", "--epsilon", "1", "--size", "5", "--max-weight", "0"], 2, "max_weight"),
    (["create", "-o", "s", "--unit", "event", "--epsilon", "1", "--open", "--slots", "64"], 1, "needs a hash key"),
    (
        ["create", "-o", "s", "--unit", "event", "--epsilon", "1", "--open", "--slots", "3"],
        2,
        "at least two slots a level",
    ),
    (
        ["create", "-o", "s", "--unit", "event", "--epsilon", "1", "--open", "--slots", "64", "--key-file", "none"],
        1,
        "none",
    ),
    (["create", "-o", "s", "--unit", "event", "--epsilon", "1", "--items-file", "none.txt"], 1, "none.txt"),
    (["create", "-o", "no/where", "--unit", "event", "--epsilon", "1", "--size", "5"], 1, "no is not a directory"),
    (
        ["create", "-o", "s", "--unit", "event", "--epsilon", "2", "--size", "5", "--max-epsilon", "1"],
        2,
        "the budget is 1",
    ),
    (["inspect", "nothing.sketch"], 1, "nothing.sketch: no such file"),
    (["inspect", "."], 1, "is a directory"),
    (["profile"], 2, "either a published file"),
    (["profile", "a.sealed", "--all"], 2, "belong to -c"),
    (["profile", "a.sealed", "-c", "b.toml"], 2, "either a published file"),
    (["profile", "a.sealed", "--method", "magic"], 2, "'magic' is not one of"),
    (["profile", "a.sealed", "--plot", "picture.gif"], 2, "must end in .png, .svg or .pdf"),
    (["profile", "a.sealed", "--format", "yaml"], 2, "'yaml' is not one of"),
    (["profile", "a.sealed", "--beta", "1.5"], 2, "--beta"),
    (["plan", "--unit", "event", "--epsilon", "1", "--size", "5"], 2, "give the expected number of items"),
    (["plan", "--unit", "event", "--epsilon", "1", "--size", "5", "--items", "many"], 2, "'many' is not a valid float"),
    (
        ["plan", "--unit", "event", "--epsilon", "1", "--size", "5", "--items", "3", "--target", "2"],
        2,
        "relative error between 0 and 1",
    ),
    (
        ["plan", "--unit", "event", "--epsilon", "1", "--size", "5", "--items", "3", "--target", "0.1"],
        2,
        "only an open domain has slots",
    ),
    (["plan", "--unit", "event", "--epsilon", "1", "--open", "--items", "3"], 2, "--open needs --slots"),
    (["demo", "--epsilon", "0"], 2, "positive rational"),
    (["stack", "-o", "both"], 2, "Missing argument 'FILES...'"),
    (["merge", "a", "b"], 2, "Missing option '-o'"),
]


@pytest.mark.parametrize(("arguments", "code", "text"), COMMANDS, ids=[" ".join(case[0]) for case in COMMANDS])
def test_malformed_command_is_one_clear_line(run: Run, arguments: list[str], code: int, text: str) -> None:
    result = run(*arguments)
    assert text in result.complaint
    assert result.code == code
    assert result.out == ""


def test_key_file_of_others_is_refused(run: Run, key: Path) -> None:
    key.chmod(0o644)
    result = run("create", "-o", "s", "--unit", "event", "--epsilon", "1", "--open", "--slots", "64", "--key-file", key)
    assert result.code == 1
    assert "key" in result.complaint


def test_existing_key_is_never_overwritten(run: Run, key: Path) -> None:
    before = key.read_bytes()
    result = run("keygen", "-o", key)
    assert (result.code, key.read_bytes()) == (1, before)
    assert "never overwritten" in result.complaint


def test_file_that_is_no_key_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(b"not a key")
    (tmp_path / "noise").chmod(0o600)
    result = run(
        "create", "-o", "s", "--unit", "event", "--epsilon", "1", "--open", "--slots", "64", "--key-file", "noise"
    )
    assert result.code == 1
    assert "noise" in result.complaint


def test_wrong_key_is_refused(run: Run, made: Made) -> None:
    made()
    assert run("keygen", "-o", "other").code == 0
    result = run("seal", "s.sketch", "-o", "s.sealed", "--key-file", "other")
    assert result.code == 1
    assert "key" in result.complaint


def test_missing_key_is_refused(run: Run, made: Made) -> None:
    made()
    result = run("seal", "s.sketch", "-o", "s.sealed")
    assert result.code == 1
    assert "key" in result.complaint


def test_profile_of_an_open_sketch_is_refused_with_what_to_do(run: Run, made: Made) -> None:
    made()
    result = run("profile", "s.sketch")
    assert result.code == 2
    assert "open sketch" in result.complaint
    assert "sketchstream seal" in result.complaint
    assert "sketchstream release" in result.complaint


@pytest.mark.parametrize("command", ["seal", "release", "update"])
def test_published_sketch_cannot_be_changed(run: Run, made: Made, key: Path, tmp_path: Path, command: str) -> None:
    made()
    assert run("seal", "s.sketch", "-o", "s.sealed", "--key-file", key).code == 0
    (tmp_path / "x.txt").write_text("a\n")
    before = (tmp_path / "s.sealed").read_bytes()
    more = {"seal": ["-o", "t"], "release": ["-o", "t", "--epsilon", "1"], "update": ["x.txt"]}[command]
    result = run(command, "s.sealed", *more, "--key-file", key)
    assert result.code == 2
    assert "published already" in result.complaint
    assert (tmp_path / "s.sealed").read_bytes() == before


@pytest.mark.parametrize("command", ["seal", "release"])
def test_existing_output_is_refused_before_anything_happens(
    run: Run, made: Made, key: Path, tmp_path: Path, command: str
) -> None:
    before = made().read_bytes()
    (tmp_path / "out").write_text("mine")
    more = ["--epsilon", "1"] if command == "release" else []
    result = run(command, "s.sketch", "-o", "out", "--key-file", key, *more)
    assert result.code == 1
    assert "exists" in result.complaint
    assert (tmp_path / "out").read_text() == "mine"
    assert (tmp_path / "s.sketch").read_bytes() == before


def test_release_beyond_the_budget_is_refused_and_charges_nothing(run: Run, made: Made, key: Path) -> None:
    before = made("s.sketch", "--epsilon", "2", "--epsilon-publish", "1/2", "--max-epsilon", "1").read_bytes()
    result = run("release", "s.sketch", "-o", "r", "--epsilon", "1", "--key-file", key)
    assert result.code == 2
    assert "budget is 1" in result.complaint
    assert Path("s.sketch").read_bytes() == before
    assert not Path("r").exists()


@pytest.mark.parametrize(
    ("bend", "text"),
    [
        (lambda data: data[:-7], "bytes"),
        (lambda data: data[:20], "bytes end"),
        (lambda data: data + b"x", "bytes"),
        (lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:], "altered"),
        (lambda data: data[:4] + (99).to_bytes(2, "little") + data[6:], "version 99"),
        (lambda data: b"{}", "not a sketch"),
        (lambda data: b"", "bytes end"),
    ],
    ids=["truncated", "beginning only", "too long", "one bit flipped", "newer version", "something else", "empty"],
)
@pytest.mark.parametrize("command", ["inspect", "profile"])
def test_damaged_file_is_refused(
    run: Run, made: Made, key: Path, tmp_path: Path, command: str, bend: Callable[[bytes], bytes], text: str
) -> None:
    made()
    assert run("seal", "s.sketch", "-o", "s.sealed", "--key-file", key).code == 0
    (tmp_path / "bent").write_bytes(bend((tmp_path / "s.sealed").read_bytes()))
    result = run(command, "bent")
    assert result.code == 1
    assert text in result.complaint


def test_histograms_cannot_be_merged(run: Run, made: Made, key: Path) -> None:
    for name in ("a", "b"):
        made(f"{name}.sketch")
        assert run("seal", f"{name}.sketch", "-o", name, "--key-file", key).code == 0
    result = run("merge", "a", "b", "-o", "both")
    assert result.code == 1
    assert "histogram" in result.complaint


def test_a_sketch_cannot_be_stacked_with_itself(run: Run, made: Made, key: Path) -> None:
    made()
    assert run("seal", "s.sketch", "-o", "a", "--key-file", key).code == 0
    result = run("stack", "a", "a", "-o", "both")
    assert result.code == 1
    assert "itself" in result.complaint
    assert not Path("both").exists()


def test_different_specs_cannot_be_stacked(run: Run, made: Made, key: Path) -> None:
    made("a.sketch")
    made("b.sketch", "--max-count", "50")
    for name in ("a", "b"):
        assert run("seal", f"{name}.sketch", "-o", name, "--key-file", key).code == 0
    result = run("stack", "a", "b", "-o", "both")
    assert result.code == 1
    assert "max_count" in result.complaint


def test_max_count_beyond_the_sketch_is_refused(run: Run, made: Made, key: Path) -> None:
    made()
    assert run("seal", "s.sketch", "-o", "a", "--key-file", key).code == 0
    result = run("profile", "a", "--max-count", "301")
    assert result.code == 2
    assert "max_count" in result.complaint


def test_method_that_does_not_apply_is_refused(run: Run, made: Made, key: Path) -> None:
    made()
    assert run("seal", "s.sketch", "-o", "a", "--key-file", key).code == 0
    result = run("profile", "a", "--norm", "1")
    assert result.code == 2
    assert "norm" in result.complaint


def test_list_of_items_with_a_duplicate_is_refused_without_showing_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "items.txt").write_text("alpha\nmarked-item\nbeta\nmarked-item\n")
    result = run("create", "-o", "s", "--unit", "event", "--epsilon", "1", "--items-file", "items.txt")
    assert result.code == 2
    assert "line 4" in result.complaint
    assert "marked" not in result.err


def test_file_in_use_is_refused(run: Run, made: Made, key: Path) -> None:
    import fcntl

    with made().open("r+b") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        result = run("seal", "s.sketch", "-o", "a", "--key-file", key)
    assert result.code == 1
    assert "being changed by another command" in result.complaint


def test_unwritable_plot_is_a_file_error(run: Run, made: Made, key: Path) -> None:
    made()
    assert run("seal", "s.sketch", "-o", "a", "--key-file", key).code == 0
    result = run("profile", "a", "--plot", "no/such/folder.png")
    assert result.code == 1
    assert "folder.png" in result.complaint


def test_epsilon_above_ten_warns_on_standard_error(run: Run) -> None:
    result = run("create", "-o", "s", "--unit", "event", "--epsilon", "11", "--size", "5")
    assert result.code == 0
    assert "NO PRIVACY" in result.err
    assert "warning" in result.err
    for command in (["inspect", "s"], ["seal", "s", "-o", "a"], ["inspect", "a"], ["profile", "a"]):
        assert "NO PRIVACY" in run(*command).err, command


def test_a_configuration_and_what_it_published_warn_once(run: Run, tmp_path: Path) -> None:
    events = [{"u": n, "g": "ab"[n % 2], "ts": 1_700_000_000_000 + n} for n in range(200)]
    (tmp_path / "e.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in events))
    (tmp_path / "c.toml").write_text(
        '[input]\nfile = "e.jsonl"\nitem = "u"\nitem_type = "int"\ntime = "ts"\nclose_at_end = true\n'
        '[key]\nfile = "k"\n[output]\ndirectory = "sealed"\n[[sketch]]\nname = "s"\nwindow = "1d"\nunit = "item"\n'
        'epsilon = "6"\nepsilon_publish = "1"\ndomain = { slots = 512, levels = 2 }\n'
        'group_by = "g"\ngroups = ["a", "b"]\n'
    )
    assert run("keygen", "-o", "k").code == 0
    for command in (("worker",), ("profile", "--group", "a"), ("ledger",)):
        done = run(command[0], "-c", "c.toml", *command[1:])
        assert done.code == 0, done.err
        assert done.err.count("NO PRIVACY") == 1, done.err
    assert "one item loses at most 2 by what it does in one UTC day and 2 over everything published\n" in done.out
