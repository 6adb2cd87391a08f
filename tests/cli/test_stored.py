"""Kept answers: what is printed again, who can read it, and what is never kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import sketchstream as ss
from helpers.commands import Run
from sketchstream.cli import stored


@pytest.fixture
def answers(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for answers, which does not exist yet; `one.sealed` is beside it."""
    del run
    spec = ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(size=100), max_count=20)
    release = ss.Sketch.create(spec).seal()
    assert isinstance(release, ss.Release)
    (tmp_path / "one.sealed").write_bytes(release.to_bytes())
    monkeypatch.setenv(stored.FOLDER, str(tmp_path / "cache" / "answers"))
    return tmp_path / "cache" / "answers"


QUESTION = ("profile", "one.sealed", "--method", "inverse")


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_the_second_answer_is_the_first_one(run: Run, answers: Path, form: str) -> None:
    first = run(*QUESTION, "--format", form)
    (kept,) = answers.iterdir()
    assert (first.code, kept.read_text()) == (0, first.out)
    assert run(*QUESTION, "--format", form).out == first.out
    kept.write_text("from the folder\n")
    assert run(*QUESTION, "--format", form).out == "from the folder\n"


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
    kept.write_text("planted\n")
    answers.chmod(0o770)
    assert run(*QUESTION).out != "planted\n"


def test_a_warning_is_given_each_time(run: Run, answers: Path, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="NO PRIVACY"):
        spec = ss.ProfileSpec(epsilon="40", domain=ss.ClosedDomain(size=100), max_count=20)
    loud = ss.Sketch.create(spec).seal()
    (tmp_path / "one.sealed").write_bytes(loud.to_bytes())
    for _ in range(2):
        assert "NO PRIVACY" in run(*QUESTION).err
    assert list(answers.iterdir()) == []


def test_what_gives_no_answer_or_more_than_an_answer_is_not_kept(run: Run, answers: Path) -> None:
    assert run("create", "-o", "open.sketch", "--epsilon", "1", "--unit", "event", "--size", "100").code == 0
    assert run("profile", "open.sketch").code == 2
    assert run(*QUESTION, "--html", "report.html").code == 0
    assert not answers.exists() or list(answers.iterdir()) == []


def test_an_empty_setting_keeps_nothing(run: Run, answers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(stored.FOLDER, "")
    assert run(*QUESTION).code == 0
    assert not answers.exists()


def test_a_folder_that_cannot_be_made_is_no_error(run: Run, answers: Path) -> None:
    answers.parent.write_text("a file is in the way")
    assert run(*QUESTION).code == 0


def test_an_edit_of_the_package_ends_all_answers(answers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = answers.parent.parent / "package" / "cli"
    package.mkdir(parents=True)
    (package / "stored.py").write_text("1")
    monkeypatch.setattr(stored, "__file__", str(package / "stored.py"))
    before = stored.place(b"bytes", "question")
    assert before is not None
    assert before == stored.place(b"bytes", "question")
    (package / "other.py").write_text("1")
    assert before != stored.place(b"bytes", "question")


def test_the_oldest_answers_go(answers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "MOST", 2)
    places = [stored.place(bytes([number]), "question") for number in range(3)]
    for number, where in enumerate(places):
        assert where is not None
        with stored.kept(where):
            print(number)
        os.utime(where, ns=(number, number))
    assert sorted(answers.iterdir()) == sorted(where for where in places[1:] if where is not None)
