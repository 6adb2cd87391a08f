"""The independent oracle of the laws: the samplers of Canonne, Kamath & Steinke 2020, in plain Python.

In: a random.Random. Out: draws. Touches: nothing. Shares no idea with the product: rejection instead of digits.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt
from random import Random


def bernoulli_exp1(num: int, den: int, random: Random) -> bool:
    """Bernoulli(exp(-num/den)) for num <= den (Algorithm 1)."""
    k = 1
    while random.randrange(den * k) < num:
        k += 1
    return k % 2 == 1


def bernoulli_exp(num: int, den: int, random: Random) -> bool:
    """Bernoulli(exp(-num/den)) for any num >= 0."""
    while num > den:
        if not bernoulli_exp1(1, 1, random):
            return False
        num -= den
    return bernoulli_exp1(num, den, random)


def laplace(epsilon: Fraction, random: Random) -> int:
    """Algorithm 2: scale t / s with epsilon = s / t."""
    s, t = epsilon.numerator, epsilon.denominator
    while True:
        u = random.randrange(t)
        if not bernoulli_exp(u, t, random):
            continue
        v = 0
        while bernoulli_exp1(1, 1, random):
            v += 1
        magnitude, negative = (u + t * v) // s, random.random() < 0.5
        if not (negative and magnitude == 0):
            return -magnitude if negative else magnitude


def gaussian(sigma2: Fraction, random: Random) -> int:
    """Algorithm 3."""
    num, den = sigma2.numerator, sigma2.denominator
    t = isqrt(num // den) + 1
    while True:
        y = laplace(Fraction(1, t), random)
        if bernoulli_exp((abs(y) * t * den - num) ** 2, 2 * num * den * t * t, random):
            return y


def response(modulus: int, epsilon: Fraction, random: Random) -> int:
    """Zero with probability (1 - e^-eps) / (1 + (p-1) e^-eps), else uniform on Z_p: the other way to write the law.

    By rejection: propose a uniform value, keep 0 always and any other value with probability exp(-eps).
    """
    while True:
        value = random.randrange(modulus)
        if value == 0 or bernoulli_exp(epsilon.numerator, epsilon.denominator, random):
            return value
