"""The command line: a thin shell over the library.

In: arguments, files, standard input. Out: `main`, which returns an exit code. Touches: files that the user names,
standard output and standard error; the core limit and the dumpable flag of this process.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (`sketchstream.cli.exits` has the table).

    Whatever the command is, this process is hardened first: most commands hold an open state, a key or raw events.
    """
    from sketchstream.cli.app import run
    from sketchstream.privacy.hygiene import harden

    harden()
    return run(arguments)
