"""What answers are made from: a published file, or windows that a configuration's worker published.

In: options. Out: `AnswerSource`, and the windows that it names. Touches: nothing until they are opened.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sketchstream.cli import clusters, options, show
from sketchstream.errors import ConfigError

if TYPE_CHECKING:
    from sketchstream.query.sealed import SealedWindow
    from sketchstream.query.windows import PublishedWindows


@dataclass(frozen=True)
class AnswerSource:
    """What is answered from, from the options.

    Args:
        file: published; None: -c was given.
        config_file: a configuration.
        sketch: name of its sketch; None: the only one.
        from_: windows start at or after this time.
        to: windows end at or before this time.
        every: every window has a result, not the newest alone.
    """

    file: Path | None
    config_file: Path | None
    sketch: str | None
    from_: str | None
    to: str | None
    every: bool

    def require_one(self, **others: bool) -> None:
        """Refuse both, or neither, of a file and -c, and what belongs to -c together with a file.

        Args:
            others: further options that belong to -c, and whether they were given.
        """
        if (self.file is None) == (self.config_file is None):
            raise ConfigError("give either a published file, or -c and --sketch")
        options = {"sketch": self.sketch, "from": self.from_, "to": self.to, "all": self.every, **others}
        if self.file is not None and any(options.values()):
            *names, last = (f"--{name}" for name in options)
            raise ConfigError(f"{', '.join(names)} and {last} belong to -c")

    @property
    def newest(self) -> bool:
        """Whether no time was asked for."""
        return not (self.from_ or self.to)

    @contextlib.contextmanager
    def opened(self) -> Iterator[ChosenWindows]:
        """The windows of the configuration, while they can be read."""
        from sketchstream.query.times import to_span
        from sketchstream_connectors.readers import open_published

        assert self.config_file is not None, "there is a file"
        with open_published(clusters.load(self.config_file)) as published:
            plan = published.plan(self.sketch)
            span = to_span(self.from_, self.to, timezone=plan.calendar.timezone)
            yield ChosenWindows(published, plan.name, span)


@dataclass(frozen=True)
class ChosenWindows:
    """The windows that the options choose.

    Args:
        published: all windows of the configuration.
        name: name of the sketch.
        span: milliseconds since 1970; None: no limit.
    """

    published: PublishedWindows
    name: str
    span: tuple[int | None, int | None]

    def every(self) -> Iterator[SealedWindow]:
        """All of them; where there is none, standard error says so."""
        from sketchstream.query.windows import none_published

        published_any = False
        for window in self.published.every(self.name, *self.span):
            published_any = True
            yield window
        if not published_any:
            show.note(none_published(self.name, *self.span))

    def one(self) -> SealedWindow:
        """The newest one, or the one that the times choose."""
        return self.published.only_window(self.name, *self.span)


_OPTIONS = (
    click.argument("file", type=options.FILE, required=False),
    options.config(required=False),
    click.option("--sketch", help="With -c: name of the sketch.  [default: the only one]"),
    options.span,
    click.option("--all", "every", is_flag=True, help="With -c: every window, one result each."),
)
published = options.gather("source", AnswerSource, _OPTIONS)
"""The options, gathered into one argument `source`."""
