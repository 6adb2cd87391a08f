"""Lines of the product by what they came for: what there was before issue 34, and what has been added since.

    python bench/additions.py

A line belongs to the commit that last changed it (`git blame -w -M -C`). Commits that moved, merged or renamed what
there was (`PASSED_OVER`) are passed over; what is theirs alone belongs to what there was before. A line that a mend
rewrote counts as added: so what is added is an upper bound, and what was before a lower one. The other side is given
beside it: the lines by which the commits that added something have grown the product, net of what they took away.

In: the history of the repository, which a shallow clone does not have. Out: a table. Touches: nothing.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from helpers import facts  # noqa: E402

PASSED_OVER = ".git-blame-ignore-revs"
"""Lists the commits that only moved, merged or renamed."""
PRODUCT = ("sketchstream", "connectors/sketchstream_connectors")
BASE = "425c5cd7"
"""The main against which issue 34 was written."""
FEATURES = {
    "truth for readers, audits of every build, limits of the service (issues 30 to 33)": "b5f0747a 519d7a4d 1dc81dae",
    "Avro, Protobuf, registries of schemas": "5ecf42c2 d635e586 80657172 4e25f891 f29a1a54 bcc7e7b4 6d65e6de 831fcac5",
    "histories of files, their boundary with live windows": (
        "6c506497 cc5a65e2 f19c3b2b bbfdd188 626820a6 0bfa80f8 82cd3d7f 710157c4 035755bb 75df45a3 2ab5f2be"
    ),
    "sets of groups, presence, periods as groups": (
        "4d5ad39d 8aa32025 bb129e3b 2c4497bc 42befe03 22bdda37 5c6e4c0e caabe573 26ed36fb"
    ),
    "kind hierarchy": "ecf745f7",
    "one interface for five kinds": "bd4a618e",
    "series and workloads: trees, causal factors, many cells, projected answers": (
        "f6a8717d 92afac91 e06dac48 9f1c957b 44e2e6ae 919fc9f8 84dc452b"
    ),
    "tables of the service, typed requests, ready answers": "14f61cd6 018f3fb0 27d1b3fa cd85a981 e4397195",
    "metrics, alerts, runbooks, logs": "23d59e69",
    "init, what a first user gets wrong": "c98f1da6 1ca6549f 3699ff96",
    "several topics, windows that open beside the poll, early answers": (
        "e5904180 814585a3 5c2d87f2 89fd394b 0ce4c0fc 4b263ada f2fbfa01"
    ),
    "attestations of deployments": "e4373f5b",
    "the page: newest numbers, ranges, no false digits": "3e516b96 b5f0f87d 683450e0",
    "quick first answers, answers that are kept": "e2c49ef5 ead1c18d ac272c94 8550502f",
    "estimates: open domains, few items, denoisers, rows as they are": (
        "398cd966 78ae6015 73ba94ff d37755a7 60a5e444 045cc410 15b480a1 6747e968 adfb384c"
    ),
    "units of time, csv of all separators": "c87fb86a 448c53fb",
}
"""What was added, with the commits that brought it; all others are mends and smaller additions."""
REST = "mends and smaller additions"


def main() -> None:
    """Print the table."""
    before = set(_git("rev-list", BASE).split())
    since = _git("rev-list", "--reverse", f"{BASE}..HEAD").split()
    restructured = {line.split()[0] for line in (ROOT / PASSED_OVER).read_text().splitlines() if line[0] != "#"}
    feature = {_git("rev-parse", one).strip(): name for name, text in FEATURES.items() for one in text.split()}
    code: Counter[str | None] = Counter()
    linear: Counter[str | None] = Counter()
    linear_paths = set(facts.files_of_linear_kinds())
    for path in facts.product_files():
        in_code = facts.numbers_of_code(path.read_text())
        for number, commit in enumerate(_commits_of_lines(path), start=1):
            old = commit in before or commit in restructured
            name = None if old else feature.get(commit, REST)
            code[name] += number in in_code
            linear[name] += path in linear_paths
    print(f"{'':80} {'code':>7} {'linear kinds, all lines':>24}")
    for name in (None, *FEATURES, REST):
        print(f"{name or 'what there was before':80} {code[name]:7,} {linear[name]:24,}")
    print(f"{'all':80} {code.total():7,} {linear.total():24,}")
    growth = sum(_growth(one) for one in since if one not in restructured)
    print(f"\nNet of what they took away, the commits that added something have grown the product by {growth:,} lines.")


def _commits_of_lines(path: Path) -> list[str]:
    """The commit that last changed each line of a file, in the order of the lines."""
    text = _git(
        "blame", "-s", "-l", "-w", "-M", "-C", "--root", "--ignore-revs-file", PASSED_OVER, "HEAD", "--", str(path)
    )
    return [line.split()[0].lstrip("?*^") for line in text.splitlines()]


def _growth(commit: str) -> int:
    """Lines of code by which a commit has grown the product."""
    changes = _git("diff-tree", "-r", "--root", "--no-renames", "--no-commit-id", commit, "--", *PRODUCT)
    grown = 0
    for change in changes.splitlines():
        entry, path = change.split("\t")
        if path.endswith(".py"):
            _, _, old, new, _ = entry.split()
            grown += _code_of_blob(new) - _code_of_blob(old)
    return grown


@cache
def _code_of_blob(blob: str) -> int:
    """Lines of code of a stored file; 0 for the file that is not there."""
    return len(facts.numbers_of_code(_git("cat-file", "blob", blob))) if set(blob) != {"0"} else 0


def _git(*command: str) -> str:
    """What git prints."""
    return subprocess.run(("git", *command), cwd=ROOT, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
