"""Options that several commands share, and the types that their values go through.

In: text from the command line. Out: click decorators. Touches: nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import click

from sketchstream import log_events
from sketchstream.cli.show import FORMATS
from sketchstream.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

UNITS: Final = ("event", "item")
ITEM_TYPES: Final = ("text", "int", "bytes")
LEVELS: Final = ("debug", "info", "warning", "error")
FILE: Final = click.Path(path_type=Path)
"""A path; whether it exists is found out by opening it, so that the exit code is the one of a file error."""


def key_file() -> Callable[[F], F]:
    """--key-file, or the environment variable SKETCHSTREAM_KEY_FILE."""
    text = "File with the hash key (`sketchstream keygen`); also from SKETCHSTREAM_KEY_FILE."
    return click.option("--key-file", type=FILE, envvar="SKETCHSTREAM_KEY_FILE", help=text)


def output(what: str) -> Callable[[F], F]:
    """-o / --output, which must not exist yet."""
    return click.option("-o", "--output", type=FILE, required=True, help=f"{what}; an existing file is refused.")


def choice(
    option: str, values: Sequence[str], text: str, default: str | None = None, *, name: str | None = None
) -> Callable[[F], F]:
    """An option with few values, whose default is shown.

    Args:
        option: the option, such as "--law".
        values: what it takes.
        text: text of the help.
        default: the default, if there is one.
        name: argument of the command, if it is not named as the option.
    """
    names = (option,) if name is None else (option, name)
    return click.option(*names, type=click.Choice(values), default=default, show_default=default is not None, help=text)


def result_format() -> Callable[[F], F]:
    """Option --format of the output."""
    return choice("--format", FORMATS, "How to print results.", "table", name="form")


def line_type(option: str, file: str) -> Callable[[F], F]:
    """Option that says what the lines of a listed file are."""
    return choice(option, ITEM_TYPES, f"With {file}: what its lines are.", "text")


def unit() -> Callable[[F], F]:
    """Option --unit of plans."""
    return choice("--unit", UNITS, "Protected unit.", "event")


def law(command: F) -> F:
    """Options of plans on the expected law of counts: --law, --exponent."""
    command = click.option("--exponent", type=float, default=2.0, show_default=True, help="With --law zipf.")(command)
    return choice("--law", ("geometric", "zipf"), "Law of the counts.", "geometric")(command)


def fraction_bits(most: int) -> Callable[[F], F]:
    """Option --fraction-bits of plans."""
    text, bits = "Weights are multiples of 2 to the minus this.", click.IntRange(0, most)
    return click.option("--fraction-bits", type=bits, default=0, show_default=True, help=text)


def publication(command: F) -> F:
    """Options of plans on the fresh noise of a seal: --epsilon-publish, --delta-publish, --intrusion."""
    command = click.option(
        "--intrusion/--no-intrusion", default=True, show_default=True, help="Fresh noise at the seal."
    )(command)
    command = click.option("--delta-publish", help="Delta of the publication.  [default: --delta]")(command)
    return click.option("--epsilon-publish", help="Privacy of the publication.  [default: --epsilon]")(command)


def logged(levels: str) -> Callable[[F], F]:
    """Options of commands that run for long: --log-level, --log-format.

    Args:
        levels: says what a level adds.
    """

    def decorate(command: F) -> F:
        text = "Lines of key=value pairs, or a JSON object a line; docs/operations.md lists the events."
        command = choice("--log-format", log_events.FORMATS, text, "text")(command)
        return choice("--log-level", LEVELS, f"What standard error shows; {levels}", "info")(command)

    return decorate


def config(required: bool = True) -> Callable[[F], F]:
    """-c / --config."""
    text = "Configuration file (TOML)."
    return click.option("-c", "--config", "config_file", type=FILE, required=required, help=text)


def span(command: F) -> F:
    """--from and --to: windows of a configuration."""
    to = click.option("--to", metavar="TIME", help="With -c: windows that end at or before this time (RFC 3339).")
    text = "With -c: windows that start at or after this time (RFC 3339)."
    return click.option("--from", "from_", metavar="TIME", help=text)(to(command))


def gather(
    name: str, kind: Callable[..., Any], decorators: Sequence[Callable[[Any], Any]], *, needed: bool = False
) -> Callable[[F], F]:
    """Options that a command takes as one argument.

    Args:
        name: name of the argument.
        kind: a dataclass with a field for each option.
        decorators: the options, in the order of the help.
        needed: whether there are options for fields without a default only.
    """
    every = [field for field in dataclasses.fields(kind) if not needed or field.default is dataclasses.MISSING]  # type: ignore[arg-type]

    def decorated(function: F) -> F:
        @functools.wraps(function)
        def gathering(**given: Any) -> Any:
            fields = {field.name: given.pop(field.name) for field in every}
            return function(**{name: kind(**fields)}, **given)

        command: Any = gathering
        for decorate in reversed(decorators):
            command = decorate(command)
        return cast("F", command)

    return decorated


def refuse(*conflicts: tuple[object, str]) -> None:
    """Refuse options that do not go together.

    Args:
        conflicts: whether options conflict, and what to say if they do; the first conflict is reported.
    """
    for conflict, text in conflicts:
        if conflict:
            raise ConfigError(text)


def require_picture(path: Path | None, option: str) -> None:
    """Refuse a picture whose ending says no format.

    Args:
        path: path of the picture; None: none is wanted.
        option: the option that gives the path.
    """
    if path is not None and path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ConfigError(f"{option} must end in .png, .svg or .pdf, found {path.name!r:.60}")


def ask(value: Any, question: str, default: Any, kind: Any, option: str = "", *, must: bool = False) -> Any:
    """The value of an option; else the answer at the terminal; else the default.

    Args:
        value: The value of the option, None where it was not given.
        question: The question at the terminal.
        default: The default; None if there is none.
        kind: The type of the answer, as click wants it.
        option: The name of the option, for the message where there is neither an answer nor a default.
        must: Whether the default is only a suggestion at the terminal.
    """
    if value is not None:
        return value
    if sys.stdin.isatty() and sys.stderr.isatty():
        return click.prompt(question, default=default, type=kind, err=True)
    if default is None or must:
        raise click.UsageError(
            f"Missing option '{option}'" + ("." if default is None else f", such as {option} {default}.")
        )
    return default


def with_examples(command: click.Command) -> click.Command:
    """The command, with the mark before its examples as click wants it.

    Docstrings are raw and write that mark in two characters; click keeps the lines of a paragraph behind a backspace.

    Args:
        command: the command, with its sub-commands, if it has any.
    """
    if command.help is not None:
        command.help = command.help.replace("\\b\n", "\b\n")
    for below in getattr(command, "commands", {}).values():
        with_examples(below)
    return command
