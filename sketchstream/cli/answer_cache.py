"""A cache of printed answers: the same question about the same publications is not computed again.

In: the options of a command, the files that it reads. Out: the text that was printed. Touches: a folder in the user's
cache that only its owner may read and write.

An answer is a function of publications, so keeping it loses no privacy; a command that fails leaves no answer. The
name of an answer is a digest of the files, the question and the package's own files: no answer outlives an upgrade.
Answers about topics are not kept: only the cluster knows what is in them.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TextIO

import click

from sketchstream.errors import StoreError
from sketchstream.files import write_durably

FOLDER_VARIABLE: Final = "SKETCHSTREAM_ANSWERS"
"""Environment variable with another folder for kept answers; if it is empty, none are kept."""
MAX_ANSWERS: Final = 200
"""Most answers that are kept; the oldest go."""
MAX_ANSWER_CHARACTERS: Final = 1 << 20
"""Most characters of an answer that is kept."""
FILE_OPTIONS: Final = ("plot", "html", "upset", "arrow", "matrix")
"""Options that name a file to be written: what they ask for is more than a text."""


class CachedCommand(click.Command):
    """A command that prints its kept answer again where the same question was answered before."""

    def invoke(self, ctx: click.Context) -> Any:
        """Print the kept answer, or run the command and keep what it prints."""
        path = path_of_answer(str(self.name), ctx.params)
        if path is None:
            return super().invoke(ctx)
        if print_stored(path):
            return None
        with store_what_is_printed(path):
            return super().invoke(ctx)


def path_of_answer(command: str, options: Mapping[str, Any]) -> Path | None:
    """The file of the answer to a question, whether it exists or not; None: the answer must not be kept.

    Args:
        command: name of the command.
        options: its options, by name. The printed text depends on them, on the files that are read and on the
            terminal.
    """
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder == "" or any(options.get(name) for name in FILE_OPTIONS):
        return None
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "sketchstream", "answers")
        home = Path(folder or cache).expanduser()
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = home.stat()
        if owner.st_uid != os.geteuid() or owner.st_mode & 0o077:
            return None  # others could read answers there, or put some there
        package, read = _states_of_folder(Path(__file__).parents[1], "*.py"), _read(options)
    except (OSError, RuntimeError, ValueError, TypeError, AttributeError):
        return None  # read-only, nobody's home, no files that could identify the answer, or a broken configuration
    screen = (shutil.get_terminal_size(), os.environ.get("TERM"), os.environ.get("NO_COLOR"))
    question = repr((package, read, command, sorted(options.items()), screen if sys.stdout.isatty() else None))
    return home / hashlib.blake2b(question.encode(), digest_size=16).hexdigest()


def _read(options: Mapping[str, Any]) -> list[object]:
    """What identifies the contents of the files that a question is about.

    Raises:
        ValueError: the contents of these files do not determine the answer, or cannot be understood.
    """
    config = options.get("config_file")
    values = (
        option if isinstance(option, tuple) else (option,) for name, option in options.items() if name != "config_file"
    )
    files = sorted(value for several in values for value in several if isinstance(value, Path))
    contents: list[object] = [hashlib.blake2b(file.read_bytes(), digest_size=16).digest() for file in files]
    if config is None:
        return contents
    text = config.read_bytes()
    tables = tomllib.loads(text.decode())
    # variables may name other files
    if tables.get("input", {}).get("topic") or any(name.startswith("SKETCHSTREAM__") for name in os.environ):
        raise ValueError
    folders = (tables.get("output", {}).get("directory", "sealed"), tables.get("store", {}).get("path", "state"))
    listed = [_states_of_folder(config.parent / Path(folder).expanduser(), "*") for folder in folders]
    return [*contents, config.absolute(), text, listed, *_list_named_files(tables, config.parent)]


def _states_of_folder(folder: Path, names: str) -> list[tuple[object, ...]]:
    """The states of the files of a folder and of its folders; a state changes when its file does."""
    return [_state(path) for path in sorted(folder.rglob(names))]


def _state(file: Path) -> tuple[object, ...]:
    """The state of a file, which changes when the file does."""
    status = file.stat()
    return (str(file), status.st_ino, status.st_mtime_ns, status.st_size)


def _list_named_files(value: object, folder: Path) -> Iterator[tuple[object, ...]]:
    """The states of the files that any text of a configuration names, such as lists of items."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _list_named_files(part, folder)
    elif isinstance(value, str):
        with contextlib.suppress(OSError, RuntimeError, ValueError):  # a text that cannot be a path
            yield _state(folder / Path(value).expanduser())


def print_stored(path: Path) -> bool:
    """Print the answer that is kept in a file, and say whether there is one."""
    try:
        out, remarks = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False
    click.echo(remarks, nl=False, err=True)
    click.echo(out, nl=False)
    return True


class _CopyingStream(io.StringIO):
    """A stream that keeps a copy of what it passes on to another."""

    def __init__(self, screen: TextIO) -> None:
        super().__init__()
        self.screen = screen

    encoding = property(lambda self: self.screen.encoding)

    def write(self, text: str) -> int:
        super().write(text)
        return self.screen.write(text)

    def flush(self) -> None:
        self.screen.flush()

    def isatty(self) -> bool:
        return self.screen.isatty()


@contextlib.contextmanager
def store_what_is_printed(path: Path) -> Iterator[None]:
    """Keep what is printed within the block if it ends well: an answer, and remarks on standard error."""
    out, remarks = _CopyingStream(sys.stdout), _CopyingStream(sys.stderr)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(remarks):
        yield
    text = json.dumps([out.getvalue(), remarks.getvalue()])
    if len(text) > MAX_ANSWER_CHARACTERS:
        return

    with contextlib.suppress(StoreError, OSError):
        write_durably(path, text.encode(), replace=True)
        for old in sorted(path.parent.iterdir(), key=lambda answer: answer.stat().st_mtime_ns)[:-MAX_ANSWERS]:
            old.unlink()
