"""Exit codes: one table from errors to codes.

In: an exception. Out: its exit code. Touches: nothing.
"""

from __future__ import annotations

from typing import Final

from sketchstream import errors

OK: Final = 0
INPUT: Final = 1
USAGE: Final = 2
FENCED: Final = 3
DATA_LOSS: Final = 4
INTERRUPTED: Final = 130

MEANINGS: Final = {
    OK: "ok",
    INPUT: "files, bytes, keys, records, the broker",
    USAGE: "options, configuration, specification, or a command that does not fit the file's state",
    FENCED: "another worker has taken over",
    DATA_LOSS: "stopped because going on would lose or repeat data (the policy's choice)",
    INTERRUPTED: "interrupted from the keyboard",
}

CODES: Final[tuple[tuple[type[BaseException], int], ...]] = (
    (errors.FencedError, FENCED),
    (errors.DataLossError, DATA_LOSS),
    (errors.SpecError, USAGE),
    (errors.ConfigError, USAGE),
    (errors.SealedError, USAGE),
    (errors.BudgetError, USAGE),
    (errors.EstimateError, USAGE),
    (errors.MissingExtraError, USAGE),
    (errors.SketchstreamError, INPUT),
    (OSError, INPUT),
    (KeyboardInterrupt, INTERRUPTED),
)
"""First match wins: leaves stand before the classes they derive from."""


def exit_code(error: BaseException) -> int:
    """The exit code of an error; anything that is not in the table is an internal failure, and counts as input."""
    return next((code for kind, code in CODES if isinstance(error, kind)), INPUT)
