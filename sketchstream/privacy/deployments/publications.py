"""The one list of what a deployment gives out, and what each of it costs.

In: a spec, its deployment, names of published numbers. Out: the statement's sentences about what no loss covers, losses
to numbers that are charged apart, a table for the documents. Touches: nothing.
Source: docs/theory/privacy.md sections 5 and 9.

Statement, ledger and documents draw from `PUBLICATIONS`. To publish a new number:

    1. Add a `Publication`. Its `fields` are the names under which the number travels: of a counter, of a field of a
       published header, or of a frontier. A number whose name is on no entry is refused by the guarantee, by the ledger
       and by the writer of published bytes.
    2. Choose its `charge`. Shares of a sketch's noise ("ledger") are in all losses, through `Accounting.components`. A
       number that depends on envelopes alone and has noise of its own ("record") says its epsilon for one record in one
       window in `cost`: the statement and the ledger add that up over windows and sketches. So they do with what only
       an item in wrong partitions loses ("misplaced"), and with numbers whose noise frontiers name
       (`cost_in_frontiers`).
    3. Say it: `says` gives its sentences in the statement.
    4. `docs/guarantee.md` has the table of `table()`; a test compares them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Literal

from sketchstream.errors import SpecError
from sketchstream.privacy.deployments.surroundings import Context, duration

Charge = Literal["ledger", "record", "misplaced", "envelope", "once", "free", "apart"]
CHARGES: Final[dict[Charge, str]] = {
    "ledger": "in every loss of the statement and the ledger",
    "record": "in no loss of events or items; noise of its own, whose epsilon for one record the statement and the "
    "ledger add up separately",
    "misplaced": "nothing more for an event; for an item with records in wrong partitions up to `epsilon_misplaced` "
    "more in each window, which the statement and the ledger add up separately",
    "envelope": "nothing: it follows from envelopes and configuration, which are not protected",
    "once": "at most 1/10, once for each sample; not in the ledger",
    "free": "nothing more: it is computed from what was published",
    "apart": "in no loss: exact, or raw data",
}


@dataclass(frozen=True)
class FrontierNoise:
    """The noise of the numbers about each window of a sketch that frontiers carry.

    Args:
        refused: epsilon of the numbers of refused records; 0: not published.
        misplaced: epsilon of the numbers of misplaced events or items; 0: not published.
    """

    refused: Fraction = Fraction(0)
    misplaced: Fraction = Fraction(0)


@dataclass(frozen=True)
class Publication:
    """One number, or kind of data, that leaves a deployment or its process.

    Args:
        name: short and unique.
        what: noun phrase for the ledger and the documents.
        where: who can see it.
        charge: name of the budget that counts its loss.
        fields: names of counters, header fields and fields of frontiers that carry it.
        cost: with charge "record": epsilon of one record in one window, by the spec; 0: it is not published.
        says: sentences about it in a statement, on what no loss covers.
        cost_in_frontiers: with charges "record" and "misplaced": what a refused record, or a misplaced item, loses in a
            window, by the unit of the sketch and the noise that its frontiers name.
    """

    name: str
    what: str
    where: str
    charge: Charge
    fields: frozenset[str] = frozenset()
    cost: Callable[[Any], Fraction] = lambda spec: Fraction(0)
    says: Callable[[Any, Context], Iterable[str]] = lambda spec, context: ()
    cost_in_frontiers: Callable[[str, FrontierNoise], Fraction] = lambda unit, noise: Fraction(0)


def _epsilon_records(spec: Any) -> Fraction:
    return Fraction(getattr(spec, "epsilon_records", 0))


def _tell_admitted(spec: Any, context: Context) -> Iterator[str]:
    if epsilon := _epsilon_records(spec):
        yield (
            f"the number of records admitted, a function of envelopes: published with noise of its own, epsilon "
            f"{epsilon} for a record that changes no other record's window"
            f"{_loss_of_record(epsilon, context)}; in none of the numbers above"
        )


def _loss_of_record(epsilon: Fraction, context: Context) -> str:
    """What a record loses in all windows that hold it, and to all sketches."""
    own = epsilon * context.overlap
    text = f", in each of the {context.overlap} overlapping windows that hold it: {own}" if context.overlap > 1 else ""
    every = own + sum(other.records for other in context.others)
    return text + (f"; with such numbers of the other sketches {every}" if every > own else "")


def _tell_late(spec: Any, context: Context) -> Iterator[str]:
    if (epsilon := _epsilon_records(spec)) and context.store in ("kafka", "dir"):
        yield (
            f"the number of late records, also a function of envelopes: epsilon {epsilon} for a late "
            "record, which then is not admitted to some window"
        )


def _tell_refused(spec: Any, context: Context) -> Iterator[str]:
    if context.refused:
        yield (
            "the number of records that each window refused (late, future, or of an unreadable time), also a function "
            f"of envelopes: epsilon {context.refused} for such a record, which is not admitted to that window"
        )


def _misplaced_item(unit: str, noise: FrontierNoise) -> Fraction:
    """Loss of a misplaced item; 0 for an event, as a misplaced one loses less than a counted one to the sketch."""
    return noise.misplaced if unit == "item" else Fraction(0)


def _tell_misplaced(spec: Any, context: Context) -> Iterator[str]:
    if epsilon := _misplaced_item(spec.unit, FrontierNoise(misplaced=context.misplaced)):
        yield (
            "an item with records in partitions where it does not belong: the number of such items is published, and "
            f"this one loses at most {epsilon} more in each window, twice that to someone who once copied the "
            "open state"
        )


def _envelopes(spec: Any, context: Context) -> Iterator[str]:
    yield "envelopes: that a record existed, when, in which partition, how long it was, how many events it packed"


def _topic(spec: Any, context: Context) -> Iterator[str]:
    yield readers_of_the_topic(context)


def _diagnostics(spec: Any, context: Context) -> Iterator[str]:
    if context.diagnostics == "exact":
        yield (
            "exact counts of invalid, misplaced and missing items, and of updates (every event that was counted), at "
            "the operator's own endpoint and in its log"
        )


def _snapshots(spec: Any, context: Context) -> Iterator[str]:
    if context.store == "kafka":
        yield "keys of superseded snapshots stay in the offsets topic until it is compacted"
    elif context.store == "dir":
        yield (
            "snapshots in the directory store are plain files of mode 0600: disk and memory are two views; superseded "
            "ones are overwritten, but journals, copy-on-write file systems, flash and backups may keep their bytes"
        )
    elif context.store == "file":
        yield "the open sketch's file is a secret like a key: a fresh one is the noise itself"


def _dead_letters(spec: Any, context: Context) -> Iterator[str]:
    letters = {
        "none": "dead letters (raw data)",
        "envelope": "dead letters (without payload)",
        "payload": "dead letters, which hold raw payloads",
    }[context.dead_letters]
    yield f"duplicates upstream, {letters}, other deployments on the same topic, copies or old files of this one"


def _late_records(spec: Any, context: Context) -> Iterator[str]:
    if context.late_records:
        yield "late records: raw data, in a topic of their own"


def _sample(spec: Any, context: Context) -> Iterator[str]:
    if context.keyed and (context.partitions or 1) > 1:  # one partition says nothing of keys
        unit = "an event" if spec.unit == "event" else "an item"
        yield (
            "partitioner found by `validate`, or compared with a sample of the topic before the first count: "
            f"{unit} loses at most 1/10 more, once for each such sample"
        )


_ORIGIN = {
    "name",
    "revision",
    "window",
    "partition",
    "partitions_open",
    "partitions_seal",
    "partitions",
    "partitioner",
    "table",
}
PUBLICATIONS: Final[tuple[Publication, ...]] = (
    Publication("slots", "the histogram of the counters, or the state", "sealed sketches, releases", "ledger",
                frozenset({"slots", "form", "edges_version", "final", "seal_id", "cost"})),
    Publication("patterns", "the histogram of the counters' patterns over groups", "sealed sketches", "ledger",
                frozenset({"patterns"})),
    Publication("positions", "positions of a series that have closed", "sealed topic", "ledger",
                frozenset({"first", "stop"})),
    Publication("early", "histograms of windows that are still open", "sealed topic", "ledger"),
    Publication("total", "the sum of the weights", "sealed sketches, releases", "ledger", frozenset({"total"})),
    Publication("counted", "the number of events counted", "sealed sketches, releases", "ledger",
                frozenset({"counted"})),
    Publication("admitted", "the number of records admitted", "sealed sketches", "record", frozenset({"admitted"}),
                _epsilon_records, _tell_admitted),
    Publication("late", "the number of late records", "frontiers", "record",
                frozenset({"late", "late_draws"}), says=_tell_late),
    Publication("refused", "the number of records that each window refused", "frontiers", "record",
                frozenset({"evidence"}), says=_tell_refused, cost_in_frontiers=lambda unit, noise: noise.refused),
    Publication("misplaced", "the number of misplaced events or items", "frontiers", "misplaced",
                frozenset({"evidence"}), says=_tell_misplaced, cost_in_frontiers=_misplaced_item),
    Publication("parameters", "spec, noise laws, ledger, window, partitions", "headers of sealed sketches", "envelope",
                frozenset({"kind", "spec", "layers", "ledger", "counters", "key_id", *_ORIGIN})),
    Publication("frontiers", "how far each partition is published", "sealed topic", "envelope",
                frozenset({"sketch", "revision", "partition", "published_through", "partitions", "sequence", "partial",
                           "diverged", "grown_from", "grown_through", "closed_through"})),
    Publication("envelopes", "that a record existed, its time, partition and size", "readers of the results",
                "envelope", says=_envelopes),
    Publication("answers", "profiles, estimates, intervals", "results topic, service, command line", "free"),
    Publication("topic", "records that the input still holds", "readers of the input", "apart", says=_topic),
    Publication("sample", "the partitioner, found in a sample of the input", "configuration, log", "once",
                says=_sample),
    Publication("diagnostics", "exact counts of updates and of invalid payloads", "operator's endpoint, log", "apart",
                says=_diagnostics),
    Publication("snapshots", "open states", "the store, which is secret", "apart", says=_snapshots),
    Publication("late records", "late records with their payloads", "`late_topic`", "apart", says=_late_records),
    Publication("dead letters", "refused records", "`dead_letter_topic`", "apart", says=_dead_letters),
)  # fmt: skip
"""All publications, in the order of the statement."""


def require_listed(names: Iterable[str]) -> None:
    """Refuse to publish, state or charge a number that is on no entry of the list.

    Args:
        names: names of counters, of header fields, or of fields of frontiers; what follows a dot names a group.

    Raises:
        SpecError: one of them is not listed.
    """
    listed = frozenset().union(*(publication.fields for publication in PUBLICATIONS))
    unknown = sorted({name.partition(".")[0] for name in names} - listed)
    if unknown:
        raise SpecError(
            f"{', '.join(unknown)}: not on the list of what a deployment publishes, so that nothing says what it "
            "costs; add it to PUBLICATIONS (sketchstream/privacy/deployments/publications.py)"
        )


def cost_of_record(spec: Any) -> Fraction:
    """Epsilon of one record in one window, in all numbers of records that sketches of this spec publish."""
    return sum((publication.cost(spec) for publication in PUBLICATIONS if publication.charge == "record"), Fraction(0))


def cost_in_frontiers(charge: Charge, unit: str, noise: FrontierNoise) -> Fraction:
    """Epsilon of one record or item in one window, in the numbers about it that frontiers carry.

    Args:
        charge: "record": of a record that the window refused; "misplaced": of an item in wrong partitions.
        unit: unit of the sketch.
        noise: noise of the sketch's numbers.
    """
    return sum(
        (publication.cost_in_frontiers(unit, noise) for publication in PUBLICATIONS if publication.charge == charge),
        Fraction(0),
    )


def tell_uncovered(spec: Any, context: Context) -> list[str]:
    """The statement's sentences about what no loss covers, in the order of the list."""
    return [sentence for publication in PUBLICATIONS for sentence in publication.says(spec, context)]


def not_counted() -> str:
    """What no loss of a ledger covers, for the ledger."""
    names = [publication.what for publication in PUBLICATIONS if publication.charge in ("apart", "once")]
    others = "other deployments, other consumer groups and restored old files on the same topic"
    return f"not counted: {others}; {', '.join(names)}"


def table() -> str:
    """The list as a table in Markdown, for the documents."""
    rows = ["| what | where | what it costs |", "|---|---|---|"]
    rows += [
        f"| {publication.what} | {publication.where} | {CHARGES[publication.charge]} |" for publication in PUBLICATIONS
    ]
    return "\n".join(rows)


def readers_of_the_topic(context: Context) -> str:
    """Compare retention with the window: against readers of the topic, pan-privacy begins where retention ends."""
    base = "records that the topic still holds, for those who can read it"
    if context.retention_ms is None or context.window_ms is None:
        return f"{base} (unless its retention is shorter than the window, a copied state tells them nothing new)"
    retention = duration(context.retention_ms)
    retention = "for ever" if context.retention_ms == math.inf else f"for {retention}"
    if context.retention_ms >= context.window_ms:
        return (
            f"{base}: it keeps them {retention}, the window is {duration(context.window_ms)}, so pan-privacy buys "
            "nothing against a reader of the topic; set retention.ms below the window"
        )
    return f"{base}: {retention}, less than the window of {duration(context.window_ms)}"
