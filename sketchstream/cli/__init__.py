"""The command line: a thin shell over the library.

In: arguments, files, standard input. Out: `main`, which returns an exit code. Touches: files that the user names,
standard output and standard error.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (`sketchstream.cli.exits` has the table)."""
    from sketchstream.cli.app import run

    return run(arguments)
