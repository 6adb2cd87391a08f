"""Kept answers: what is printed again, who can read it, and what is never kept."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import sketchstream as ss
from helpers.commands import Run
from helpers.configurations import EVENTS_FILE
from sketchstream.cli import answer_cache, progress


@pytest.fixture
def answers(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for answers, which does not exist yet; `one.sealed` is beside it."""
    del run
    spec = ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(size=100), max_count=20)
    release = ss.Sketch.create(spec).seal()
    assert isinstance(release, ss.Release)
    (tmp_path / "one.sealed").write_bytes(release.to_bytes())
    monkeypatch.setenv(answer_cache.FOLDER_VARIABLE, str(tmp_path / "cache" / "answers"))
    return tmp_path / "cache" / "answers"


PLANTED = '["planted\\n", ""]'
QUESTION = ("profile", "one.sealed", "--method", "inverse")


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_the_second_answer_is_the_first_one(run: Run, answers: Path, form: str) -> None:
    first = run(*QUESTION, "--format", form)
    (kept,) = answers.iterdir()
    assert (first.code, json.loads(kept.read_text())) == (0, [first.out, first.err])
    assert run(*QUESTION, "--format", form).out == first.out
    kept.write_text(PLANTED)
    assert run(*QUESTION, "--format", form).out == "planted\n"


def test_a_kept_answer_loads_no_numpy(run: Run, answers: Path) -> None:
    run(*QUESTION)
    script = (
        "import sys; from sketchstream.cli import main; code = main(sys.argv[1:])\n"
        "print(code or 0, [m for m in ('numpy', 'numba', 'scipy', 'rich', 'pydantic') if m in sys.modules])"
    )
    words = [sys.executable, "-c", script, *QUESTION]
    again = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert again.stdout.splitlines()[-1] == "0 []", again.stderr
    assert len(list(answers.iterdir())) == 1


def test_another_question_or_other_bytes_have_no_kept_answer(run: Run, answers: Path, tmp_path: Path) -> None:
    run(*QUESTION)
    for more in (("--max-count", "5"), ("--format", "json"), ("--method", "monotone")):
        run(*QUESTION, *more)
    assert len(list(answers.iterdir())) == 4
    data = bytearray((tmp_path / "one.sealed").read_bytes())
    data[-1] ^= 1
    (tmp_path / "one.sealed").write_bytes(data)
    assert run(*QUESTION).code == 1
    assert len(list(answers.iterdir())) == 4


def test_only_the_owner_reads_answers(run: Run, answers: Path) -> None:
    run(*QUESTION)
    (kept,) = answers.iterdir()
    assert (answers.stat().st_mode & 0o777, kept.stat().st_mode & 0o777) == (0o700, 0o600)
    kept.write_text(PLANTED)
    answers.chmod(0o770)
    assert run(*QUESTION).out != "planted\n"


def test_a_warning_is_given_each_time(run: Run, answers: Path, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="NO PRIVACY"):
        spec = ss.ProfileSpec(epsilon="40", domain=ss.ClosedDomain(size=100), max_count=20)
    loud = ss.Sketch.create(spec).seal()
    (tmp_path / "one.sealed").write_bytes(loud.to_bytes())
    first, again = run(*QUESTION), run(*QUESTION)
    assert "NO PRIVACY" in first.err
    assert (again.out, again.err) == (first.out, first.err)
    assert len(list(answers.iterdir())) == 1


def test_what_gives_no_answer_or_more_than_an_answer_is_not_kept(run: Run, answers: Path) -> None:
    assert run("create", "-o", "open.sketch", "--epsilon", "1", "--unit", "event", "--size", "100").code == 0
    assert run("profile", "open.sketch").code == 2
    assert run(*QUESTION, "--html", "report.html").code == 0
    assert not answers.exists() or list(answers.iterdir()) == []


def test_an_empty_setting_keeps_nothing(run: Run, answers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(answer_cache.FOLDER_VARIABLE, "")
    assert run(*QUESTION).code == 0
    assert not answers.exists()


def test_a_folder_that_cannot_be_made_is_no_error(run: Run, answers: Path) -> None:
    answers.parent.write_text("a file is in the way")
    assert run(*QUESTION).code == 0


def test_an_edit_of_the_package_ends_all_answers(answers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = answers.parent.parent / "package" / "cli"
    package.mkdir(parents=True)
    (package / "answer_cache.py").write_text("1")
    monkeypatch.setattr(answer_cache, "__file__", str(package / "answer_cache.py"))
    before = answer_cache.path_of_answer("question", {})
    assert before is not None
    assert before == answer_cache.path_of_answer("question", {})
    (package / "other.py").write_text("1")
    assert before != answer_cache.path_of_answer("question", {})


def test_the_oldest_answers_go(answers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_cache, "MAX_ANSWERS", 2)
    places = [answer_cache.path_of_answer("question", {"number": number}) for number in range(3)]
    for number, where in enumerate(places):
        assert where is not None
        with answer_cache.store_what_is_printed(where):
            print(number)
        os.utime(where, ns=(number, number))
    assert sorted(answers.iterdir()) == sorted(where for where in places[1:] if where is not None)


def test_a_bar_is_shown_and_not_kept(answers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = io.StringIO()
    monkeypatch.setattr(error, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", error)
    monkeypatch.setattr(progress, "on_terminal", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    where = answer_cache.path_of_answer("question", {})
    assert where is not None
    with answer_cache.store_what_is_printed(where):
        with progress.ProgressBar("reading", 10, patience_s=0.0) as bar:
            bar.advance(3)
        print("remark", file=sys.stderr)
        print("answer")
    assert "reading" in error.getvalue()
    assert json.loads(where.read_text()) == ["answer\n", "remark\n"]


def test_an_answer_that_is_too_long_is_only_printed(
    answers: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_cache, "MAX_ANSWER_CHARACTERS", 100)
    where = answer_cache.path_of_answer("question", {})
    assert where is not None
    with answer_cache.store_what_is_printed(where):
        print("x" * 90)
        print("y" * 90)
    assert capfd.readouterr().out == "x" * 90 + "\n" + "y" * 90 + "\n"
    assert list(answers.iterdir()) == []


CONFIG = (
    EVENTS_FILE
    + """close_at_end = true
[key]
file = "key"
[[sketch]]
name = "hourly"
unit = "event"
window = "1h"
epsilon = "1"
max_count = 20
domain = { items_file = "users.txt" }
"""
)


@pytest.fixture
def published(run: Run, answers: Path, tmp_path: Path) -> Path:
    """A configuration whose worker has published one window."""
    config = tmp_path / "c.toml"
    config.write_text(CONFIG)
    (tmp_path / "users.txt").write_text("".join(f"{user}\n" for user in range(50)))
    rows = (json.dumps({"user": i % 50, "ts": 1_764_000_000_000 + i}) for i in range(400))
    (tmp_path / "events.jsonl").write_text("\n".join(rows) + "\n")
    assert run("keygen", "-o", "key").code == 0
    done = run("worker", "-c", "c.toml")
    assert done.code == 0, done.err
    assert not answers.exists()
    return config


def test_windows_of_a_folder_are_answered_again_without_reading_them(run: Run, answers: Path, published: Path) -> None:
    for more in ((), ("--all",), ("--format", "json")):
        first = run("profile", "-c", "c.toml", *more)
        assert first.code == 0, first.err
        again = run("profile", "-c", "c.toml", *more)
        assert (again.out, again.err) == (first.out, first.err)
    kept = list(answers.iterdir())
    assert len(kept) == 3
    for one in kept:
        one.write_text(PLANTED)
    assert run("profile", "-c", "c.toml").out == "planted\n"


@pytest.mark.parametrize("file", ["c.toml", "users.txt", "sealed", "state"])
def test_whatever_a_configuration_reads_ends_its_answers(
    run: Run, answers: Path, published: Path, tmp_path: Path, file: str
) -> None:
    run("profile", "-c", "c.toml")
    (kept,) = answers.iterdir()
    kept.write_text(PLANTED)
    changed = tmp_path / file
    if changed.is_dir():
        (changed / "more").write_text("")
    else:
        changed.write_text(changed.read_text() + "\n")
    assert run("profile", "-c", "c.toml").out != "planted\n"


def test_what_only_a_cluster_or_the_environment_knows_is_not_kept(
    run: Run, answers: Path, published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answer_cache.path_of_answer("profile", {"config_file": published}) is not None
    monkeypatch.setenv("SKETCHSTREAM__QUALITY__WARN", "0.1")
    assert answer_cache.path_of_answer("profile", {"config_file": published}) is None
    monkeypatch.delenv("SKETCHSTREAM__QUALITY__WARN")
    published.write_text(CONFIG.replace('file = "events.jsonl"', 'topic = "events"'))
    assert answer_cache.path_of_answer("profile", {"config_file": published}) is None


@pytest.mark.parametrize("text", ["input = 3\n", "[output]\ndirectory = 3\n", "store = [1]\n", "[input", "\x00"])
def test_a_broken_configuration_is_explained_as_ever(run: Run, answers: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "c.toml").write_text(text)
    for command in ("profile", "estimate", "overlap"):
        done = run(command, "-c", "c.toml")
        assert done.code == 2, done.err
        assert "internal" not in done.err
    assert list(answers.iterdir()) == []


def test_estimates_and_files_with_names_are_kept_by_what_is_in_them(run: Run, answers: Path, tmp_path: Path) -> None:
    spec = ss.GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(items=["a", "b"]))
    (tmp_path / "two.sealed").write_bytes(ss.Sketch.create(spec, ss.Key.generate()).seal().to_bytes())
    (tmp_path / "items.txt").write_text("a\nb\n")
    question = ("estimate", "two.sealed", "--items-file", "items.txt", "--item", "a")
    first = run(*question)
    assert first.code == 0, first.err
    (kept,) = answers.iterdir()
    kept.write_text(PLANTED)
    assert run(*question).out == "planted\n"
    (tmp_path / "items.txt").write_text("b\na\n")
    assert run(*question).out != "planted\n"
