"""One sketch's ledger: every layer and every view of it, what they cost so far, and what may still be spent.

In: layers, releases, publications and looks as they happen. Out: losses as exact fractions, BudgetError before
anything is drawn, plain data for headers. Touches: nothing.
Source: the lemma of looks, docs/theory/privacy.md section 3.

A ledger is immutable: every step returns a new one, so a step that fails has charged nothing, and whoever stores
state and ledger together stores them together. Its order is the order of application, not of event time. It knows
what `seal` has promised to publish, and counts that from the first moment.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, NoReturn

from sketchstream.errors import BudgetError, FormatError, MergeError, SealedError
from sketchstream.privacy.looks import (
    LOOK,
    Entry,
    Gap,
    History,
    LayerEntry,
    Loss,
    View,
    event_losses,
    item_loss,
    worst_loss,
    worst_loss_with_look,
)
from sketchstream.privacy.zcdp import concentrated, worst_rho

__all__ = ["Gap", "LayerEntry", "Ledger", "Loss", "Promise", "View", "show"]

LEDGER_VERSION = 1
MAX_ENTRIES = 1 << 17
MAX_DEPTH = 32
_FRACTION = re.compile(r"[0-9]{1,40}(/[0-9]{1,40})?\Z")
COPY = View("copy", None)


@dataclass(frozen=True)
class Promise:
    """What `seal` will publish: known at creation, and counted from then on.

    Args:
        kind: "histogram" (a noisy histogram of cost `epsilon`), "fresh" (the state under a fresh layer of
            `epsilon`), "bare" (the state as it is) or "nothing".
        epsilon: cost of the publication, None for "bare" and "nothing".
    """

    kind: Literal["histogram", "fresh", "bare", "nothing"]
    epsilon: Fraction | None = None

    def __post_init__(self) -> None:
        if (self.epsilon is None) != (self.kind in ("bare", "nothing")):
            msg = f"a promise of kind {self.kind!r} with epsilon {self.epsilon} makes no sense"
            raise ValueError(msg)

    @classmethod
    def of(cls, publish: str, epsilon_publish: Fraction, intrusion: bool | None) -> Promise:
        """The promise that a spec makes with `publish`, `epsilon_publish` and `intrusion`."""
        if publish == "histogram":
            return cls("histogram", epsilon_publish)
        return cls("fresh", epsilon_publish) if intrusion else cls("bare")

    def entries(self, max_weight: int, lineage: bytes = b"", law: str = "") -> tuple[Entry, ...]:
        """The entries that the seal appends to a history."""
        if self.kind == "nothing":
            return ()
        if self.kind == "histogram":
            return (View("publication", self.epsilon),)
        if self.epsilon is None:
            return (View("publication", None),)
        return LayerEntry(lineage, law, self.epsilon, max_weight), View("publication", None)


def show(loss: Loss) -> str:
    """A loss for people: '3/2', or 'unlimited'."""
    return "unlimited" if loss == math.inf else str(loss)


@dataclass(frozen=True)
class Ledger:
    """Layers and views of one sketch in order of application, and the publication that is promised.

    Args:
        unit: "event" or "item".
        max_weight: largest absolute weight of one event.
        history: what happened.
        promised: what the seal will publish; Promise("nothing") once it was published.
        budget: most that any event, or item, may lose; None = no limit.

    Examples:
        >>> layer = LayerEntry(bytes(16), "discrete-laplace", Fraction(1))
        >>> ledger = Ledger.create("event", 1, layer, Promise("histogram", Fraction(1)), Fraction(2))
        >>> ledger.loss(), ledger.loss(intrusion=True)
        (Fraction(1, 1), Fraction(1, 1))
        >>> ledger.charge_release(Fraction(1, 2)).loss()
        Fraction(3, 2)
    """

    unit: str
    max_weight: int
    history: History
    promised: Promise
    budget: Fraction | None = None

    @classmethod
    def create(
        cls,
        unit: str,
        max_weight: int,
        layers: LayerEntry | Iterable[LayerEntry],
        promised: Promise,
        budget: Fraction | None = None,
    ) -> Ledger:
        """The ledger of a fresh sketch.

        Raises:
            BudgetError: if the promised publication alone costs more than the budget.
        """
        entries = (layers,) if isinstance(layers, LayerEntry) else tuple(layers)
        if unit not in ("event", "item") or not entries:
            msg = f"a ledger needs unit 'event' or 'item' and at least one layer, found {unit!r:.20}, {len(entries)}"
            raise ValueError(msg)
        ledger = cls(unit, max_weight, History(entries), promised, budget)
        loss = ledger.loss()
        if budget is not None and loss > budget:
            cost = promised.epsilon if promised.epsilon is not None else Fraction(0)
            msg = (
                f"this sketch and its publication would cost an {unit} {show(loss)}, the budget is {budget}: "
                "lower epsilon or epsilon_publish, or raise the budget"
            )
            raise BudgetError(
                msg, asked=max(cost, *(entry.epsilon for entry in entries)), spent=Fraction(0), limit=budget
            )
        return ledger

    # What happens to a sketch.

    def propose(self, cost: Fraction) -> Loss:
        """The loss after one more release of this cost, promised publication included.

        Raises:
            BudgetError: if that is above the budget; says what could still be released.
            SealedError: if the sketch was sealed.
        """
        after = self._with(View("release", cost))
        loss = after.loss()
        if self.budget is not None and loss > self.budget:
            spent, room = self.loss(), self.affordable()
            advice = f"at most {room} can be released now" if room > 0 else "nothing more can be released"
            msg = (
                f"a release of cost {cost} would bring the loss of an {self.unit} from {show(spent)} to {show(loss)} "
                f"(promised publication included), the budget is {self.budget}: {advice}"
            )
            raise BudgetError(msg, asked=cost, spent=spent, limit=self.budget)
        return loss

    def charge_release(self, cost: Fraction) -> Ledger:
        """The ledger after a release of this cost; call it, and store it, before the noise is drawn.

        Raises:
            BudgetError: if the budget does not allow it.
            SealedError: if the sketch was sealed.
        """
        self.propose(cost)
        return self._with(View("release", cost))

    def affordable(self) -> Loss:
        """The largest cost that one release may have now; 0 if none, `math.inf` without a limit.

        The loss as a function of one view's cost c is max over gaps of min(a, b + c): a is its value where that
        view may cost anything, b where it costs nothing.
        """
        if self.budget is None:
            return math.inf
        if self.history.seal is not None:
            return Fraction(0)
        free, dear = self._with(View("release", Fraction(0)))._losses(), self._with(LOOK)._losses()
        room: Loss = math.inf
        for base, cap in zip(free, dear, strict=True):
            if cap > self.budget:
                room = min(room, self.budget - base)
        return max(room, Fraction(0))

    def charge_publication(self, lineage: bytes = b"", law: str = "") -> Ledger:
        """The ledger after the seal: the promise is kept, the state is gone.

        Args:
            lineage: of the fresh layer, if the promise has one.
            law: of that layer (default: the law of the first layer).

        Raises:
            BudgetError: if looks made since have used the budget up.
            SealedError: if it was published before.
        """
        self._must_be_open("sealed")
        loss = self.loss()
        if self.budget is not None and loss > self.budget:
            msg = (
                f"publishing would bring the loss of an {self.unit} to {show(loss)}, the budget is {self.budget}: "
                "looks at the open state have used it up; raise the budget, or drop the sketch"
            )
            cost = self.promised.epsilon if self.promised.epsilon is not None else Fraction(0)
            spent = worst_loss(self._seen(), unit=self.unit, max_weight=self.max_weight)
            raise BudgetError(msg, asked=cost, spent=spent, limit=self.budget)
        first = next(self.history.layers())
        entries = self.promised.entries(self.max_weight, lineage, law or first.law)
        return replace(self, history=self.history.sealed_by(*entries), promised=Promise("nothing"))

    def record_look(self) -> Ledger:
        """The ledger after somebody saw the open state: never refused, for it has happened."""
        return self._with(LOOK)

    def record_copy(self) -> Ledger:
        """The ledger after a copy of the open state was written to a file of ours, which is a secret.

        Two copies in a row say all that there is to say (what was applied between them lies open to whoever has
        both), so the list does not grow with more.
        """
        if self.history.entries[-2:] == (COPY, COPY):
            return self
        return self._with(COPY)

    def add_layer(self, layer: LayerEntry) -> Ledger:
        """The ledger after a fresh noise vector was added to the state."""
        return self._with(layer)

    def published(self) -> Ledger:
        """What the header of a published object may say: no budget and no copies."""
        return replace(self, history=self.history.without_copies(), budget=None)

    # What it adds up to.

    def loss(self, *, intrusion: bool = False, copies: bool = False, from_now: bool = False) -> Loss:
        """The most that any event (or item) loses, promised publication included.

        Args:
            intrusion: with one unannounced look at the open state, at the worst moment.
            copies: as if every noted copy of the open state had been seen.
            from_now: the unannounced look may come from now on only. (After a known look, one before it is beyond
                help: what was applied between two looks lies open. From now on is what `add_layer` repairs.)
        """
        history = self._seen(copies=copies, promise=True)
        if not intrusion:
            return worst_loss(history, unit=self.unit, max_weight=self.max_weight)
        since = len(self._seen(copies=copies).entries) if from_now else 0
        return worst_loss_with_look(history, unit=self.unit, max_weight=self.max_weight, since=since)

    def zcdp(self, *, intrusion: bool = False, copies: bool = False, from_now: bool = False) -> Loss:
        """Rho of zCDP for the same. Exact rational or infinity; never above the square of `loss`, halved.

        It holds where costs were not chosen from what was released before (the stream may be). An intruder chooses
        his moment from what he has seen, so with `intrusion` it is that square.
        """
        if intrusion:
            return concentrated(self.loss(intrusion=True, copies=copies, from_now=from_now))
        return worst_rho(self._seen(copies=copies, promise=True), unit=self.unit, max_weight=self.max_weight)

    def loss_by_gap(self) -> list[Gap]:
        """What an event loses by the place in the history at which it was applied (empty places included)."""
        return event_losses(self._seen(promise=True), max_weight=self.max_weight)

    @property
    def layers(self) -> tuple[LayerEntry, ...]:
        """All layers, those of merged parts first."""
        return tuple(self.history.layers())

    @property
    def copies(self) -> int:
        """Copies of the open state that were noted: 0, 1, or 2 for more than one in a row."""
        return sum(1 for entry in self.history.entries if entry == COPY)

    @property
    def looks(self) -> int:
        """Known looks at the open state."""
        return sum(1 for entry in self.history.entries if entry == LOOK)

    @property
    def sealed(self) -> bool:
        """Whether the state is gone."""
        return self.history.seal is not None

    @classmethod
    def merge(cls, ledgers: Sequence[Ledger]) -> Ledger:
        """The ledger of merged states: the union of its parts' lists.

        Open parts: the result is open and keeps their promise. Sealed parts: their publications stand, nothing more
        is promised, for a sum of published states is post-processing.

        Raises:
            MergeError: if units, weights or promises differ, or open and sealed parts are mixed.
        """
        first = ledgers[0]
        names = ("unit", "max_weight", "promised", "sealed")
        differing = [n for n in names if any(getattr(one, n) != getattr(first, n) for one in ledgers)]
        if differing:
            msg = f"ledgers that differ in {', '.join(differing)} cannot be merged"
            raise MergeError(msg, differing)
        budgets = [one.budget for one in ledgers if one.budget is not None]
        history = History((), tuple(one.history for one in ledgers), 0 if first.sealed else None)
        return cls(first.unit, first.max_weight, history, first.promised, min(budgets, default=None))

    # Plain data.

    def to_dict(self) -> dict[str, Any]:
        """Plain data for headers and JSON: costs only, fractions and lineages as strings."""
        out: dict[str, Any] = {
            "version": LEDGER_VERSION,
            "unit": self.unit,
            "max_weight": self.max_weight,
            "history": _pack(self.history),
            "promised": [self.promised.kind, None if self.promised.epsilon is None else str(self.promised.epsilon)],
        }
        if self.budget is not None:
            out["budget"] = str(self.budget)
        return out

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Ledger:
        """The ledger that `to_dict` described.

        Raises:
            FormatError: for anything that `to_dict` does not write.
        """
        try:
            if data["version"] != LEDGER_VERSION or data["unit"] not in ("event", "item"):
                _refuse()
            weight = data["max_weight"]
            if type(weight) is not int or not 1 <= weight < 1 << 30:
                _refuse()
            kind, epsilon = data["promised"]
            if kind not in ("histogram", "fresh", "bare", "nothing"):
                _refuse()
            promised = Promise(kind, None if epsilon is None else _fraction(epsilon))
            budget = _fraction(data["budget"]) if "budget" in data else None
            room = [MAX_ENTRIES]
            history = _unpack(data["history"], weight, MAX_DEPTH, room)
            if set(data) - {"version", "unit", "max_weight", "history", "promised", "budget"}:
                _refuse()
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
            if isinstance(error, FormatError):
                raise
            msg = "the ledger in these bytes is damaged"
            raise FormatError(msg) from None
        return cls(data["unit"], weight, history, promised, budget)

    def rows(self) -> list[dict[str, str]]:
        """The history as a table: one row a layer or view, and what an event applied right after it loses."""
        history = self._seen(copies=True, promise=True)
        here = {
            (gap.part, gap.after): gap.loss
            for gap in event_losses(replace(self, history=self._seen(promise=True)).history, max_weight=self.max_weight)
        }
        rows: list[dict[str, str]] = []
        _rows(history, (), here, len(self.history.entries), rows)
        return rows

    def __str__(self) -> str:
        """A table for people."""
        wide = [("part", 8), ("what", 26), ("cost", 12), ("an event after it", 18)]
        lines = ["".join(name.ljust(width) for name, width in wide).rstrip()]
        lines += ["".join(row[name].ljust(width) for name, width in wide).rstrip() for row in self.rows()]
        lines.append(f"any {self.unit} loses at most {show(self.loss())}, with one unannounced look at the open state ")
        lines[-1] += f"at most {show(self.loss(intrusion=True))}"
        if self.budget is not None:
            lines.append(f"budget {self.budget}, at most {show(self.affordable())} can be released now")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """For notebooks."""
        from sketchstream import cards

        return cards.ledger(self)

    # Inside.

    def _must_be_open(self, verb: str) -> None:
        """Refuse steps after the seal."""
        if self.history.seal is not None:
            msg = f"this sketch is sealed: its state is gone and it cannot be {verb} again"
            raise SealedError(msg)

    def _with(self, entry: Entry) -> Ledger:
        """One more entry."""
        self._must_be_open("looked at")
        return replace(self, history=self.history.then(entry))

    def _seen(self, *, copies: bool = False, promise: bool = False) -> History:
        """The history that counts."""
        history = self.history if copies else self.history.without_copies()
        if promise and history.seal is None:
            history = history.sealed_by(*self.promised.entries(self.max_weight))
        return history

    def _losses(self) -> list[Loss]:
        """Losses whose maximum is the loss, each of the form min(a, b + c) in the cost c of any one view."""
        history = self._seen(promise=True)
        if self.unit == "item":
            return [item_loss(history)]
        return [gap.loss for gap in event_losses(history, max_weight=self.max_weight)]


def _refuse() -> NoReturn:
    """Bytes that no ledger wrote."""
    msg = "the ledger in these bytes is damaged, or of a newer version"
    raise FormatError(msg)


def _fraction(text: object) -> Fraction:
    """A positive fraction that `to_dict` wrote."""
    if not isinstance(text, str) or not _FRACTION.match(text):
        _refuse()
    value = Fraction(text)
    if value <= 0:
        _refuse()
    return value


def _pack(history: History) -> dict[str, Any]:
    """Plain data of a history."""
    entries: list[list[Any]] = []
    for entry in history.entries:
        if isinstance(entry, LayerEntry):
            entries.append(["layer", entry.law, str(entry.epsilon), entry.lineage.hex(), entry.max_weight])
        else:
            entries.append([entry.kind, None if entry.cost is None else str(entry.cost)])
    out: dict[str, Any] = {"entries": entries, "seal": history.seal}
    if history.parts:
        out["parts"] = [_pack(part) for part in history.parts]
    return out


def _unpack(data: Mapping[str, Any], max_weight: int, depth: int, room: list[int]) -> History:
    """The history that `_pack` described."""
    entries: list[Entry] = []
    room[0] -= len(data["entries"]) + 1
    if depth == 0 or room[0] < 0 or set(data) - {"entries", "seal", "parts"}:
        _refuse()
    for item in data["entries"]:
        if item[0] == "layer":
            _, law, epsilon, lineage, weight = item
            if law not in ("discrete-laplace", "randomized-response") or weight != max_weight:
                _refuse()
            entries.append(LayerEntry(bytes.fromhex(lineage), law, _fraction(epsilon), weight))
        else:
            kind, cost = item
            raw = cost is None
            if kind not in ("release", "publication", "look", "copy") or (kind in ("look", "copy")) > raw:
                _refuse()
            if kind == "release" and raw:
                _refuse()
            entries.append(View(kind, None if raw else _fraction(cost)))
    seal = data["seal"]
    if seal is not None and (type(seal) is not int or not 0 <= seal <= len(entries)):
        _refuse()
    parts = tuple(_unpack(part, max_weight, depth - 1, room) for part in data.get("parts", ()))
    return History(tuple(entries), parts, seal)


def _rows(
    history: History,
    path: tuple[int, ...],
    here: Mapping[tuple[tuple[int, ...], int], Loss],
    happened: int,
    rows: list[dict[str, str]],
) -> None:
    """Rows of a history, parts first."""
    for index, part in enumerate(history.parts):
        _rows(part, (*path, index), here, len(part.entries), rows)
    counted = 0
    for at, entry in enumerate(history.entries):
        counted += entry != COPY
        if isinstance(entry, LayerEntry):
            what, cost = f"layer {entry.law or 'fresh'}", str(entry.epsilon)
        else:
            what, cost = str(entry.kind), "raw" if entry.cost is None else str(entry.cost)
        if at >= happened:
            what += " (promised)"
        name = "" if not path else ".".join(str(step + 1) for step in path)
        loss = here.get((path, counted))
        rows.append(
            {"part": name, "what": what, "cost": cost, "an event after it": "-" if loss is None else show(loss)}
        )
