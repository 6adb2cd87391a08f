"""Cases of the audit: specs of every kind with what their fields promise.

In: the registry of kinds. Out: `Case`s. Touches: nothing.
Source: docs/theory/privacy.md section 6.

The audit module of a kind lists its cases. What all kinds have in common (the ledger after each step, noise drawn
afresh for every slot and sketch, the counters in addition to the slots, merges, deployments) is then checked for each
of them by the same code, so a new kind is held to it as soon as it is registered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from sketchstream import kinds
from sketchstream.audit.observed import Outcome
from sketchstream.items.key import Key
from sketchstream.noise.laws import Law
from sketchstream.provenance import Origin
from sketchstream.stream.state.window_sketch import WindowSketch

Number = Fraction | float
Step = Literal["create", "release", "refresh", "seal"]
Check = tuple[str, Callable[[], Outcome]]
"""A check with its name."""


@dataclass(frozen=True)
class Case:
    """A spec, and what follows from its fields by the audit's own computations.

    Args:
        costs: expected cost of each step, in the measure of the ledger; no "seal" where the bare state or nothing is
            published, no "release" or "refresh" where the kind refuses that.
        measure: one of "epsilon", "mu^2", "norm" (the l2 norm of epsilons) and "mean" (mu^2 on average over
            secret matrices).
        asked: arguments of a release, and of a refresh.
        counters: the law of one layer, or view, of this cost in each counter in addition to the slots.
        admitted: law of the noise of the number of records admitted; None: there is no such number.
        moves: batches of (items, weights), each with what it adds to the counters.
        slack: relative error that the expected costs may have.
        independent: whether the noise of different slots is independent and of one law.
        coordinates: for a draw whose slots depend on each other: independent numbers of one law that it consists of.
        modulus: modulus of the group of the slots; None: they are integers.
        small: the same spec with few slots, for checks that make many sketches.
        many: the same spec with enough slots to reveal a few that lack noise; default: `spec`.
    """

    name: str
    spec: Any
    costs: Mapping[Step, Number]
    measure: Literal["epsilon", "mu^2", "norm", "mean"]
    asked: tuple[Any, ...]
    counters: Callable[[Number], Mapping[str, Law]] = lambda _: {}
    admitted: Law | None = None
    moves: Sequence[tuple[Sequence[Any], Sequence[Any] | None, Mapping[str, int]]] = ()
    slack: float = 1e-3
    independent: bool = True
    coordinates: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.float64]] | None = None
    modulus: int | None = None
    small: Any = None
    many: Any = None
    key: Key = field(default_factory=Key.generate)

    @property
    def publishes(self) -> Literal["histogram", "fresh", "bare"]:
        """The kind of publication that the seal makes."""
        if getattr(self.spec, "publish", "state") == "histogram":
            return "histogram"
        return "fresh" if self.spec.intrusion else "bare"

    def sketch(self, spec: Any = None, **more: Any) -> Any:
        """Create a sketch of the case, or of another size of it.

        Args:
            spec: `small` or `many`; default: the spec.
            more: further arguments of `WindowSketch.create`.
        """
        chosen = self.spec if spec is None else spec
        more.setdefault("origin", Origin(name="audit", window=(0, 1000)))
        return WindowSketch.create(chosen, self.key if chosen.needs_key else None, **more)

    def few(self) -> Any:
        """Create a sketch with few slots."""
        return self.sketch(self.small)


class Audit(Protocol):
    """The audit of one kind: the `AUDIT` of its module."""

    WORKERS: Mapping[str, str]
    """Fields of a `[[sketch]]` for each audit of a worker's windows, by name."""

    def checks(self, quick: bool) -> Iterator[Check]:
        """Names and checks of what `sketchstream verify` tries of the kind's sketches alone."""

    def cases(self, slots: int) -> Sequence[Case]:
        """The cases that are held to what all kinds have in common."""

    def promises(self, name: str, spec: Any) -> Case:
        """The case of a spec."""

    def windows(self, case: Case, parts: Sequence[Any]) -> Outcome:
        """Judge what a worker published of windows without events."""


def audits() -> Iterator[tuple[str, Audit | None]]:
    """Each kind of the registry with its audit: the module of its name here, or its `oracle`; None if it has none."""
    for kind in kinds.names():
        own, oracle = f"sketchstream.audit.kinds.{kind}", kinds.module_of_kind(kind, "oracle")
        if find_spec(own) is not None:
            yield kind, import_module(own).AUDIT
        elif oracle is not None:
            known = import_module(oracle)
            yield kind, import_module("sketchstream.audit.kinds.linear").OracleAudit(known.specs, known.WORKERS, known)
        else:
            yield kind, None
