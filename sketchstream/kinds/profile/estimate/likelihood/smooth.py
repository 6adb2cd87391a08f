"""Smooth models of a profile: penalised log-splines with free atoms, weighed by Laplace evidence.

In: a likelihood (`problem.Likelihood`), nodes, epsilon. Out: fitted models with their evidence. Touches: nothing.
Source: docs/theory/profile.md 7.2; Efron 2016 (g-modelling); MacKay 1992 (evidence); `docs/theory/reconstruction.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.kinds.profile.estimate.likelihood import kernels
from sketchstream.kinds.profile.estimate.likelihood.problem import Likelihood

STRENGTHS = tuple(10.0**k for k in range(3, -6, -1))
ATOM_SD = 4.5
HEAD = 12
CLIFF = (100.0, 1.0, 0.01)
"""Strengths at which the end of a support is looked for."""
EXCLUDED_LOG_SHARE = -60.0
"""Log of the share of a count that a model excludes."""
FREE_PRECISION = 1e-6
"""Precision of a spline's coefficients where nothing else holds them: the penalty leaves straight lines free."""
SMOOTH_NATS = 8.0
"""Nats off the evidence of every smooth model: it counts against sparse candidates, and against several laws."""
HOPELESS_NATS, CLIFF_NATS = 12.0, 6.0
"""Nats below the best at which weaker penalties are not tried, and (docs/theory/profile.md 7.2) cliffs not used."""
MIN_GAIN_NATS = 0.02
"""A fit stops when a step gains less, in nats."""


@dataclass(frozen=True)
class ModelFamily:
    """A family of smooth models.

    Args:
        slope: the penalty is int e^{slope u} s''(u)^2 du, u = log(1+t).
        head: standard deviation of free deviations of the first counts; 0 for none.
        bonus: nats added to the evidence.
    """

    slope: float
    head: float
    bonus: float


PLAIN = ModelFamily(0.0, 0.0, 0.0)
KINDS = (PLAIN, ModelFamily(1.0, 0.0, 0.0), ModelFamily(0.0, 0.5, 3.0), ModelFamily(0.0, 1.5, 5.0))


@dataclass(frozen=True)
class Model:
    """A kind prepared for one grid: log f = columns @ c + base, normalised.

    Args:
        columns: (m, k) basis.
        penalty: (k, k) penalty at strength 1, zero outside the spline.
        fixed: (k,) precision of the coefficients outside the spline.
        curvatures: eigenvalues of the penalty without its two zeros.
        base: (m,) log width, EXCLUDED_LOG_SHARE where excluded.
        bonus: nats added to the evidence.
    """

    columns: Floats
    penalty: Floats
    fixed: Floats
    curvatures: Floats
    atoms: Floats
    base: Floats
    bonus: float


@dataclass
class Fitted:
    """A model fitted at one penalty strength.

    Args:
        c: (k,) coefficients.
        f: (m,) law.
        evidence: log marginal likelihood, up to a constant shared by all models.
    """

    model: Model
    strength: float
    c: Floats
    f: Floats
    evidence: float


def knots(top: float, epsilon: float) -> Floats:
    """Knots in t from 0 to top: steps of one, then an e^(1/6)-th of the count, at first no more than 4/epsilon."""
    out = [0.0]
    while out[-1] < top:
        step = (1.0 + out[-1]) * math.expm1(1.0 / 6.0)
        if len(out) < 48:
            step = min(step, 4.0 / epsilon)
        out.append(out[-1] + max(1.0, step))
    out[-1] = top
    if len(out) > 2 and out[-1] - out[-2] < 0.5 * (out[-2] - out[-3]):
        del out[-2]
    return np.array(out)


@dataclass(frozen=True)
class Splines:
    """Cubic B-splines in u = log(1+t) on nodes, and their curvature penalties."""

    columns: Floats
    penalties: dict[float, Floats]


def splines(nodes: Floats, epsilon: float) -> Splines:
    """Clamped cubic B-splines on the nodes; penalties for slopes 0 and 1 by Gauss' rule, 3 points an interval."""
    at = np.log1p(knots(float(nodes[-1]), epsilon))
    t = np.concatenate([np.repeat(at[0], 3), at, np.repeat(at[-1], 3)])
    columns = b_splines(t, np.clip(np.log1p(nodes), at[0], at[-1]))
    x, w = np.polynomial.legendre.leggauss(3)
    half = np.diff(at)[:, None] / 2.0
    points = ((at[:-1] + at[1:])[:, None] / 2.0 + half * x).ravel()
    weights = (half * w).ravel()
    second = b_splines(t, points, derivative=2)
    penalties = {slope: second.T @ (second * (weights * np.exp(slope * points))[:, None]) for slope in (0.0, 1.0)}
    return Splines(columns, penalties)


def b_splines(t: Floats, x: Floats, derivative: int = 0) -> Floats:
    """(x.size, t.size - 4) cubic B-splines on the knots t, or a derivative of them, at points of [t[0], t[-1]].

    `scipy.interpolate` has them too, but loading it takes a third of the time of an answer.
    Source: de Boor 1978, chapter X, (4), (5) and (10).
    """
    last = np.searchsorted(t, t[-1]) - 1
    interval = np.minimum(np.searchsorted(t, x, side="right") - 1, last)
    out: Floats = (np.arange(t.size - 1) == interval[:, None]).astype(np.float64)
    for degree in range(1, 4):
        span = t[degree:] - t[:-degree]
        scaled = out / np.where(span > 0.0, span, np.inf)
        if degree > 3 - derivative:
            out = degree * (scaled[:, :-1] - scaled[:, 1:])
        else:
            out = (x[:, None] - t[: -degree - 1]) * scaled[:, :-1] + (t[degree + 1 :] - x[:, None]) * scaled[:, 1:]
    return out


def build(kind: ModelFamily, basis: Splines, base: Floats, atoms: Sequence[int], nodes: Floats) -> Model:
    """A kind on a grid; `atoms` are the nodes with a free share."""
    m, size = basis.columns.shape
    extra = list(dict.fromkeys(atoms))
    fixed = [1.0 / ATOM_SD**2] * len(extra)
    if kind.head:
        span = min(HEAD, m - 2)
        extra += list(range(1, span + 1))
        fixed += [1.0 / kind.head**2] * span
    columns = np.zeros((m, size + len(extra)))
    columns[:, :size] = basis.columns
    columns[extra, size + np.arange(len(extra))] = 1.0
    penalty = np.zeros((columns.shape[1], columns.shape[1]))
    penalty[:size, :size] = basis.penalties[kind.slope]
    curvatures = np.linalg.eigvalsh(basis.penalties[kind.slope])[2:].clip(0.0)
    assert nodes.size == m
    return Model(
        columns,
        penalty,
        np.concatenate([np.full(size, FREE_PRECISION), fixed]),
        curvatures,
        np.array(fixed),
        base,
        kind.bonus,
    )


def law(model: Model, c: Floats) -> Floats:
    """The law with coefficients c."""
    theta = model.columns @ c + model.base
    f = np.exp(theta - theta.max())
    return np.asarray(f / f.sum())


def fit(problem: Likelihood, model: Model, strength: float, c: Floats, steps: int = 30, weigh: bool = True) -> Fitted:
    """Fisher scoring from c at one strength.

    Steps are scaled to |change of log f| <= 3 and halved while the objective falls. The fit stops at a gain below
    MIN_GAIN_NATS, or below a hundredth of it where steps that have to be halved no longer move log f.
    """
    q = model.columns
    prior = strength * model.penalty
    prior.ravel()[:: prior.shape[0] + 1] += model.fixed
    f = law(model, c)
    value, ratio, mu = problem.score(f)
    target = value - 0.5 * float(c @ prior @ c)
    system, moved = prior, math.inf
    for _ in range(steps if value > kernels.IMPOSSIBLE else 0):
        gradient = q.T @ (f * (ratio - problem.d)) - prior @ c
        system = _system(problem, f, mu, q, prior)
        step = np.linalg.solve(system, gradient)  # importing scipy.linalg takes as long as a whole fit
        reach = float(np.abs(q @ step).max())
        scale = min(1.0, 3.0 / max(reach, 1e-300))
        gain = -math.inf
        for _ in range(12):
            trial = c + scale * step
            f_new = law(model, trial)
            value, ratio, mu = problem.score(f_new)
            new = value - 0.5 * float(trial @ prior @ trial)
            gain = new - target
            if gain > -1e-9:
                break
            scale *= 0.5
        if gain <= -1e-9:
            value, ratio, mu = problem.score(f)
            break
        c, f, target, moved = trial, f_new, new, scale * reach
        if gain < MIN_GAIN_NATS and ((scale == 1.0 and reach < 1.0) or (gain < 0.01 * MIN_GAIN_NATS and moved < 0.1)):
            break
    evidence = -math.inf
    if weigh and value > kernels.IMPOSSIBLE:
        if moved > 0.1:  # else the information of the last but one step is close enough
            system = _system(problem, f, mu, q, prior)
        evidence = (
            target
            - 0.5 * float(np.linalg.slogdet(system)[1])
            + 0.5 * float(np.log(strength * model.curvatures + FREE_PRECISION).sum())
            + 0.5 * float(np.log(model.atoms).sum())
            + model.bonus
            - SMOOTH_NATS
        )
    return Fitted(model, strength, c, f, evidence)


def _system(problem: Likelihood, f: Floats, mu: Floats, q: Floats, prior: Floats) -> Floats:
    """Information and prior together, with a little more on the diagonal, so that it can be solved."""
    system = _information(problem, f, mu, q) + prior
    system.ravel()[:: system.shape[0] + 1] += 1e-10 * np.trace(system) / system.shape[0]
    return system


def _information(problem: Likelihood, f: Floats, mu: Floats, q: Floats) -> Floats:
    """Fisher information of the coefficients. (k, k)."""
    out = np.empty((q.shape[1], q.shape[1]))
    kernels.gram(problem.rows(f, mu, q, f @ q), out)
    return out


def fit_strengths(
    problem: Likelihood, model: Model, strengths: Sequence[float] = STRENGTHS, start: Floats | None = None
) -> list[Fitted]:
    """Fits from the strongest penalty down, each from the one before, until the evidence is far below its best.

    `start`: (k,) first coefficients, or the leading ones of them.
    """
    out: list[Fitted] = []
    c = np.zeros(model.columns.shape[1])
    if start is not None:
        c[: start.size] = start
    best = -math.inf
    for strength in strengths:
        fitted = fit(problem, model, strength, c)
        c = fitted.c
        out.append(fitted)
        best = max(best, fitted.evidence)
        if fitted.evidence < best - HOPELESS_NATS:
            break
    return out


def average(fits: Sequence[Fitted]) -> tuple[Floats, Floats]:
    """Evidence-weighted law, and the weights."""
    evidence = np.array([one.evidence for one in fits])
    weight = np.exp(evidence - evidence.max())
    weight /= weight.sum()
    return np.asarray(sum(w * one.f for w, one in zip(weight, fits, strict=True))), weight


def cliffs(problem: Likelihood, plain: Model, fits: Sequence[Fitted], epsilon: float) -> list[Fitted]:
    """Models whose support ends at a cliff (or begins after a gap), found by hill climbing on the evidence.

    Source: docs/theory/profile.md 7.2, truncated support.
    """
    f, _ = average(fits)
    nodes = problem.nodes
    width = np.exp(plain.base - plain.base.max())
    density = f / np.maximum(width, 1e-300)
    best = max(one.evidence for one in fits)
    out: list[Fitted] = []
    mass = np.cumsum(f[1:])
    if mass[-1] <= 0.0:
        return out
    upper = float(nodes[1 + int(np.searchsorted(mass, 0.99 * mass[-1]))])
    lower = float(nodes[1 + int(np.searchsorted(mass, 0.01 * mass[-1]))])
    for end, sign in ((upper, 1.0), (lower, -1.0)):
        h = max(2.0, min(1.0 / epsilon, 10.0), end / 16.0)
        inside = (nodes >= min(end, end - sign * 2 * h)) & (nodes <= max(end, end - sign * 2 * h)) & (nodes >= 1)
        outside = end + sign * 2 * h
        if outside < 1 or not inside.any() or (sign > 0 and outside > nodes[-1]):
            continue
        past = int(np.argmin(np.abs(nodes - outside)))
        if density[past] >= 0.1 * density[inside].max():
            continue
        start = min(fits, key=lambda one: abs(math.log(one.strength / CLIFF[0]))).c[: plain.columns.shape[1]]
        cliff = _climb(problem, plain, nodes, end, sign, epsilon, start)
        if cliff is not None and cliff[1] > best - CLIFF_NATS:
            out += fit_strengths(problem, cliff[0], start=start)
    return out


def _climb(
    problem: Likelihood, plain: Model, nodes: Floats, begin: float, sign: float, epsilon: float, start: Floats
) -> tuple[Model, float] | None:
    """The end of the support with the best evidence, and that evidence."""
    tried: dict[float, tuple[Model, float]] = {}

    def at(end: float) -> float:
        if end not in tried:
            keep = (nodes <= end) if sign > 0 else ((nodes >= end) | (nodes < 1))
            model = replace(plain, base=np.where(keep, plain.base, EXCLUDED_LOG_SHARE), bonus=-3.0)
            fits = fit_strengths(problem, model, CLIFF, start) if keep.sum() >= 3 else []
            tried[end] = (model, max((one.evidence for one in fits), default=-math.inf))
        return tried[end][1]

    place, step = round(begin), max(1.0, round(0.5 / epsilon))
    value = at(place)
    while len(tried) < 20:
        moves = [(at(place + move), place + move) for move in (step, -step) if 1 <= place + move <= nodes[-1]]
        best = max(moves, default=(-math.inf, place))
        if best[0] > value:
            value, place = best[0], int(best[1])
        elif step <= 1.0:
            break
        else:
            step = max(1.0, step // 2)
    return tried[place] if math.isfinite(value) else None
