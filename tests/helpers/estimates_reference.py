"""Slow, obvious twins of the fast estimators: dense matrices, linear programs, thousands of EM steps.

In: small arrays. Out: arrays. Touches: nothing. For tests and benches only.
Source: Wu & Pagh, ICML 2024 (the program OPT'); Dwork et al., ICS 2010 (linear programming).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.linalg import circulant
from scipy.optimize import linprog


def noise_circulant(epsilon: float, r: int, n: int) -> np.ndarray:
    """The dense circulant of discrete Laplace noise conditioned on |z| <= r, on n + 2r + 1 points."""
    size = n + 2 * r + 1
    q = np.exp(-epsilon * np.abs(np.arange(-r, r + 1)))
    q /= q.sum()
    column = np.zeros(size)
    for offset in range(-r, r + 1):
        column[offset % size] += q[offset + r]
    return circulant(column)


def on_circle(g: np.ndarray, epsilons: Sequence[float]) -> np.ndarray:
    """The inverse on Z_p of discrete Laplace layers taken modulo p = len(g), by FFT and closed-form eigenvalues.

    Source: docs/theory/profile.md 2; exact, no truncation.
    """
    w = 2.0 * np.pi * np.arange(g.size // 2 + 1) / g.size
    eigenvalues = np.ones_like(w)
    for epsilon in epsilons:
        a = math.exp(-epsilon)
        eigenvalues *= (1.0 - a) ** 2 / ((1.0 - a) ** 2 + 4.0 * a * np.sin(w / 2.0) ** 2)
    return np.fft.irfft(np.fft.rfft(g) / eigenvalues, g.size)


def program(
    g: np.ndarray, epsilon: float, r: int, n: int, norm: float, method: str = "highs"
) -> tuple[np.ndarray, float]:
    """Min |C y - g| in norm 1 or inf subject to sum(y[0..n]) = 1, by HiGHS: the point and its objective."""
    size = g.size
    matrix = noise_circulant(epsilon, r, n)
    inside = np.zeros(size)
    inside[r : r + n + 1] = 1.0
    slack = size if norm == 1 else 1
    identity = -np.eye(size) if norm == 1 else -np.ones((size, 1))
    left = np.block([[matrix, identity], [-matrix, identity]])
    right = np.concatenate([g, -g])
    cost = np.concatenate([np.zeros(size), np.ones(slack)])
    found = linprog(
        cost,
        A_ub=left,
        b_ub=right,
        A_eq=np.concatenate([inside, np.zeros(slack)])[None, :],
        b_eq=[1.0],
        bounds=[(None, None)] * size + [(0, None)] * slack,
        method=method,
    )
    if not found.success:
        raise RuntimeError(found.message)
    return found.x[:size], float(found.fun)


def distance(y: np.ndarray, g: np.ndarray, epsilon: float, r: int, n: int, norm: float) -> float:
    """|C y - g| in a norm."""
    return float(np.linalg.norm(noise_circulant(epsilon, r, n) @ y - g, math.inf if norm == math.inf else norm))


def kernel(epsilon: float, counters: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Dense chances of each counter given each count."""
    a = math.exp(-epsilon)
    return (1 - a) / (1 + a) * a ** np.abs(counters[:, None] - counts[None, :])


def em(g: np.ndarray, matrix: np.ndarray, steps: int) -> np.ndarray:
    """Plain EM (Richardson-Lucy) from the uniform law."""
    f = np.full(matrix.shape[1], 1.0 / matrix.shape[1])
    for _ in range(steps):
        f = f * (matrix.T @ (g / np.maximum(matrix @ f, 1e-300)))
        f /= f.sum()
    return f
