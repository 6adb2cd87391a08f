"""The guarantee of a sketch in plain words and numbers: what is protected, how much, and what is not.

In: a spec, the ledger of its sketch, what is known of its deployment. Out: a `Guarantee`, as text and as plain data.
Touches: nothing.
Source: docs/theory/privacy.md proves each line; docs/guarantee.md explains them to users.

Every kind gives `Guarantee.build` its own sentences about units, limits and assumptions. The losses, and the sentences
about them and about everything else that a deployment publishes (`privacy.deployments.publications`), are the same for
all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Literal, Protocol

from sketchstream.privacy.deployments import publications
from sketchstream.privacy.deployments.surroundings import (
    DAY_MS,
    Context,
    copies_of_item,
    duration,
    over_a_day,
    over_all_windows,
    windows_a_day,
    windows_of,
)
from sketchstream.privacy.ledgers.loss_texts import MEANING, UNLIMITED, AnyLoss, loss_text, loss_words
from sketchstream.privacy.ledgers.sketch_history import SketchHistory
from sketchstream.privacy.losses.composition import Losses
from sketchstream.privacy.losses.gaussian import GaussianLoss
from sketchstream.privacy.losses.history import Loss
from sketchstream.privacy.losses.loss_numbers import loss_number, rounded_up
from sketchstream.privacy.losses.zcdp import DELTA, to_approximate
from sketchstream.spec import NO_PRIVACY, no_privacy_warning


class CountingSpec(Protocol):
    """The parts of a spec that statements about counted events or items use."""

    @property
    def unit(self) -> Literal["event", "item"]:
        """The unit that is protected: "event" or "item"."""

    @property
    def epsilon_records(self) -> Fraction:
        """Epsilon of the number of records admitted."""

    @property
    def needs_key(self) -> bool:
        """Whether a hash key decides where an item goes."""

    @property
    def max_total(self) -> Fraction | int | None:
        """Largest sum of one item's absolute weights, as the source promises."""


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """What one sketch guarantees. Losses are pure epsilons, or losses to Gaussian noise.

    Args:
        unit: "event" or "item".
        delta: delta at which losses that are not pure are stated; 0 if those of the sketch are.
        published: largest loss of an event, or item, to everything that is published.
        published_and_one_copy: the same with one unannounced copy of the open state.
        total: over all sketches on the topic and the windows of a day; for items also over partitions.
        total_kept: over all windows whose publications are kept; infinite if they are kept for ever.
        protects: sentences: what is protected.
        seen: sentences: what an observer may see.
        not_protected: sentences: what is not protected.
        assumes: sentences: what the guarantee rests on.
        table: name and snapshot of the table that was counted; nothing is claimed against who can read it.
    """

    unit: str
    delta: Fraction
    published: Loss | GaussianLoss
    published_and_one_copy: Loss | GaussianLoss
    total: Losses
    total_kept: Losses
    protects: tuple[str, ...]
    seen: tuple[str, ...]
    not_protected: tuple[str, ...]
    assumes: tuple[str, ...]
    table: tuple[str, str] | None = None

    @classmethod
    def build(
        cls,
        spec: CountingSpec,
        ledger: SketchHistory,
        context: Context,
        *,
        delta: Fraction,
        protects: Sequence[str],
        not_protected: Sequence[str],
        assumes: Sequence[str],
        whole: bool = False,
    ) -> Guarantee:
        """The guarantee of a sketch of any kind.

        Args:
            spec: spec of the sketch.
            ledger: history of the sketch.
            context: deployment of the sketch.
            delta: delta at which losses that are not pure are stated; 0 if those of the sketch are.
            protects: sentences: what is protected.
            not_protected: sentences: what is not protected, of this kind.
            assumes: sentences: what the guarantee rests on.
            whole: whether one promise bounds an item over all partitions of a window together.
        """
        published, with_copy = ledger.loss(), ledger.loss(intrusion=True)
        if context.with_copy is not None:
            with_copy = context.with_copy
        if context.table is not None:
            with_copy = math.inf
            not_protected = ("raw data: they are kept in the table that was counted", *not_protected)
            if spec.unit == "event":
                assumes = (*assumes, "an event is one row of the table, as it was read, whatever it was made from")
        total, all_windows = over_a_day(ledger, context, whole=whole), over_all_windows(ledger, context, whole=whole)
        mixed = [isinstance(published, GaussianLoss), bool(total.gaussian.mu2)]
        return cls(
            unit=spec.unit,
            delta=delta,
            published=published,
            published_and_one_copy=with_copy,
            total=total,
            total_kept=all_windows,
            protects=tuple(protects),
            seen=(
                *_losses_in_words(spec, delta, published, with_copy, total, all_windows, context, whole),
                *_early_publications(context),
                *[MEANING] * any(mixed),
            ),
            not_protected=(*publications.tell_uncovered(spec, context), *not_protected),
            assumes=tuple(assumes),
            table=context.table,
        )

    def epsilons(self) -> tuple[float | Fraction, float | Fraction]:
        """Epsilon that readers of publications learn at most, and readers who also copied the open state once.

        Losses that are not pure are stated at the delta of the guarantee.
        """
        published, with_copy = (
            loss.epsilon(self.delta) if isinstance(loss, GaussianLoss) else loss
            for loss in (self.published, self.published_and_one_copy)
        )
        return published, with_copy

    @property
    def no_privacy(self) -> bool:
        """Whether the loss to readers of what is published is so large that it protects nobody."""
        return self.epsilons()[0] > NO_PRIVACY

    @property
    def no_privacy_with_copy(self) -> bool:
        """Whether that is true of somebody who also copied the open state once (a loss without bound included)."""
        return max(self.epsilons()) > NO_PRIVACY

    @property
    def warning(self) -> str | None:
        """NO PRIVACY, and against whom; None where no loss is too large.

        Of a history it says what readers of publications alone may learn: nothing is claimed against others.
        """
        published, with_copy = self.epsilons()
        return no_privacy_warning(published, with_copy if self.table is None else published)

    def to_dict(self) -> dict[str, Any]:
        """Plain data: losses as text (`privacy.ledgers.loss_texts`), and in full."""
        named = (
            ("published", self.published),
            ("published_and_one_copy", self.published_and_one_copy),
            ("total", self.total),
            ("total_kept", self.total_kept),
        )
        out: dict[str, Any] = {
            "unit": self.unit,
            "relation": "zero-out",
            "swap_factor": 2,
            "delta": float(self.delta),
            "measure": self.measure,
            **{name: loss_text(loss, self.delta) for name, loss in named},
            "total_zcdp": loss_number(self.total.rho),
            "losses": {name: _in_full(loss, self.delta) for name, loss in named},
        }
        if self.table is not None:
            out["published_and_one_copy"] = NOT_CLAIMED
            out["table"] = dict(zip(("name", "snapshot"), self.table, strict=True))
        if isinstance(self.published, GaussianLoss) and isinstance(self.published_and_one_copy, GaussianLoss):
            out |= {
                "mu2": loss_number(self.published.known),
                "mu2_and_one_copy": loss_number(self.published_and_one_copy.known),
            }
        return {
            **out,
            "no_privacy": self.no_privacy,
            "no_privacy_with_copy": self.no_privacy_with_copy,
            "warning": self.warning,
            "protects": list(self.protects),
            "seen": list(self.seen),
            "not_protected": list(self.not_protected),
            "assumes": list(self.assumes),
        }

    @property
    def measure(self) -> str:
        """Measure of the sketch's losses: "epsilon", "mu2", or "rho" of zCDP."""
        if not isinstance(self.published, GaussianLoss):
            return "epsilon"
        return "mu2" if self.published.normal else "rho"

    @property
    def summary(self) -> str:
        """The statement in one sentence."""
        return summary(self.to_dict())

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        from sketchstream.pictures import cards

        return cards.guarantee(self)

    def __str__(self) -> str:
        """The statement for people."""
        lines = [] if self.warning is None else [self.warning]
        for title, sentences in (
            ("Protected", self.protects),
            ("How much", self.seen),
            ("Not protected", self.not_protected),
            ("Assumes", self.assumes),
        ):
            lines += [title, *(f"  - {sentence}" for sentence in sentences)]
        return "\n".join(lines)


def _in_full(loss: AnyLoss, delta: Fraction) -> dict[str, Any]:
    """A loss in every measure that it has, as plain data."""
    if isinstance(loss, Losses):
        at = delta or Fraction(str(DELTA))
        gaussian = {"gaussian": loss.gaussian.to_dict(at)} if loss.gaussian.mu2 else {}
        return {"pure": loss_number(loss.pure), "rho": loss_number(loss.rho), **gaussian}
    return loss.to_dict(delta) if isinstance(loss, GaussianLoss) else {"pure": loss_number(loss)}


RELATION: Final = "relation: as if those payloads had been no-ops while everything else stayed; "
"""Begins the sentence of what neighbours are, which says what a further change costs."""
PACKED: Final = (
    "packed records hold many events: each {} of one, with its weight, is an event by itself, and how many there are "
    "belongs to the record's envelope"
)
NOT_CLAIMED: Final = "not claimed: the source is kept"
"""Text instead of the loss against a copy of the open state, where raw data are kept."""


def summary(said: Mapping[str, Any]) -> str:
    """A guarantee in one sentence, which begins with its warning if it has one.

    Args:
        said: plain data of the guarantee, see `Guarantee.to_dict`.
    """
    losses = said["losses"]
    text = f"The loss of one {said['unit']} {_bound_text(losses['published'])} against readers of what is published; "
    if "table" in said:
        text += "nothing is claimed against who can read the table that was counted."
    else:
        with_copy = _bound_text(losses["published_and_one_copy"])
        text += f"against somebody who also copied the open state once, it {with_copy}."
    return text if said["warning"] is None else f"{said['warning']}. {text}"


def _bound_text(loss: Mapping[str, Any]) -> str:
    """A loss, as `_in_full` gives it, in a sentence: its epsilon, at its delta if it has one."""
    if "pure" in loss:
        return "has no bound" if loss["pure"] == UNLIMITED else f"is at most epsilon {loss['pure']}"
    if loss["epsilon"] is None:
        return "has no bound"
    return f"is at most epsilon {rounded_up(loss['epsilon'])} at delta {loss['delta']:g}"


def _early_publications(context: Context) -> Iterator[str]:
    """What is published of windows that are still open."""
    if context.early:
        yield (
            f"preliminary answers are included: up to {context.early} of each window before it is sealed, at a cost of "
            f"{context.epsilon_early} each"
        )


def windows_texts(context: Context) -> list[str]:
    """The number of windows in a day, for a sentence; empty if it is one."""
    number = windows_a_day(context)
    if context.overlap > 1:
        return [f"{number} overlapping windows that have a part in one day"]
    day = "of the longest day" if number > windows_of(context.window_ms, DAY_MS) else "a day"
    return [f"{number} windows {day}"] if number > 1 else []


def reader_of(context: Context) -> str:
    """Who can see what the first number of a statement covers."""
    what = "this sketch" if context.overlap == 1 else "one window of this sketch"
    return f"someone who sees everything that {what} publishes"


def intruder_of(context: Context) -> str:
    """Whom the second number of a statement holds against."""
    if context.overlap == 1:
        return "someone who once copied this machine's open state, cannot read the topic, and sees everything published"
    return (
        "someone who once copied the open state of one window of this sketch, cannot read the topic, and sees "
        "everything that this window publishes"
    )


def table_kept(table: tuple[str, str]) -> str:
    """What is true of who can read the table that was counted."""
    return (
        f"someone who can read table {table[0]} (snapshot {table[1]}), from which this was counted, or temporary files "
        "and logs of the engine that counted it: nothing is claimed, the raw data lie there"
    )


def merged_from(ledger: SketchHistory) -> tuple[str, ...]:
    """What a statement says of a merged sketch: one sentence, or none."""
    parts = len(ledger.history.parts)
    return (f"the sketch was merged from {parts} parts: the numbers below count them all",) if parts else ()


def overlapping(unit: str, overlap: int) -> str:
    """What to add to a `summary` where windows overlap; empty where they do not."""
    if overlap == 1:
        return ""
    whom = "an event" if unit == "event" else "an item that is active at one instant"
    return f" This is for one window: {overlap} overlapping ones hold {whom}, and their losses add."


def _losses_in_words(
    spec: CountingSpec,
    delta: Fraction,
    published: AnyLoss,
    with_copy: Loss | GaussianLoss,
    total: Losses,
    all_windows: Losses,
    context: Context,
    whole: bool,
) -> list[str]:
    """Sentences with the losses."""
    unit = "an event" if spec.unit == "event" else "an item"
    lines = [f"{reader_of(context)}: {unit} loses at most {loss_words(published, delta)}"]
    reader, copied = intruder_of(context), loss_words(with_copy, delta)
    if context.table is not None:
        lines.append(table_kept(context.table))
    elif copied == UNLIMITED:
        lines.append(f"{reader}: no bound; the guarantee is void for {spec.unit}s after any copy of the open state")
    else:
        lines.append(f"{reader}: {unit} loses at most {copied}")
    copies = 1 if whole or spec.unit == "event" else copies_of_item(context)
    several = spec.unit == "item" and (context.window_ms is not None or copies > 1)
    if context.others or context.overlap > 1 or several:
        what = [f"{len(context.others) + 1} sketches"] if context.others else []
        if spec.unit == "item":
            what += windows_texts(context)
        elif context.overlap > 1:
            what.append(f"{context.overlap} overlapping windows that hold it")
        what += [f"{copies} partitions"] if copies > 1 else []
        pure = not total.gaussian.mu2 and to_approximate(total.rho, DELTA) < total.pure
        less = f", or {approximate(total.rho)} by zCDP" if pure else ""
        lost = loss_words(total, delta)
        lost = f"no bound on what {unit} loses" if lost == UNLIMITED else f"{unit} loses at most {lost}{less}"
        lines.append(f"over {', '.join(what) or 'a day'}: {lost}")
    if context.overlap > 1 and copied != UNLIMITED:
        number = context.overlap if spec.unit == "event" else windows_a_day(context)
        seized = Losses.of_sketch(with_copy).times(number * copies)
        lines.append(
            f"someone who once copied the open states of all these windows of this sketch ({number}), and sees "
            f"everything that they publish: {unit} loses at most {loss_words(seized, delta)}"
        )
    if spec.unit == "item" and (context.window_ms is not None or context.others):
        span = "kept without limit" if context.published_ms is None else f"kept for {duration(context.published_ms)}"
        text = loss_words(all_windows, delta)
        bound = "no bound, every window adds its loss" if text == UNLIMITED else f"at most {text}"
        if all_windows != total:
            lines.append(f"over all windows, publications being {span}: {bound}")
    return lines


def not_protected(
    spec: CountingSpec, ledger: SketchHistory, context: Context, *, states: bool, bare: bool
) -> list[str]:
    """What is not protected, besides what else a deployment publishes (`publications.tell_uncovered`).

    Args:
        spec: spec of the sketch.
        ledger: history of the sketch.
        context: deployment of the sketch.
        states: whether states are published, not histograms.
        bare: whether such a state has no fresh noise.
    """
    lost = []
    if spec.unit == "event":
        lost.append("a person with m events in this sketch loses up to m times as much")
        if any(other.window_ms is not None for other in context.others) or context.window_ms is not None:
            lost.append("a person with events in several windows: the losses of all these events add")
    else:
        lost.append("an item in several windows, sketches or partitions, or under two spellings: the losses add")
        if not context.keyed and context.partitions:
            lost.append(
                f"items are not keyed: {context.partitions} partitions hold parts of one item, each at full cost"
            )
    if context.counts > 1 and spec.unit == "item":
        lost.append(
            f"partitions were added inside this window ({context.counts} numbers of them were valid): an item may lie "
            f"in {copies_of_item(context)} of them and pays in each"
        )
    if spec.needs_key:
        lost.append(_key(spec, states=states))
    lost.append("records in flight in the process, when it is seized")
    if ledger.copies:
        lost.append("copies of the open state were written: two of them show exactly what came between")
    else:
        lost.append("what was applied between two copies of one open state, and everything from an intruder who stays")
    if bare:
        lost.append("events after any copy of the open state that ever leaks: the bare state is published")
    return lost


def secret_matrix(spec: CountingSpec) -> bool:
    """Whether the losses hold only as long as a matrix, which follows from the hash key, is secret."""
    return getattr(spec, "matrix_seed", "public") == "secret"


def _key(spec: CountingSpec, *, states: bool) -> str:
    """What the owner of the hash key can do."""
    if secret_matrix(spec):
        return (
            "anyone who has the hash key, and anyone whom its owner tells: the matrix follows from it, and the numbers "
            "above hold only while it is secret"
        )
    if states:
        where = "in every published state, and in a copied open one"
    else:
        where = "in a copied open state; published histograms do not name slots"
    return (
        f"guesses by the owner of the hash key, who can find the slot of any guessed item {where}; the numbers above "
        "hold against the owner too, but no secrecy beyond them"
    )


def assumptions(spec: CountingSpec, context: Context, delta: str = "delta = 0") -> tuple[str, ...]:
    """What the proof rests on.

    Args:
        spec: spec of the sketch.
        context: deployment of the sketch.
        delta: delta of the guarantee, up to the security of the cipher.
    """
    lines = [
        f"AES-256: this is computational differential privacy, {delta} up to the cipher; the samplers are exact",
        "parameters and lists of items were not chosen from the data",
    ]
    if not secret_matrix(spec):
        lines.append(
            "nothing is claimed for the secrecy of the hash key, or for sampling: the numbers hold with the key public"
        )
    if spec.max_total is not None:
        lines.append(
            f"the weights of one item's events in this sketch add up to at most {spec.max_total} in absolute value, as "
            "its source promises (max_total)"
        )
    if spec.unit == "item":
        checked = "checked against the record's key" if context.partitions and context.keyed else "as its source says"
        lines.append(f"all records of an item reach the partition that the configuration says, {checked}")
    return tuple(lines)


def approximate(rho: Loss) -> str:
    """A zCDP total for people."""
    epsilon = to_approximate(rho, DELTA)
    return "unlimited" if epsilon == math.inf else f"(epsilon {epsilon:.3g}, delta {DELTA:g})"
