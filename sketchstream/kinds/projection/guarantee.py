"""The guarantee of a projection and its limits, in plain words with numbers.

In: a spec, the ledger of its sketch, facts about its deployment. Out: a `ProjectionGuarantee`.
Touches: nothing.
Source: docs/theory/projection.md, sections 2 to 4; docs/theory/gaussian_ledger.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from sketchstream.kinds.projection.spec import ProjectionSpec
from sketchstream.privacy.gaussian import EpsilonAtDelta, GaussianLoss
from sketchstream.privacy.gaussian_ledger import GaussianLedger
from sketchstream.privacy.guarantee import (
    WARNING,
    Context,
    PrintedStatement,
    overlap_said,
    readers_of_the_topic,
    records_said,
    windows_a_day,
)
from sketchstream.privacy.sketch_history import rounded_up, show
from sketchstream.spec import NO_PRIVACY


@dataclass(frozen=True)
class ProjectionGuarantee(PrintedStatement):
    """What one projection guarantees.

    Args:
        unit: "event" or "item" (all events of one user).
        published: epsilon at the spec's delta, for everything that is published.
        looked: `published` together with one unannounced copy of the open state.
        total: for items, over the windows of a day.
        mu2: mu^2 of the publication; for a secret matrix, its mean over matrices.
        no_privacy: whether an epsilon is too large for meaningful privacy.
        protects: sentences on what is protected.
        seen: sentences on what an observer may see.
        lost: sentences on what is not protected.
        assumes: sentences on the assumptions of the guarantee.
    """

    unit: Literal["event", "item"]
    published: EpsilonAtDelta
    looked: EpsilonAtDelta
    total: EpsilonAtDelta
    mu2: str
    no_privacy: bool
    protects: tuple[str, ...]
    seen: tuple[str, ...]
    lost: tuple[str, ...]
    assumes: tuple[str, ...]

    @classmethod
    def of(cls, spec: ProjectionSpec, ledger: GaussianLedger, context: Context | None = None) -> ProjectionGuarantee:
        """The guarantee of a sketch with this ledger, in this deployment.

        Args:
            spec: spec of the sketch.
            ledger: its history.
            context: the deployment around it, as far as it is known.
        """
        around = context or Context()
        quiet = ledger.loss()
        windows = windows_a_day(around) if spec.unit == "item" else around.overlap
        published, looked = quiet.at(spec.delta), ledger.loss(intrusion=True).at(spec.delta)
        total = quiet.times(windows).at(spec.delta)
        return cls(
            unit=spec.unit,
            published=published,
            looked=looked,
            total=total,
            mu2=show(getattr(quiet, "mean", quiet.mu2)),
            no_privacy=spec.no_privacy or published.epsilon > NO_PRIVACY,
            protects=(_protected(spec), _relation(spec)),
            seen=_seen(spec, published, looked, total, windows, around),
            lost=tuple(_lost(spec, ledger, around)),
            assumes=tuple(_assumed(spec, ledger.loss())),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data: losses as text ('1.01', 'unlimited')."""
        return {
            "unit": self.unit,
            "relation": "zero-out",
            "delta": self.published.delta,
            "published": _text(self.published),
            "published_and_one_copy": _text(self.looked),
            "total": _text(self.total),
            "mu2": self.mu2,
            **self.sentences(),
        }

    @property
    def summary(self) -> str:
        """The statement in one sentence."""
        looked = "has no bound" if math.isinf(self.looked.epsilon) else f"is at most {_text(self.looked)}"
        text = (
            f"The loss (epsilon at delta {self.published.delta:g}) of one {self.unit} is at most "
            f"{_text(self.published)} against readers of what is published; against somebody who also copied the open "
            f"state once, it {looked}."
        )
        return f"{WARNING}. {text}" if self.no_privacy else text


def _text(loss: EpsilonAtDelta) -> str:
    """Epsilon for a sentence."""
    return "unlimited" if math.isinf(loss.epsilon) else rounded_up(loss.epsilon)


def _protected(spec: ProjectionSpec) -> str:
    """The unit, with the promise that bounds it."""
    if spec.unit == "event":
        return f"one event: one user, one feature, an absolute weight of at most {spec.max_weight}; or its absence"
    promises = []
    if spec.max_total is not None:
        promises.append(f"their absolute weights add up to at most {spec.max_total}")
    if spec.max_norm is not None:
        norm = f"the sums of absolute weights by feature have an L2 norm of at most {spec.max_norm}"
        limit = "" if spec.max_features is None else f", on at most {spec.max_features} features"
        promises.append(norm + limit)
    return f"all events of one user in this sketch, if {', and '.join(promises)}"


def _relation(spec: ProjectionSpec) -> str:
    """Neighbours, and what replacing costs."""
    if spec.unit == "event":
        return (
            "that it happened at all (its weight against 0); replacing it by another event of the same user multiplies "
            "mu by at most 2, by an event of another user by at most the square root of 2"
        )
    return (
        "that the user was there at all (the row against zeros); replacing the row by another one within the same "
        "bounds multiplies mu by at most 2"
    )


def _seen(
    spec: ProjectionSpec,
    published: EpsilonAtDelta,
    looked: EpsilonAtDelta,
    total: EpsilonAtDelta,
    windows: int,
    around: Context,
) -> tuple[str, ...]:
    """Sentences on observers and their losses."""
    unit = f"one {spec.unit}"
    published_by = "what is published" if around.overlap == 1 else "what one window publishes"
    reader = f"readers of {published_by}, and of as many functions of it as they like"
    lines = [f"{reader}: {unit} loses at most {published}"]
    copy = "somebody who also copied the open state once, at any moment"
    if math.isinf(looked.epsilon):
        lines.append(f"{copy}: no bound; the bare state is published")
    else:
        lines.append(f"{copy}: {unit} loses at most {looked}")
    if windows > 1:
        over = f"the {windows} windows of a day" if spec.unit == "item" else overlap_said(around)[0]
        lines.append(f"over {over}: {unit} loses at most {total}")
    return tuple(lines)


def _lost(spec: ProjectionSpec, ledger: GaussianLedger, around: Context) -> list[str]:
    """Sentences on what is not protected."""
    lost = [
        "envelopes: that a record existed, when, in which partition, how long it was, how many events it packed",
        "the users and features of the domain, k, the bounds of weights, and the class of the matrix: all are public",
        readers_of_the_topic(around),
        "records in flight in the process, when it is seized",
    ]
    lost += records_said(spec.epsilon_records)
    if ledger.copies:
        lost.append("copies of the open state were written: two of them show exactly what came between")
    else:
        lost.append("what was applied between two copies of one open state, and everything from an intruder who stays")
    if not spec.intrusion:
        lost.append("events after any copy of the open state that ever leaks: the bare state is published")
    if spec.unit == "event":
        lost.append("all events of one user together: each of them is protected, not their sum")
    return lost


def _assumed(spec: ProjectionSpec, loss: GaussianLoss) -> list[str]:
    """Sentences on the assumptions of the proof."""
    del loss
    lines = [
        "AES-256: this is computational differential privacy up to the cipher; the samplers are exact",
        "parameters, lists of users and features, and a public seed were not chosen from the data",
    ]
    if spec.unit == "item":
        lines.append(
            "the promise on the weights of a user, over all partitions of the sketch together: its source keeps it, "
            "the engine keeps no count of users that could check it"
        )
    if spec.matrix_seed == "public":
        lines.append(
            "nothing about the matrix: the numbers hold for this one, and for rows chosen with knowledge of it"
        )
    else:
        lines += [
            "the hash key: nobody who produces data, or chooses them, has it; the matrix depends on it",
            "the stream does not react to what is published of this sketch, which shows something of the matrix",
            "no other sketch of this spec, name, revision and window is made with this key",
            "BLAKE2b: the matrix comes from a keyed hash, which stands for a random function",
        ]
    return lines
