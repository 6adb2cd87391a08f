"""The mechanical mutants themselves: they are many, differ from the package, and are what a child process runs.

In: the package's sources. Out: nothing. Touches: a temporary folder.
"""

from __future__ import annotations

import ast
import json
from fractions import Fraction
from pathlib import Path

import pytest
from mutation import run
from mutation.judges import Judge, found, in_child, watched
from mutation.operators import MODULES, ROOT, mutants, source_of
from mutation.run import TESTS, applied, joined, table, tried

from sketchstream.components import Component, Counters
from sketchstream.privacy.losses import measures


def test_there_are_mutants_of_every_listed_module_by_every_operator() -> None:
    found = mutants()
    assert len(found) >= 300
    assert len({one.name for one in found}) == len(found)
    assert {one.module for one in found} == set(MODULES)
    assert {one.operator for one in found} == {
        "drop", "first", "second", "double", "halve", "reuse", "swap", "limit", "one more"
    }  # fmt: skip
    assert {one.module for one in found[: len(MODULES)]} == set(MODULES), "the first ones are a sample of all modules"


def test_a_mutant_is_a_module_that_compiles_and_differs_in_one_place() -> None:
    for mutant in mutants()[:45]:
        tree = source_of(mutant)
        compile(tree, mutant.module, "exec")
        honest = ast.parse((ROOT / "sketchstream" / f"{mutant.module}.py").read_text())
        assert ast.unparse(tree) != ast.unparse(honest), mutant.name


def test_the_tests_that_are_asked_exist() -> None:
    for path in TESTS:
        assert (ROOT / path).exists(), path


def test_a_child_runs_on_its_mutant_and_the_parent_on_the_package() -> None:
    mutant = next(one for one in mutants() if one.function == "rho_of_pure" and one.operator == "double")

    def work() -> str:
        applied(mutant)
        return str(measures.rho_of_pure(Fraction(2)))

    assert in_child(work) == "4"
    assert measures.rho_of_pure(Fraction(2)) == 2


def test_a_reused_draw_is_the_first_one_for_ever() -> None:
    mutant = next(one for one in mutants() if one.operator == "reuse" and one.function == "Counters._drawn")
    counter, wide = Component("total", Fraction(1)), Fraction(1, 10**6)

    def drawn() -> int:
        return len({Counters._drawn(counter, wide)[1] for _ in range(4)})

    def work() -> int:
        applied(mutant)
        return drawn()

    assert in_child(work) == 1
    assert drawn() == 4


def test_only_judges_that_pass_and_call_the_changed_function_are_asked() -> None:
    mutant = next(one for one in mutants() if one.function == "rho_of_pure" and one.operator == "double")
    calls = Judge("suite", "calls", "a", lambda: "" if measures.rho_of_pure(Fraction(2)) == 2 else "doubled")
    blind = Judge("suite", "blind", "a", lambda: "" if measures.rho_of_pure(Fraction(2)) > 0 else "negative")
    other = Judge("verify", "other", "b", lambda: "")
    broken = Judge("verify", "broken", "b", lambda: f"always {measures.rho_of_pure(Fraction(2))}")
    told: list[str] = []
    seen = watched([calls, blind, other, broken], told.append)
    assert told == ["broken: always 2"]
    assert {one.name: "privacy/losses/measures:rho_of_pure" in one.called for one in seen} == {
        "calls": True, "blind": True, "other": False
    }  # fmt: skip
    by_name = {one.name: one for one in (calls, blind, other, broken)}
    outcome = tried(mutant, by_name, seen, 60.0)
    assert (outcome["suite"], outcome["test"]) == (True, "calls: doubled")
    assert (outcome["verify"], outcome["verify_asked"]) == (False, [0, 0])
    assert tried(mutant, by_name, [one for one in seen if one.name == "blind"], 60.0)["suite_asked"] == [1, 1]
    assert found([calls, blind], 60.0) == ("", 2)


def test_a_narrow_run_forgets_nothing_of_a_wider_one() -> None:
    former = {"suite": False, "test": "", "suite_asked": [9, 9], "verify": False, "check": "", "verify_asked": [4, 4]}
    killed = {"suite": True, "test": "one", "verify": False, "check": "", "verify_asked": [0, 0], "seconds": 1}
    lives = {"suite": False, "test": "", "suite_asked": [2, 2], "verify": True, "check": "two", "seconds": 1}
    assert joined({}, killed) == killed
    assert joined(former, killed) == killed | {"verify_asked": [4, 4]}
    assert joined(former, lives) == lives | {"suite_asked": [9, 9]}
    assert joined(killed, lives) == lives


def test_a_child_that_ends_in_another_way_says_so() -> None:
    def endless() -> None:
        while True:
            pass

    assert in_child(endless, limit_s=1) == "ended by signal 9"
    assert in_child(lambda: 1 / 0) == "ZeroDivisionError: division by zero"


def test_the_table_counts_who_kills_and_names_survivors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(run, "REASONS", tmp_path / "none.json")
    killed, lives = mutants()[:2]
    text = table({
        killed.name: {"verify": True, "suite": False}, lives.name: {"verify": False, "suite": False}
    })  # fmt: skip
    assert "| all | 2 | 1 | 0 | 1 |" in text
    assert f"`{lives.function}`" in text
    assert "not examined yet" in text
    (tmp_path / "none.json").write_text(json.dumps({lives.name: "changes nothing"}))
    assert "| changes nothing |" in table({lives.name: {"verify": False, "suite": False}})
