"""Open states are bound to their process, and leave no core behind.

In: child processes. Out: verdicts. Touches: child processes.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from sketchstream.errors import SealedError
from sketchstream.privacy import hygiene
from sketchstream.privacy.hygiene import harden, process, require_home


def test_a_hardened_process_leaves_no_core() -> None:
    script = (
        "import resource; from sketchstream.privacy.hygiene import harden; print(harden()); "
        "print(resource.getrlimit(resource.RLIMIT_CORE))"
    )
    out = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert "Hardened(undumpable=True, no_core=True)" in out
    assert "(0, 0)" in out


def test_hardening_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError

    monkeypatch.setattr(hygiene.resource, "setrlimit", refuse)
    monkeypatch.setattr(hygiene.ctypes, "CDLL", refuse)
    assert harden() == hygiene.Hardened(undumpable=False, no_core=False)


def test_a_forked_child_cannot_go_on_with_an_open_sketch() -> None:
    home = process()
    require_home(home, "update")
    script = (
        "import os; import sketchstream as ss\n"
        "sketch = ss.Sketch.create(ss.ProfileSpec('1', domain=ss.ClosedDomain(size=9))); child = os.fork()\n"
        "if child == 0:\n"
        "    try: sketch.update([1])\n"
        "    except ss.SealedError: os._exit(7)\n"
        "    os._exit(0)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    out = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert out.strip() == "7"
    with pytest.raises(SealedError, match="forked"):
        require_home((home[0], home[1] + 1), "update")
