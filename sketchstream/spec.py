"""Common parts of the specs of all kinds: exact numbers, units of privacy, and item domains.

In: values given by the user. Out: exact rationals, `ClosedDomain`, `OpenDomain`. Touches: nothing.
Source: Datar & Muthukrishnan 2002 (domain sampling).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Final, Literal

import msgpack
import numpy as np
import numpy.typing as npt

from sketchstream.errors import SpecError

Item = int | str | bytes
Rational = int | str | float | Fraction | Decimal
"""An exact number as users write it; a float stands for the decimal that it is shown as."""
Unit = Literal["event", "item"]
UNITS: Final = ("event", "item")

MAX_SLOTS = 1 << 33
MAX_LEVELS = 32
MIN_EPSILON = Fraction(1, 10**6)
MAX_EPSILON = Fraction(50)
NO_PRIVACY = Fraction(10)
"""Above this epsilon, results say NO PRIVACY; above `MAX_EPSILON`, a specification is rejected."""
MAX_MODULUS = 1 << 15
"""Largest modulus: residues are stored in 16 bits with a sign."""
_WRITTEN = re.compile(r"[0-9]{1,400}(/[1-9][0-9]{0,400})?", re.ASCII)
"""Rationals that are not negative, as `str` writes them."""
MAX_NUMBER_DIGITS = 1000
"""Largest number of digits in the exact form of an epsilon."""


WARNING = "NO PRIVACY: an epsilon above 10 protects nobody"
WARNING_OF_COPIES = (
    "NO PRIVACY against somebody who also copies the open state once: an epsilon above 10 protects nobody"
)


def no_privacy_warning(published: float | Fraction, looked: float | Fraction) -> str | None:
    """The warning about a loss that is too large, which says against whom; None if no loss is.

    A loss without a bound after a copy is not a large epsilon: statements say in words that the guarantee is void then.

    Args:
        published: largest epsilon to readers of what is published.
        looked: the same with one unannounced copy of the open state.
    """
    if published > NO_PRIVACY:
        return WARNING
    return WARNING_OF_COPIES if NO_PRIVACY < looked < math.inf else None


class NoPrivacyWarning(UserWarning):
    """Warns that an epsilon is too large for meaningful privacy."""


def exact_epsilon(value: Rational, name: str = "epsilon") -> Fraction:
    """The exact rational that a user wrote: "0.1", 0.1 and Fraction(1, 10) are the same number.

    Floats are read through their shortest decimal form. Raises SpecError for anything that is not a positive
    rational between 1e-6 and 50.
    """
    expected = f"{name} must be a positive rational number such as '1', '0.1' or '1/2'"
    exact = exact_rational(value, expected)
    if exact <= 0:
        raise SpecError(f"{expected}, found {value}")
    if exact < MIN_EPSILON:
        raise SpecError(f"{name} must be at least 1e-6, found {value}")
    if exact > MAX_EPSILON:
        raise SpecError(f"{name} above 50 protects nobody and is refused, found {value}")
    return exact


def exact_delta(value: Rational, name: str = "delta") -> Fraction:
    """The exact rational that a user wrote, from 1e-300 to 0.5; SpecError for anything else."""
    expected = f"{name} must be in [1e-300, 0.5], such as '1e-6'"
    exact = exact_rational(value, expected)
    if not Fraction(1, 10**300) <= exact <= Fraction(1, 2):
        raise SpecError(f"{expected}, found {str(value)[:40]}")
    return exact


def exact_rational(value: Rational, expected: str) -> Fraction:
    """The exact rational that a user wrote; SpecError with `expected` and the value found if it is not one."""
    value = _python_number(value)
    if isinstance(value, bool) or not isinstance(value, (int, str, float, Fraction, Decimal)):
        raise SpecError(f"{expected}, found {type(value).__name__}")
    try:
        text = repr(value) if isinstance(value, float) else value
        _require_short(text)
        return Fraction(text)
    except (ValueError, ZeroDivisionError, OverflowError):
        raise SpecError(f"{expected}, found {str(value)[:40]!r}") from None


@lru_cache(maxsize=1024)
def read_rational(text: str) -> Fraction:
    """Read the rational in a text that `str` wrote; cached, as sketches repeat a few of them.

    Raises:
        ValueError: the text is not a rational that `str` wrote, such as "1" or "1/2".
    """
    if _WRITTEN.fullmatch(text) is None:  # "1e999999999" would take all memory
        raise ValueError(f"expected a rational such as 1 or 1/2, found {text!r:.40}")
    return Fraction(text)


def exact_share(value: Rational, name: str) -> Fraction:
    """The exact share that a user wrote, at least 0 and below 1, read as epsilons are."""
    share = exact_noise(value, name)
    if share >= 1:
        raise SpecError(f"{name} must be below 1, found {value!r:.40}")
    return share


def exact_noise(value: Rational, name: str) -> Fraction:
    """The exact epsilon of a number's own noise, read as epsilons are; 0 if the number is not kept."""
    none = not isinstance(value, bool) and value in (0, "0")
    return Fraction(0) if none else exact_epsilon(value, name)


def exact_records(value: Rational, unit: Unit) -> Fraction:
    """The epsilon of the number of records admitted; 0 if it is not kept.

    Args:
        value: epsilon as users write it, or 0.
        unit: unit of privacy.

    Raises:
        SpecError: the number is invalid, or above 0 with unit "item".
    """
    records = exact_noise(value, "epsilon_records")
    if records and unit == "item":
        raise SpecError(
            "epsilon_records belongs to unit = 'event': with unit = 'item' a number of records would show an item"
        )
    return records


def exact_counted_share(value: Rational, unit: Unit) -> Fraction:
    """The share of every cost for the number of events counted; 0 if it is not kept.

    Args:
        value: number as users write it, at least 0 and below 1.
        unit: unit of privacy.

    Raises:
        SpecError: the number is invalid, or above 0 with unit "item".
    """
    share = exact_share(value, "counted_share")
    if share and unit == "item":
        raise SpecError(
            "counted_share belongs to unit = 'event': with unit = 'item' a number of events would show an item"
        )
    return share


def keeps_counted(counted: bool | None, usual: bool, unit: Unit, share: Fraction) -> bool:
    """Whether the events counted have a counter of their own, which gets half of the total's share.

    Args:
        counted: what the user wrote; None: `usual`, where the unit and the share allow it.
        usual: the default, true where the total does not already say how many events counted.
        unit: unit of privacy.
        share: share of the total in every cost.

    Raises:
        SpecError: the value is invalid, or True where there can be no such counter.
    """
    if counted not in (None, True, False):  # for callers without a type checker
        raise SpecError(f"counted must be True or False, found {counted!r:.40}")
    if counted and (unit == "item" or not share):
        raise SpecError("counted = True needs unit = 'event' and a total_share above 0, of which it gets half")
    return bool(usual if counted is None else counted) and unit == "event" and share > 0


def _python_number(value: Any) -> Any:
    """Convert numpy numbers to Python's; floats through their shortest decimal form, which depends on their width."""
    if isinstance(value, np.integer):
        return int(value)
    return float(str(value)) if isinstance(value, np.floating) else value


def _require_short(written: object) -> None:
    """Reject numbers whose exact form is excessively long (converting "1e99999999" would never finish).

    Grouped digits and digits of other scripts are refused as well: Python reads "1_0" as 10, people see a misprint.
    """
    if isinstance(written, str):
        if "_" in written or not written.isascii():
            raise ValueError("digits of other scripts, or grouped ones")
        mantissa, _, exponent = written.strip().lower().partition("e")
        size = len(mantissa) + (abs(int(exponent)) if exponent else 0)
    elif isinstance(written, Decimal) and written.is_finite():
        size = len(written.as_tuple().digits) + abs(int(written.as_tuple().exponent))
    else:
        return
    if size > MAX_NUMBER_DIGITS:
        raise ValueError("too many digits")


def checked_int(value: object, name: str, low: int, high: int) -> int:
    """Return `value` as an int between low and high; raise SpecError otherwise."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
        raise SpecError(f"{name} must be a whole number from {low} to {high}, found {value!r:.60}")
    return int(value)


def require_choice(value: object, name: str, allowed: Sequence[str]) -> Any:
    """Return `value` if it is one of the allowed words; raise SpecError otherwise."""
    if not isinstance(value, str) or value not in allowed:
        listed = " or ".join(map(repr, allowed)) if len(allowed) == 2 else f"one of {', '.join(allowed)}"
        raise SpecError(f"{name} must be {listed}, found {value!r:.40}")
    return value


def flag(value: object, name: str) -> bool:
    """Return `value` as a bool; raise SpecError for anything else, such as the text "no"."""
    if not isinstance(value, (bool, np.bool_)):
        raise SpecError(f"{name} must be True or False, found {value!r:.40}")
    return bool(value)


class SpecFields:
    """Base of the specs of all kinds: how they set their fields, and how they write them as plain data."""

    kind: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, canonical: equal specs give equal dictionaries."""
        raise NotImplementedError

    def _put(self, **values: object) -> None:
        """Set fields, each of which is checked, in the constructor of the frozen object."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _plain(self, *names: str) -> dict[str, Any]:
        """Fields as plain data."""
        return {name: _plain_value(getattr(self, name)) for name in names}

    def _given(self, *names: str) -> dict[str, Any]:
        """Fields as plain data, without those that are None, False or 0, which stand for "not given"."""
        return self._plain(*(name for name in names if getattr(self, name)))

    @classmethod
    def _read_fields(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of stored data without the kind, which must be that of the class."""
        fields = dict(data)
        kind = fields.pop("kind", None)
        if kind != cls.kind:
            raise SpecError(f"expected a spec of kind {cls.kind!r}, found {kind!r:.40}")
        return fields

    def _canonical(self) -> bytes:
        """Bytes of which the fingerprint is a digest: MessagePack with sorted keys at every depth."""
        packed: bytes = msgpack.packb(_sort_values(self.to_dict()))
        return packed

    @cached_property
    def fingerprint(self) -> bytes:
        """16 bytes that are equal if and only if the specs are equal."""
        return hashlib.blake2b(self._canonical(), digest_size=16, person=b"sketch-spec").digest()


def _plain_value(value: Any) -> Any:
    """Exact numbers as text, tuples as lists, objects by their own dictionaries, others as they are."""
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, tuple):
        return [_plain_value(one) for one in value]
    return value.to_dict() if hasattr(value, "to_dict") else value


def _sort_values(value: Any) -> Any:
    """Plain data with sorted keys at every depth."""
    return {name: _sort_values(value[name]) for name in sorted(value)} if isinstance(value, dict) else value


@dataclass(frozen=True)
class ClosedDomain:
    """A known, finite set of items, one slot each.

    Args:
        size: items are the ids 0..size-1. Exactly one of `size` and `items` is given.
        items: the items themselves (ints, strings or bytes, no two equal); slot i belongs to items[i].
        sample_rate: keep only the items whose keyed hash falls below this share of the hash range
            (Datar & Muthukrishnan 2002); needs a key. Results then describe the kept items.
    """

    size: int
    items: tuple[Item, ...] | None = field(default=None, repr=False)
    sample_rate: Fraction | None = None

    def __init__(
        self,
        size: int | None = None,
        items: Sequence[Item] | None = None,
        sample_rate: Rational | None = None,
    ) -> None:
        if (size is None) == (items is None):
            raise SpecError(
                "ClosedDomain takes either size= (ids 0..size-1) or items= (a list), not both and not neither"
            )
        listed: tuple[Item, ...] | None = None
        if items is not None:
            if isinstance(items, (str, bytes, Set, Mapping)):
                raise SpecError(
                    f"items of a ClosedDomain must be a list, whose order never changes, found {type(items).__name__}"
                )
            listed = tuple(item.item() if isinstance(item, np.generic) else item for item in items)
            if not listed:
                raise SpecError("items of a ClosedDomain must not be empty")
            for position, item in enumerate(listed):
                if isinstance(item, bool) or not isinstance(item, (int, str, bytes)):
                    raise SpecError(
                        f"items must be int, str or bytes, found {type(item).__name__} at position {position}"
                    )
                if isinstance(item, int) and not -(1 << 63) <= item < 1 << 63:
                    raise SpecError(
                        f"an int item must fit in 64 bits with its sign; pass the one at position {position} as str"
                    )
            if len({(type(item), item) for item in listed}) != len(listed):
                raise SpecError("items of a ClosedDomain must differ, found an item twice")
            size = len(listed)
        rate: Fraction | None = None
        if sample_rate is not None:
            expected = "sample_rate must be above 0 and at most 1"
            rate = exact_rational(sample_rate, expected)
            if not 0 < rate <= 1:
                raise SpecError(f"{expected}, found {sample_rate!r:.40}")
            rate = None if rate == 1 else rate
        object.__setattr__(self, "size", checked_int(size, "size of a ClosedDomain", 1, MAX_SLOTS))
        object.__setattr__(self, "items", listed)
        object.__setattr__(self, "sample_rate", rate)

    @property
    def levels(self) -> int:
        """A closed domain has one level."""
        return 1

    @property
    def expected_slots(self) -> int:
        """Number of items that have a slot; approximate where a sample is kept."""
        return self.size if self.sample_rate is None else max(1, round(self.size * self.sample_rate))

    @property
    def listed(self) -> bool:
        """Whether the items are a list, not the ids 0..size-1."""
        return self.items is not None

    def to_dict(self) -> dict[str, Any]:
        """Plain data; the items of a list are represented by their number and digest only."""
        out: dict[str, Any] = {"kind": "closed", "size": self.size}
        if self.listed:
            out["items_digest"] = self.items_digest
        if self.sample_rate is not None:
            out["sample_rate"] = str(self.sample_rate)
        return out

    @cached_property
    def items_digest(self) -> bytes:
        """16-byte digest of the list of items, in order."""
        digest = hashlib.blake2b(digest_size=16, person=b"sketch-items")
        for item in self.items or ():
            data = msgpack.packb(item if not isinstance(item, int) else ("i", str(item)))
            digest.update(len(data).to_bytes(4, "little") + data)
        return digest.digest()


@dataclass(frozen=True)
class OpenDomain:
    """Items that cannot be listed in advance: a keyed hash gives each item one level and one slot.

    Args:
        slots: total number of slots; each level has slots // levels of them.
        levels: number of levels. Level j < levels-1 receives a share 2^-(j+1) of the items, the last level the rest.
            Whatever the number of items, some level is then neither crowded nor empty.
    """

    slots: int
    levels: int = 8

    def __post_init__(self) -> None:
        checked_int(self.slots, "slots of an OpenDomain", 2, MAX_SLOTS)
        checked_int(self.levels, "levels of an OpenDomain", 1, MAX_LEVELS)
        if self.slots < 2 * self.levels:
            raise SpecError(
                f"an OpenDomain needs at least two slots a level, found {self.slots} slots in {self.levels} levels"
            )

    @property
    def slots_per_level(self) -> int:
        """Slots of one level, m."""
        return self.slots // self.levels

    @property
    def size(self) -> int:
        """Number of slots in use: levels * slots_per_level."""
        return self.slots_per_level * self.levels

    @property
    def expected_slots(self) -> int:
        """Number of slots, each of which is expected."""
        return self.size

    def level_shares(self) -> npt.NDArray[np.float64]:
        """(levels,) expected share of the items that each level receives; sums to 1."""
        shares: npt.NDArray[np.float64] = np.ldexp(1.0, -np.arange(1, self.levels + 1))
        shares[-1] = 1.0 - shares[:-1].sum()
        return shares

    def to_dict(self) -> dict[str, Any]:
        """The object as plain data."""
        return {"kind": "open", "slots": self.slots, "levels": self.levels}


Domain = ClosedDomain | OpenDomain


@dataclass(frozen=True)
class DomainOutline(ClosedDomain):
    """A listed domain without its items: sufficient to read results, not to update a sketch."""

    digest: bytes = b""

    def __init__(self, size: int, digest: bytes, sample_rate: Rational | None = None) -> None:
        super().__init__(size=size, sample_rate=sample_rate)
        object.__setattr__(self, "digest", digest)

    @property
    def listed(self) -> bool:
        """Always true: the items are a list, which is not available."""
        return True

    @property
    def items_digest(self) -> bytes:
        """16-byte digest of the list that is not available."""
        return self.digest


def stored_domain(described: Mapping[str, Any], items: Sequence[Item] | None) -> Domain:
    """The domain that its `to_dict` described.

    Args:
        described: dictionary as it was stored.
        items: those of a listed domain, which are not in the dictionary; without them publications can be read, but
            events have no slots.

    Raises:
        SpecError: another sort of domain, or another list of items.
        TypeError: fields that this version does not know.
    """
    fields = dict(described)
    sort = fields.pop("kind", None)
    if sort == "open":
        return OpenDomain(**fields)
    if sort != "closed":
        raise SpecError(f"domain must be 'open' or 'closed', found {sort!r:.40}")
    digest = fields.pop("items_digest", None)
    if digest is None:
        return ClosedDomain(**fields)
    if items is None:
        return DomainOutline(digest=digest, **fields)
    made = ClosedDomain(items=items, sample_rate=fields.get("sample_rate"))
    if made.items_digest != digest or made.size != fields.get("size"):
        raise SpecError("the list of items is not the one this sketch was made with")
    return made


def units_in_words(write: str) -> str:
    """What both units protect, for a configuration or a command that does not say which is meant.

    There is no default there, because each would be wrong in silence: "event" does not protect a person, and "item"
    keeps counts modulo the modulus.

    Args:
        write: writes a unit as the reader does, up to its word.
    """
    item, event = (f'{write}"{word}"' if write.endswith("= ") else write + word for word in ("item", "event"))
    return (
        f"{item} protects everything that one item (a person, a device) does in a window, and keeps counts modulo "
        f"`modulus`; {event} protects one event, so somebody with m events loses up to m times as much"
    )
