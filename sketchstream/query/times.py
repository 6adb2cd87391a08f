"""Times and ranges of time as users write them, on the command line, in Python and in requests.

In: text. Out: milliseconds since 1970, checked. Touches: nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from sketchstream.errors import ConfigError
from sketchstream.stream.windows.calendar import iso


def to_ms(text: str | None, option: str, timezone: str | None = None) -> int | None:
    """Milliseconds since 1970 of an RFC 3339 time; None for None.

    Args:
        text: the time.
        option: the option that gives it.
        timezone: time zone in which a date alone is its first instant; None: a date alone is refused.
    """
    if text is None:
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        when = None
    if when is not None and when.tzinfo is None and timezone is not None and len(text) == len("2013-01-01"):
        when = when.replace(tzinfo=ZoneInfo(timezone))
    if when is None or when.tzinfo is None:
        date = "" if timezone is None else f", or a date (in {timezone})"
        raise ConfigError(
            f"{option} must be a time with its offset, such as 2013-01-01T00:00Z{date}, found {text!r:.40}"
        )
    return round(when.timestamp() * 1000)


def to_span(
    since: str | None, until: str | None, names: tuple[str, str] = ("--from", "--to"), timezone: str | None = None
) -> tuple[int | None, int | None]:
    """Both ends of a range of time; see `to_ms`."""
    span = to_ms(since, names[0], timezone), to_ms(until, names[1], timezone)
    require_order(*span, names, (since, until))
    return span


def require_order(
    since: int | None, until: int | None, names: tuple[str, str] = ("from", "to"), texts: Sequence[str | None] = ()
) -> None:
    """Refuse a range of time that does not end after its beginning.

    Args:
        since: beginning of the range, ms since 1970.
        until: end of the range, ms since 1970.
        names: names of both options.
        texts: both as they were given; default: written out.

    Raises:
        ConfigError: says what to do.
    """
    if since is not None and until is not None and since >= until:
        try:
            first, last = texts or (iso(since), iso(until))
        except OverflowError:  # times of the first or last year whose local year is another one
            first, last = f"{since} ms", f"{until} ms"
        raise ConfigError(
            f"{names[0]} must be before {names[1]}, found {first} and {last}: exchange them, or choose a later end"
        )


def read_time(text: str | None, name: str) -> int | None:
    """Milliseconds of an RFC 3339 time of a request.

    A plus sign that is not percent-encoded arrives as a space: before an offset it is read as the plus sign.

    Raises:
        ConfigError: the time is invalid.
    """
    when, space, offset = (text or "").rpartition(" ")
    if space and ":" in when and re.fullmatch("[0-9]{2}:?[0-9]{2}", offset):
        text = f"{when}+{offset}"
    try:
        return to_ms(text, name)
    except (OverflowError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{name} must be a time from the years 1 to 9999") from None
