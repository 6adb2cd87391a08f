"""Facts of the house that may only get better; `-s` prints them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from helpers import facts

FACTS: dict[str, tuple[Callable[[], int], int, int]] = {
    "modules above the kinds that name one": (facts.modules_above_that_name_a_kind, 0, 0),
    "lines of the linear kinds, their audits and plans": (facts.lines_of_linear_kinds, 17_497, 13_500),
    "members of Kind": (facts.members_of_kind, 19, 20),
    "members of an object that a kind has": (facts.members_of_what_a_kind_has, 12, 12),
    "members of these that one kind alone overrides": (facts.members_that_one_kind_overrides, 0, 0),
    "own frames from Sketch.update to the kernel": (facts.frames_of_update, 4, 4),
    "classes that hold a batch": (facts.holders_of_a_batch, 5, 5),
    "circles of imports, those for types included": (lambda: facts.circles_of_imports()[0], 0, 0),
    "modules in the largest circle": (lambda: facts.circles_of_imports()[1], 0, 0),
    "rooms with more than 20 modules at one level": (facts.crowded_rooms, 0, 0),
    "names that several classes have": (facts.ambiguous_class_names, 0, 0),
    "lines of code of the product": (facts.lines_of_code, 72_671, 48_000),
}
"""What is measured, the most that is allowed, and the aim.

The aim for lines of code is for what there was before the features that were asked for since: `bench/additions.py`
reads the history and prints what each of them brought. A limit is raised only with its reason here:

* intervals of rows as they are, whose noise is of whole numbers: 61 (93 of the linear kinds)
* schemas that lack fields or are of another format 16, histories that end in the future 14, answers of a group's
  series that are looked up at once 19, totals of sparse trees 2, timestamps that bound a loss 2
* compiled loops of the likelihood, whose steps are kernels of their own 25
* an audit by the oracle of a kind's package 10, scratch of Laplace noise that is erased 2 (of the linear kinds)
* members of an object that a kind has, from 9 to 12: what an item's groups, a unit's weight and a publication's parts
  cost is of `Accounting`, no longer of capabilities
* a class for each noise of convolutions, with all that is mathematically its own, in place of twenty methods that asked
  for its name: 143 (400 of the linear kinds, as each class names what it overrides)
* the state of a sketch in a partition taken apart into objects, and early answers, closing positions, specs of windows
  and the pace of long work into files of their own 110; published evidence apart from that of open windows 28
* reasons beside constants, in strings that count as code: 67; names that say what they hold, which take more lines 9
* names of the answers of all kinds in the public interface 21; times as users write them and fair queues in files of
  their own 6; handshakes that a listener without TLS ends 2; one road by which a request tells what may be seen 8;
  partitions that wait for a schema, which are stalled 23; data of commands that are made only where they are printed 3
  (2 of the linear kinds); values that an array hides 6 (1 of the linear kinds), slots that no sketch has 3, the tail of
  counts that end at a cap 22, losses of items that only some sketches bound 8, times that are none and rows of too many
  cells 14, files and folders that are not there 11;
  the forecast of a spec of any kind as an object 19, public names 12, transforms of awkward lengths 2, flags of losses
  that are no flags 3, digits that are grouped 3;
  losses of a stack's parts, each the largest 9, planned errors that are not known or include what wraps 36 (3 of the
  linear kinds), why a sketch is refused 14, windows of a report 2;
  the variance of noise of a few whole numbers 8, mistakes of configurations with the keys that they are about 80,
  notes on losses apart from others 3; provenance and instalments in files of their own 67
  (7 of the linear kinds), the sketches of a service apart from its windows 29;
  nothing that is decided by the words of texts 45; stores of
  services, settings of workers and consumers of sources in files of their own 116
"""
LEAST: dict[str, tuple[Callable[[], int], int, int]] = {
    "rows of the public interface that every kind keeps": (facts.rows_of_the_interface, 21, 21),
    "comments in the files of compiled loops": (facts.comments_in_kernels, 285, 250),
}
"""What is measured, the least that is allowed, and the aim."""


@pytest.mark.parametrize("name", FACTS)
def test_a_fact_does_not_get_worse(name: str) -> None:
    measure, most, aim = FACTS[name]
    found = measure()
    print(f"\n{name}: {found:,} (at most {most:,}, aim {aim:,})")
    assert found <= most


@pytest.mark.parametrize("name", LEAST)
def test_a_good_does_not_get_less(name: str) -> None:
    measure, least, aim = LEAST[name]
    found = measure()
    print(f"\n{name}: {found:,} (at least {least:,}, aim {aim:,})")
    assert found >= least
