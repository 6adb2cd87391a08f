"""Every error that sketchstream raises, in one tree.

In: nothing. Out: the classes below, how a missing package becomes one, and what a misspelt name probably means.
Touches: nothing.

SketchstreamError                     catch this to catch all of them
    SpecError (ValueError)            an invalid specification: epsilon, slots, modulus, ...
    ConfigError (ValueError)          a configuration file, an environment variable or an option
    ItemError (ValueError)            an item, or a batch of items, of a type or shape that is not understood
        WeightError                   a weight outside what the specification allows
        DomainError (LookupError)     an item outside a closed domain
    KeyMismatchError (ValueError)     no hash key, an unreadable one, or not the one the sketch was made with
    FormatError (ValueError)          bytes that are not a sketch of ours
        TruncatedError                they end too early, or are too long
        ChecksumError                 they were altered
        VersionError                  a newer version of sketchstream wrote them
    MergeError (ValueError)           sketches that cannot be combined; names every field that differs
    SealedError (RuntimeError)        a step that is wrong in this stage of a sketch's life cycle
    BudgetError (ValueError)          a larger privacy loss than the budget allows
    EstimateError (ValueError)        a method that does not apply to the published object
    StoreError (OSError)              a file or a store could not be read, written or locked
        SnapshotsGoneError            earlier snapshots are gone, and complete ones must be stored again
    BrokerError (ConnectionError)     Kafka could not be reached, or refused
        FencedError                   another worker has taken over
        SchemaUnavailableError        a schema registry could not be asked; the records wait
    DataLossError (RuntimeError)      a partition halted because continuing would lose or repeat data
        CorruptRecordError            Kafka handed over a batch with a wrong checksum or a broken structure
    MissingExtraError (ImportError)   an optional package is needed; names the extra that installs it
    DeadlineError (TimeoutError)      a computation took longer than it may
    BusyError (RuntimeError)          too many requests are waiting

No message contains an item, a raw count, a noise value or a key. Exit codes of the command line are a table
in `sketchstream.cli.exits`, HTTP codes one in the query service: lower layers do not know them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction


class SketchstreamError(Exception):
    """Base of every error raised on purpose by this package."""

    retriable: bool = False
    """Whether the same call may succeed later without any change."""


class SpecError(SketchstreamError, ValueError):
    """An invalid specification: names the field, the expected and the found value."""


class ConfigError(SketchstreamError, ValueError):
    """An invalid configuration file, environment variable or command-line option.

    `mistakes` holds one line for each mistake that was found; the message joins them.
    """

    def __init__(self, *mistakes: str) -> None:
        super().__init__("; ".join(mistakes))
        self.mistakes = mistakes


class ItemError(SketchstreamError, ValueError):
    """Items of a type or shape that is not understood. Nothing of the batch was applied."""


class WeightError(ItemError):
    """A weight that is not an integer, or larger than the specification's `max_weight`."""

    @classmethod
    def at(cls, position: int, limit: object, bound: str = "max_weight", hint: str = "") -> WeightError:
        """The weight at a position of its batch is beyond a limit; `bound`: parameter that sets it; `hint`: more."""
        where = f"the weight at position {position}"
        return cls(f"{where} is not within -{limit}..{limit} ({bound}); nothing was applied{hint}")


class DomainError(ItemError, LookupError):
    """An item that a closed domain does not contain."""


class KeyMismatchError(SketchstreamError, ValueError):
    """The hash key is missing, unreadable, or not the one that the sketch was made with."""


class FormatError(SketchstreamError, ValueError):
    """Bytes that are not a sketch of ours, or break its rules."""


class TruncatedError(FormatError):
    """The bytes end before, or continue after, the length they declare."""


class ChecksumError(FormatError):
    """The bytes were altered after they were written."""


class VersionError(FormatError):
    """The bytes were written in a format version that this release does not know."""


class MergeError(SketchstreamError, ValueError):
    """Sketches that cannot be merged or stacked; `fields` names everything that differs."""

    def __init__(self, message: str, fields: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.fields = tuple(fields)


class SealedError(SketchstreamError, RuntimeError):
    """A step that is wrong in this stage of the sketch's life cycle (open, sealed, closed)."""


class BudgetError(SketchstreamError, ValueError):
    """The privacy loss would exceed the budget; nothing was drawn. `spent` may be `math.inf`."""

    def __init__(self, message: str, *, asked: Fraction, spent: Fraction | float, limit: Fraction) -> None:
        super().__init__(message)
        self.asked = asked
        self.spent = spent
        self.limit = limit


class EstimateError(SketchstreamError, ValueError):
    """A question that a published object cannot answer: a method, a level, a group or a number that it lacks."""


class StoreError(SketchstreamError, OSError):
    """A file or a store could not be read, written or locked."""


class SnapshotsGoneError(StoreError):
    """Earlier snapshots of a running worker are gone. It still has the complete state; nothing was written now."""

    retriable = True


class BrokerError(SketchstreamError, ConnectionError):
    """Kafka could not be reached, or refused a request."""

    retriable = True


class FencedError(BrokerError):
    """Another worker has taken over; this one must stop.

    Args:
        message: what happened.
        whole_worker: whether it has taken over every partition, as it runs under the same group.instance.id.
    """

    retriable = False

    def __init__(self, message: str, *, whole_worker: bool = False) -> None:
        super().__init__(message)
        self.whole_worker = whole_worker


class SchemaUnavailableError(BrokerError):
    """A schema that records name is not known, and its registry gives no answer now. The records wait."""


class DataLossError(SketchstreamError, RuntimeError):
    """A partition halted because continuing would lose data or count it twice."""


class IncidentError(DataLossError):
    """What was published of a window contradicts itself, so that nothing of it is shown; `what` says how."""

    def __init__(self, what: str) -> None:
        super().__init__(f"incident: {what}")
        self.what = what


class CorruptRecordError(DataLossError):
    """A record batch with a wrong checksum or a broken structure; `offset` is its first offset."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class MissingExtraError(SketchstreamError, ImportError):
    """An optional package is needed; the message names the extra that installs it."""


@contextmanager
def optional_import(text: str) -> Iterator[None]:
    """Imports of optional packages, whose absence is a `MissingExtraError`.

    Args:
        text: what needs which package, and how it is installed.
    """
    try:
        yield
    except ImportError:
        raise MissingExtraError(text) from None


class DeadlineError(SketchstreamError, TimeoutError):
    """A computation exceeded its time limit and was cancelled."""


class BusyError(SketchstreamError, RuntimeError):
    """Too many requests are waiting; this one was rejected."""

    retriable = True


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that an unknown one probably stands for, if there is one; `cutoff` is difflib's."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """End of a message about an unknown name: what it probably stands for, or nothing."""
    near = nearest(name, known)
    return "" if near is None else f"; did you mean {near!r}?"
