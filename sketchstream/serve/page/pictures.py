"""What the page adds to the pictures of a kind: the groups of a window, side by side.

In: answers as plain data, as the HTTP API and the command line's JSON have them. Out: pictures. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sketchstream.kinds import shown
from sketchstream.pictures import Picture, ends, listed


def pictures(answer: Mapping[str, Any]) -> list[Picture]:
    """The pictures of one window's answer; with `groups`, the answers of all groups, those beside each other first.

    Args:
        answer: of any kind of sketch.
    """
    return [*_groups(answer.get("groups") or {}), *shown.of(answer).pictures(answer)]


def _groups(groups: Mapping[str, Mapping[str, Any]]) -> list[Picture]:
    """The usual number of each group."""
    if not groups:
        return []
    first = next(iter(groups.values()))
    metric = next(iter(shown.of(first).numbers(first)), None)
    if metric is None:
        return []
    found = {group: shown.of(one).number(one, metric) for group, one in groups.items()}
    title = next((one[0] for one in found.values() if one is not None), metric)
    numbers = ends([None if one is None else one[1] for one in found.values()])
    picture = listed("groups", f"{title[:1].upper()}{title[1:]} by group", list(groups), numbers, ("group", title))
    return [picture.noted("An item can be in several groups: groups do not add up.")]
