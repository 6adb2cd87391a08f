"""The exponential mechanism: one of a few candidates, chosen by its score with exact integer arithmetic.

In: candidates with rational scores, epsilon. Out: one candidate. Touches: the entropy source.
Source: McSherry & Talwar 2007. Rejection sampling: a candidate is proposed uniformly and accepted with probability
exp(-epsilon (best - score) / 2), so it is chosen with probability proportional to exp(epsilon score / 2). If one
event or item changes each score by at most 1, the choice is epsilon-differentially private.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TypeVar

from sketchstream.noise.entropy import WordSource, word_by_word, words_of
from sketchstream.noise.thresholds import WORD_BITS, exponential, is_below

Candidate = TypeVar("Candidate")


def choose(scores: Mapping[Candidate, Fraction], epsilon: Fraction, entropy: WordSource | None = None) -> Candidate:
    """One of the candidates, with probability proportional to exp(epsilon score / 2).

    Args:
        scores: scores of one candidate or more; each changes by at most 1 with one event or item.
        epsilon: exact, positive.
        entropy: words for tests; by default a keystream under a key that is erased before this returns.
    """
    candidates = list(scores)
    best = max(scores.values())
    acceptance = {
        candidate: exponential(epsilon * (best - score) / 2) for candidate, score in scores.items() if score != best
    }  # the best is always accepted
    limit = (1 << WORD_BITS) // len(candidates) * len(candidates)
    with words_of(entropy) as source:
        draw = word_by_word(source)
        while True:
            drawn = draw()
            if drawn >= limit:
                continue
            candidate = candidates[drawn % len(candidates)]
            if candidate not in acceptance or is_below(acceptance[candidate], draw(), draw):
                return candidate
