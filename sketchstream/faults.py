"""Named steps at which a test may stop the process; otherwise they have no effect.

In: names of steps. Out: calls of the hook that a test installed. Touches: nothing. There is no configuration key and
no environment variable for it: only code in the same process can install a hook.
"""

from __future__ import annotations

from collections.abc import Callable

_hook: Callable[[str], None] | None = None


def install(hook: Callable[[str], None] | None) -> None:
    """Call `hook` with the name of every step from now on; None removes the hook."""
    global _hook
    _hook = hook


def checkpoint(step: str) -> None:
    """Call the hook that a test installed, if there is one, with the name of a step that is now reached."""
    if _hook is not None:
        _hook(step)
