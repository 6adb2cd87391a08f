"""What items and events are called where people read: "users" and "visits" in place of "items" and "events".

In: names of a configuration, sentences of this package. Out: the same sentences with these names. Touches: nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

_WORD: Final = re.compile(r"\b([Ii]tems?|[Ee]vents?)\b")


@dataclass(frozen=True)
class Names:
    """Names of items and events, as they stand in a sentence.

    Args:
        item: word for one item.
        items: word for several items.
        event: word for one event.
        events: word for several events.
    """

    item: str = "item"
    items: str = "items"
    event: str = "event"
    events: str = "events"

    def __call__(self, text: str) -> str:
        """A sentence of this package with these names; it must not hold words of users, and is translated once."""
        return text if self == USUAL else _WORD.sub(self._named, text)

    def facts(self) -> dict[str, dict[str, str]]:
        """`names` of an answer as plain data; empty for the usual ones."""
        return {} if self == USUAL else {"names": asdict(self)}

    def _named(self, match: re.Match[str]) -> str:
        word = match[0]
        name: str = getattr(self, word.lower())
        return name if word[0].islower() else f"{name[:1].upper()}{name[1:]}"


USUAL: Final = Names()


def names_in(answer: Mapping[str, Any]) -> Names:
    """The names in an answer.

    Args:
        answer: the answer as plain data, with the keys of the command line's JSON.
    """
    return Names(**answer["names"]) if "names" in answer else USUAL
