"""Tests that `make test-fast` leaves out because they take long, by name: `tests/long.txt`.

In: a report of pytest in JUnit's format. Out: the list. Touches: that file.

    PYTHONPATH=tests python -m helpers.long_tests report.xml
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from pathlib import Path

from helpers.paths import TESTS

LIST = TESTS / "long.txt"
SECONDS = 0.05
"""Mean over the cases of a test."""


def long_tests() -> frozenset[str]:
    """The tests of the list: `tests/room/test_file.py::test_name`."""
    return frozenset(LIST.read_text().split())


def slow_ones(report: Path) -> list[str]:
    """Names of the tests that took longer, with all their cases."""
    seconds = defaultdict[str, list[float]](list)
    for case in ET.parse(report).getroot().iter("testcase"):
        name = f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name'].split('[')[0]}"
        seconds[name].append(float(case.attrib["time"]))
    return sorted(name for name, times in seconds.items() if sum(times) > SECONDS * len(times))


if __name__ == "__main__":
    LIST.write_text("\n".join(slow_ones(Path(sys.argv[1]))) + "\n")
