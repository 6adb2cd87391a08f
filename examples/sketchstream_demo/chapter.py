"""Common parts of the demo's chapters: a configuration over the demo's stream, a worker's run, July, CSV files.

In: `[[sketch]]` blocks. Out: published windows, slices, files in the demo's folder. Touches: that folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sketchstream.cli import show
from sketchstream.cli.commands.pipeline import worker

if TYPE_CHECKING:
    from sketchstream_demo.flights import Flights

SHOWN: Final = 6
"""The month that is shown: July."""
TEXT: Final = """# Written by `sketchstream demo`. Ask again:
#   sketchstream {command} -c {configuration} {again}
[input]
file = "flights.jsonl"
{item}time = "ts"
lateness = "1h"
close_at_end = true

{key}[store]
kind = "dir"
path = "{state}"

[output]
directory = "{sealed}"

[privacy]
diagnostics = "off"

{sketches}"""
KEY: Final = """[key]
file = "key"

"""


@dataclass(frozen=True)
class Chapter:
    """A chapter: another kind of sketch on the demo's stream.

    Args:
        name: name of its files, such as "counts".
        again: options of `command` for the same answers.
        sketches: `[[sketch]]` blocks, a template of `str.format`.
        item: field of the items; empty: its sketches have none, and need no key.
        command: name of the command that answers.
    """

    name: str
    again: str
    sketches: str
    item: str = ""
    command: str = "estimate"

    @property
    def configuration(self) -> str:
        """Name of its configuration file."""
        return f"{self.name}.toml"

    @property
    def folders(self) -> tuple[str, str]:
        """Folders of its states and publications."""
        return f"state-{self.name}", f"sealed-{self.name}"

    def count(self, folder: Path, **values: object) -> Path:
        """Write the configuration and run a worker on it.

        Args:
            folder: folder of the demo, with its stream and its key.
            values: values of the template.

        Returns:
            The configuration.
        """
        from sketchstream.config.loader import Config

        state, sealed = self.folders
        path = folder / self.configuration
        path.write_text(
            TEXT.format(
                configuration=self.configuration,
                command=self.command,
                again=self.again,
                item=f'item = "{self.item}"\n' if self.item else "",
                key=KEY if self.item else "",
                state=state,
                sealed=sealed,
                sketches=self.sketches.format(**values),
            )
        )
        worker.run(Config.load(path), watch=lambda now: None)
        return path


def july(flights: Flights) -> slice:
    """Where the flights of July are in the stream."""
    month = flights.months()[SHOWN]
    first, last = np.searchsorted(flights.time_ms, [month.start_ms, month.end_ms])
    return slice(int(first), int(last))


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows that have the same columns."""
    path.write_text(show.as_csv(list(rows[0]), [list(row.values()) for row in rows]) + "\n")
