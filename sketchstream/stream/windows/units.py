"""Parses durations and sizes such as "10m" and "4GiB".

In: "10m", "4GiB". Out: milliseconds, bytes. Touches: nothing.
"""

from __future__ import annotations

import re

from sketchstream.errors import ConfigError

_DURATION = re.compile(r"(\d{1,12})\s*(ms|s|m|h|d|w)")
_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SIZE = re.compile(r"(\d{1,15})\s*(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)?")
_BYTES = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
_MAX_DURATION_MS = 10 * 366 * _MS["d"]
"""Ten years: a longer duration is a mistake."""


def duration_ms(text: object, name: str = "") -> int:
    """Milliseconds in "250ms", "30s", "10m", "1h", "1d" or "1w".

    Args:
        text: the duration.
        name: what has it, the first words of an error.

    Raises:
        ConfigError: anything else, also a number without a unit.

    Examples:
        >>> duration_ms("10m")
        600000
    """
    match = _DURATION.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise ConfigError(
            f"{name} must be a number with a unit such as '30s', '10m', '1h' or '1d', found {text!r:.40}".lstrip()
        )
    duration = int(match[1]) * _MS[match[2]]
    if duration > _MAX_DURATION_MS:
        raise ConfigError(f"{name} must be at most ten years, found {text!r:.40}".lstrip())
    return duration


def size_bytes(text: object, name: str = "") -> int:
    """Bytes in "4GiB", "512MiB", "10MB" or a whole number of bytes.

    Args:
        text: the size.
        name: what has it, the first words of an error.

    Raises:
        ConfigError: anything else, and zero.

    Examples:
        >>> size_bytes("4GiB")
        4294967296
    """
    spelled = str(text) if isinstance(text, int) and not isinstance(text, bool) else text
    match = _SIZE.fullmatch(spelled.strip()) if isinstance(spelled, str) else None
    if match is None or int(match[1]) == 0:
        raise ConfigError(f"{name} must be a size such as '4GiB' or '512MiB', found {text!r:.40}".lstrip())
    return int(match[1]) * _BYTES[match[2] or "B"]


def spell_snapshots(window_bytes: int, partitions: int, every_ms: int, bytes_per_s: int) -> str:
    """Describe the cost of snapshots for people.

    Args:
        window_bytes: size of the counters of one partition that change all the time: of each sketch the current window,
            or as many as overlap.
        partitions: number of partitions of one worker.
        every_ms: time between two snapshots of a partition.
        bytes_per_s: most that one worker writes on average, bytes a second.

    Examples:
        >>> spell_snapshots(4 << 20, 16, 30_000, 16 << 20)
        '64.0 MiB every 30 s (2.1 MiB/s before replication)'
        >>> spell_snapshots(256 << 20, 4, 30_000, 16 << 20)
        '1.0 GiB every 64 s (16.0 MiB/s before replication; snapshot_rate makes it 64 s instead of 30 s)'
    """
    whole, asked_s = window_bytes * partitions, every_ms / 1000
    every_s = max(asked_s, whole / bytes_per_s)
    why = f"; snapshot_rate makes it {every_s:.0f} s instead of {asked_s:g} s" if every_s > asked_s else ""
    rate = spell_bytes(round(whole / every_s))
    return f"{spell_bytes(whole)} every {every_s:.0f} s ({rate}/s before replication{why})"


def spell_bytes(count: int) -> str:
    """A size for people.

    Examples:
        >>> spell_bytes(4294967296)
        '4.0 GiB'
    """
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"
