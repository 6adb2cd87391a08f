"""Base of the ledgers of all measures: layers and views of one sketch in order, and the promised publication.

In: layers, releases, publications and looks as they happen. Out: new ledgers, plain data for headers. Touches:
nothing.
Source: the lemma of looks, docs/theory/privacy.md section 3.

A ledger is immutable: every step returns a new one. So a step that fails has charged nothing, and a state and its
ledger can be stored together. Entries are in order of application, not of event time. The ledger knows what `seal` has
promised to publish, and counts that from the beginning.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal, NoReturn, Self

from sketchstream.errors import BudgetError, FormatError, MergeError, SealedError
from sketchstream.privacy.losses.history import COPY, LOOK, Entry, Gap, History, LayerEntry, Loss, View
from sketchstream.privacy.losses.looks import event_losses, worst_loss, worst_loss_with_look
from sketchstream.privacy.losses.loss_numbers import loss_number
from sketchstream.privacy.losses.measures import Measure
from sketchstream.spec import Rational, flag, read_rational

LEDGER_VERSION = 1
MAX_ENTRIES = 1 << 17
MAX_DEPTH = 32
"""Entries of a ledger, and merges within merges, that bytes of strangers may have."""
_FIELDS = {"version", "unit", "max_weight", "history", "promised"}


@dataclass(frozen=True)
class Promise:
    """What `seal` will publish: known at creation, and counted from then on.

    Args:
        kind: "histogram" (a noisy histogram of cost `cost`), "fresh" (the state under a fresh layer of
            `cost`), "bare" (the state as it is) or "nothing".
        cost: cost of the publication, in the ledger's measure; None for "bare" and "nothing".
    """

    kind: Literal["histogram", "fresh", "bare", "nothing"]
    cost: Fraction | None = None

    def __post_init__(self) -> None:
        if (self.cost is None) != (self.kind in ("bare", "nothing")):
            raise ValueError(f"a promise of kind {self.kind!r} with cost {self.cost} makes no sense")

    @classmethod
    def of(cls, publish: str, seal_cost: Fraction, intrusion: bool | None) -> Promise:
        """The promise that follows from a spec's `publish` and `intrusion`, and from what its seal costs."""
        if publish == "histogram":
            return cls("histogram", seal_cost)
        return cls("fresh", seal_cost) if intrusion else cls("bare")

    def entries(self, max_weight: int, lineage: bytes = b"", law: str = "") -> tuple[Entry, ...]:
        """The entries that the seal appends to a history."""
        if self.kind == "nothing":
            return ()
        if self.kind == "histogram":
            return (View("publication", self.cost),)
        if self.cost is None:
            return (View("publication", None),)
        return LayerEntry(lineage, law, self.cost, max_weight), View("publication", None)


@dataclass(frozen=True)
class SketchHistory(ABC):
    """Layers and views of one sketch in order of application, and the publication that is promised.

    Args:
        unit: "event" or "item".
        max_weight: largest absolute weight of one event.
        history: what happened.
        promised: what the seal will publish; Promise("nothing") once it was published.
        budget: largest permitted loss; None: no limit.
    """

    unit: str
    max_weight: int
    history: History
    promised: Promise
    budget: Any = None

    laws: ClassVar[tuple[str, ...]]
    """Laws of noise that this ledger can account for."""
    symbol: ClassVar[str]
    """Symbol of the measure of its costs, in texts."""
    alike: ClassVar[tuple[str, ...]] = ()
    """Further fields in which merged ledgers must agree."""

    @cached_property
    def counted(self) -> History:
        """The history that is charged: without copies, with the promised publication."""
        return self._seen(promise=True)

    @property
    @abstractmethod
    def measure(self) -> Measure[Loss]:
        """How the costs of this ledger add up."""

    @abstractmethod
    def loss(self, *, intrusion: bool = False, copies: bool = False, from_now: bool = False) -> Any:
        """The largest loss of any protected unit, including the promised publication.

        Args:
            intrusion: counts one unannounced look at the open state, at the worst moment.
            copies: counts every noted copy of the open state as seen.
            from_now: the unannounced look can only come from now on. (After a known look, an earlier unannounced one
                cannot be repaired: what was applied between the two is exposed. `add_layer` protects from now on.)

        Raises:
            SpecError: an argument that is not a bool.
        """

    @abstractmethod
    def order(self, *, intrusion: bool = False) -> Any:
        """A number that grows with that loss, to find the worst of several parts."""

    @abstractmethod
    def epsilon(self, delta: Rational | None = None) -> float:
        """The loss as an epsilon, rounded up, at this delta; by default at that of the budget, or else of the spec."""

    @abstractmethod
    def loss_of_cost(self, cost: Fraction) -> Any:
        """What one layer or view of this cost, in the measure of the ledger, shows by itself."""

    @abstractmethod
    def totals(self, with_copy: Any = None) -> dict[str, Any]:
        """Losses as plain data: `loss`, `loss_with_intrusion`, `budget` and others, the same in every measure.

        Args:
            with_copy: loss with one unannounced look, of another part that loses more to it; None: that of this one.
        """

    @abstractmethod
    def affordable(self) -> Fraction | float:
        """The largest cost that the budget allows for one release now; 0 if none, `math.inf` without a limit."""

    def propose(self, cost: Fraction) -> Any:
        """The loss after one more release of this cost, including the promised publication.

        Raises:
            BudgetError: if that is above the budget; says what could still be released.
            SealedError: if the sketch was sealed.
        """
        loss, spent = self._with(View("release", cost)).loss(), self.loss()
        if not self._is_allowed(loss):
            raise BudgetError(
                f"a release of {self.symbol} {cost} would bring the loss of an {self.unit} from epsilon "
                f"{loss_number(self._to_epsilon(spent))} to {self._loss_text(loss)} (promised publication included), "
                f"the budget is {self.budget}: {self._advice()}",
                asked=cost,
                spent=self._to_epsilon(spent),
                limit=self._limit,
            )
        return loss

    def _require_creation(self) -> Self:
        """This ledger of a fresh sketch, which has a unit and layers, and whose publication the budget allows.

        Raises:
            BudgetError: the promised publication alone costs more than the budget.
        """
        laws = {layer.law for layer in self.layers}
        if self.unit not in ("event", "item") or not laws or laws - {*self.laws}:
            raise ValueError(f"a ledger in {self.symbol} needs unit 'event' or 'item' and layers of {self.laws}")
        loss = self.loss()
        if not self._is_allowed(loss):
            raise BudgetError(
                f"this sketch and its publication would cost an {self.unit} {self._loss_text(loss)}, the budget is "
                f"{self.budget}: lower epsilon or epsilon_publish, or raise the budget",
                asked=max(self.promised.cost or Fraction(0), *(layer.cost for layer in self.layers)),
                spent=Fraction(0),
                limit=self._limit,
            )
        return self

    def _require_publication(self) -> None:
        """Require that the budget allows the promised publication.

        Raises:
            BudgetError: if looks made since have used the budget up.
        """
        loss = self.loss()
        if not self._is_allowed(loss):
            raise BudgetError(
                f"publishing would bring the loss of an {self.unit} to {self._loss_text(loss)}, the budget is "
                f"{self.budget}: looks at the open state have used it up, and an open sketch keeps its budget: drop "
                "the sketch",
                asked=self.promised.cost or Fraction(0),
                spent=self._to_epsilon(self._loss_of(self._seen())),
                limit=self._limit,
            )

    @abstractmethod
    def _loss_of(self, history: History, *, look: bool = False, since: int = 0) -> Any:
        """The loss of a history of this sketch; with an unannounced look, one after the first `since` entries."""

    @abstractmethod
    def _is_allowed(self, loss: Any) -> bool:
        """Whether the budget, if there is one, allows a loss."""

    @property
    @abstractmethod
    def _limit(self) -> Fraction:
        """Epsilon of the budget."""

    @abstractmethod
    def _to_epsilon(self, loss: Any) -> Fraction | float:
        """A loss as an epsilon, at the delta of the budget."""

    @abstractmethod
    def _loss_text(self, loss: Any) -> str:
        """A loss for a sentence, at the delta of the budget, or else of the spec."""

    @abstractmethod
    def _release_text(self, room: Fraction) -> str:
        """What can be released at a cost that is affordable, for a sentence."""

    @abstractmethod
    def _with_least_budget(self, ledgers: Sequence[Self]) -> Self:
        """This ledger with the strictest of these ledgers' budgets."""

    def charge_release(self, cost: Fraction) -> Self:
        """The ledger after a release of this cost; call it, and store it, before the noise is drawn.

        Raises:
            BudgetError: if the budget does not allow it.
            SealedError: if the sketch was sealed.
        """
        self.propose(cost)
        return self._with(View("release", cost))

    def charge_publication(self, lineage: bytes = b"") -> Self:
        """The ledger after the seal: the promise is kept, the state is destroyed.

        Args:
            lineage: lineage of the fresh layer, if the promise has one. Its law is that of the first layer.

        Raises:
            BudgetError: if looks made since have used the budget up.
            SealedError: if it was published before.
        """
        self._must_be_open("sealed")
        self._require_publication()
        entries = self.promised.entries(self.max_weight, lineage, self.layers[0].law)
        return replace(self, history=self.history.sealed_by(*entries), promised=Promise("nothing"))

    def published(self) -> Self:
        """What the header of a published object may say: no budget and no copies."""
        return replace(self, history=self.history.without_copies(), budget=None)

    def record_look(self) -> Self:
        """The ledger after somebody saw the open state. Never refused, as it has already happened."""
        return self._with(LOOK)

    def record_copy(self) -> Self:
        """The ledger after a copy of the open state was written to a secret file of this deployment.

        More than two copies in a row are recorded as two: whoever has both already sees what was applied between them.
        """
        if self.history.entries[-2:] == (COPY, COPY):
            return self
        return self._with(COPY)

    def add_layer(self, layer: LayerEntry) -> Self:
        """The ledger after a fresh noise vector was added to the state."""
        return self._with(layer)

    # What it holds.

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
        """Whether the sketch is sealed, so that its state is destroyed."""
        return self.history.seal is not None

    @classmethod
    def merge(cls, ledgers: Sequence[Self]) -> Self:
        """The ledger of merged states: the union of its parts' lists.

        Open parts: the result is open and keeps their promise. Sealed parts: their publications stand, and nothing more
        is promised, as a sum of published states is post-processing.

        Raises:
            MergeError: if units, weights or promises differ, or open and sealed parts are mixed.
        """
        first = ledgers[0]
        names = ("unit", "max_weight", "promised", "sealed", *first.alike)
        differing = [n for n in names if any(getattr(ledger, n) != getattr(first, n) for ledger in ledgers)]
        if differing:
            raise MergeError(f"ledgers that differ in {', '.join(differing)} cannot be merged", differing)
        history = History((), tuple(ledger.history for ledger in ledgers), 0 if first.sealed else None)
        return replace(first, history=history)._with_least_budget(ledgers)

    # Plain data.

    def to_dict(self) -> dict[str, Any]:
        """Plain data for headers and JSON: costs only, fractions and lineages as strings."""
        return {
            "version": LEDGER_VERSION,
            "unit": self.unit,
            "max_weight": self.max_weight,
            "history": _pack(self.history),
            "promised": [self.promised.kind, None if self.promised.cost is None else str(self.promised.cost)],
        }

    @classmethod
    def _read(cls, data: Mapping[str, Any], more: Collection[str]) -> tuple[str, int, History, Promise]:
        """The fields of this class, and no others but `more`.

        Raises:
            FormatError: for anything that `to_dict` does not write; other errors for what is no such dictionary.
        """
        if data["version"] != LEDGER_VERSION or data["unit"] not in ("event", "item"):
            refuse()
        weight = data["max_weight"]
        if type(weight) is not int or not 1 <= weight < 1 << 30:
            refuse()
        kind, cost = data["promised"]
        if kind not in ("histogram", "fresh", "bare", "nothing"):
            refuse()
        promised = Promise(kind, None if cost is None else fraction(cost))
        history = _unpack(data["history"], weight, cls.laws, MAX_DEPTH, [MAX_ENTRIES])
        if set(data) - _FIELDS - set(more):
            refuse()
        return data["unit"], weight, history, promised

    def loss_by_gap(self) -> list[Gap]:
        """What an event loses by the place in the history at which it was applied, empty places included."""
        return event_losses(self._seen(promise=True), self.measure)

    def rows(self) -> list[dict[str, str]]:
        """The history as a table: one row a layer or view, and what an event applied right after it loses."""
        history = self._seen(copies=True, promise=True)
        here = {(gap.part, gap.after): gap.loss for gap in self.loss_by_gap()}
        rows: list[dict[str, str]] = []
        _rows(history, (), here, len(self.history.entries), rows)
        return rows

    def _table(self) -> list[str]:
        """The lines of that table for people."""
        wide = [("part", 8), ("what", 26), ("cost", 16), ("an event after it", 18)]
        named = [*wide[:2], (f"cost ({self.symbol})", 16), (f"an event after it ({self.symbol})", 18)]
        lines = ["".join(name.ljust(width) for name, width in named).rstrip()]
        return lines + ["".join(row[name].ljust(width) for name, width in wide).rstrip() for row in self.rows()]

    def sentences(self) -> list[str]:
        """The losses, and what the budget still allows."""
        loss, looked = self._loss_text(self.loss()), self._loss_text(self.loss(intrusion=True))
        lines = [f"any {self.unit} loses at most {loss}, with one unannounced look at the open state at most {looked}"]
        return lines if self.budget is None else [*lines, f"budget {self.budget}, {self._advice()}"]

    def __str__(self) -> str:
        """A table for people, costs in the ledger's measure, and the sentences."""
        return "\n".join([*self._table(), *self.sentences()])

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        from sketchstream.pictures import cards

        return cards.ledger(self)

    # Private parts.

    def _advice(self) -> str:
        """What can still be released, for a sentence."""
        room = self.affordable()
        if room == math.inf:
            return "any release can be made now"
        return self._release_text(Fraction(room)) if room > 0 else "nothing more can be released"

    def _worst(self, history: History, *, look: bool, since: int) -> Loss:
        """The largest loss along a history in the ledger's measure; see `_loss_of`."""
        if look:
            return worst_loss_with_look(history, unit=self.unit, measure=self.measure, since=since)
        return worst_loss(history, unit=self.unit, measure=self.measure)

    def _must_be_open(self, verb: str) -> None:
        """Refuse steps after the seal."""
        if self.history.seal is not None:
            raise SealedError(f"this sketch is sealed: its state is gone and it cannot be {verb} again")

    def _with(self, entry: Entry) -> Self:
        """This ledger with one more entry."""
        self._must_be_open("looked at")
        return replace(self, history=self.history.then(entry))

    def _seen(self, *, copies: bool = False, promise: bool = False) -> History:
        """The history that counts."""
        history = self.history if copies else self.history.without_copies()
        if promise and history.seal is None:
            history = history.sealed_by(*self.promised.entries(self.max_weight))
        return history

    def _history_of_loss(self, *, intrusion: bool, copies: bool, from_now: bool) -> tuple[History, int]:
        """The history whose loss is asked for, and its first entry that an unannounced look may follow.

        Raises:
            SpecError: an argument that is not a bool.
        """
        for name, value in (("intrusion", intrusion), ("copies", copies), ("from_now", from_now)):
            flag(value, name)
        since = len(self._seen(copies=copies).entries) if from_now else 0
        return self._seen(copies=copies, promise=True), since


def refuse() -> NoReturn:
    """The error for bytes that no ledger wrote."""
    raise FormatError("the ledger in these bytes is damaged, or of a newer version")


@contextmanager
def damaged() -> Iterator[None]:
    """Turn errors caused by foreign data into a `FormatError`."""
    try:
        yield
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError("the ledger in these bytes is damaged") from None


def fraction(text: object) -> Fraction:
    """A positive fraction that `to_dict` wrote."""
    value = read_rational(text) if isinstance(text, str) else Fraction(0)
    if value <= 0:
        refuse()
    return value


def _pack(history: History) -> dict[str, Any]:
    """Plain data of a history."""
    entries: list[list[Any]] = []
    for entry in history.entries:
        if isinstance(entry, LayerEntry):
            entries.append(["layer", entry.law, str(entry.cost), entry.lineage.hex(), entry.max_weight])
        else:
            entries.append([entry.kind, None if entry.cost is None else str(entry.cost)])
    out: dict[str, Any] = {"entries": entries, "seal": history.seal}
    if history.parts:
        out["parts"] = [_pack(part) for part in history.parts]
    return out


def _unpack(data: Mapping[str, Any], max_weight: int, laws: Collection[str], depth: int, room: list[int]) -> History:
    """The history that `_pack` described."""
    entries: list[Entry] = []
    room[0] -= len(data["entries"]) + 1
    if depth == 0 or room[0] < 0 or set(data) - {"entries", "seal", "parts"}:
        refuse()
    for item in data["entries"]:
        if item[0] == "layer":
            _, law, cost, lineage, weight = item
            if law not in laws or weight != max_weight:
                refuse()
            entries.append(LayerEntry(bytes.fromhex(lineage), law, fraction(cost), weight))
        else:
            kind, cost = item
            raw = cost is None
            if kind not in ("release", "publication", "look", "copy") or (kind in ("look", "copy")) > raw:
                refuse()
            if kind == "release" and raw:
                refuse()
            entries.append(View(kind, None if raw else fraction(cost)))
    seal = data["seal"]
    if seal is not None and (type(seal) is not int or not 0 <= seal <= len(entries)):
        refuse()
    parts = tuple(_unpack(part, max_weight, laws, depth - 1, room) for part in data.get("parts", ()))
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
            what, cost = f"layer {entry.law or 'fresh'}", str(entry.cost)
        else:
            what, cost = str(entry.kind), "raw" if entry.cost is None else str(entry.cost)
        if at >= happened:
            what += " (promised)"
        name = "" if not path else ".".join(str(step + 1) for step in path)
        loss = here.get((path, counted))
        rows.append(
            {"part": name, "what": what, "cost": cost, "an event after it": "-" if loss is None else loss_number(loss)}
        )


def worst_of(ledgers: Sequence[SketchHistory]) -> tuple[SketchHistory, Any]:
    """The ledger that loses most to what is published, and the largest loss with one unannounced copy of a state.

    They may be of different parts: one with little noise in its state may publish as much as the others.
    """
    looked = max(ledgers, key=lambda ledger: ledger.order(intrusion=True))
    return max(ledgers, key=lambda ledger: ledger.order()), looked.loss(intrusion=True)
