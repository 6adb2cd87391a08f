"""Record specs of the linear kinds: their dictionaries, fingerprints, ledgers and first draws. New ones are added.

In: nothing. Out: `specs/specs.json`. Touches: that file; what is in it never changes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from helpers.golden_specs import SPECS, recorded  # noqa: E402 - from the tests


def main() -> None:
    """Add the specs that are not recorded yet."""
    path = HERE / "specs" / "specs.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    new = {name: recorded(make(None)) for name, make in SPECS.items() if name not in known}
    path.write_text(json.dumps(known | new, indent=1) + "\n")


if __name__ == "__main__":
    main()
