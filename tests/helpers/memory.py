"""Memory of a process, as Linux tells it.

In: a process. Out: bytes. Touches: `/proc`; `forget_peak` begins this process's peak anew.
"""

from __future__ import annotations

from pathlib import Path


def resident_bytes(process: int | str = "self", *, peak: bool = False) -> int:
    """What a process holds in memory; or the most that it held, since `forget_peak` of its own if it called that."""
    name = "VmHWM" if peak else "VmRSS"
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise RuntimeError(name)


def forget_peak() -> None:
    """Let this process's peak begin at what it holds now."""
    Path("/proc/self/clear_refs").write_text("5")
