"""The oracle: exact privacy losses of small histories, by enumerating every noise value and every outcome.

In: a history (losses.history) and a small ring Z_m that stands for one slot. Out: exact losses to compare a ledger
with. Touches: nothing.
Source: docs/theory/privacy.md section 3; Dwork et al., ICS 2010 (randomized response); Ghosh, Roughgarden &
Sundararajan 2009 (discrete Laplace).

One slot is enough: neighbours differ in one slot, and the others' noise is independent. A noisy histogram of one
slot is one bit a bin: a count of 0 or 1 with discrete Laplace noise DLap(c) has the sufficient statistic
"output >= 1", whose likelihood ratios are exactly e^-c and e^c. This module shares no code with the lemma.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Floats
from sketchstream.privacy.losses.history import GapPath, History, LayerEntry, View

LINEAGE = bytes(16)


def randomized_response(size: int, epsilon: float) -> Floats:
    """(size,) law of randomized response on Z_size."""
    law: Floats = np.full(size, 1 / (math.exp(epsilon) + size - 1))
    law[0] *= math.exp(epsilon)
    return law


def wrapped_laplace(size: int, epsilon: float) -> Floats:
    """(size,) law of a discrete Laplace value with a = exp(-epsilon), reduced modulo size."""
    a = math.exp(-epsilon)
    j = np.arange(size)
    law: Floats = (a**j + a ** (size - j)) * (1 - a) / (1 + a) / (1 - a**size)
    law[0] = (1 + a**size) * (1 - a) / (1 + a) / (1 - a**size)
    return law


def bits(indicator: npt.NDArray[np.bool_], cost: float) -> Floats:
    """(m, 2^B) law of B noisy indicators, one bit each, independent noise of cost `cost` on every one.

    Args:
        indicator: (m, B), whether a slot in state x counts for bin or threshold b.
        cost: e^cost is the largest likelihood ratio of one bit.
    """
    a = math.exp(-cost)
    response = np.where(indicator, 1 / (1 + a), a / (1 + a))
    law: Floats = np.ones((indicator.shape[0], 1))
    for column in response.T:
        law = np.concatenate([law * (1 - column)[:, None], law * column[:, None]], axis=1)
    return law


@dataclass(frozen=True)
class Ring:
    """One slot on Z_size: its noise law and how a release of it looks.

    Args:
        law: (size, epsilon) -> (size,) law of one layer.
        release: (size, cost) -> (size, outcomes) law of a release given the state.
        weights: shifts that one event can cause.
    """

    size: int
    law: Callable[[int, float], Floats]
    release: Callable[[int, float], Floats]
    weights: tuple[int, ...] = (1,)


def bins_release(size: int, cost: float) -> Floats:
    """Every bin of Z_size noised with half the cost: one counter leaves one bin and enters another."""
    return bits(np.eye(size, dtype=bool), cost / 2)


def half_circle_release(size: int, cost: float) -> Floats:
    """Thresholds -1, 0, 1 on a wrapped state: slots in the half circle that starts at each, the full cost each."""
    x = np.arange(size)[:, None]
    return bits((x - np.array([-1, 0, 1])) % size < size // 2, cost)


ITEM_RING = Ring(3, randomized_response, bins_release, (1, 2))
EVENT_RING = Ring(3, randomized_response, bins_release, (1,))
WRAPPED_RING = Ring(8, wrapped_laplace, half_circle_release, (1, -1))


@dataclass(frozen=True)
class _Seen:
    """One view: which layers it sees, and where it stands."""

    place: GapPath
    cost: Fraction | None
    layers: frozenset[int]


@dataclass
class Transcript:
    """A history laid out for enumeration: its layers, and its views with what each of them sees."""

    layers: list[LayerEntry] = field(default_factory=list)
    views: list[_Seen] = field(default_factory=list)
    places: list[GapPath] = field(default_factory=list)

    @classmethod
    def of(cls, history: History) -> Transcript:
        """Lay a history out, merged parts first."""
        out = cls()
        out._walk(history, ())
        return out

    def _walk(self, history: History, path: tuple[int, ...]) -> frozenset[int]:
        layers: frozenset[int] = frozenset()
        for index, part in enumerate(history.parts):
            layers |= self._walk(part, (*path, index))
        closed = len(history.entries) - (history.seal or 0)
        for at, entry in enumerate(history.entries):
            if layers and at <= closed:
                self.places.append((path, at))
            if isinstance(entry, LayerEntry):
                layers |= {len(self.layers)}
                self.layers.append(entry)
            else:
                self.views.append(_Seen((path, at), entry.cost, layers))
        if layers and history.seal is None:
            self.places.append((path, len(history.entries)))
        return layers

    def sees(self, view: _Seen, place: GapPath) -> bool:
        """Whether a view comes after what was applied at a place, in the same part or in one that holds it."""
        (path, at), (applied, gap) = view.place, place
        return at >= gap if path == applied else applied[: len(path)] == path

    def law(self, ring: Ring, path: Sequence[int], max_weight: int = 1) -> Floats:
        """(outcomes,) joint law of everything that is seen, when the data in the slot are path[v] at view v."""
        m = ring.size
        noise = np.array(list(itertools.product(range(m), repeat=len(self.layers))), dtype=np.int64)
        weight = np.ones(len(noise))
        for index, layer in enumerate(self.layers):
            weight *= ring.law(m, float(layer.cost / max_weight))[noise[:, index]]
        joint = weight[:, None]
        for view, data in zip(self.views, path, strict=True):
            state = (noise[:, sorted(view.layers)].sum(axis=1) + data) % m
            kernel = np.eye(m) if view.cost is None else ring.release(m, float(view.cost))
            joint = (joint[:, :, None] * kernel[state][:, None, :]).reshape(len(noise), -1)
        total: Floats = joint.sum(axis=0)
        return total


def log_ratio(laws: Sequence[Floats]) -> float:
    """Largest |log ratio| of any two of the laws over any outcome; infinite where one excludes what another allows."""
    stacked = np.stack(laws)
    high, low = stacked.max(axis=0), stacked.min(axis=0)
    possible = high > 0
    if bool((low[possible] == 0).any()):
        return math.inf
    return float(np.log(high[possible] / low[possible]).max(initial=0.0))


def exact_event_losses(
    history: History, ring: Ring, *, max_weight: int = 1, baselines: Sequence[Sequence[int]] | None = None
) -> dict[GapPath, float]:
    """Exact loss of an event for every place where it can have been applied.

    Args:
        max_weight: divides the layers' epsilon.
        baselines: what the other events did to the slot, one value a view; default: every constant of the ring.
    """
    transcript = Transcript.of(history)
    others = baselines or [[start] * len(transcript.views) for start in range(ring.size)]
    without = [transcript.law(ring, path, max_weight) for path in others]
    losses: dict[GapPath, float] = {}
    for place in transcript.places:
        after = [int(transcript.sees(view, place)) for view in transcript.views]
        losses[place] = 0.0
        for path, law in zip(others, without, strict=True):
            for weight in ring.weights:
                shifted = [data + weight * seen for data, seen in zip(path, after, strict=True)]
                losses[place] = max(losses[place], log_ratio([law, transcript.law(ring, shifted, max_weight)]))
    return losses


def exact_item_loss(history: History, ring: Ring = ITEM_RING) -> float:
    """Exact loss of an item: the largest log ratio of any two paths that its slot can take through the views."""
    transcript = Transcript.of(history)
    paths = itertools.product(range(ring.size), repeat=len(transcript.views))
    return log_ratio([transcript.law(ring, path) for path in paths])


COSTS = tuple(Fraction(n, 10) for n in (2, 3, 5, 7, 10, 13))


def random_history(rng: random.Random, law: str, *, views: int = 3, layers: int = 3) -> History:
    """A life of one sketch: creation, releases, looks and refreshed layers, and a publication of any kind."""
    entries: list[LayerEntry | View] = [LayerEntry(LINEAGE, law, rng.choice(COSTS))]
    seen = made = 1
    for _ in range(rng.randrange(views + layers - 1)):
        kind = rng.random()
        if kind < 0.3 and made < layers:
            entries.append(LayerEntry(LINEAGE, law, rng.choice(COSTS)))
            made += 1
        elif seen < views:
            entries.append(View("look", None) if kind < 0.5 else View("release", rng.choice(COSTS)))
            seen += 1
    history = History(tuple(entries))
    kind = rng.randrange(4)
    if kind == 0:
        return history
    if kind == 1:
        return history.sealed_by(View("publication", rng.choice(COSTS)))
    if kind == 2 and made < layers:
        return history.sealed_by(LayerEntry(LINEAGE, law, rng.choice(COSTS)), View("publication", None))
    return history.sealed_by(View("publication", None))
