"""Facts of the house that may only get better; `-s` prints them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from helpers import facts

FACTS: dict[str, tuple[Callable[[], int], int, int]] = {
    "modules above the kinds that name one": (facts.modules_above_that_name_a_kind, 0, 0),
    "lines of the linear kinds, their audits and plans": (facts.lines_of_linear_kinds, 19_109, 13_500),
    "members of Kind": (facts.members_of_kind, 19, 20),
    "members of an object that a kind has": (facts.members_of_what_a_kind_has, 12, 12),
    "members of these that one kind alone overrides": (facts.members_that_one_kind_overrides, 0, 0),
    "own frames from Sketch.update to the kernel": (facts.frames_of_update, 4, 4),
    "classes that hold a batch": (facts.holders_of_a_batch, 5, 5),
    "circles of imports, those for types included": (lambda: facts.circles_of_imports()[0], 0, 0),
    "modules in the largest circle": (lambda: facts.circles_of_imports()[1], 0, 0),
    "rooms with more than 20 modules at one level": (facts.crowded_rooms, 0, 0),
    "names that several classes have": (facts.ambiguous_class_names, 0, 0),
    "lines of code of the product": (facts.lines_of_code, 73_748, 48_000),
}
"""What is measured, the most that is allowed, and the aim.

Lines of code grew from 70,000 by histories, their boundary with live windows and tables in Python (1,500), Avro files,
sets of groups over HTTP, the page's numbers, names of items, kind `hierarchy` with its audit and the plans of all
kinds (1,050), trees, causal factors and projected answers (900, of which 750 are the linear kinds'), denoisers and rows
as they are (400), early answers in plans and ten thousand open windows (150), crowded sketches of groups (130), answers
of the service given unread and pages drawn in turns (165), answers that the command line keeps (70), imports from rooms
(36), protocols for what one kind has (19), a pseudo-inverse of its own and a length of headers that two readers refuse
(16), whole weights that an engine adds up and footers that bound a window (78), modules of their own for what two
others shared (19), a database that is replaced while it is read (6), event times in other units than milliseconds
(105), csv with other separators (21), numba loaded when a kernel is called, twins of the readers of samples, the demo's
second process (130), workloads without a matrix: runs of cells, their trees in closed form, lower bounds (435; 742
lines of the linear kinds), listed items found without a compiled loop (47), a law computed once where an epsilon is
searched (6 of the linear kinds), damage told of the database that was read (8), projections that count the answers'
distance, and those of strategies without a matrix (103; 184 lines of the linear kinds), columns of a table
by name (10), listed values compared with a sample (102; 8 of the linear kinds),
questions of `init` about groups, ranges without a window (80), likelihoods of few items over many laws (58), keys that
are lost (8). The demo lies in `examples` and no longer counts (852); the broker that tests start lies with the tests
(409). Classes of one name each took 2 lines of the linear kinds; means that wait for all their windows, and
differences that say what windows lack, took 34, the layout of long series 4 (6 of the linear kinds), groups compared
with what was before on the first page 34, causal factors of long series 122 (190 of the linear kinds),
bounds of points in series and answers of sampled domains for all items 71, whole windows kept after a reset 6, growth
of a topic before a start 64, counts below 0 that are not cut 17 (23 of the linear kinds), first mistakes
that `init` names 43, doubts that a worker says 14. Merging what bases of ledgers, formats, sources and plans say took
273 away (85 of the linear kinds); exact laws of few slots (129), answers under former names, failures that are tried
again and lists as tables (100), and sums of few counters (33; 76 of the linear kinds) brought 293.
Merging what two files said took 528 (173 of the linear kinds). Spans that are checked without a compiled loop took 7,
garbage that is searched for less often 5, files that are not in the order of their times 18, digits by intervals 8,
factors 1, sets of groups on the first page 3, titles of several lines 4, names of files and groups 18, names that are
no formulas 9, columns within columns and names with dots 42, unlimited losses 2, pages that wait for a first answer 7,
files that are not UTF-8 18, windows that a changed plan begins after former ones 21, windows that keep their evidence
when its noise changes 61, what is missing after a loss, told by the next quorum, 5, records for old windows that the
service hears of 8, intervals of inner products that are skewed 5 (4 of the linear kinds), noise of less than one 3 (6
of the linear kinds), ends of means that are cut 7, the audit of presence and joint noise 52, of heavy weights 2, stores
of other files 14, tombstones 5, windows that are passed over where no record is near 5, scratch memory that kernels are
given 6, rebalances that are gone on with 8, ends of parts within those of wholes 1, digits of tables on a terminal 8,
plugins that are not looked for 2, what readers ask of profiles, sets of groups and sizes without naming a kind 53.
Merging classes that held a batch took 51 away. States that one kind adds in a group of its own took 6 (5 of the linear
kinds), classes of their own for what a kind's noise costs and for how records become its events 40 (27 of the linear
kinds), places of items 4, options of questions in a file of their own (21 out of the linear kinds) and axes of tables
9.

Members of an object that a kind has grew from 9 to 12: what an item's groups, a unit's weight and a publication's parts
cost is of `Accounting`, no longer of capabilities.
9. Intervals of rows as they are, whose noise is of whole numbers, took 62 (91 of the linear kinds).
9. Intervals of rows as they are, whose noise is of whole numbers, took 60 (92 of the linear kinds).
kinds), places of items 4, options of questions in a file of their own (21 out of the linear kinds), axes of tables 9,
timestamps that bound a loss 2, and schemas that lack fields or are of another format 16.
9. Intervals of rows as they are, whose noise is of whole numbers, took 60 (92 of the linear kinds), help of plans
9. Intervals of rows as they are, whose noise is of whole numbers, took 61 (93 of the linear kinds), help of plans
from tables 1.
timestamps that bound a loss 2, schemas that lack fields or are of another format 16, and histories that end in the
future 14.
"""
LEAST: dict[str, tuple[Callable[[], int], int, int]] = {
    "rows of the public interface that every kind keeps": (facts.rows_of_the_interface, 21, 21),
    "comments in the files of compiled loops": (facts.comments_in_kernels, 260, 250),
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
