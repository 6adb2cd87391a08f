"""The command line: a thin shell over the library.

In: arguments, files, standard input. Out: `main`, which returns an exit code. Touches: files that the user names,
standard output and standard error; the core limit, the dumpable flag, the garbage collector and the environment of this
process.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from typing import Final

COLLECTED_EVERY: Final = 20_000
"""Number of new objects between two searches for garbage; by default 700."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (`sketchstream.cli.exits` has the table).

    Whatever the command is, this process is hardened first: most commands hold an open state, a key or raw events.
    Garbage is searched for less often than by default, as imports make hundreds of thousands of objects that stay.
    Plugins of pydantic are not looked for: they would see every value of a configuration.
    """
    from sketchstream.cli.app import run
    from sketchstream.privacy.hygiene import harden

    harden()
    gc.set_threshold(COLLECTED_EVERY)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    return run(arguments)
