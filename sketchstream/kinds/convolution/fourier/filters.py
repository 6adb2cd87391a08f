"""Filters that people name: what each answer adds up, as a vector of coefficients by lag.

In: a text such as "window:64", numbers, or the path of a .npy file. Out: a frozen `Filter`. Touches: the file that a
.npy path names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.errors import SpecError
from sketchstream.spec import exact_rational

FORMS: Final = "window:W, average:W, sum, decay:A, difference, identity"
MAX_COEFFICIENTS: Final = 1 << 22
"""Most coefficients of a filter."""
MAX_COEFFICIENT: Final = 1e100
"""Largest absolute value of a coefficient."""


@dataclass(frozen=True)
class Filter:
    """One filter of a series, or one kernel of a group.

    Attributes:
        name: how it was written, or "kernel" for plain numbers.
        coefficients: (lags,) float64, read-only: the answer at position k is the sum over j of coefficients[j] times
            the count at position k + origin - j. A kernel of a group has one coefficient for each element.
        partial: first answers that cover less than the filter; 0 for running sums and decays, which never reach
            back to before the first position.
        digest: digest of the coefficients, so that filters compare by content.
    """

    name: str
    coefficients: Floats = field(repr=False, compare=False)
    partial: int = 0
    digest: bytes = field(default=b"", repr=False)

    def __len__(self) -> int:
        return len(self.coefficients)

    @property
    def level(self) -> bool:
        """Whether all coefficients are equal, as those of sums and averages are."""
        return bool(np.all(self.coefficients == self.coefficients[0]))

    def to_data(self) -> str | bytes:
        """The name if it determines the filter, otherwise the coefficients as little-endian float64."""
        return self.name if self.name != "kernel" else self.coefficients.astype("<f8").tobytes()


def parse_filter(written: object, length: int, *, trim: bool = True) -> Filter:
    """The filter that a user wrote, for a series of this length.

    Args:
        written: one of window:W (moving sum), average:W (moving average), sum (running sum), decay:A (exponential
            decay, lag j counts A^j), difference, identity; the path of a .npy file; or the coefficients by lag,
            numbers or the bytes that `Filter.to_data` gives.
        length: positions of the series; longer lags than it has cannot be reached.
        trim: whether unreachable lags are cut off (linear mode); otherwise they are kept and judged by the caller.

    Raises:
        SpecError: the name or the coefficients are invalid.

    Examples:
        >>> parse_filter("window:3", 10).coefficients.tolist()
        [1.0, 1.0, 1.0]
    """
    if isinstance(written, Filter):
        return written
    if isinstance(written, str):
        if not written.endswith(".npy"):
            return _filter_by_name(written.strip(), length)
        try:
            written = np.load(written, allow_pickle=False)  # nothing is unpickled
        except (OSError, ValueError, EOFError) as error:
            reason = type(error).__name__
            raise SpecError(f"kernel {str(written)[:80]!r} could not be read as a .npy file: {reason}") from None
    if isinstance(written, bytes):
        if len(written) % 8:
            raise SpecError(f"kernel as bytes holds float64 numbers of 8 bytes, found {len(written)} bytes")
        return _filter_of_coefficients(np.frombuffer(written, "<f8"), length, trim)
    return _filter_of_coefficients(written, length, trim)


def kernel_of(written: object) -> Floats:
    """Coefficients as float64, checked."""
    try:
        array = np.asarray(written)
    except ValueError:
        array = np.array("")
    if array.dtype == object and array.size:
        numbers = [float(exact_rational(number, "kernel must hold numbers")) for number in array.reshape(-1)]
        array = np.array(numbers).reshape(array.shape)
    if array.dtype.kind not in "biuf" or array.dtype.kind == "b":
        raise SpecError(f"kernel must be real numbers, found an array of {array.dtype}")
    out = np.ascontiguousarray(array, np.float64)
    if out.size == 0:
        raise SpecError("kernel must not be empty")
    if not np.all(np.isfinite(out)):
        raise SpecError("kernel must be finite, found NaN or infinity")
    if np.abs(out).max() > MAX_COEFFICIENT:
        most = f"{MAX_COEFFICIENT:g}"
        raise SpecError(
            f"kernel must have coefficients of at most {most}: errors are sums of their squares; scale them down"
        )
    if not np.any(out):
        raise SpecError("kernel must not be all zero")
    if out.size > MAX_COEFFICIENTS:
        raise SpecError(f"kernel must have at most {MAX_COEFFICIENTS} coefficients, found {out.size}")
    return out


def _filter_of_coefficients(written: object, length: int, trim: bool) -> Filter:
    array = kernel_of(written)
    if array.ndim != 1:
        raise SpecError(f"kernel must be one-dimensional, found {array.ndim} dimensions")
    if trim and len(array) > length:
        array = kernel_of(array[:length])
    return _frozen("kernel", array, max(0, len(array) - 1))


def _filter_by_name(text: str, length: int) -> Filter:
    word, _, argument = text.partition(":")
    expected = f"kernel must be one of {FORMS}, a .npy path or numbers"
    if word in ("window", "average"):
        if not argument.isdecimal() or not 1 <= int(argument) <= length:
            raise SpecError(
                f"kernel {word}:W needs a whole number W from 1 to the length {length}, found {argument[:40]!r}"
            )
        width = int(argument)
        return _frozen(text, np.full(width, 1.0 if word == "window" else 1 / width), width - 1)
    if word == "decay":
        rate = exact_rational(argument, f"{expected}: decay:A with 0 < A < 1")
        if not Fraction(0) < rate < 1:
            raise SpecError(f"kernel decay:A needs 0 < A < 1, found {argument[:40]}")
        with np.errstate(under="ignore"):
            powers = float(rate) ** np.arange(length, dtype=np.float64)
        return _frozen(text, np.trim_zeros(powers, "b"))
    if argument:
        raise SpecError(f"{expected}, found {text[:60]!r}")
    if word == "sum":
        return _frozen(text, np.ones(length))
    if word == "difference" and length > 1:
        return _frozen(text, np.array([1.0, -1.0]), 1)
    if word == "identity":
        return _frozen(text, np.ones(1))
    raise SpecError(f"{expected}, found {text[:60]!r}")


def _frozen(name: str, array: Floats, partial: int = 0) -> Filter:
    """A filter whose coefficients cannot be written to."""
    array = array.copy()
    array.setflags(write=False)
    return Filter(name, array, partial, hashlib.blake2b(array.tobytes(), digest_size=16).digest())


@dataclass(frozen=True)
class DeclaredColumns:
    """Binary or small categorical columns, declared with all their values: the cells of a table.

    Args:
        values: the values of each column in order; two at least.

    Examples:
        >>> columns = DeclaredColumns({"late": (0, 1), "day": ("mo", "tu", "we")})
        >>> columns.shape, columns.cell({"late": 1, "day": "we"})
        ((2, 3), 5)
    """

    values: Mapping[str, tuple[int | str, ...]]

    def __init__(self, values: Mapping[str, Sequence[int | str]]) -> None:
        checked: dict[str, tuple[int | str, ...]] = {}
        for name, listed in values.items():
            if isinstance(listed, str) or not isinstance(listed, (list, tuple)) or len(listed) < 2:
                raise SpecError(f"column {name!r:.40} needs a list of two values or more")
            if any(isinstance(value, bool) or not isinstance(value, (int, str)) for value in listed):
                raise SpecError(f"values of column {name!r:.40} must be whole numbers or text")
            if len(set(listed)) != len(listed):
                raise SpecError(f"values of column {name!r:.40} must differ, found one twice")
            checked[name] = tuple(listed)
        if not checked:
            raise SpecError("columns must name at least one column")
        object.__setattr__(self, "values", checked)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values of each column."""
        return tuple(len(value) for value in self.values.values())

    def cell(self, record: Mapping[str, int | str]) -> int | None:
        """Number of a record's cell; None if a column is missing or has another value."""
        place = 0
        for name, listed in self.values.items():
            value = record.get(name)
            if isinstance(value, bool) or value not in listed:
                return None
            place = place * len(listed) + listed.index(value)
        return place

    def marginal(self, names: Sequence[str]) -> Filter:
        """The kernel whose convolution is the marginal table of these columns; of no columns, the total."""
        unknown = [name for name in names if name not in self.values]
        if unknown or len(set(names)) != len(names):
            raise SpecError(
                f"marginal must name declared columns, each once: {', '.join(self.values)}; found {unknown or names}"
            )
        index = tuple(0 if name in names else slice(None) for name in self.values)
        table = np.zeros(self.shape)
        table[index] = 1.0
        return _frozen("marginal:" + ",".join(names), table.reshape(-1))

    def to_dict(self) -> dict[str, list[int | str]]:
        """Plain data, in the order of declaration."""
        return {name: list(listed) for name, listed in self.values.items()}
