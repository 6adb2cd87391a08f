"""`sketchstream verify`: tests on this machine that this build meets the assumptions of the privacy claims.

In: the product's own samplers, sketches and ledger. Out: a report of tests, results and
verdicts. Touches: entropy, through the sketches it creates; nothing on disk.
Source: docs/theory/privacy.md section 6.

Tests can refute a build; they cannot certify it. The exactness of the samplers (docs/theory/noise.md) and the rule of
the ledger are proved; the tests check that this build follows them. Every one can fail: the suite runs them on broken
builds.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Final

import numpy as np

from sketchstream import noise, published
from sketchstream.audit import bounds, cases, deployments, draws, histories, oracle, workers
from sketchstream.audit.cases import Audit, Case, Check
from sketchstream.audit.kinds import lattices
from sketchstream.audit.observed import Outcome, judge, state_of
from sketchstream.errors import SealedError
from sketchstream.items.key import Key
from sketchstream.kinds.profile import mechanism as profile
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.noise import laws
from sketchstream.privacy.losses.gaussian import loss_of
from sketchstream.privacy.losses.history import View
from sketchstream.privacy.losses.looks import event_losses, item_loss
from sketchstream.sketch import Sketch
from sketchstream.spec import ClosedDomain, NoPrivacyWarning, OpenDomain

Progress = Callable[[str, int, int], None]
"""(what is done now, steps done, steps in all)."""
COMMON: Final[dict[str, Callable[[Case], Outcome]]] = {
    "ledger": histories.ledger,
    "merge": histories.check_merges,
    "slots": draws.slots,
    "steps": draws.steps,
    "deployment": deployments.deployment,
    "copies": deployments.copies,
}
"""Checks of what all kinds have in common."""
PREPARATION: Final = "preparation"
"""Name of the check that fails where the checks of a kind cannot be listed."""


@dataclass(frozen=True)
class Finding:
    """The result of one test.

    Args:
        section: "sketches", "laws", "ledger", "neighbours", "releases", "seals", "bounds" or a kind of sketches.
        claimed: what should hold, in words or numbers.
        found: what was measured, in words or numbers.
        power: smallest error that the test detects.
    """

    section: str
    name: str
    passed: bool
    claimed: str
    found: str
    power: str = ""


@dataclass(frozen=True)
class Report:
    """The results of all tests, in order; `quick`: fewer samples were drawn."""

    findings: tuple[Finding, ...]
    quick: bool

    @property
    def passed(self) -> bool:
        """Whether all claims hold."""
        return all(finding.passed for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The object as plain data."""
        return {"passed": self.passed, "quick": self.quick, "findings": [asdict(finding) for finding in self.findings]}

    def rows(self) -> list[dict[str, str]]:
        """Rows of a table."""
        return [
            {
                "section": finding.section,
                "what": finding.name,
                "claimed": finding.claimed,
                "found": finding.found,
                "would find": finding.power,
                "verdict": "ok" if finding.passed else "FAILED",
            }
            for finding in self.findings
        ]

    def __str__(self) -> str:
        """The findings as a text table."""
        rows = self.rows()
        names = ["section", "what", "claimed", "found", "would find", "verdict"]
        wide = {name: max(len(name), *(len(row[name]) for row in rows)) for name in names}
        lines = ["  ".join(name.ljust(wide[name]) for name in names).rstrip()]
        lines += ["  ".join(row[name].ljust(wide[name]) for name in names).rstrip() for row in rows]
        failed = sum(not finding.passed for finding in self.findings)
        total = len(self.findings)
        lines.append(f"{total - failed} of {total} passed" + ("" if failed == 0 else f", {failed} FAILED"))
        lines.append("tests can find errors, but not prove that there are none: the proofs are in docs/theory")
        return "\n".join(lines)


Outcomes = list[tuple[str, Outcome]]
"""Outcomes by the names of their findings."""
Step = tuple[str, Callable[[], Outcome | Outcomes]]
"""A check by its section and name; an outcome alone is that of a finding of this name."""


def run(quick: bool = False, progress: Progress | None = None, only: Sequence[str] = ()) -> Report:
    """Run the tests; the report's `passed` is the verdict.

    Args:
        quick: take seconds instead of minutes: 50,000 trials per mechanism instead of 1,000,000.
        progress: called before every step, and once at the end.
        only: run the steps whose names begin with one of these ("laws", "bounds: bare state", ...); default all.

    Raises:
        ValueError: no step has such a name.
    """
    steps = [step for step in _steps(quick) if not only or _is_asked_for(step[0], only)]
    if not steps:
        raise ValueError(f"no check is called {', '.join(only)}")
    loss_of.cache_clear()  # what was kept before is not what is judged
    findings: list[Finding] = []
    for done, (name, check) in enumerate(steps):
        if progress is not None:
            progress(name, done, len(steps))
        section, what = name.split(": ", 1)
        try:
            found = check()
        except Exception as error:  # a check that raises has failed; the others still run
            found = _failure(error)
        outcomes = found if isinstance(found, list) else [(what, found)]
        findings += [Finding(section, what, *outcome) for what, outcome in outcomes]
    if progress is not None:
        progress("done", len(steps), len(steps))
    return Report(tuple(findings), quick)


def _is_asked_for(name: str, only: Sequence[str]) -> bool:
    """Whether a step was asked for; so is the failure to prepare the section of one that was."""
    section, _, what = name.partition(": ")
    return name.startswith(tuple(only)) or (what == PREPARATION and any(asked.startswith(section) for asked in only))


def _failure(error: Exception) -> Outcome:
    """The outcome of a check that raises."""
    return False, "runs", f"{type(error).__name__}: {error}", ""


def _steps(quick: bool) -> Iterator[Step]:
    """All tests, kind by kind; a kind whose tests cannot be prepared has failed."""
    trials = 50_000 if quick else bounds.FULL
    samples = 200_000 if quick else 4_000_000
    scenarios = 40 if quick else 200
    for kind, audit in cases.audits():
        section = getattr(audit, "SECTION", kind)
        try:
            for name, check in _of_kind(kind, audit, quick):
                yield f"{section}: {name}", check
        except Exception as error:  # the checks that were listed still run
            yield f"{section}: {PREPARATION}", partial(_failure, error)
    yield "ledger: Gaussian noise on the integers", lattices.deltas
    yield "ledger: Gaussian noise on the integers, smoothing", lattices.smoothing
    yield (
        "ledger: events against exact losses",
        partial(_ledger_of_events, "events, any gap", 1, scenarios, "randomized-response", oracle.EVENT_RING),
    )
    yield "ledger: items against exact losses", partial(_ledger_of_items, scenarios)
    few = max(scenarios // 4, 10)
    yield (
        "ledger: wrapped states with half circles",
        # Noise is wrapped on Z_8, thresholds are half circles.
        partial(_ledger_of_events, "wrapped states", 3, few, "discrete-laplace", oracle.WRAPPED_RING, views=2),
    )
    for spec in _specs():
        name = f"{spec.unit}, {spec.form}, {spec.domain.to_dict()['kind']}"
        yield f"neighbours: {name}", partial(_neighbours, spec)
        yield f"neighbours: histogram, {name}", partial(_sensitivity, spec)
        yield f"seals: {name}", partial(_seals, spec, name)
        yield f"releases: {name}", partial(_releases, spec, name, samples // 4)
    yield "neighbours: wrapped counters", _wrapping
    for epsilon in (Fraction(1, 100), Fraction(1, 10), Fraction(3, 7), Fraction(1), Fraction(5)):
        law: laws.Law = laws.DiscreteLaplace(epsilon)
        yield f"laws: discrete Laplace, epsilon {epsilon}", partial(_draws, noise.discrete_laplace, law, samples)
    for modulus, epsilon in ((2, Fraction(1)), (16, Fraction(1, 2)), (32, Fraction(2)), (1000, Fraction(3))):
        law = laws.RandomizedResponse(modulus, epsilon)
        check = partial(_draws, noise.randomized_response, law, samples)
        yield f"laws: randomized response, epsilon {epsilon}, modulus {modulus}", check
    for sigma2 in (Fraction(1, 4), Fraction(22, 7), Fraction(1001**2)):
        law = laws.DiscreteGaussian(sigma2)
        yield f"laws: discrete Gaussian, sigma^2 {sigma2}", partial(_draws, noise.discrete_gaussian, law, samples)
    for mechanism in bounds.mechanisms():
        if mechanism.tight or not quick:  # others need many trials for a positive bound
            yield f"bounds: {mechanism.name}", partial(mechanism.outcome, trials)


def _of_kind(kind: str, audit: Audit | None, quick: bool) -> Iterator[Check]:
    """The tests of one kind: its own, and those of what all kinds have in common."""
    if audit is None:
        raise ValueError(f"kind {kind!r} has no audit: one belongs in `sketchstream.audit.kinds`")
    yield from audit.checks(quick)
    number = 400 if quick else 4_000
    for case in audit.cases(100_000 if quick else 1_000_000):
        for name, check in COMMON.items():
            yield f"{name}, {case.name}", partial(check, case)
        yield f"counters, {case.name}", partial(draws.counters, case, number)
        if getattr(case.spec, "publish", "state") == "closed":
            yield f"copied series, {case.name}", partial(deployments.copied_series, case)
    for name, block in audit.WORKERS.items():
        yield f"worker, {name}", partial(workers.worker, audit, block)


def _specs() -> list[ProfileSpec]:
    """Specs with both units, both forms, both domains."""
    return [
        ProfileSpec(epsilon="1", domain=ClosedDomain(size=3000), max_count=40),
        ProfileSpec(epsilon="1/2", domain=OpenDomain(slots=4096, levels=4), max_count=40),
        ProfileSpec(epsilon="2", domain=ClosedDomain(size=3000), max_weight=5, max_count=40),
        ProfileSpec(epsilon="1", unit="item", modulus=16, domain=ClosedDomain(size=3000)),
        ProfileSpec(epsilon="1", unit="item", modulus=8, domain=OpenDomain(slots=4096, levels=4)),
    ]


# Ledger.


def _compare(name: str, claims: list[tuple[Any, float]], what: str) -> Outcomes:
    """The outcome of claims: none is below its exact loss, or infinite where that is finite."""
    for claim, exact in claims:
        if exact > claim + 1e-9 or (claim == float("inf")) != (exact == float("inf")):
            return [("claim against exact loss", (False, str(claim), f"{exact:.6g}", ""))]
    found = f"{len(claims)} {what} enumerated"
    return [(name, (True, "never below the exact loss", found, "a claim below a loss, by 1e-9"))]


def _ledger_of_events(name: str, seed: int, scenarios: int, law: str, ring: Any, **more: int) -> Outcomes:
    """Compare claims and enumerated losses for random histories and every gap."""
    rng = random.Random(seed)  # noqa: S311 - scenarios, not noise
    claims: list[tuple[Any, float]] = []
    for _ in range(scenarios):
        history = oracle.random_history(rng, law, **more)
        exact = oracle.exact_event_losses(history, ring)
        claims += [(gap.loss, exact[gap.part, gap.after]) for gap in event_losses(history)]
    return _compare(name, claims, "gaps")


def _ledger_of_items(scenarios: int) -> Outcomes:
    """Compare claims and enumerated losses for random histories and every pair of paths of an item."""
    rng = random.Random(2)  # noqa: S311 - scenarios, not noise
    lives = [oracle.random_history(rng, "randomized-response") for _ in range(scenarios)]
    lives = [life for life in lives if any(isinstance(entry, View) for entry in life.entries)]
    claims = [(item_loss(life), oracle.exact_item_loss(life)) for life in lives]
    return _compare("items, any path", claims, "lives")


# Sketches.


def _key(spec: ProfileSpec) -> Any:
    return Key.generate() if spec.needs_key else None


def _neighbours(spec: ProfileSpec) -> Outcome:
    """Check that two copies of a sketch differ, after neighbouring streams, in one slot and within the sensitivity."""
    rng = np.random.default_rng(4)
    key = _key(spec)
    empty = Sketch.create(spec, key).to_bytes()
    items = rng.integers(0, 3000, 5000)
    reach = spec.max_weight if spec.unit == "event" else 9
    weights = rng.integers(-reach, reach + 1, items.size)
    worst_slots = worst_step = 0
    for at in range(20):
        other, moved_items = weights.copy(), items.copy()
        if spec.unit == "item":
            other[items == items[at]] = rng.integers(-reach, reach + 1)
        elif at % 2:
            other[at] = 0
        else:
            other[at] = spec.max_weight + 1  # an invalid payload is a no-op, the others count
        if at % 4 == 0 and isinstance(spec.domain, ClosedDomain):
            moved_items[items == items[at] if spec.unit == "item" else at] = 3000  # outside the domain
        states = []
        for these, so_many in ((items, weights), (moved_items, other)):
            sketch = Sketch.from_bytes(empty, key)
            sketch.update(these, so_many, invalid="noop")
            states.append(state_of(sketch))
        moved = states[0] - states[1]
        worst_slots = max(worst_slots, int(np.count_nonzero(moved)))
        worst_step = max(worst_step, int(np.abs(moved).max()))
    allowed = spec.max_weight if spec.unit == "event" else int(spec.modulus or 0) - 1
    passed = worst_slots <= 1 and worst_step <= allowed
    claimed = f"1 slot, by at most {allowed}"
    found = f"{worst_slots} slots, by at most {worst_step}"
    return passed, claimed, found, "a second slot, in any of 20 pairs"


def _sensitivity(spec: ProfileSpec) -> Outcome:
    """Check that one event changes the histogram by 1 (cumulative) or 2 (bins), also if the counter wraps."""
    rng = np.random.default_rng(5)
    reach = np.iinfo(spec.dtype).max if spec.modulus is None else spec.modulus - 1
    special = [reach, reach - 1, -reach, -1, 0, *spec.edges.tolist(), *(spec.edges - 1).tolist()]
    special += [edge - (1 << 31) for edge in spec.edges.tolist() if spec.modulus is None and edge > 0]
    special = [start for start in special if spec.modulus is not None or -reach - 1 <= start <= reach]
    worst = 0
    for start in special:
        state = rng.integers(0, 3, spec.levels * 4).astype(spec.dtype)
        state[0] = start if spec.modulus is None else start % spec.modulus
        before = profile.exact_counts(spec, state)
        step = spec.max_weight if spec.modulus is None else int(rng.integers(1, spec.modulus))
        with np.errstate(over="ignore"):
            state[:1] += np.array([step], spec.dtype)
        if spec.modulus is not None:
            state %= spec.modulus
        worst = max(worst, int(np.abs(profile.exact_counts(spec, state) - before).sum()))
    allowed = 1 if spec.form == "cumulative" else 2
    claimed, power = f"moves by at most {allowed}", f"one entry more, at any of {len(special)} counts"
    return worst <= allowed, claimed, f"by at most {worst}", power


def _wrapping() -> Outcome:
    """Check that counters wrap: large weights and their negatives restore the noise."""
    weight = 49_000_000
    with warnings.catch_warnings(action="ignore", category=NoPrivacyWarning):
        spec = ProfileSpec(epsilon="50", max_weight=weight, domain=ClosedDomain(size=4))
    sketch = Sketch.create(spec)
    before = state_of(sketch)
    for sign in (1, -1):
        sketch.update(np.full(100, 2), np.full(100, sign * weight))
    same = bool((state_of(sketch) == before).all())
    found, power = "same" if same else "CHANGED", "any counter that stops at its end"
    return same, "up and down again: the same", found, power


def _seals(spec: ProfileSpec, name: str) -> Outcomes:
    """Check that a seal ends the sketch, survives serialisation, and has noise of the promised law in every entry."""
    sketch = Sketch.create(spec, _key(spec))
    sealed: Any = sketch.seal()
    again = published.read_published(sealed.to_bytes())
    same = again.to_bytes() == sealed.to_bytes()
    refused = 0
    for step in (sketch.seal, lambda: sketch.release("1"), lambda: sketch.update([1]), sketch.to_bytes):
        try:
            step()
        except SealedError:
            refused += 1
    found = f"{refused} of 4 later steps refused, bytes {'the same' if same else 'DIFFER'}"
    passed = same and refused == 4 and sketch.closed
    outcomes: Outcomes = [(name, (passed, "ends the sketch, for good", found, "any of these steps"))]
    if spec.unit == "item" or spec.max_weight == 1:
        outcomes.append((f"fresh layer, {name}", _fresh_layer(spec)))
    return outcomes


def _fresh_layer(spec: ProfileSpec) -> Outcome:
    """Check that a state published with intrusion = true has a fresh layer over the one that an intruder saw."""
    more: dict[str, Any] = {"modulus": spec.modulus} if spec.unit == "item" else {}
    fresh = ProfileSpec(
        epsilon="1",
        epsilon_publish="7/10",
        unit=spec.unit,
        domain=ClosedDomain(size=50_000),
        publish="state",
        intrusion=True,
        **more,
    )
    sketch = Sketch.create(fresh)
    looked = state_of(sketch)
    sealed: Any = sketch.seal()
    moved = sealed.state.astype(np.int64) - looked
    law: laws.Law = laws.DiscreteLaplace(Fraction(7, 10) * (1 - fresh.total_share))
    if spec.modulus is not None:
        moved, law = moved % spec.modulus, laws.RandomizedResponse(spec.modulus, Fraction(7, 10))
    return judge(moved, law)


def _releases(spec: ProfileSpec, name: str, samples: int) -> Outcomes:
    """Check that a release's noise has its law in every entry, also in empty ones, and is drawn afresh each time."""
    state = np.zeros(2 * spec.levels, spec.dtype)  # few slots: most entries are empty
    profile.add_noise(spec, state, spec.epsilon)
    exact = profile.exact_counts(spec, state)
    cost = Fraction(1, 2)
    rounds = -(-samples // exact.size)
    noise = np.stack([profile.noised_counts(spec, state, cost) - exact for _ in range(rounds)])
    share = cost * (1 - spec.total_share)  # the total in addition to the slots has the remaining share
    law = laws.DiscreteLaplace(share if spec.form == "cumulative" else share / 2)
    repeated = int((noise[1:] == noise[:-1]).all(axis=(1, 2)).sum()) if rounds > 1 else 0
    return [
        (f"every entry, {name}", judge(noise.ravel(), law)),
        (f"drawn afresh, {name}", (repeated == 0, "no two alike", f"{repeated} repeated", "any repetition")),
        (f"empty entries, {name}", judge(noise[:, exact == 0].ravel(), law)),
    ]


# Laws.


def _draws(sampler: Callable[..., None], law: Any, samples: int) -> Outcome:
    """Judge draws of one of the product's samplers."""
    drawn = np.zeros(samples, np.int16 if isinstance(law, laws.RandomizedResponse) else np.int64)
    sampler(drawn, *astuple(law))
    return judge(drawn.astype(np.int64), law)
