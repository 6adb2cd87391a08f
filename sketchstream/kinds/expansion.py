"""What reading a published spec would take, computed from its declared sizes before anything is expanded.

In: an `Expansion` of a kind. Out: nothing, or an error. Touches: one environment variable.

A spec is short, and what it describes may be large: 64 filters of 2^22 coefficients in 2,420 bytes. Whoever can write
to a topic or folder writes specs that services and command lines read. Specs in one's own configuration are unlimited.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from sketchstream.errors import FormatError

VARIABLE: Final = "SKETCHSTREAM_READ_MEMORY_MB"
MEMORY_MB: Final = 300
OPERATIONS_PER_MB: Final = 1 << 26
"""Simple operations allowed for each MB; with the default limit 2 * 10^10, some ten seconds of one processor."""


@dataclass(frozen=True)
class Expansion:
    """Upper bounds of what constructing a spec takes.

    Args:
        n_bytes: bytes of memory.
        operations: simple ones: a multiplication, an addition, a draw of a pseudorandom number.
    """

    n_bytes: int = 0
    operations: int = 0


def limit_bytes() -> int:
    """Memory that reading one publication may take."""
    megabytes = os.environ.get(VARIABLE, "")
    return 1_000_000 * (int(megabytes) if megabytes.isdecimal() and len(megabytes) < 10 else MEMORY_MB)


def require_readable(expansion: Expansion) -> None:
    """Refuse a spec that takes more memory or time than a reader allows.

    Raises:
        FormatError: this spec does; the message names the environment variable that raises the limit.
    """
    limit_mb = limit_bytes() // 1_000_000
    memory = expansion.n_bytes > limit_mb * 1_000_000
    if not memory and expansion.operations <= limit_mb * OPERATIONS_PER_MB:
        return
    what = f"{expansion.n_bytes / 1e6:,.0f} MB of memory" if memory else f"{expansion.operations:.1e} operations"
    raise FormatError(
        f"reading this spec would take {what}; the limit of {limit_mb} MB, and of the time that goes with it, protects "
        f"readers from what strangers publish. If you trust its origin, set {VARIABLE} to a larger number"
    )
