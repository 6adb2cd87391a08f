"""The shell around the commands: help, documentation, start-up, warnings, pipes, exit codes."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

import sketchstream
import sketchstream as ss
from helpers.commands import Run
from helpers.paths import ROOT
from sketchstream import errors
from sketchstream.cli import exits, progress, show
from sketchstream.cli.app import COMMANDS, app
from sketchstream.kinds.exports import as_json


def commands() -> dict[str, click.Command]:
    """Every command and sub-command by its full name."""
    context = click.Context(app, **app.context_settings)
    found: dict[str, click.Command] = {}
    for name in COMMANDS:
        command = app.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found |= {f"{name} {sub}": below for sub, below in command.commands.items()}
        else:
            found[name] = command
    return found


@pytest.mark.parametrize("name", [*COMMANDS, *(n for n in commands() if " " in n)])
def test_help_of_every_command_has_an_example(run: Run, name: str) -> None:
    result = run(*name.split(), "--help")
    assert result.code == 0
    assert result.err == ""
    lines = result.out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.strip() in ("Example:", "Examples:"))
    assert lines[start + 1].strip().startswith("sketchstream "), "each example on a line of its own"
    assert "\\b" not in result.out
    assert f"sketchstream {name}" in result.out


@pytest.mark.parametrize(("name", "command"), list(commands().items()))
def test_every_option_has_help(name: str, command: click.Command) -> None:
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.name}"


def test_every_command_that_prints_results_has_the_three_formats() -> None:
    without = {"init", "update", "worker", "serve"}
    for name, command in commands().items():
        formats = [p for p in command.params if p.name == "form"]
        if name in without:
            continue
        assert len(formats) == 1, name
        assert isinstance(formats[0].type, click.Choice)
        assert tuple(formats[0].type.choices) == ("table", "json", "csv"), name


def test_reference_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("write_cli", ROOT / "docs" / "write_cli.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.reference(), "run `make docs`"


def test_help_and_errors_load_nothing_heavy() -> None:
    script = (
        "import sys; from sketchstream.cli import main; main(['--help']); main(['kegen'])\n"
        "print([m for m in ('numpy', 'numba', 'scipy', 'rich', 'kafka', 'pydantic', 'msgpack') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_profile_by_inversion_loads_no_compiler(tmp_path: Path) -> None:
    spec = ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(size=100), max_count=20)
    release = ss.Sketch.create(spec).seal()
    assert isinstance(release, ss.Release)
    (tmp_path / "one.sealed").write_bytes(release.to_bytes())
    script = (
        "import sys; from sketchstream.cli import main; main(['profile', sys.argv[1], '--method', 'inverse'])\n"
        "print([m for m in ('numba', 'scipy.optimize', 'kafka', 'pydantic') if m in sys.modules])"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "one.sealed")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


PARTS_OF_SCIPY = ("scipy.linalg", "scipy.special", "scipy.interpolate", "scipy.sparse", "scipy.optimize")
"""None of them is loaded for a table; numba imports the empty package."""


@pytest.mark.parametrize(
    ("command", "barred"),
    [
        (
            "profile",
            (*PARTS_OF_SCIPY, "numba.np.linalg", "matplotlib", "kafka", "pydantic"),
        ),
        ("ledger", ("numba", "scipy", "matplotlib", "kafka")),
        ("inspect", ("numba", "scipy", "matplotlib", "kafka", "pydantic")),
    ],
)
def test_commands_that_only_read_load_what_they_use(tmp_path: Path, command: str, barred: tuple[str, ...]) -> None:
    release = ss.Sketch.create(ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(size=100), max_count=20)).seal()
    assert isinstance(release, ss.Release)
    (tmp_path / "one.sealed").write_bytes(release.to_bytes())
    script = (
        "import sys; from sketchstream.cli import main; code = main(sys.argv[1:3])\n"
        "print(code or 0, [m for m in sys.argv[3:] if m in sys.modules])"
    )
    words = [sys.executable, "-c", script, command, str(tmp_path / "one.sealed"), *barred]
    for _ in range(2):  # the first one may compile kernels, for which numba loads everything
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.splitlines()[-1] == "0 []"


FILE_CONFIG = """
[input]
file = "events.jsonl"
item = "user"
item_type = "{}"
time = "ts"
[key]
file = "key"
[output]
directory = "sealed"
[[sketch]]
name = "hourly"
unit = "item"
window = "1h"
epsilon = "1"
epsilon_publish = "1"
modulus = 32
domain = {{ slots = 1024, levels = 1 }}
"""


@pytest.mark.parametrize(
    ("command", "item_type", "user"), [("validate", "text", "u{}"), ("validate", "int", "{}"), ("ledger", "int", "{}")]
)
def test_commands_that_read_a_configuration_load_what_they_use(
    tmp_path: Path, command: str, item_type: str, user: str
) -> None:
    (tmp_path / "c.toml").write_text(FILE_CONFIG.format(item_type))
    ss.Key.generate().save(tmp_path / "key")
    rows = ({"user": user.format(number % 50), "ts": 1_764_000_000_000 + number} for number in range(1200))
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    barred = (*PARTS_OF_SCIPY, "numba", "matplotlib", "kafka", "pyarrow", "duckdb", "fastapi")
    script = (
        "import sys; from sketchstream.cli import main; code = main([sys.argv[1], '-c', 'c.toml'])\n"
        "print(code or 0, [m for m in sys.argv[2:] if m in sys.modules])"
    )
    words = [sys.executable, "-c", script, command, *barred]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.splitlines()[-1] == "0 []", done.stderr


def test_version_is_that_of_the_package(run: Run) -> None:
    result = run("--version")
    assert (result.code, result.out) == (0, f"sketchstream {sketchstream.__version__}\n")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.FencedError("x"), 3),
        (errors.BrokerError("x"), 1),
        (errors.DataLossError("x"), 4),
        (errors.SpecError("x"), 2),
        (errors.ConfigError("x"), 2),
        (errors.SealedError("x"), 2),
        (errors.EstimateError("x"), 2),
        (errors.MissingExtraError("x"), 2),
        (errors.KeyMismatchError("x"), 1),
        (errors.ChecksumError("x"), 1),
        (errors.MergeError("x"), 1),
        (errors.ItemError("x"), 1),
        (errors.StoreError("x"), 1),
        (FileNotFoundError("x"), 1),
        (ValueError("x"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(error: BaseException, code: int) -> None:
    assert exits.exit_code(error) == code


def test_every_error_of_the_tree_has_a_meaning() -> None:
    def leaves(kind: type[BaseException]) -> list[type[BaseException]]:
        return [kind, *(leaf for below in kind.__subclasses__() for leaf in leaves(below))]

    for kind in leaves(errors.SketchstreamError):
        code = next(code for base, code in exits.CODES if issubclass(kind, base))
        assert code in exits.MEANINGS


def test_unexpected_errors_show_their_type_and_no_text(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from sketchstream.items.key import Key

    def fail() -> None:
        raise LookupError("marked-item")

    monkeypatch.setattr(Key, "generate", fail)
    result = run("keygen", "-o", "k")
    assert result.code == 1
    assert "internal error (LookupError)" in result.err
    assert "marked-item" not in result.err + result.out


def test_interrupt_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from sketchstream.items.key import Key

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Key, "generate", interrupt)
    result = run("keygen", "-o", "k")
    assert (result.code, result.err.strip()) == (130, "sketchstream: interrupted")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("create --help", 0),
        ("plan --unit event --epsilon 1 --size 100 --items 50 --format json", 0),
        ("keygen -o missing/k", 1),
    ],
)
def test_a_reader_that_goes_away_is_no_failure(tmp_path: Path, command: str, code: int) -> None:
    # `true` reads nothing and is gone long before anything is written; an error of our own stays one
    script = f"{sys.executable} -m sketchstream.cli {command} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False, timeout=60)
    assert done.returncode == code, done.stderr
    assert done.stderr.count("\n") == code


def test_a_broken_pipe_that_is_not_our_output_is_an_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from sketchstream.items.key import Key

    def fail() -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(Key, "generate", fail)
    assert run("keygen", "-o", "k").code == 1


def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    def completed(words: str) -> set[str]:
        given = words.split(" ")
        environment = {
            **os.environ,
            "_SKETCHSTREAM_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(given) - 1),
        }
        done = subprocess.run(
            [sys.executable, "-m", "sketchstream.cli"], env=environment, capture_output=True, text=True, check=False
        )
        return {line.partition(",")[2] for line in done.stdout.splitlines()}

    assert completed("sketchstream pro") == {"profile"}
    assert {"--epsilon", "--epsilon-publish"} <= completed("sketchstream plan --eps")
    assert completed("sketchstream plan --unit ") == {"item", "event"}


def test_ledger_explains_its_columns(run: Run, made: Callable[..., Path], key: Path) -> None:
    sketch = made()
    out = run("ledger", sketch).out
    header, below = out.splitlines()[0], out[out.index("any event loses") :]
    for column in ("part", "what", "cost", "an event after it"):
        assert column in header
        assert f"\n  {column} " in below
    assert "\n  part" not in run("ledger", sketch, "--format", "csv").out


def test_creating_a_large_sketch_shows_progress_on_a_terminal(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from sketchstream.kinds.profile import mechanism

    error = Terminal()
    monkeypatch.setattr(mechanism, "PROGRESS_SLOTS", 1000)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    monkeypatch.setattr(progress.ProgressBar.__init__, "__kwdefaults__", {"patience_s": 0.0})
    monkeypatch.setattr(progress, "on_terminal", lambda: True)
    monkeypatch.setattr(sys, "stderr", error)
    monkeypatch.setenv("TERM", "xterm")
    assert run("create", "-o", "s", "--unit", "event", "--epsilon", "1", "--size", "10000").code == 0
    assert "drawing the noise" in error.getvalue()
    assert "writing the sketch" in error.getvalue()


class Terminal(io.StringIO):
    """Standard error as a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_appears_on_a_terminal_after_its_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    error, out = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stderr", error)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("TERM", "xterm")
    with progress.ProgressBar("reading", 10, patience_s=0.0) as bar:
        bar.advance(3)
    assert "reading" in error.getvalue()
    assert out.getvalue() == ""


def test_progress_waits_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    error = Terminal()
    monkeypatch.setattr(sys, "stderr", error)
    monkeypatch.setattr(sys, "stdout", Terminal())
    with progress.ProgressBar("reading", 10) as bar:
        bar.advance(10)
    assert progress.PATIENCE_S == 2.0
    assert error.getvalue() == ""


@pytest.mark.parametrize("piped", ["stdout", "stderr"])
def test_no_progress_in_a_pipe(monkeypatch: pytest.MonkeyPatch, piped: str) -> None:
    streams = {"stdout": Terminal(), "stderr": Terminal()}
    streams[piped] = io.StringIO()  # type: ignore[assignment]
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    with progress.ProgressBar("reading", 10, patience_s=0.0) as bar:
        bar.advance(10)
    assert streams["stdout"].getvalue() + streams["stderr"].getvalue() == ""


def test_results_are_plain_text_in_a_pipe(spawn: Run) -> None:
    result = spawn("keygen", "-o", "k")
    assert result.code == 0
    assert "\x1b" not in result.out + result.err
    assert result.err == ""


def test_formats_hold_the_same_facts(run: Run) -> None:
    table, csv = run("keygen", "-o", "a"), run("keygen", "-o", "b", "--format", "csv")
    data = json.loads(run("keygen", "-o", "c", "--format", "json").out)
    assert set(data) == {"file", "key_id"}
    assert csv.out.splitlines()[0] == "field,value"
    assert [line.split(",")[0] for line in csv.out.splitlines()[1:]] == ["file", "key_id"]
    assert [line.split()[0] for line in table.out.splitlines()] == ["file", "key_id"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234567.8, "1,234,568"), (3.0, "3"), (0.12345, "0.123"), (float("nan"), "-"), (float("inf"), "inf"), (None, "-")],
)
def test_numbers_for_people(value: float | None, text: str) -> None:
    assert show.number(value) == text


def test_not_a_number_is_null_in_json() -> None:
    assert as_json({"x": float("nan"), "y": b"\x01"}) == '{"x":null,"y":"01"}'


def test_key_file_may_come_from_the_environment(run: Run, key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKETCHSTREAM_KEY_FILE", os.fspath(key))
    result = run("create", "-o", "s", "--unit", "event", "--epsilon", "1", "--open", "--slots", "64")
    assert result.code == 0, result.err


def test_methods_on_the_command_line_are_those_of_the_library() -> None:
    from sketchstream.cli.commands.answers import profile
    from sketchstream.kinds import options

    assert set(profile.METHODS) == set(options.METHODS)
