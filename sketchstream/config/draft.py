"""Writes the text of a first configuration file.

In: where the records are, their fields, the block of a sketch. Out: TOML text with a comment next to what a first
reader asks about. Touches: nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from sketchstream.stream.formats import TimeUnit


@dataclass(frozen=True)
class Draft:
    """The tables of a configuration with one sketch.

    Args:
        item: The field of the item.
        time: The field of the event time; "record" for the records' own timestamps.
        key_file: The file of the hash key.
        topic: The input topic, or None.
        kafka: The client's settings in Kafka's names; for a topic.
        file: The input file, or None.
        format: The format of the file.
        wait_s: How late events of a topic may come, and how long they must agree that a time has passed; None: the
            default of 10 minutes, and of 150 seconds.
        time_unit: What numbers in the field of the event time count since 1970.
    """

    item: str
    time: str
    key_file: str
    topic: str | None = None
    kafka: dict[str, str] = field(default_factory=dict, repr=False)
    file: str | None = None
    format: str | None = None
    wait_s: int | None = None
    time_unit: TimeUnit = "ms"

    def text(self, sketch: str) -> str:
        """Return the file's text.

        Args:
            sketch: The `[[sketch]]` block.
        """
        tables = []
        if self.topic is not None:
            settings = [_line(name, value, quoted=True) for name, value in self.kafka.items()]
            tables.append(["[kafka]", *settings])
        tables += [self._input(), ["[key]", _line("file", self.key_file)]]
        if self.file is not None:
            tables.append(["[output]", 'directory = "sealed"  # what is published, a file for each window'])
        return "\n\n".join(["\n".join(lines) for lines in tables] + [sketch]) + "\n"

    def _input(self) -> list[str]:
        lines = ["[input]"]
        if self.topic is not None:
            lines += [_line("topic", self.topic), 'format = "json"']
        else:
            lines += [_line("file", self.file or ""), _line("format", self.format or "")]
        lines.append(_line("item", self.item))
        comment = "the records' own timestamps; or a field with numbers (see time_unit) or RFC 3339"
        lines.append(_line("time", self.time) + (f"  # {comment}" if self.time == "record" else ""))
        if self.time_unit != "ms":
            lines.append(_line("time_unit", self.time_unit) + "  # what a number in that field counts since 1970")
        if self.topic is not None:
            lines.append('partitioned_by = "item"  # the key of a record is its item')
            late = "10m" if self.wait_s is None else f"{self.wait_s}s"
            lines.append(f'lateness = "{late}"  # how late an event may come and still count')
            if self.wait_s is not None:
                lines.append(f'quorum_time = "{self.wait_s}s"  # events must agree for so long that a time has passed')
                lines.append('max_ahead = "1m"  # how far producers\' clocks may be ahead')
        else:
            lines.append("close_at_end = true  # the file is complete: its last window ends with it")
        return lines


def _line(name: str, value: str, *, quoted: bool = False) -> str:
    """`name = "value"`; JSON's escapes are TOML's."""
    return f"{json.dumps(name) if quoted else name} = {json.dumps(value, ensure_ascii=False)}"
