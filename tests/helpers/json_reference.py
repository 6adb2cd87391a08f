"""The reference of the reader of JSON: one text at a time, as orjson reads it.

In: a JSON text, paths. Out: kinds and texts of the values. Touches: nothing.
"""

from __future__ import annotations

import re

from sketchstream.kernels.tokens import DECIMAL, INTEGER, MISSING, NULL, OTHER, STRING


def ask_orjson(text: bytes | memoryview, paths: list[list[bytes]]) -> list[tuple[int, bytes]] | None:
    """Kind of each path's value, UTF-8 bytes of strings, text of numbers; None for invalid JSON."""
    import orjson

    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    answers: list[tuple[int, bytes]] = []
    spelled: object = None
    for path in paths:
        value = _at(document, path)
        if value is _NOWHERE:
            answers.append((MISSING, b""))
        elif value is None:
            answers.append((NULL, b""))
        elif isinstance(value, str):
            answers.append((STRING, value.encode()))
        elif isinstance(value, int) and not isinstance(value, bool):
            answers.append((INTEGER, str(value).encode()))
        elif isinstance(value, float):
            # the text of the number: parse the document again, with each number in quotes
            if spelled is None:
                spelled = orjson.loads(_NUMBERS.sub(_quoted, bytes(text)))
            number = _at(spelled, path)
            assert isinstance(number, str)
            answers.append((DECIMAL, number.encode()))
        else:
            answers.append((OTHER, b""))
    return answers


_NOWHERE = object()
_NUMBERS = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*', re.DOTALL)
"""Strings and numbers of a text that is JSON."""


def _quoted(found: re.Match[bytes]) -> bytes:
    """A number in quotes; a string as it is."""
    token = found.group()
    return token if token.startswith(b'"') else b'"' + token + b'"'


def _at(document: object, path: list[bytes]) -> object:
    """The value at a path of a JSON document; `_NOWHERE` if there is none."""
    value = document
    for part in path:
        if not isinstance(value, dict) or part.decode() not in value:
            return _NOWHERE
        value = value[part.decode()]
    return value
