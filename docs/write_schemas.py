"""Write docs/answers.schema.json from the one model of what answers of all kinds are; `--check` only compares.

In: the model, `sketchstream.kinds.answers.SCHEMA`, and the registry of kinds. Out: docs/answers.schema.json. Touches:
that file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from sketchstream import kinds
from sketchstream.kinds.answers import SCHEMA

PAGE = Path(__file__).parent / "answers.schema.json"


def schema() -> dict[str, Any]:
    """JSON Schema of `to_dict` of the answers of any kind."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What answers of every kind of sketch hold: `to_json`, and the commands profile and estimate",
        "description": "A kind may have more keys: estimate.schema.json and profile.schema.json have those.",
        "type": "object",
        "required": list(SCHEMA),
        "properties": {**SCHEMA, "kind": {"enum": list(kinds.names())}},
    }


def text() -> str:
    """The file."""
    return json.dumps(schema(), indent=2) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(PAGE.read_text() != text())
    PAGE.write_text(text())
