"""The default estimator: smooth models, a sparse candidate and a shrinkage path, averaged; one EM step at the end.

In: observed parts of one closed domain. Out: a `Fit`. Touches: nothing.
Source: docs/theory/profile.md 7;
`docs/theory/reconstruction.md`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.kinds.profile.estimate import laws
from sketchstream.kinds.profile.estimate.fit import Fit, mix_fits
from sketchstream.kinds.profile.estimate.likelihood import channels, smooth, sparse
from sketchstream.kinds.profile.estimate.likelihood.grid import Grid
from sketchstream.kinds.profile.estimate.likelihood.problem import Likelihood
from sketchstream.kinds.profile.estimate.observed import Observed

FOLDS = 5
MIN_CELLS = 3
"""Fewer cells than these leave smooth models and atoms nothing to say."""
WITHIN = 100
"""Most cycles of accelerated EM that look for atoms inside wide bins."""
PENALTIES = np.power(10.0, np.arange(1.0, -6.5, -0.5))
HEAD = (1.0, 1e-1, 1e-2, 1e-3, 1e-5)


@dataclass(frozen=True)
class FitSettings:
    """Settings of the estimator besides the data: public parameters only.

    Args:
        n: largest count resolved.
        epsilon: epsilon of the weakest layer.
        information: standard deviation of a k+ share.
        least: share below which an atom of the sparse candidate is taken for noise.
        brief: whether to use fewer paths and folds, as evaluations are expensive.
        plain: whether fewer models suffice.
    """

    n: int
    epsilon: float
    information: float
    least: float
    brief: bool = False
    plain: bool = False


@dataclass(frozen=True)
class Start:
    """The law that the paths shrink to, and its components.

    Args:
        f: (m,) the law.
        fits: fitted smooth models.
        weights: weights of the smooth models.
        atoms: sparse candidate, or None.
        atoms_weight: weight of the sparse candidate.
        evidence: log of the summed evidence of its components.
    """

    f: Floats
    fits: list[smooth.Fitted]
    weights: Floats
    atoms: sparse.Atoms | None
    atoms_weight: float
    evidence: float


def reconstruct(parts: Sequence[Observed], n: int) -> Fit:
    """The likelihood estimate of one closed domain.

    Several parts (different layers or costs) may be random parts of one population or separate populations: both
    models, one law for all and one for each, are fitted and averaged by their evidence.
    """
    together, evidence = _fit_one_law(parts, n)
    if len(parts) == 1:
        return together
    each = [_fit_one_law([part], n) for part in parts]
    apart = mix_fits([fit for fit, _ in each], [part.slots[0] for part in parts])
    gain = sum(one for _, one in each) - evidence
    share = 1.0 / (1.0 + math.exp(min(max(-gain, -700.0), 700.0)))
    return mix_fits([apart, together], [share, 1.0 - share])


def _fit_one_law(parts: Sequence[Observed], n: int) -> tuple[Fit, float]:
    """One law for all the parts, and its evidence."""
    problem, grid = channels.likelihood(parts, n)
    epsilon = min(min(part.epsilons) for part in parts)
    d = float(sum(part.slots[0] for part in parts))
    dear = parts[0].unit == "event" and (len(parts) > 1 or len(parts[0].epsilons) > 1)  # no tridiagonal inverse
    settings = FitSettings(n, epsilon, _information(parts, d), _least(parts, d), brief=dear)
    f, evidence = estimate(problem, grid, settings, generator(parts))
    return channels.spread_out(parts, grid, f, n), evidence


def generator(parts: Sequence[Observed]) -> np.random.Generator:
    """A generator seeded by the published digest: the same object gives the same profile."""
    seed = hashlib.blake2b(b"".join(part.digest + part.values.tobytes() for part in parts), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(seed, "little"))


def estimate(problem: Likelihood, grid: Grid, settings: FitSettings, rng: np.random.Generator) -> tuple[Floats, float]:
    """The complete estimate on the grid: the averaged law after one EM step (m,), and its evidence."""
    m = problem.m
    if m == 1:
        return np.ones(1), problem.value(np.ones(1))
    flat = grid.width / grid.width.sum()
    if m < MIN_CELLS or problem.d < 50:
        start = Start(np.asarray(flat), [], np.zeros(0), None, 0.0, problem.value(np.asarray(flat)))
    else:
        start = begin(problem, grid, settings)
    cuts = _cuts(grid)[: 2 if settings.brief else None]
    laws_ = candidates(problem, start.f, cuts, settings.brief)
    score = np.zeros(laws_.shape[0])
    folds = 3 if settings.brief else FOLDS
    for train, test in problem.folds(start.f, folds, rng) if problem.d >= 4 * folds else []:
        again = candidates(train, _refit(train, start), cuts, settings.brief)
        score += [test.value(one / one.sum()) for one in again]
    score[0] += math.log(laws_.shape[0])
    weight = np.exp(score - score.max())
    f = (weight / weight.sum()) @ (laws_ / laws_.sum(axis=1, keepdims=True))
    return problem.step(np.asarray(f)), start.evidence


def begin(problem: Likelihood, grid: Grid, settings: FitSettings) -> Start:
    """Smooth models and the sparse candidate, averaged by evidence."""
    nodes, n, epsilon = problem.nodes, settings.n, settings.epsilon
    basis = smooth.splines(nodes, epsilon)
    base = np.log(grid.width)
    last = int(np.searchsorted(nodes, n, side="right")) - 1
    variants = [base]
    if last < problem.m - 1 and last >= 8:
        variants.append(np.where(np.arange(problem.m) <= last, base, smooth.EXCLUDED_LOG_SHARE))
    by_variant: list[tuple[Floats, smooth.Model, list[smooth.Fitted]]] = []
    for variant in variants:
        model = smooth.build(smooth.PLAIN, basis, variant, (0, last), nodes)
        start = by_variant[0][2][:2][-1].c if by_variant else None
        by_variant.append((variant, model, smooth.fit_strengths(problem, model, start=start)))
    top = [max(fitted.evidence for fitted in fits) for _, _, fits in by_variant]
    by_variant = [row for row, evidence in zip(by_variant, top, strict=True) if evidence > max(top) - 10.0]
    if len(by_variant) == 2:
        free, _ = smooth.average(by_variant[0][2])
        if float(free[last + 1 :].sum()) * problem.d < 1.0:
            by_variant = by_variant[1:]  # no slot above n: a cut makes no difference
    fits = [fitted for _, _, some in by_variant for fitted in some]
    best = max(top)

    flat = np.asarray(grid.width / grid.width.sum())
    taus = problem.d * np.power(10.0, np.arange(0.0, -8.25, -0.5))[:, None] * np.ones(problem.m)
    unrestricted = problem.path(flat, taus, flat)[-1]
    if grid.parts is not None:  # the path moved whole bins; EM finds the positions inside them

        def update(f: Floats) -> tuple[Floats, float]:
            value, ratio, _ = problem.score(f / f.sum())
            moved = f * ratio
            return np.asarray(moved / moved.sum()), value

        unrestricted = grid.gathered(channels.squarem(unrestricted, update, 1e-2, WITHIN), n)
    rough = max((fit.evidence for fit in fits if fit.strength >= 1.0), default=best)
    known = 10.0 * min(max((0.15 - settings.information) / 0.08, 0.0), 1.0)
    bonus = max(known, min(10.0, best - rough))
    loose = grid.parts is not None
    most = sparse.MOVED_ATOMS if loose and settings.brief else sparse.MAX_ATOMS_AT_FIRST
    atoms = sparse.candidate(problem, unrestricted, n, epsilon, settings.least, bonus, best - 12.0, loose, most)

    if atoms is None or atoms.score < best + 30.0:
        for kind in smooth.KINDS[2:] if settings.plain else smooth.KINDS[1:]:
            for one, _, plain in by_variant:
                model = smooth.build(kind, basis, one, (0, last), nodes)
                fits += smooth.fit_strengths(problem, model, start=plain[:2][-1].c)
        for _, model, _ in by_variant if not settings.plain else []:
            fits += smooth.cliffs(problem, model, fits, epsilon)
    f, weights = smooth.average(fits)
    evidence = np.array([fit.evidence for fit in fits])
    top_score = max(float(evidence.max()), atoms.score if atoms is not None else -math.inf)
    total, share = float(np.exp(evidence - top_score).sum()), 0.0
    if atoms is not None:
        mine = math.exp(atoms.score - top_score)
        total += mine
        share = mine / total
        f = (1.0 - share) * f + share * atoms.law(problem.m)
    return Start(f, fits, weights, atoms, share, top_score + math.log(total))


def candidates(problem: Likelihood, f0: Floats, cuts: Sequence[int], brief: bool) -> Floats:
    """f0 itself and the shrinkage paths from it towards the unrestricted maximum. (1 + 15 + 5 * cuts, m)."""
    m, d = problem.m, problem.d
    wide, head = (PENALTIES[::3], HEAD[::2]) if brief else (PENALTIES, HEAD)
    out = [f0[None, :], problem.path(f0, d * wide[:, None] * np.ones(m), f0)]
    for cut in cuts:
        taus = np.full((len(head), m), 100.0 * d)
        taus[:, : cut + 1] = d * np.array(head)[:, None]
        out.append(problem.path(f0, taus, f0))
    return np.concatenate(out)


def _cuts(grid: Grid) -> list[int]:
    """Nodes at which the head ends, for paths that change only the head: counts 4, 16, 64, ..."""
    out, cut = [], 4
    while cut <= grid.low[-1]:
        out.append(int(np.searchsorted(grid.low, cut, side="right")) - 1)
        cut *= 4
    return out


def _refit(train: Likelihood, start: Start) -> Floats:
    """Refit the start law to other data: models with relevant weights, at the same weights."""
    if not start.fits:
        return start.f
    heavy = [i for i in np.argsort(start.weights)[::-1][:4] if start.weights[i] > 0.05] or [int(start.weights.argmax())]
    total = float(start.weights[heavy].sum())
    f = np.zeros(train.m)
    if start.atoms_weight < 1.0 - 1e-9:
        for i in heavy:
            plain = start.fits[i]
            f += start.weights[i] / total * smooth.fit(train, plain.model, plain.strength, plain.c, 3, weigh=False).f
    else:
        f = start.f.copy()
    if start.atoms is not None and start.atoms_weight > 1e-6:
        mass, value = sparse.refit(train, start.atoms.at, start.atoms.mass, 6)
        share = start.atoms_weight
        f = (1.0 - share) * f + share * replace(start.atoms, mass=mass, value=value).law(train.m)
    return f


def _information(parts: Sequence[Observed], d: float) -> float:
    """Standard deviation of a k+ share, including the noise of publication (docs/theory/profile.md 5)."""
    variance = 0.0
    for part in parts:
        if part.modulus is None:
            v0 = laws.tail_variance(part.epsilons)
        else:
            v0 = 0.25 / laws.response_eigenvalue(part.epsilons, part.modulus) ** 2
        share = part.slots[0] / d
        variance += share**2 * v0 / part.slots[0]
        variance += part.noise_variance * float((laws.stencil(part.epsilons) ** 2).sum()) / d**2
    return math.sqrt(variance)


def _least(parts: Sequence[Observed], d: float) -> float:
    """Smallest share of an atom worth keeping: with noisy bins, twice their noise."""
    noisy = [part.noise_variance for part in parts if part.form == "bins"]
    return max(1e-5, 2.0 * math.sqrt(max(noisy)) / d if noisy else 0.0)
