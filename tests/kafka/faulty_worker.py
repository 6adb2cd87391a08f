"""A worker that ends or stops itself at a named step: `faulty_worker.py STEP TIMES kill|stop CONFIG`.

`TIMES`: at the how-many-th time that the step is reached. `stop` is SIGSTOP for the whole process: the test wakes it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from sketchstream import faults
from sketchstream.cli.app import run


def main() -> int:
    step, times, how, config = sys.argv[1:]
    left, lock = [int(times)], threading.Lock()

    def hook(reached: str) -> None:
        if reached != step:
            return
        with lock:
            left[0] -= 1
            if left[0] == 0:
                print(f"FAULT {how} at {step}", flush=True)
                os.kill(os.getpid(), signal.SIGKILL if how == "kill" else signal.SIGSTOP)

    faults.install(hook)
    return run(["worker", "-c", config])


if __name__ == "__main__":
    raise SystemExit(main())
