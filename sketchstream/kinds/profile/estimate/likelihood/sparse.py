"""A sparse candidate: few atoms, found by pruning the nonparametric maximum likelihood, weighed by BIC.

In: a likelihood, its unrestricted maximum. Out: atoms, masses, a score comparable with the smooth models' evidence.
Touches: nothing. Source: docs/theory/profile.md 7.3; Schwarz 1978 (BIC).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.kinds.profile.estimate.likelihood import kernels
from sketchstream.kinds.profile.estimate.likelihood.problem import Likelihood

MAX_ATOMS_AT_FIRST = 100
MAX_ATOMS = 60
MANY = 50
"""With more atoms than this, the search stops if the score could not be reached even at half of their penalty."""
FEW_ATOMS = 40
"""Number of atoms down to which several are pruned at once; below, they are pruned one at a time."""
MOVED_ATOMS = 12
"""Most atoms that are moved before they are pruned, where positions inside wide bins are unknown."""

Scored = Callable[[Ints, Floats, int], "Atoms"]
"""A function of places, masses and steps: the atoms at these places, refitted from these masses in these steps."""


@dataclass(frozen=True)
class Atoms:
    """Masses on few nodes.

    Args:
        at: (k,) int64 nodes.
        mass: (k,) shares.
        value: log-likelihood.
        score: log-likelihood minus the penalty of the atoms.
    """

    at: Ints
    mass: Floats
    value: float
    score: float

    def law(self, m: int) -> Floats:
        """(m,) shares on all nodes."""
        out = np.zeros(m)
        out[self.at] = self.mass
        return out


def refit(problem: Likelihood, at: Ints, mass: Floats, steps: int) -> tuple[Floats, float]:
    """Masses of the atoms by Fisher scoring in log-mass, and the log-likelihood reached."""
    k = at.size
    columns = np.zeros((problem.m, k))
    columns[at, np.arange(k)] = 1.0
    theta = np.log(np.maximum(mass, 1e-12))

    def law(theta: Floats) -> Floats:
        out = np.zeros(problem.m)
        share = np.exp(theta - theta.max())
        out[at] = share / share.sum()
        return out

    f = law(theta)
    value, ratio, mu = problem.score(f)
    for _ in range(steps if value > kernels.IMPOSSIBLE else 0):
        information = np.empty((k, k))
        kernels.gram(problem.rows(f, mu, columns, f[at]), information)
        gradient = f[at] * (ratio[at] - problem.d)
        size = float(np.trace(information)) / k
        step = np.linalg.solve(information + (1e-9 * size + 1e-12) * np.eye(k) + size * 1e-3 / k, gradient)
        step *= min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-300))
        scale, done = 1.0, True
        for _ in range(8):
            trial = law(theta + scale * step)
            new, new_ratio, new_mu = problem.score(trial)
            if new >= value - 1e-9:
                done = new - value < 1e-3
                theta, f, value, ratio, mu = theta + scale * step, trial, new, new_ratio, new_mu
                break
            scale *= 0.5
        if done:
            break
    return f[at], value


def candidate(
    problem: Likelihood,
    unrestricted: Floats,
    n: float,
    epsilon: float,
    least: float,
    bonus: float,
    worth: float,
    loose: bool = False,
    most: int = MAX_ATOMS_AT_FIRST,
) -> Atoms | None:
    """Prune the unrestricted maximum while the score improves, then move the remaining atoms.

    Args:
        problem: the data.
        unrestricted: (m,) maximum likelihood law.
        n: largest count resolved.
        epsilon: epsilon of the weakest layer; determines the largest distance of two atoms to be merged.
        least: share below which an atom is taken for noise.
        bonus: nats added to the score.
        worth: stop early if this score is out of reach even without further penalty.
        loose: whether positions inside wide bins are unknown: then a few atoms are moved first, and pruned again.
        most: largest number of atoms to begin with.

    Returns: None if there are too many atoms, or too little to gain.
    """
    nodes = problem.nodes
    at = np.flatnonzero(unrestricted > least)
    if at.size == 0 or at.size > most:
        return None
    price = 0.5 * math.log(problem.d)
    toll = np.log((1.0 + nodes) * math.log(n + 2.0))

    def scored(at: Ints, mass: Floats, steps: int) -> Atoms:
        mass, value = refit(problem, at, mass / mass.sum(), steps)
        return Atoms(at, mass, value, value - (at.size - 1) * price - float(toll[at].sum()) + bonus)

    best = scored(at, unrestricted[at], 8)
    if loose and best.at.size <= MOVED_ATOMS:
        best = _move_atoms(best, problem.m, scored)
    if best.value + bonus < worth:
        return None
    reach = 4.0 / epsilon + 1.0
    best = _coarse(best, nodes, reach, scored)
    if at.size > MANY and best.score + 0.5 * (best.value + bonus - best.score) < worth:
        return None  # not even at half the penalty of the remaining atoms
    pruned = _prune_atoms(best, nodes, reach, worth - bonus, scored)
    if pruned is None or pruned.at.size > MAX_ATOMS:
        return None
    best = _move_atoms(scored(pruned.at, pruned.mass, 12), problem.m, scored)
    if loose:
        again = _prune_atoms(best, nodes, reach, -math.inf, scored)
        if again is not None and again.at.size < best.at.size:
            best = _move_atoms(again, problem.m, scored)
    return best


def _prune_atoms(best: Atoms, nodes: Floats, reach: float, worth: float, scored: Scored) -> Atoms | None:
    """Drop a light atom, or merge two close ones, while the score improves; None once the value is below `worth`."""
    while best.at.size > 1:
        at, mass = best.at, best.mass
        trials = []
        for i in np.argsort(mass)[:2]:
            trials.append((np.delete(at, i), np.delete(mass, i)))
        gap = np.diff(nodes[at])
        for i in np.argsort(gap, kind="stable")[:4]:
            if gap[i] > reach:
                break
            trials.append(_merge_atoms(at, mass, nodes, [int(i)]))
        pruned = max((scored(a, b, 3) for a, b in trials), key=lambda one: one.score)
        if pruned.score <= best.score:
            break
        best = pruned
        if best.value < worth:
            return None
    return best


def _move_atoms(best: Atoms, m: int, scored: Scored) -> Atoms:
    """Move single atoms by one node while value and score improve."""
    moved = True
    for _ in range(20):
        if not moved:
            break
        moved = False
        for i in range(best.at.size):
            for move in (-1, 1):
                place = int(best.at[i]) + move
                if 0 <= place < m and place not in best.at:
                    at = best.at.copy()
                    at[i] = place
                    moved_atom = scored(at, best.mass, 4)
                    if moved_atom.value > best.value + 1e-6 and moved_atom.score > best.score:
                        best, moved = moved_atom, True
    return best


def _merge_atoms(at: Ints, mass: Floats, nodes: Floats, pairs: Sequence[int]) -> tuple[Ints, Floats]:
    """Merge atoms i and i + 1 at their rounded mean, for each i of `pairs` (no two of them neighbours)."""
    at, mass = at.copy(), mass.copy()
    for i in pairs:
        both = mass[i] + mass[i + 1]
        middle = (nodes[at[i]] * mass[i] + nodes[at[i + 1]] * mass[i + 1]) / max(both, 1e-300)
        at[i] += int(np.argmin(np.abs(nodes[at[i] : at[i + 1] + 1] - middle)))
        mass[i] = both
    gone = np.array(pairs, dtype=np.int64) + 1
    return np.delete(at, gone), np.delete(mass, gone)


def _coarse(best: Atoms, nodes: Floats, reach: float, scored: Scored) -> Atoms:
    """Prune several atoms at once while the score improves, down to FEW_ATOMS: merge neighbours, drop the lightest."""
    width = 1.0
    while width <= reach and best.at.size > FEW_ATOMS:
        pairs: list[int] = []
        for i in np.flatnonzero(np.diff(nodes[best.at]) <= width):
            if not pairs or i > pairs[-1] + 1:
                pairs.append(int(i))
        coarser = scored(*_merge_atoms(best.at, best.mass, nodes, pairs), 3) if pairs else best
        if coarser.score > best.score:
            best = coarser
        else:
            width *= 2.0
    some = best.at.size // 3
    while some > 1 and best.at.size > FEW_ATOMS:
        largest = np.sort(np.argsort(best.mass)[some:])
        coarser = scored(best.at[largest], best.mass[largest], 3)
        if coarser.score > best.score:
            best, some = coarser, min(some, coarser.at.size // 3)
        else:
            some //= 2
    return best
