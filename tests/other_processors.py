"""Runs the numeric tests as other processors compute them: `make processors`, or one of them by its name.

In: names of processors, all of them by default; further arguments go to pytest. Out: the exit code, 1 if tests failed
as one of them. Touches: processes, and compiled code in `.cache/processors`.

The last bits of a floating-point number depend on the processor: which kernels OpenBLAS and numpy choose, whether
products and sums are fused, how wide the vectors are that numba compiles for. What is whole by construction must be
whole everywhere; what is compared with other numbers must say how far it may be off.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
TESTS: Final = (
    *(f"tests/{folder}" for folder in ("kinds", "noise", "kernels", "privacy", "audit", "query")),
    *(f"tests/cli/{name}.py" for name in ("test_plan", "test_plan_groups", "test_estimate", "test_calibrate")),
)
PROCESSORS: Final = {
    "Haswell": "avx2",
    "Zen": "avx2",
    "SkylakeX": "avx512f",
    "Sandybridge": "avx",
    "generic": "",
}
"""A name that OpenBLAS knows, or `generic` for the least that numba compiles for, and what this machine must have."""


def features() -> set[str]:
    """What this machine's processor can do, as the kernel of the system calls it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return set()
    return {word for line in lines if line.startswith("flags") for word in line.split()}


def without(needed: str) -> list[str]:
    """The parts of numpy that a processor without wider vectors leaves out."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    wide = [name for name in __cpu_dispatch__ if __cpu_features__[name]]
    if needed == "avx512f":
        return []
    return [name for name in wide if needed != "avx2" or name.startswith(("AVX512", "X86_V4"))]


def environment(name: str) -> dict[str, str]:
    """The environment of tests as this processor computes them."""
    given = {**os.environ, "NPY_DISABLE_CPU_FEATURES": " ".join(without(PROCESSORS[name]))}
    given["NUMBA_CACHE_DIR"] = str(ROOT / ".cache" / "processors")
    return given | ({"NUMBA_CPU_NAME": name} if name == "generic" else {"OPENBLAS_CORETYPE": name})


def main(arguments: list[str]) -> int:
    """Run the tests as each processor; 1 if they failed as one of them."""
    named = [word for word in arguments if word in PROCESSORS]
    more = [word for word in arguments if word not in PROCESSORS]
    outcome = {}
    for name in named or PROCESSORS:
        if PROCESSORS[name] and PROCESSORS[name] not in features():
            outcome[name] = f"left out: this processor has no {PROCESSORS[name]}"
            continue
        print(f"== {name}", flush=True)
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow and not kafka and not browser"]
        done = subprocess.run([*command, *(more or TESTS)], cwd=ROOT, env=environment(name), check=False)
        outcome[name] = "passed" if done.returncode == 0 else "FAILED"
    for name, said in outcome.items():
        print(f"{name}: {said}")
    return int("FAILED" in outcome.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
