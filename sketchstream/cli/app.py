"""The group of sub-commands, loaded one by one, and the one place where errors become a line and an exit code.

In: arguments. Out: an exit code. Touches: standard error, the process's warnings filter while a command runs.
"""

from __future__ import annotations

import importlib
import logging
import os
import select
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any, Final

import click

from sketchstream import log_events
from sketchstream.cli import exits, options, show
from sketchstream.errors import ConfigError, SketchstreamError, did_you_mean

COMMANDS: Final = {
    "demo": ("start", "Run the main example on real data: aircraft in the 336,776 flights from New York in 2013."),
    "init": ("start", "Write a first configuration from a look at the records and five questions."),
    "keygen": ("sketches", "Create a secret hash key."),
    "create": ("sketches", "Create an open sketch: draw its noise, before any event."),
    "update": ("sketches", "Add the events of a file or of standard input to an open sketch."),
    "seal": ("sketches", "Publish what an open sketch promised, and destroy its state."),
    "release": ("sketches", "Publish a noisy look at an open sketch, which stays open."),
    "merge": ("sketches", "Add sealed states of the same population."),
    "stack": ("sketches", "Put sealed sketches of disjoint populations side by side."),
    "inspect": ("sketches", "Print the header of any sketch file."),
    "profile": ("answers", "Reconstruct how many items occurred how often, with intervals."),
    "overlap": ("answers", "Count unions, intersections and differences of groups, with intervals."),
    "estimate": ("answers", "Print counts, sums and other answers with intervals."),
    "plan": ("plans", "Compute the expected accuracy of a specification, before anything is created."),
    "calibrate": ("plans", "Find the Gaussian noise for an epsilon and a delta, or what a given noise guarantees."),
    "size": ("plans", "Find the smallest sketch for a question, and print its configuration."),
    "ledger": ("privacy", "Print the privacy loss of a sketch: layers, views, totals."),
    "attest": ("privacy", "Sign a statement of published files, or of a deployment: digests, specs, ledgers, losses."),
    "verify": ("privacy", "Audit this build on this machine: samplers, neighbours, releases, seals, ledger."),
    "worker": ("pipeline", "Run the pipeline of a configuration: consume, sketch, snapshot, seal, publish."),
    "backfill": ("pipeline", "Publish the windows of a history that lies in Parquet files."),
    "serve": ("pipeline", "Serve answers over HTTP, and a page, from what workers published."),
    "topics": ("pipeline", "Make and check the Kafka topics of a configuration."),
    "validate": ("pipeline", "Check a configuration without running it."),
    "recover": ("pipeline", "Bring halted partitions back."),
    "reset": ("pipeline", "Start a new revision after data loss, from a place of your choice."),
}
"""Room and summary of each sub-command; module `sketchstream.cli.commands.<room>.<name>` holds it as `command`."""


class Commands(click.Group):
    """Sub-commands that are imported when they are called: `--help` and errors stay quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, in the order of a sketch's life."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"sketchstream.cli.commands.{COMMANDS[cmd_name][0]}.{cmd_name}")
        command = module.command
        assert isinstance(command, click.Command)
        return options.with_examples(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command as click does, with a suggestion for a misspelled name."""
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            hint = did_you_mean(args[0], COMMANDS) or "; `sketchstream --help` lists the commands"
            ctx.fail(f"there is no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list in `--help`, without importing any command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


def _print_version(ctx: click.Context, _parameter: click.Parameter, print_it: bool) -> None:
    """Print the installed version and end."""
    if print_it and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"sketchstream {version('sketchstream')}")
        ctx.exit()


_EXIT_LINES = "; ".join(f"{code} {meaning}" for code, meaning in exits.MEANINGS.items())


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=f"Exit codes: {_EXIT_LINES}.",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
def app() -> None:
    r"""Private statistics over streams: how many items occurred how often, without keeping raw counts.

    \b
    Example:
      sketchstream keygen -o key
      sketchstream create -o s.sketch --unit item --epsilon 1 --open --slots 8192 --levels 2 --key-file key
      sketchstream update s.sketch events.jsonl --format jsonl --item user_id --key-file key
      sketchstream seal s.sketch -o s.sealed --key-file key
      sketchstream profile s.sealed
    """


options.with_examples(app)

_SAID: Final[set[str]] = set()
"""Warnings of this run: each is said once, however many files cause it."""


def _one_line(text: str) -> str:
    """Text on one line."""
    return " ".join(text.split())


def _warn(message: Warning | str, category: type[Warning], *where: Any, **also: Any) -> None:
    """Print one line on standard error for a warning of this package, without its code location; hide others."""
    text = _one_line(str(message))
    if category.__module__.startswith("sketchstream") and text not in _SAID:
        # a warning about a sketch of a configuration says what that of its publications would
        _SAID.update((text, _one_line(getattr(message, "text", text))))
        show.warn(text)


def _explain(error: BaseException) -> list[str]:
    """Text of an error, one line for each mistake."""
    mistakes = error.mistakes if isinstance(error, ConfigError) else [_describe(error)]
    return [_one_line(mistake) for mistake in mistakes]


def _describe(error: BaseException) -> str:
    """Text of an error; only the type of an unexpected error, as its text may contain data."""
    if isinstance(error, click.ClickException):
        text = error.format_message()
        context = getattr(error, "ctx", None)
        if isinstance(error, click.UsageError) and context is not None and "--help" not in text:
            text = f"{text.rstrip('.')} (see `{context.command_path} --help`)"
        return text
    if isinstance(error, SketchstreamError):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
    return f"internal error ({type(error).__name__}); set SKETCHSTREAM_TRACEBACK=1 to see where, and please report it"


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; every failure becomes one line on standard error and an exit code."""
    _SAID.clear()
    for name in ("kafka", "sketchstream"):
        # Only `worker` shows log lines; without a handler Python would print warnings of its own.
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
    with warnings.catch_warnings():
        warnings.showwarning = _warn
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        return _run(arguments)


def _reader_has_gone() -> bool:
    """Whether the reader of the output has closed it (`| head`); further output is then discarded.

    That is not a failure: the reader has all that it wanted.
    """
    try:
        descriptor = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):
        return False
    pipe = select.poll()
    pipe.register(descriptor, 0)
    if not any(event & (select.POLLERR | select.POLLHUP) for _, event in pipe.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    return True


def _run(arguments: Sequence[str] | None) -> int:
    try:
        words = None if arguments is None else list(arguments)
        outcome = app.main(args=words, prog_name="sketchstream", standalone_mode=False)
        sys.stdout.flush()
    except SystemExit as error:  # click ends so where its own output cannot be written
        return exits.OK if _reader_has_gone() else error.code if isinstance(error.code, int) else exits.INPUT
    except (click.Abort, KeyboardInterrupt):
        show.note("interrupted")
        return exits.INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return exits.USAGE
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _reader_has_gone():
            return exits.OK
        if os.environ.get("SKETCHSTREAM_TRACEBACK"):
            traceback.print_exc()
        for line in _explain(error):
            if log_events.writes_json():
                log_events.EventLog("sketchstream").error("failed", reason=line)
            else:
                show.note(f"error: {line}")
        return error.exit_code if isinstance(error, click.ClickException) else exits.exit_code(error)
    return outcome if isinstance(outcome, int) else exits.OK
