"""Answers that the command line gave before: the same question about the same published bytes is not computed again.

In: the bytes of a published file, and the question. Out: the text that was printed. Touches: a folder in the user's
cache that only its owner may read and write.

An answer is a function of what was published, so keeping it loses no privacy; a file that gave no answer has none here.
The name of an answer is a digest of the bytes, the question and the package's own files: none outlives an upgrade.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

FOLDER: Final = "SKETCHSTREAM_ANSWERS"
"""Environment variable: another folder, or, if it is empty, none."""
MOST: Final = 200
"""Answers that are kept; the oldest go."""


class _Copy(io.StringIO):
    """What is printed, kept instead of shown; tables are as wide as on the true output."""

    def isatty(self) -> bool:
        return bool(sys.__stdout__ and sys.__stdout__.isatty())


def place(data: bytes, question: object) -> Path | None:
    """Where the answer to a question about published bytes is, or would be; None: nowhere.

    `question` says by its `repr` all that the printed text depends on, beside the bytes and the terminal.
    """
    folder = os.environ.get(FOLDER)
    if folder == "":
        return None
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        home = Path(folder or f"{cache}/sketchstream/answers").expanduser()
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = home.stat()
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            return None  # others could read answers there, or put some there
        package = Path(__file__).parents[1]
        files = [(str(one), one.stat().st_mtime_ns, one.stat().st_size) for one in sorted(package.rglob("*.py"))]
    except (OSError, RuntimeError):  # read-only, or nobody's home
        return None
    terminal = (shutil.get_terminal_size(), os.environ.get("TERM"), os.environ.get("NO_COLOR"))
    asked = repr((files, question, terminal if sys.stdout.isatty() else None))
    return home / hashlib.blake2b(hashlib.blake2b(data).digest() + asked.encode(), digest_size=16).hexdigest()


def shown(where: Path | None) -> bool:
    """Print the answer that is kept there, if there is one."""
    try:
        text = "" if where is None else where.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    click.echo(text, nl=False)
    return bool(text)


@contextlib.contextmanager
def kept(where: Path | None) -> Iterator[None]:
    """Print what is printed within the block, and keep it if the block ends well."""
    copy = _Copy()
    with contextlib.redirect_stdout(copy):
        yield
    click.echo(copy.getvalue(), nl=False)
    if where is not None:
        from sketchstream.errors import StoreError
        from sketchstream.files import write_durably

        with contextlib.suppress(StoreError, OSError):
            write_durably(where, copy.getvalue().encode(), replace=True)
            for old in sorted(where.parent.iterdir(), key=lambda one: one.stat().st_mtime_ns)[:-MOST]:
                old.unlink()
