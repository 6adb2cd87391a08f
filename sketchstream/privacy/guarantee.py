"""The guarantee of a sketch in plain words and numbers: what is protected, how much, and what is not.

In: a spec, the ledger of its sketch, what is known of its deployment. Out: a `Guarantee`, as text and as plain data.
Touches: nothing.
Source: docs/theory/privacy.md proves each line; docs/guarantee.md explains them to users.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, Protocol

from sketchstream.privacy.ledger import Ledger, Loss, show
from sketchstream.privacy.measures import concentrated
from sketchstream.privacy.zcdp import DELTA, to_approximate
from sketchstream.spec import NO_PRIVACY

if TYPE_CHECKING:
    from sketchstream.kinds.profile.group_list import Groups
    from sketchstream.kinds.profile.spec import ProfileSpec

DAY_MS = 86_400_000
WARNING = "NO PRIVACY: an epsilon above 10 protects nobody"


class CountingSpec(Protocol):
    """The parts of a spec that statements about counted events or items use."""

    @property
    def unit(self) -> Literal["event", "item"]:
        """What is protected."""

    @property
    def epsilon_records(self) -> Fraction:
        """Of the number of records admitted."""

    @property
    def needs_key(self) -> bool:
        """Whether a hash key decides where an item goes."""

    @property
    def max_total(self) -> Fraction | int | None:
        """Largest sum of one item's absolute weights, as the source promises."""


class AnyLedger(Protocol):
    """The parts of a ledger that statements use."""

    @property
    def copies(self) -> int:
        """Copies of the open state that were noted."""


@dataclass(frozen=True)
class Beside:
    """Another sketch on the same topic, and the losses to one of its windows.

    Args:
        name: of the sketch.
        event: largest loss of an event to it, in all windows that hold the event.
        item: largest loss of an item to it in one window; infinite for unit "event" (no bound without a bound on
            the item's events).
        window_ms: length of its windows; None for one sketch without windows.
        a_day: most of its windows in one day, as in `Context`.
        overlap: windows that hold one instant, as in `Context`.
        every_ms: from the beginning of a window to that of the next, as in `Context`.
    """

    name: str
    event: Loss
    item: Loss
    window_ms: int | None
    a_day: int | None = None
    overlap: int = 1
    every_ms: int | None = None

    @classmethod
    def of(
        cls,
        name: str,
        ledger: Any,
        window_ms: int | None,
        a_day: int | None = None,
        overlap: int = 1,
        *,
        every_ms: int | None = None,
        groups: int = 1,
    ) -> Beside:
        """The losses in the ledger of one window; noise that is not pure has no pure bound.

        Args:
            name: of the sketch.
            ledger: of one window.
            window_ms: length of its windows.
            a_day: most of its windows in one day.
            overlap: windows that hold one instant.
            every_ms: from the beginning of a window to that of the next.
            groups: groups whose losses the ledger adds for an item; an event is in one of them.
        """
        if not isinstance(ledger, Ledger):
            return cls(name, math.inf, math.inf, window_ms, a_day, overlap, every_ms)
        event = max((gap.loss for gap in ledger.loss_by_gap()), default=Fraction(0)) / groups
        item = ledger.loss() if ledger.unit == "item" else math.inf
        return cls(name, _times(event, overlap), item, window_ms, a_day, overlap, every_ms)


@dataclass(frozen=True)
class Context:
    """The deployment around a sketch, as far as it is known. The statement says what is unknown.

    Args:
        window_ms: length of the sketch's windows; None: no windows.
        retention_ms: how long the input topic keeps records; `math.inf` for ever, None unknown.
        published_ms: how long publications are kept; None: for ever.
        partitions: of the input; None: no partitions.
        keyed: whether an item's records all lie in one partition, and that is checked.
        counts: distinct numbers of partitions that were valid while any part of the window was open.
        diagnostics: exact counters of payload-dependent outcomes at the operator's endpoint, or off.
        store: where snapshots live: "kafka" (encrypted, keys in the offsets topic), "dir" (plain, 0600), "file"
            (an open sketch's own file), None (memory only).
        dead_letters: whether refused records go to a topic, and with their payload.
        beside: other sketches on the same topic.
        a_day: most of the sketch's windows in one day of its time zone, the longest one where clocks change; None:
            a day has 24 hours.
        overlap: windows of the sketch that hold one instant: more than 1 where windows hop.
        every_ms: from the beginning of a window to that of the next, at least; None: `window_ms` / `overlap`.
    """

    window_ms: int | None = None
    retention_ms: float | None = None
    published_ms: int | None = None
    partitions: int | None = None
    keyed: bool = True
    counts: int = 1
    diagnostics: Literal["exact", "off"] = "off"
    store: Literal["kafka", "dir", "file"] | None = None
    dead_letters: Literal["none", "envelope", "payload"] = "none"
    beside: tuple[Beside, ...] = ()
    a_day: int | None = None
    overlap: int = 1
    every_ms: int | None = None


def plain(loss: Loss) -> str:
    """A loss for a sentence: '1', '3/2 (1.5)', 'unlimited'."""
    text = show(loss)
    return f"{text} ({float(loss):.4g})" if "/" in text else text


def duration(milliseconds: float) -> str:
    """A length of time for a sentence."""
    if milliseconds == math.inf:
        return "for ever"
    for name, length in (("day", DAY_MS), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000)):
        if milliseconds >= length:
            number = f"{milliseconds / length:.4g}"
            return f"{number} {name}" + ("" if number == "1" else "s")
    return f"{milliseconds:g} ms"


class PrintedStatement:
    """Base of the guarantees of all kinds: sentences under four titles, as text and for notebooks."""

    no_privacy: bool
    protects: tuple[str, ...]
    seen: tuple[str, ...]
    lost: tuple[str, ...]
    assumes: tuple[str, ...]

    def sentences(self) -> dict[str, Any]:
        """The sentences and the warning as plain data: the end of every `to_dict`."""
        return {
            "no_privacy": self.no_privacy,
            "warning": WARNING if self.no_privacy else None,
            "protects": list(self.protects),
            "seen": list(self.seen),
            "not_protected": list(self.lost),
            "assumes": list(self.assumes),
        }

    def _repr_html_(self) -> str:
        """For notebooks."""
        from sketchstream import cards

        return cards.guarantee(self)

    def __str__(self) -> str:
        """The statement for people."""
        lines = [WARNING] if self.no_privacy else []
        for title, sentences in (
            ("Protected", self.protects),
            ("How much", self.seen),
            ("Not protected", self.lost),
            ("Assumes", self.assumes),
        ):
            lines += [title, *(f"  - {sentence}" for sentence in sentences)]
        return "\n".join(lines)


@dataclass(frozen=True)
class Guarantee(PrintedStatement):
    """What one sketch guarantees.

    Args:
        unit: "event" or "item".
        published: largest loss of an event, or item, to everything that is published.
        looked: the same with one unannounced copy of the open state.
        total: over the sketches on the topic and the windows of a day; for items also over partitions.
        kept: over all windows whose publications are kept; infinite if they are kept for ever.
        total_zcdp: `total` counted in zCDP (rho).
        no_privacy: whether an epsilon is so large that it protects nobody.
        protects: sentences: what is protected.
        seen: sentences: what an observer may see.
        lost: sentences: what is not protected.
        assumes: sentences: what the guarantee rests on.
    """

    unit: str
    published: Loss
    looked: Loss
    total: Loss
    kept: Loss
    total_zcdp: Loss
    no_privacy: bool
    protects: tuple[str, ...]
    seen: tuple[str, ...]
    lost: tuple[str, ...]
    assumes: tuple[str, ...]

    @classmethod
    def of(cls, spec: ProfileSpec, ledger: Ledger, context: Context | None = None) -> Guarantee:
        """The guarantee of a sketch with this ledger, in this deployment."""
        around = context or Context()
        published, looked = ledger.loss(), ledger.loss(intrusion=True)
        copies = copies_of_item(around) if spec.unit == "item" else 1
        windows = windows_a_day(around) if spec.unit == "item" else around.overlap
        own = _times(published, copies * windows)
        others: Loss = sum((_beside(one, spec.unit, around) for one in around.beside), Fraction(0))
        kept = _kept(spec.unit, published, around, copies)
        rho = _rho(ledger, around, spec.unit)
        states = spec.publish == "state"
        no_privacy = spec.no_privacy or max(published, *(entry.cost for entry in ledger.layers)) > NO_PRIVACY
        return cls(
            unit=spec.unit,
            published=published,
            looked=looked,
            total=own + others,
            kept=kept,
            total_zcdp=rho,
            no_privacy=no_privacy,
            protects=_protects(spec, ledger),
            seen=_seen(spec, published, looked, own + others, kept, rho, around),
            lost=tuple(not_protected(spec, ledger, around, states=states, bare=states and looked == math.inf)),
            assumes=(*assumptions(spec, around), *assumed_of_groups(spec)),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data: losses as strings ('3/2', 'unlimited')."""
        return {
            "unit": self.unit,
            "relation": "zero-out",
            "swap_factor": 2,
            "delta": 0,
            "published": show(self.published),
            "published_and_one_copy": show(self.looked),
            "total": show(self.total),
            "total_kept": show(self.kept),
            "total_zcdp": show(self.total_zcdp),
            **self.sentences(),
        }

    @property
    def summary(self) -> str:
        """The statement in one sentence."""
        return summary(self.unit, show(self.published), show(self.looked), no_privacy=self.no_privacy)


def summary(unit: str, published: str, looked: str, *, no_privacy: bool = False) -> str:
    """A guarantee in one sentence.

    Args:
        unit: "event" or "item".
        published: largest loss to what is published, as text.
        looked: the same with one copy of the open state.
        no_privacy: begin with the warning.
    """
    bound = "has no bound" if looked == "unlimited" else f"is at most {looked}"
    text = (
        f"The loss (epsilon) of one {unit} is at most {published} against readers of what is published; against "
        f"somebody who also copied the open state once, it {bound}."
    )
    return f"{WARNING}. {text}" if no_privacy else text


def _times(loss: Loss, number: int) -> Loss:
    """A loss multiplied by a number."""
    return loss if number == 1 else loss * number


def windows_of(window_ms: int | None, span_ms: float, overlap: int = 1, every_ms: int | None = None) -> int:
    """Number of windows that can touch a span that begins where a window begins.

    Args:
        window_ms: their length.
        span_ms: length of the span.
        overlap: windows that hold one instant: all but one of those that hold the span's first count as well.
        every_ms: from the beginning of a window to that of the next; None: `window_ms` / `overlap`.
    """
    if window_ms is None:
        return 1
    begun = span_ms * overlap / window_ms if every_ms is None else span_ms / every_ms
    return max(1, math.ceil(begun)) + overlap - 1


def windows_a_day(one: Context | Beside) -> int:
    """Most windows of a sketch in one day."""
    return windows_of(one.window_ms, DAY_MS, one.overlap, one.every_ms) if one.a_day is None else one.a_day


def windows_said(around: Context) -> list[str]:
    """The number of windows in a day, for a sentence; empty if it is one."""
    number = windows_a_day(around)
    if around.overlap > 1:
        return [f"{number} overlapping windows that have a part in one day"]
    day = "of the longest day" if number > windows_of(around.window_ms, DAY_MS) else "a day"
    return [f"{number} windows {day}"] if number > 1 else []


def overlap_said(around: Context) -> list[str]:
    """The number of windows that an event lies in, for a sentence; empty if it is one."""
    return [f"{around.overlap} overlapping windows that hold it"] if around.overlap > 1 else []


def reader_of(around: Context) -> str:
    """Who can see what the first number of a statement covers."""
    what = "this sketch" if around.overlap == 1 else "one window of this sketch"
    return f"someone who sees everything that {what} publishes"


def intruder_of(around: Context) -> str:
    """Whom the second number of a statement holds against."""
    if around.overlap == 1:
        return "someone who once copied this machine's open state, cannot read the topic, and sees everything published"
    return (
        "someone who once copied the open state of one window of this sketch, cannot read the topic, and sees "
        "everything that this window publishes"
    )


def overlapping(unit: str, overlap: int) -> str:
    """What to add to a `summary` where windows overlap; empty where they do not.

    Args:
        unit: "event" or "item".
        overlap: windows that hold one instant.
    """
    if overlap == 1:
        return ""
    whom = "an event" if unit == "event" else "an item that is active at one instant"
    return f" This is for one window: {overlap} overlapping ones hold {whom}, and their losses add."


def copies_of_item(around: Context) -> int:
    """Number of partitions that can hold one item's records of one window."""
    if not around.keyed:
        return around.partitions or 1
    return around.counts if around.partitions is None else min(around.counts, around.partitions)


def _beside(one: Beside, unit: str, around: Context) -> Loss:
    """Loss to another sketch on the topic over a day."""
    if unit == "event":
        return one.event
    return _times(one.item, windows_a_day(one) * copies_of_item(around))


def _kept(unit: str, published: Loss, around: Context, copies: int) -> Loss:
    """Loss over everything that is kept: an event lies in the windows that hold its time, an item in all windows."""
    if unit == "event":
        return _times(published, around.overlap) + sum((one.event for one in around.beside), Fraction(0))
    windowed = around.window_ms is not None or any(one.window_ms is not None for one in around.beside)
    if around.published_ms is None and windowed:
        return math.inf
    span = around.published_ms or 0
    total: Loss = _times(published, windows_of(around.window_ms, span, around.overlap, around.every_ms) * copies)
    for one in around.beside:
        total = total + _times(one.item, windows_of(one.window_ms, span, one.overlap, one.every_ms) * copies)
    return total


def _rho(ledger: Ledger, around: Context, unit: str) -> Loss:
    """The day's total in zCDP: several sketches by their pure losses (Theorem 5a), one alone by its history (5b)."""
    copies = copies_of_item(around) if unit == "item" else 1
    number = copies * (windows_a_day(around) if unit == "item" else around.overlap)
    if number == 1 and not around.beside:
        return ledger.zcdp()
    total = _times(concentrated(ledger.loss()), number)
    for one in around.beside:
        number = one.overlap if unit == "event" else windows_a_day(one) * copies
        each = one.event / number if unit == "event" else one.item
        total = total + _times(concentrated(each), number)
    return total


def _protects(spec: ProfileSpec, ledger: Ledger) -> tuple[str, ...]:
    """Sentences that define the unit."""
    if spec.unit == "event":
        weight = "" if spec.max_weight == 1 else f", of any weight up to {spec.max_weight} in absolute value"
        unit = f"one event: whether it counted, and for which item{weight}; an event and its later deletion are two"
    else:
        unit = (
            "everything that one item did in this sketch (one name, one window, one partition), "
            "with any number, weights and signs of events"
        )
    if spec.groups is not None and spec.unit == "event":
        unit += "; an event is in one group and pays for that one: to change its group is two events"
    if spec.groups is not None and spec.unit == "item":
        unit += f", in all of its {len(spec.groups):,} groups" if spec.groups.of_one_item > 1 else ""
        unit += _promised_groups(spec.groups)
    chosen = _choosing(spec)
    parts = len(ledger.history.parts)
    merged = (f"the sketch was merged from {parts} parts: the numbers below count them all",) if parts else ()
    return (
        unit,
        *chosen,
        "packed records hold many events: each item of one, with its weight, is an event by itself, and how many there "
        "are belongs to the record's envelope",
        "relation: as if those payloads had been no-ops while everything else stayed; to swap someone for someone "
        "else, or to flip the sign of a weight: twice every number below",
        *merged,
    )


def _choosing(spec: ProfileSpec) -> tuple[str, ...]:
    """What is protected of the fields that decide in which group a record counts, and whether it does."""
    out = []
    deciding = ["its group"] if spec.groups is not None else []
    deciding += ["the fields of where"] if spec.where else []
    if deciding:
        out.append(f"{' and '.join(deciding)}: part of a record's payload, and protected with it")
    if spec.groups is not None:
        out.append(
            "which groups had records: all groups of a window exist as soon as it does, and are written, sealed and "
            "published together"
        )
    return tuple(out)


def _promised_groups(groups: Groups) -> str:
    """What the source promises about an item's groups, and the loss for each neighbouring relation."""
    if groups.of_item:
        return "; its group follows from the item, as its source promises: it pays for one group"
    number, replaced = groups.of_one_item, groups.of_one_replaced
    if groups.ranked:
        return (
            f"; it counts in at most {number:,} of them, those that a keyed hash of it ranks first, whatever its "
            f"records say, and pays for {number:,}, against other payloads of the same item too"
        )
    text = f"; it pays for {number:,} of them" if number > 1 else "; it pays for one group"
    if groups.max_groups is not None:
        text += ", which its source promises to be the most that it has events in (max_groups)"
    if replaced > number:
        text += (
            f"; against other payloads of the same item, in {replaced:,} groups: {replaced}/{number} of every number"
        )
    return text


def assumed_of_groups(spec: ProfileSpec) -> tuple[str, ...]:
    """What the numbers assume if the source promises something about an item's groups."""
    groups = spec.groups
    if groups is None:
        return ()
    lines = ["the list of groups was not chosen from the data"]
    if groups.of_item:
        lines.append(
            "the group of an item never changes, as its source promises: nothing checks that, and an item that breaks "
            "it pays for each group that it was in"
        )
    elif groups.ranked:
        lines.append(
            "the answers, not the losses, assume that whoever sends items does not know the key: with it he could send "
            "items that all count in one group"
        )
    elif groups.max_groups is not None:
        lines.append(
            f"an item has events in at most {groups.max_groups:,} groups of one window, as its source promises: "
            "nothing checks that, and an item that breaks it pays for each group that it was in"
        )
    return tuple(lines)


def _seen(
    spec: ProfileSpec, published: Loss, looked: Loss, day: Loss, kept: Loss, rho: Loss, around: Context
) -> tuple[str, ...]:
    """Sentences with the three losses."""
    unit = "an event" if spec.unit == "event" else "an item"
    lines = [f"{reader_of(around)}: {unit} loses at most {plain(published)}"]
    reader = intruder_of(around)
    if looked == math.inf:
        lines.append(f"{reader}: no bound; the guarantee is void for {spec.unit}s after any copy of the open state")
    else:
        lines.append(f"{reader}: {unit} loses at most {plain(looked)}")
    several = spec.unit == "item" and (around.window_ms is not None or copies_of_item(around) > 1)
    if around.beside or around.overlap > 1 or several:
        what = [f"{len(around.beside) + 1} sketches"] if around.beside else []
        what += overlap_said(around) if spec.unit == "event" else []
        if spec.unit == "item":
            what += windows_said(around)
            copies = copies_of_item(around)
            what += [f"{copies} partitions"] if copies > 1 else []
        less = f", or {approximate(rho)} by zCDP" if to_approximate(rho, DELTA) < day else ""
        lines.append(f"over {', '.join(what) or 'a day'}: {unit} loses at most {plain(day)}{less}")
    if around.overlap > 1 and looked < math.inf:
        number = around.overlap if spec.unit == "event" else windows_a_day(around)
        seized = _times(looked, number * (copies_of_item(around) if spec.unit == "item" else 1))
        lines.append(
            f"someone who once copied the open states of all these windows of this sketch ({number}), and sees "
            f"everything that they publish: {unit} loses at most {plain(seized)}"
        )
    if spec.unit == "item" and kept != day and (around.window_ms is not None or around.beside):
        span = "kept without limit" if around.published_ms is None else f"kept for {duration(around.published_ms)}"
        bound = "no bound, every window adds its loss" if kept == math.inf else f"at most {plain(kept)}"
        lines.append(f"over all windows, publications being {span}: {bound}")
    if around.partitions is not None and around.keyed:
        lines.append(
            "partitioner found by `validate`, or compared with a sample of the topic before the first count: "
            f"{unit} loses at most 1/10 more, once for each such sample"
        )
    return tuple(lines)


def records_said(epsilon_records: Fraction) -> list[str]:
    """The sentence about the number of records admitted, if it is published.

    Args:
        epsilon_records: of its noise; 0: it is not kept.
    """
    if not epsilon_records:
        return []
    return [
        f"the number of records admitted, a function of envelopes: published with noise of its own, epsilon "
        f"{epsilon_records} for a record that changes no other record's window; in none of the numbers above"
    ]


def not_protected(spec: CountingSpec, ledger: AnyLedger, around: Context, *, states: bool, bare: bool) -> list[str]:
    """What is not protected.

    Args:
        spec: of the sketch.
        ledger: its history.
        around: its deployment.
        states: whether states are published, not histograms.
        bare: whether such a state has no fresh noise.
    """
    lost = ["envelopes: that a record existed, when, in which partition, how long it was, how many events it packed"]
    lost += records_said(spec.epsilon_records)
    if spec.unit == "event":
        lost.append("a person with m events in this sketch loses up to m times as much")
        if any(one.window_ms is not None for one in around.beside) or around.window_ms is not None:
            lost.append("a person with events in several windows: the losses of all these events add")
    else:
        lost.append("an item in several windows, sketches or partitions, or under two spellings: the losses add")
        if not around.keyed and around.partitions:
            lost.append(
                f"items are not keyed: {around.partitions} partitions hold parts of one item, each at full cost"
            )
    if around.counts > 1 and spec.unit == "item":
        lost.append(
            f"partitions were added inside this window ({around.counts} numbers of them were valid): an item may lie "
            f"in {copies_of_item(around)} of them and pays in each"
        )
    lost.append(readers_of_the_topic(around))
    if spec.needs_key:
        lost.append(_key(states=states))
    lost.append("records in flight in the process, when it is seized")
    if ledger.copies:
        lost.append("copies of the open state were written: two of them show exactly what came between")
    else:
        lost.append("what was applied between two copies of one open state, and everything from an intruder who stays")
    if bare:
        lost.append("events after any copy of the open state that ever leaks: the bare state is published")
    if around.diagnostics == "exact":
        lost.append(
            "exact counts of invalid, misplaced and missing items, and of updates (every event that was counted), at "
            "the operator's own endpoint and in its log"
        )
    if around.store == "kafka":
        lost.append("keys of superseded snapshots stay in the offsets topic until it is compacted")
    elif around.store == "dir":
        lost.append(
            "snapshots in the directory store are plain files of mode 0600: disk and memory are two views; superseded "
            "ones are overwritten, but journals, copy-on-write file systems, flash and backups may keep their bytes"
        )
    elif around.store == "file":
        lost.append("the open sketch's file is a secret like a key: a fresh one is the noise itself")
    letters = {
        "none": "dead letters (raw data)",
        "envelope": "dead letters (without payload)",
        "payload": "dead letters, which hold raw payloads",
    }[around.dead_letters]
    lost.append(f"duplicates upstream, {letters}, other deployments on the same topic, copies or old files of this one")
    return lost


def _key(*, states: bool) -> str:
    """What the hash key is for."""
    if states:
        where = "in every published state, and in a copied open one"
    else:
        where = "in a copied open state; published histograms do not name slots"
    return (
        f"guesses by the owner of the hash key, who can find the slot of any guessed item {where}; the numbers above "
        "hold against the owner too, but no secrecy beyond them"
    )


def readers_of_the_topic(around: Context) -> str:
    """Compare retention with the window: against readers of the topic, pan-privacy begins where retention ends."""
    base = "records that the topic still holds, for those who can read it"
    if around.retention_ms is None or around.window_ms is None:
        return f"{base} (unless its retention is shorter than the window, a copied state tells them nothing new)"
    kept = duration(around.retention_ms)
    kept = "for ever" if around.retention_ms == math.inf else f"for {kept}"
    if around.retention_ms >= around.window_ms:
        return (
            f"{base}: it keeps them {kept}, the window is {duration(around.window_ms)}, so pan-privacy buys nothing "
            "against a reader of the topic; set retention.ms below the window"
        )
    return f"{base}: {kept}, less than the window of {duration(around.window_ms)}"


def assumptions(spec: CountingSpec, around: Context, delta: str = "delta = 0") -> tuple[str, ...]:
    """What the proof rests on.

    Args:
        spec: of the sketch.
        around: its deployment.
        delta: of the guarantee, up to the security of the cipher.
    """
    lines = [
        f"AES-256: this is computational differential privacy, {delta} up to the cipher; the samplers are exact",
        "parameters and lists of items were not chosen from the data",
        "nothing is claimed for the secrecy of the hash key, or for sampling: the numbers hold with the key public",
    ]
    if spec.max_total is not None:
        lines.append(
            f"the weights of one item's events in this sketch add up to at most {spec.max_total} in absolute value, as "
            "its source promises (max_total)"
        )
    if spec.unit == "item":
        checked = "checked against the record's key" if around.partitions and around.keyed else "as its source says"
        lines.append(f"all records of an item reach the partition that the configuration says, {checked}")
    return tuple(lines)


def approximate(rho: Loss, delta: float = DELTA) -> str:
    """A zCDP total for people."""
    epsilon = to_approximate(rho, delta)
    return "unlimited" if epsilon == math.inf else f"(epsilon {epsilon:.3g}, delta {delta:g})"
