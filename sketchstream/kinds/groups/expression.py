"""A small language for sets of groups: "spring & (summer | ~brand) - mail".

In: a text, names of groups. Out: the regions that it names. Touches: nothing.

`~` is the complement (among items in at least one group), `&` and `-` (but not in) bind before `|`, all from left to
right. The words `not`, `and`, `or`, `without` stand for them. A name with other signs than letters, digits, `_`, `.`
and `:` is written in quotes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from sketchstream.array_types import Flags
from sketchstream.errors import SpecError, did_you_mean

_TOKEN = re.compile(r"\s*(?:(?P<quoted>\"[^\"]*\"|'[^']*')|(?P<word>[\w.:]+)|(?P<sign>[~!&|()\u2229\u222a\\-]))")
_WORDS = {"not": "~", "and": "&", "or": "|", "without": "-"}
_SIGNS = {"!": "~", "\u2229": "&", "\u222a": "|", "\\": "-"}
MAX_CHARACTERS = 2000
"""Characters of an expression."""
DEEPEST = 50
"""Brackets and complements within each other."""


def member(groups: Sequence[str], name: str) -> Flags:
    """(2^m,) whether a pattern has this group.

    Raises:
        SpecError: there is no such group.
    """
    if name not in groups:
        names, hint = ", ".join(groups), did_you_mean(name, groups)
        raise SpecError(
            f"there is no group {name!r:.60} among those whose patterns were published ({names:.200}){hint}"
        )
    return np.asarray((np.arange(2 ** len(groups)) >> (len(groups) - 1 - list(groups).index(name))) & 1 == 1)


def regions_of(text: str, groups: Sequence[str]) -> Flags:
    """(2^m,) the patterns that an expression names; the pattern of no group is never among them.

    Args:
        text: the expression.
        groups: names of groups in the order of the patterns' bits, the highest first.

    Raises:
        SpecError: the text is not an expression; the message names the place.
    """
    return _ExpressionReader(text, groups).whole()


class _ExpressionReader:
    """Reads an expression from left to right."""

    def __init__(self, text: str, groups: Sequence[str]) -> None:
        if not isinstance(text, str) or len(text) > MAX_CHARACTERS:
            raise SpecError(f"expected an expression of at most {MAX_CHARACTERS:,} characters, such as 'a & b - c'")
        self._text, self._groups = text, groups
        self._tokens = self._split()
        self._at = 0

    def whole(self) -> Flags:
        """The regions of the whole text."""
        patterns = self._union(0)
        if self._at < len(self._tokens):
            self._refuse("an operator (&, |, -) or the end")
        patterns[0] = False
        return patterns

    def _split(self) -> list[tuple[str, str, int]]:
        """Kind, text and place of each token."""
        out, at = [], 0
        end = len(self._text.rstrip())
        while at < end:
            match = _TOKEN.match(self._text, at)
            if match is None:
                place = at + len(self._text[at:]) - len(self._text[at:].lstrip())
                raise SpecError(
                    f"the sign {self._text[place]!r} at position {place + 1} of {self._text!r:.120} means nothing: use "
                    "& | - ~ ( ) and names; quote names that have other signs"
                )
            kind = match.lastgroup or ""
            token, place = match.group(kind), match.start(kind)
            if kind == "word" and token.lower() in _WORDS and token not in self._groups:
                kind, token = "sign", _WORDS[token.lower()]
            out.append((kind, _SIGNS.get(token, token) if kind == "sign" else token, place))
            at = match.end()
        return out

    def _next(self) -> str | None:
        """The sign that follows; None for a name, or the end."""
        if self._at == len(self._tokens) or self._tokens[self._at][0] != "sign":
            return None
        return self._tokens[self._at][1]

    def _union(self, depth: int) -> Flags:
        patterns = self._product(depth)
        while self._next() == "|":
            self._at += 1
            patterns = patterns | self._product(depth)
        return patterns

    def _product(self, depth: int) -> Flags:
        patterns = self._one(depth)
        while (sign := self._next()) in ("&", "-"):
            self._at += 1
            other = self._one(depth)
            patterns = patterns & (other if sign == "&" else ~other)
        return patterns

    def _one(self, depth: int) -> Flags:
        if depth > DEEPEST:
            raise SpecError(f"an expression may have at most {DEEPEST} brackets and complements within each other")
        sign = self._next()
        if sign == "~":
            self._at += 1
            return ~self._one(depth + 1)
        if sign == "(":
            self._at += 1
            patterns = self._union(depth + 1)
            if self._next() != ")":
                self._refuse("a closing bracket")
            self._at += 1
            return patterns
        if sign is not None or self._at == len(self._tokens):
            self._refuse("the name of a group, ~ or an opening bracket")
        kind, token, _ = self._tokens[self._at]
        self._at += 1
        return member(self._groups, token[1:-1] if kind == "quoted" else token)

    def _refuse(self, expected: str) -> None:
        ended = self._at == len(self._tokens)
        place = "its end" if ended else f"position {self._tokens[self._at][2] + 1}"
        token = "nothing" if ended else repr(self._tokens[self._at][1])
        raise SpecError(f"expected {expected} at {place} of {self._text!r:.120}, found {token:.60}")


def quote_name(name: str) -> str:
    """A name as it is written in an expression."""
    if re.fullmatch(r"[\w.:]+", name) and name.lower() not in _WORDS:
        return name
    return f'"{name}"' if '"' not in name else f"'{name}'"
