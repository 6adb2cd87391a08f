"""A worker that ends or stops itself at a named step.

In: the step, at the how-many-th time that it is reached, and `kill` or `stop`. Out: nothing. Touches: the process that
it is installed in. `stop` is SIGSTOP for the whole process: the test wakes it.
"""

from __future__ import annotations

import os
import signal
import threading

from sketchstream import faults


def install(step: str, times: int, how: str) -> None:
    """End or stop this process when it reaches the step for the `times`-th time."""
    left, lock = [times], threading.Lock()

    def hook(reached: str) -> None:
        if reached != step:
            return
        with lock:
            left[0] -= 1
            if left[0] == 0:
                print(f"FAULT {how} at {step}", flush=True)
                os.kill(os.getpid(), signal.SIGKILL if how == "kill" else signal.SIGSTOP)

    faults.install(hook)
