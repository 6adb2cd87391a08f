"""Reads TOML of bounded size and nesting.

In: text, or a file. Out: plain data. Touches: the file, for reading.

The parser of the standard library recurses for each bracket, and takes time quadratic in the parts of a dotted key.
Both are counted in one linear scan before it sees the text.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

from sketchstream.errors import ConfigError
from sketchstream.files import reading

MAX_CHARACTERS: Final = 4_000_000
"""Most characters of a text."""
DEEPEST: Final = 16
"""Most brackets inside each other, and most parts of a dotted key."""

_TOKENS: Final = re.compile(
    r'"""(?:\\.?|[^\\])*?(?:"""|\Z)'
    r"|'''.*?(?:'''|\Z)"
    r'|"(?:\\.?|[^"\\\n])*"?'
    r"|'[^'\n]*'?|\#[^\n]*|[\[\]{}.,=\n]",
    re.DOTALL,
)
"""Strings and comments, which may hold anything, and the characters that nest or separate. Unfinished strings are
taken too, so that the scan never goes back; the parser refuses them."""


_PYTHON: Final = re.compile(r"""(?<!\w)'[^'\n]*'|"[^"\n]*"|\b(True|False)\b""")


def read_toml(text: str) -> dict[str, Any]:
    """Plain data of a TOML text.

    Args:
        text: content of a file, or of a variable.

    Raises:
        ValueError: it is not valid TOML, too long, or nested too deeply; the message says which.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"it has {len(text):,} characters, and at most {MAX_CHARACTERS:,} are read")
    _require_shallow(text)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # Python limits the digits of integers
        raise ValueError("it holds a number with too many digits") from None


def in_toml(text: str) -> str:
    """A sentence in which true and false are spelled as in TOML, except within quotes."""
    return _PYTHON.sub(lambda match: match[0].lower() if match[1] else match[0], text)


def read_toml_file(path: Path) -> dict[str, Any]:
    """Plain data of a TOML file.

    Args:
        path: path of the file.

    Raises:
        ConfigError: it cannot be read, or `read_toml` refuses it.
    """
    with reading(path, ConfigError):
        try:
            return read_toml(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ConfigError(f"{path} is not valid TOML: {error}") from None


def _require_shallow(text: str) -> None:
    depth = parts = 0
    for token in _TOKENS.finditer(text):
        start = text[token.start()]
        if start == ".":
            parts += 1
        elif start in "[{":
            depth, parts = depth + 1, 0
        elif start in "]}":
            depth, parts = max(depth - 1, 0), 0
        elif start in ",=\n":
            parts = 0
        if depth > DEEPEST or parts >= DEEPEST:
            line = text.count("\n", 0, token.start()) + 1
            what = "brackets are nested" if depth > DEEPEST else "a dotted key has parts"
            raise ValueError(f"{what} beyond the limit of {DEEPEST} (at line {line})")
