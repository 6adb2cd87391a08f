"""Losses to Gaussian noise: mu^2 of a history, and an (epsilon, delta) that holds for noise on the integers.

In: a history whose costs are mu^2, and the shift that a unit causes in the state. Out: losses; epsilon and delta are
rounded up.
Touches: nothing.
Source: Balle & Wang, ICML 2018, Theorem 8; docs/theory/gaussian_ledger.md.

mu^2 is exact for noise on the real numbers. Sketches have discrete Gaussian noise on the integers. Two bounds of delta
hold for it, and the smaller one is used. *Smoothing*: the law of everything seen is within a factor e^kappa of a
Gaussian history in which every noise has a smaller variance (by the variance of a rounding). *Exact*: an observer of
everything sees at most a few noises that are shifted by integers; their delta is computed as a sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, Literal

from sketchstream.errors import SpecError
from sketchstream.privacy.calibration.continuous import MIN_DELTA, check_delta, epsilon_of
from sketchstream.privacy.calibration.discrete import Shape, closeness, delta_near, discrete_deltas, normalise_shapes
from sketchstream.privacy.losses.history import History, LayerEntry, Loss
from sketchstream.privacy.losses.looks import sides, worst_loss, worst_loss_with_look
from sketchstream.privacy.losses.loss_numbers import rounded_up
from sketchstream.privacy.losses.measures import MU_SQUARED, MuSquared
from sketchstream.privacy.losses.zcdp import log_of, zcdp_epsilon, zcdp_log_delta
from sketchstream.spec import Rational, exact_rational

ROUNDINGS: Final = tuple(Fraction(1 << power, 4) for power in range(7))
"""Variances of the random rounding that are tried: 1/4 to 16."""
NEGLIGIBLE: Final = 1e-12
"""A correction of epsilon below this is called negligible."""
MIN_VARIANCE: Final = 0.25
"""Conditional variance below which sums over a hidden layer have no useful bound."""
ROUNDING_FACTOR: Final = 1 + 1e-9
"""Factor that covers the rounding of conditional variances to floats."""
MAX_KEPT_HISTORY: Final = 64
"""Entries of the longest history whose loss is kept."""
MAX_SHAPES: Final = 8
"""Different sets of shifted noises, at most, whose delta is summed."""


@dataclass(frozen=True)
class ComponentShift:
    """How far one unit moves one component of a state.

    Args:
        sensitivity2: largest squared L2 norm of the unit's shift, in lattice units.
        coordinates: largest number of coordinates that it moves.
        share: share of every layer's and every view's mu^2 that the component has; the shares of a state add up to 1.
    """

    sensitivity2: Fraction
    coordinates: int
    share: Fraction = Fraction(1)

    def sigma2(self, cost: Fraction) -> Fraction:
        """Parameter of the noise on each coordinate of this component, where the whole state gets mu^2 = `cost`."""
        return self.sensitivity2 / (cost * self.share)


@dataclass(frozen=True)
class UnitShift:
    """How far one unit (an event, or an item) moves a state. Costs and noise parameters are computed from it.

    Args:
        components: the slots, then the counters besides them that share their layers.
        shapes: every shift of the slots up to order and sign, if they can be listed; only for states of one component.

    Examples:
        >>> shift = UnitShift.of(1, 1, shapes=[(1,)])
        >>> shift.cost(Fraction(18330, 1024))
        Fraction(512, 9165)
        >>> shift.sigma2(Fraction(512, 9165))
        Fraction(9165, 512)
    """

    components: tuple[ComponentShift, ...]
    shapes: tuple[Shape, ...] = ()

    def __post_init__(self) -> None:
        shares = [component.share for component in self.components]
        if sum(shares) != 1 or min(shares) <= 0:
            raise ValueError("the shares of a state's components must be positive and add up to 1")
        if self.shapes and len(self.components) > 1:
            raise ValueError("shapes describe states of one component")

    @classmethod
    def of(cls, sensitivity2: Fraction | int, coordinates: int, shapes: Iterable[Shape] = ()) -> UnitShift:
        """The shift of a state that is nothing but slots."""
        slots, listed = ComponentShift(Fraction(sensitivity2), coordinates), tuple(shapes)
        return cls((slots,), tuple(normalise_shapes(listed)) if listed else ())

    def cost(self, sigma2: Fraction) -> Fraction:
        """mu^2 of noise of this parameter on every slot."""
        slots = self.components[0]
        return slots.sensitivity2 / (sigma2 * slots.share)

    def sigma2(self, cost: Fraction) -> Fraction:
        """The parameter of the slots' noise in a layer or view of this cost."""
        return self.components[0].sigma2(cost)

    @property
    def density(self) -> Fraction:
        """Largest mu^2 over 1 / sigma2 of any component's noise, for each unit of the whole cost."""
        return max(component.share / component.sensitivity2 for component in self.components)


@dataclass(frozen=True)
class Smoothed:
    """A bound of delta, from a Gaussian history close to the discrete one.

    Args:
        rounding: variance that is subtracted from every noise.
        mu2: mu^2 of the history with the smaller variances.
        kappa: largest distance between the log-probabilities of the two histories.
    """

    rounding: Fraction
    mu2: Loss
    kappa: float

    def delta(self, epsilon: float, *, normal: bool = True) -> float:
        """Upper bound of delta at this epsilon; if noise is not `normal`, rho = mu2 / 2 is all that is known of it."""
        if isinstance(self.mu2, float) or self.kappa > 1:
            return 1.0
        if not normal and self.mu2:
            left = epsilon - 2 * self.kappa
            rho = float(self.mu2) / 2 * ROUNDING_FACTOR
            return 1.0 if left < 0 else min(1.0, math.exp(self.kappa + zcdp_log_delta(rho, left)) * ROUNDING_FACTOR)
        return delta_near(epsilon, self.mu2, self.kappa) if self.mu2 else _coin(epsilon, 2 * self.kappa)

    def epsilon(self, delta: Fraction, *, normal: bool = True) -> float:
        """Upper bound of epsilon at this delta."""
        if isinstance(self.mu2, float) or self.kappa > 1:
            return math.inf
        if not self.mu2:
            return 2 * self.kappa
        if not normal:
            return 2 * self.kappa + zcdp_epsilon(self.mu2 / 2, log_of(delta) - self.kappa)
        inner = max(float(delta) * math.exp(-self.kappa), float(MIN_DELTA))
        epsilon = 2 * self.kappa + epsilon_of(inner, 1.0, math.sqrt(self.mu2))
        step = 1e-12
        while self.delta(epsilon) > delta:
            epsilon, step = epsilon * (1 + step) + 1e-300, 2 * step
        return epsilon


@dataclass(frozen=True)
class Exact:
    """A bound of delta by summation: several independent noises of one parameter, each shifted by one shape.

    Args:
        sigma2: parameter of each noise.
        shape: the shift of one of them.
        times: number of counters that are shifted.
    """

    sigma2: Fraction
    shape: Shape
    times: int = 1


@dataclass(frozen=True)
class EpsilonAtDelta:
    """An (epsilon, delta) that holds for discrete noise, and how the lattice affects it.

    Args:
        epsilon: upper bound.
        delta: delta at which it holds.
        continuous: epsilon of Gaussian noise on the real numbers with the same variances.
        route: "smoothing" or "exact"; "zCDP" where only rho is known; "none" if there is no loss, or no bound.
        kappa: distance of log-probabilities that is allowed for (0 on the exact route).
        rounding: variance that is subtracted from every noise (None on the exact route).
    """

    epsilon: float
    delta: float
    continuous: float
    route: Literal["smoothing", "exact", "zCDP", "none"]
    kappa: float = 0.0
    rounding: Fraction | None = None

    @property
    def correction(self) -> float:
        """What the lattice adds to epsilon; negative if the sum over integers gives less than mu^2 does."""
        return 0.0 if math.isinf(self.epsilon) else self.epsilon - self.continuous

    @property
    def negligible(self) -> bool:
        """Whether the correction is below 1e-12."""
        return abs(self.correction) < NEGLIGIBLE

    def to_dict(self) -> dict[str, Any]:
        """Plain data; epsilon None where there is no bound."""
        return {
            "epsilon": None if math.isinf(self.epsilon) else self.epsilon,
            "delta": self.delta,
            "continuous": None if math.isinf(self.continuous) else self.continuous,
            "lattice_correction": self.correction,
            "lattice_negligible": self.negligible,
            "route": self.route,
            "kappa": self.kappa,
            "rounding": None if self.rounding is None else str(self.rounding),
        }

    def __str__(self) -> str:
        """Text for people: '(epsilon 1.05, delta 1e-06)' and the lattice."""
        if math.isinf(self.epsilon):
            return "unlimited"
        text = f"(epsilon {rounded_up(self.epsilon)}, delta {self.delta:g}"
        if self.route == "none":
            return f"{text})"
        if self.route == "zCDP":
            return f"{text}; by zCDP)"
        lattice = "below 1e-12" if self.negligible else f"{self.correction:+.3g}"
        return f"{text}; lattice correction {lattice}, {self.route})"


@dataclass(frozen=True)
class GaussianLoss:
    """What a unit loses to Gaussian noise, or to noise of which a rho of zCDP is known. Losses of sketches add.

    Args:
        mu2: squared shift over variance, on the real numbers; infinite if nothing hides it.
        smoothed: bounds for noise on the integers, one for each rounding of `ROUNDINGS`.
        exact: sets of shifted noises, one of which bounds the loss in each gap; None if there are none.
        normal: whether all noise is Gaussian. If not, all that is known is rho = mu2 / 2 of zCDP, as Gaussian noise of
            this mu2 has it, and (epsilon, delta) follow from that.

    Examples:
        >>> layer = LayerEntry(b"", "discrete-gaussian", Fraction(512, 9165))
        >>> loss = GaussianLoss.of(History((layer,)), UnitShift.of(1, 1, [(1,)]), look=True)
        >>> loss.mu2, round(loss.epsilon("1e-6"), 3)
        (Fraction(512, 9165), 1.0)
    """

    mu2: Loss
    smoothed: tuple[Smoothed, ...]
    exact: frozenset[Exact] | None = None
    normal: bool = True

    @classmethod
    def of(
        cls, history: History, shift: UnitShift, *, unit: str = "event", look: bool = False, since: int = 0
    ) -> GaussianLoss:
        """The loss of a history whose costs are mu^2.

        Args:
            history: layers and views, including the promised ones, without copies that nobody saw.
            shift: says how far a unit moves the state.
            unit: "event" or "item".
            look: include one unannounced raw look at the worst moment.
            since: number of entries after which that look can come at the earliest.
        """
        compute = loss_of if history.length <= MAX_KEPT_HISTORY else loss_of.__wrapped__
        return compute(history.unnamed(), shift, unit, look, since)

    @classmethod
    def none(cls) -> GaussianLoss:
        """No loss: nothing was seen."""
        return cls(Fraction(0), tuple(Smoothed(rounding, Fraction(0), 0.0) for rounding in ROUNDINGS), frozenset())

    @classmethod
    def of_rho(cls, rho: Loss) -> GaussianLoss:
        """The loss to noise that is rho-zCDP.

        Args:
            rho: exact, or infinite where nothing hides the unit.
        """
        kappa = math.inf if rho == math.inf else 0.0
        return cls(2 * rho, tuple(Smoothed(rounding, 2 * rho, kappa) for rounding in ROUNDINGS), None, normal=False)

    @classmethod
    def without_bound_of_delta(cls, mu2: Loss) -> GaussianLoss:
        """A mu^2 that holds on the real numbers; no bound for noise on the integers is known."""
        return cls(mu2, tuple(Smoothed(rounding, math.inf, math.inf) for rounding in ROUNDINGS))

    @classmethod
    def worst(cls, losses: Iterable[GaussianLoss]) -> GaussianLoss:
        """An upper bound of these losses."""
        worst = cls.none()
        for loss in losses:
            bounds = tuple(
                Smoothed(bound.rounding, max(bound.mu2, other.mu2), max(bound.kappa, other.kappa))
                for bound, other in zip(worst.smoothed, loss.smoothed, strict=True)
            )
            exact = None if worst.exact is None or loss.exact is None else worst.exact | loss.exact
            normal = worst.normal and loss.normal
            worst = cls(max(worst.mu2, loss.mu2), bounds, exact, normal)
        return worst

    def __add__(self, other: GaussianLoss) -> GaussianLoss:
        """The loss to two sketches together, with independent noise."""
        if not self.mu2 or not other.mu2:
            return other if not self.mu2 else self
        bounds = tuple(
            Smoothed(bound.rounding, bound.mu2 + two.mu2, (bound.kappa + two.kappa) * (1 + 1e-15))
            for bound, two in zip(self.smoothed, other.smoothed, strict=True)
        )
        return GaussianLoss(self.mu2 + other.mu2, bounds, normal=self.normal and other.normal)

    def times(self, number: int) -> GaussianLoss:
        """The loss to this many equal sketches, with independent noise."""
        if number == 1:
            return self
        bounds = tuple(Smoothed(bound.rounding, bound.mu2 * number, bound.kappa * number) for bound in self.smoothed)
        return GaussianLoss(self.mu2 * number, bounds, self.exact if not self.mu2 else None, self.normal)

    @property
    def rho(self) -> Loss:
        """Rho of zCDP of noise on the real numbers: mu^2 / 2."""
        return self.mu2 / 2

    @property
    def known(self) -> Loss:
        """The mu^2 that is stated."""
        return self.mu2

    @property
    def measured(self) -> str:
        """The loss in its own measure, with the measure's name: 'mu^2 0.0154', or 'rho 0.0077'."""
        name, value = ("mu^2", self.known) if self.normal else ("rho", self.rho)
        return f"{name} {float(value):.4g}"

    def delta(self, epsilon: Rational) -> float:
        """Smallest delta that is known to hold for this epsilon; never below the true one.

        Raises:
            SpecError: epsilon is not a number.
        """
        eps = float(exact_rational(epsilon, "epsilon must be at least 0"))
        bounds = [bound.delta(eps, normal=self.normal) for bound in self.smoothed]
        return min(bounds if not self._summed else [*bounds, self._exact_deltas()(eps)])

    def epsilon(self, delta: Rational) -> float:
        """Smallest epsilon that is known to hold for this delta, rounded up."""
        return self.at(delta).epsilon

    def at(self, delta: Rational) -> EpsilonAtDelta:
        """The value of `epsilon`, with the way in which it was found and the effect of the lattice.

        Raises:
            SpecError: delta is outside [1e-300, 0.5].
        """
        return _at(self, exact_rational(delta, "delta must be in [1e-300, 0.5]"))

    def to_dict(self, delta: Rational) -> dict[str, Any]:
        """Plain data: mu^2 as text, and the epsilon at a delta."""
        return {"mu2": "unlimited" if self.mu2 == math.inf else str(self.mu2), **self.at(delta).to_dict()}

    @property
    def _summed(self) -> bool:
        """Whether the exact delta can be computed as a sum."""
        return bool(self.exact) and len(self.exact or ()) <= MAX_SHAPES

    def _exact_deltas(self) -> Callable[[float], float]:
        """The largest delta of the sets of shifted noises, a function of epsilon."""
        try:
            curves = [discrete_deltas(shifted.sigma2, shifted.shape * shifted.times) for shifted in self.exact or ()]
        except SpecError:  # a sum of too many terms
            return lambda _: 1.0
        return lambda epsilon: max(deltas(epsilon) for deltas in curves)

    def _exact_epsilon(self, delta: Fraction, high: float) -> float:
        """The least epsilon with that delta, from above, if it is below `high`; by bisection."""
        low, deltas = 0.0, self._exact_deltas()
        if math.isinf(high):
            high = 1.0
            while deltas(high) > delta:
                high *= 2
                if high > 1e4:
                    return math.inf
        if deltas(high) > delta:
            return math.inf
        while high - low > 1e-10 * high:
            middle = 0.5 * (low + high)
            if deltas(middle) <= delta:
                high = middle
            else:
                low = middle
        return high


@lru_cache(maxsize=4096)
def _at(loss: GaussianLoss, target: Fraction) -> EpsilonAtDelta:
    """The result of `GaussianLoss.at`, kept: it takes milliseconds, and texts about one sketch ask many times."""
    if isinstance(loss.mu2, float):
        epsilon_of(target, 1)  # refuses a delta outside its range
        return EpsilonAtDelta(math.inf, float(target), math.inf, "none")
    if not loss.mu2:
        return EpsilonAtDelta(0.0, float(target), 0.0, "none")
    if not loss.normal:
        check_delta(target)
        continuous = zcdp_epsilon(loss.mu2 / 2, log_of(target))
        value, least = min(((curve.epsilon(target, normal=False), curve) for curve in loss.smoothed), key=itemgetter(0))
        return EpsilonAtDelta(value, float(target), continuous, "none" if math.isinf(value) else "zCDP", least.kappa)
    continuous = epsilon_of(target, 1, math.sqrt(loss.mu2))
    best, bound = min(((curve.epsilon(target), curve) for curve in loss.smoothed), key=itemgetter(0))
    if loss._summed:
        value = loss._exact_epsilon(target, best)
        if value < best:
            return EpsilonAtDelta(value, float(target), continuous, "exact")
    return EpsilonAtDelta(best, float(target), continuous, "smoothing", bound.kappa, bound.rounding)


@lru_cache(maxsize=1024)
def loss_of(history: History, shift: UnitShift, unit: str, look: bool, since: int) -> GaussianLoss:
    """The result of `GaussianLoss.of`, kept: it takes milliseconds, and thousands of sketches of one spec share it."""

    def worst(measure: MuSquared) -> Loss:
        if look:
            return worst_loss_with_look(history, unit=unit, measure=measure, since=since)
        return worst_loss(history, unit=unit, measure=measure)

    mu2 = worst(MU_SQUARED)
    costs = _costs(history)
    bounds = []
    for rounding in ROUNDINGS:
        measure = MuSquared(rounding * shift.density)
        if mu2 == math.inf or any(measure.thinned(cost) == math.inf for cost in costs):
            bounds.append(Smoothed(rounding, math.inf, math.inf))
        else:
            bounds.append(Smoothed(rounding, worst(measure), _kappa(shift, rounding, history, look=look)))
    shares = _integer_shares(history, shift, unit, look=look, since=since)
    return GaussianLoss(mu2, tuple(bounds), shares)


def _coin(epsilon: float, distance: float) -> float:
    """Delta of two laws whose log-probabilities differ by at most `distance`."""
    return max(0.0, -math.expm1(epsilon - distance)) if epsilon < distance else 0.0


def _costs(history: History) -> list[Fraction]:
    """Costs of all noise: layers, and views with fresh noise."""
    return [entry.cost for entry in history.every() if entry.cost is not None]


def _variances(history: History, noise: Callable[[Fraction], float], *, look: bool) -> tuple[float, _Sums]:
    """Variances along a history, walked as a chain.

    The variance of the sum of layers, given what was seen so far; it is 0 once the sum was seen bare.

    Args:
        history: layers and views.
        noise: variance of a noise, from its cost.
        look: counts one raw look at any moment; all variances are then lower bounds of what any such look leaves.

    Returns:
        (variance at the end, the variances of what was summed out and seen before)
    """
    variance, sums = 0.0, _Sums([], [])
    for part in history.parts:
        theirs, before = _variances(part, noise, look=look)
        sums = _Sums(sums.hidden + before.hidden, sums.seen + before.seen)
        if variance and theirs:
            sums.hidden.append(_parallel(variance, theirs))
        variance = min(filter(None, (variance, theirs)), default=0.0) if look else variance + theirs
    least = variance
    for entry in history.entries:
        if isinstance(entry, LayerEntry):
            drawn = noise(entry.cost)
            if variance:
                sums.hidden.append(_parallel(variance, drawn))
            variance = drawn if look else variance + drawn
        elif entry.cost is None:
            sums.seen.extend([variance] * (variance > 0))
            variance = 0.0
        else:
            drawn = noise(entry.cost)
            sums.seen.append(variance + drawn)
            variance = _parallel(variance, drawn) if variance else 0.0
        least = min(filter(None, (least, variance)), default=0.0)
    if look and least:
        sums.seen.append(least)
    return variance, sums


@dataclass(frozen=True)
class _Sums:
    """Conditional variances along a history.

    Args:
        hidden: variance of a sum of layers, given what was seen and the next sum; at each layer and merge.
        seen: variance of what each view shows, given what was seen before.
    """

    hidden: list[float]
    seen: list[float]


def _parallel(first: float, second: float) -> float:
    """Variance of one of two independent Gaussians given their sum."""
    return first * second / (first + second)


def _kappa(shift: UnitShift, rounding: Fraction, history: History, *, look: bool) -> float:
    """Largest distance between the log-probabilities of what is seen and those of the smoothed Gaussian history.

    For each coordinate that a unit moves: the closeness of each noise's normaliser, of each sum over hidden integers,
    and of the rounding of each view.
    """
    _, rounded = _variances(history, lambda _: float(rounding), look=look)
    last, drawn = _variances(history, lambda cost: float(1 / cost), look=look)
    inside = [float(1 / cost) for cost in _costs(history)] + drawn.hidden + [last] * (last > 0)
    views = sum(map(_closeness, rounded.seen))
    total = 0.0
    for component in shift.components:
        scale = float(component.sensitivity2 / component.share)
        total += component.coordinates * (views + sum(_closeness(variance * scale) for variance in inside))
    return total * (1 + 1e-12)


def _closeness(variance: float) -> float:
    """Upper bound of the closeness of sums over integers; no bound for small variances."""
    lower = variance / ROUNDING_FACTOR
    return closeness(Fraction(lower)) if lower >= MIN_VARIANCE / ROUNDING_FACTOR else math.inf


@dataclass(frozen=True)
class _Shares:
    """Several noises of one cost, each shifted by the whole shift; `times` 0: none; infinite: no bound."""

    cost: Fraction
    times: float

    @property
    def total(self) -> float | Fraction:
        """Total cost, by which the cheaper set is chosen."""
        return math.inf if self.times == math.inf else self.cost * int(self.times)


@dataclass(frozen=True)
class _IntegerShares:
    """The measure whose costs are sets of noises that each take the whole shift.

    Args:
        unseen: noise of layers that no view has seen; else of views of one cost, and of a layer behind them.
    """

    unseen: bool = False
    bounded_items: bool = True

    @property
    def nothing(self) -> _Shares:
        """No noise is shifted."""
        return _Shares(Fraction(0), 0)

    @property
    def unbounded(self) -> _Shares:
        """The cost where there is no such set of noises."""
        return _Shares(Fraction(0), math.inf)

    def layer(self, entry: LayerEntry) -> _Shares:
        """The set that holds the layer alone."""
        return _Shares(entry.cost, 1)

    def view(self, cost: _Shares, view: Any) -> _Shares:
        """The view's noise is shifted as well."""
        if self.unseen or view.cost is None or (cost.times and cost.cost != view.cost):
            return self.unbounded
        return _Shares(view.cost, cost.times + 1)

    def join(self, one: _Shares, other: _Shares) -> _Shares:
        """The cheaper of two sets."""
        return min(one, other, key=lambda shares: shares.total)


def _integer_shares(
    history: History, shift: UnitShift, unit: str, *, look: bool, since: int
) -> frozenset[Exact] | None:
    """For each gap, noises that were unseen before an event in it, and that hide the event by integer shifts.

    An event may depend on what was seen before it, so only layers without any view so far may take its shift. An item
    moves in several gaps, and each move may depend on what was seen: there is such a bound for it only if there is one
    view, or if it moves by 1 in total, as one event does.
    """
    views = sum(not isinstance(entry, LayerEntry) for entry in history.every())
    several = unit == "item" and shift.shapes != ((1,),)
    if not shift.shapes or since or (several and (look or views > 1)):
        return None
    shares_of_looks: set[_Shares] = set()
    measure = _IntegerShares()
    for place in sides(history, measure, earlier=_IntegerShares(unseen=True)):
        shares_of_looks |= {place.before, place.later} if look else {measure.join(place.before, place.later)}
    if any(shares.times == math.inf for shares in shares_of_looks):
        return None
    return frozenset(
        Exact(shift.sigma2(shares.cost), shape, int(shares.times))
        for shares in shares_of_looks
        if shares.times
        for shape in shift.shapes
    )
