"""The mechanical mutants themselves: they are many, differ from the package, and are what a child process runs.

In: the package's sources. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

import ast
from fractions import Fraction

from mutation.operators import MODULES, ROOT, mutants, source_of
from mutation.run import CHECKS, TESTS, in_child, of_module, table

from sketchstream.components import Component, Counters
from sketchstream.privacy import measures


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


def test_each_module_has_checks_and_tests_that_exist() -> None:
    for module in MODULES:
        assert of_module(CHECKS, module)
        for path in of_module(TESTS, module):
            assert (ROOT / path).exists(), path


def test_a_child_runs_on_its_mutant_and_the_parent_on_the_package() -> None:
    mutant = next(one for one in mutants() if one.function == "concentrated" and one.operator == "double")
    assert in_child(mutant, lambda _: str(measures.concentrated(Fraction(2))), ()) == "4"
    assert measures.concentrated(Fraction(2)) == 2


def test_a_reused_draw_is_the_first_one_for_ever() -> None:
    mutant = next(one for one in mutants() if one.operator == "reuse" and one.function == "Counters._drawn")
    counter, wide = Component("total", Fraction(1)), Fraction(1, 10**6)

    def drawn(_: object) -> str:
        return str(len({Counters._drawn(counter, wide)[1] for _ in range(4)}))

    assert in_child(mutant, drawn, ()) == "1"
    assert drawn(()) == "4"


def test_the_table_counts_who_kills_and_names_survivors() -> None:
    killed, lives = mutants()[:2]
    text = table({
        killed.name: {"verify": True, "suite": False}, lives.name: {"verify": False, "suite": False}
    })  # fmt: skip
    assert "| all | 2 | 1 | 0 | 1 |" in text
    assert f"`{lives.function}`" in text
    assert "not examined yet" in text
