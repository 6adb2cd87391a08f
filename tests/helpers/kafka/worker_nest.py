"""A process that has imported and compiled everything once, and forks workers: a new one takes seconds for that.

In: requests over a socket: command line, folder, log, environment, perhaps a fault. Out: the id of each worker's
process; its exit code when it has ended. Touches: processes of its own, each in a process group of its own, which end
when the socket closes, whatever made it close.

A forked worker is one that was started by the shell, but for its imports: it runs the command from the beginning, and
draws its noise under keys that no other process has (sketchstream/noise/entropy.py). Tests of the main job and of
start-up start workers the long way (`App.start(fresh=True)`).
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from helpers.paths import TESTS

LARGEST = 1 << 20
INT, TEXT = 'item = "u"\ntime = "ts"\nitem_type = "int"', 'item = "u"\ntime = "ts"'
WARM = (
    (INT, "domain = { size = 500 }"),
    (INT, 'domain = { size = 500 }\npublish = "state"\nintrusion = false'),
    (TEXT, "domain = { slots = 1024, levels = 2 }"),
)
"""Inputs and sketches of the tests."""


class Forked:
    """A worker's process, with what tests use of `subprocess.Popen`."""

    def __init__(self, nest: Nest, pid: int) -> None:
        self.pid = pid
        self._nest = nest

    def poll(self) -> int | None:
        """Exit code, the negative signal number if a signal ended it; None while it exists."""
        return self._nest.ended().get(self.pid)

    def wait(self, timeout: float | None = None) -> int:
        """Exit code, once there is one."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"worker {self.pid}", timeout or 0.0)
            time.sleep(0.01)
        return code


class Nest:
    """The process that forks, seen from the tests; any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._codes: dict[int, int] = {}
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(other.fileno())],
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]),
                },
                stdin=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                start_new_session=True,
            )
        assert self._receive() == {"ready": True}

    def fork(
        self,
        arguments: Sequence[str],
        folder: Path,
        log: Path,
        fault: Sequence[str] = (),
        altered: Mapping[str, str] | None = None,
    ) -> Forked:
        """A worker; `fault`: step, times and kind, see `faulty_worker`; `altered`: see `altered_worker`."""
        request = {
            "arguments": list(arguments),
            "folder": str(folder),
            "log": str(log),
            "fault": list(fault),
            "altered": dict(altered or {}),
            "environment": dict(os.environ),
        }
        with self._lock:
            self._socket.sendall(json.dumps(request).encode())
            while "pid" not in (answer := self._receive()):
                self._codes[answer["ended"]] = answer["code"]
            self._codes.pop(answer["pid"], None)  # of an earlier process with that number
        return Forked(self, answer["pid"])

    def ended(self) -> Mapping[int, int]:
        """Exit codes by process."""
        with self._lock:
            while selectors_ready(self._socket):
                answer = self._receive()
                self._codes[answer["ended"]] = answer["code"]
            return self._codes

    def _receive(self) -> dict[str, Any]:
        data = self._socket.recv(LARGEST)
        assert data, "the process that forks workers has ended; its last words are above"
        answer: dict[str, Any] = json.loads(data)
        return answer

    def close(self) -> None:
        """End it, and every worker that is left."""
        self._socket.close()
        self._process.wait(30)


def selectors_ready(one: socket.socket) -> bool:
    """Whether there is something to receive."""
    with selectors.DefaultSelector() as selector:
        selector.register(one, selectors.EVENT_READ)
        return bool(selector.select(0))


# ------------------------------------------------------------------------------------------------ in the nest


def warm_up() -> None:
    """Import what a worker imports, and call every loop once, so that forked ones find them compiled."""
    import warnings

    from sketchstream.config.loader import Config
    from sketchstream.items.key import Key
    from sketchstream_connectors import factory
    from sketchstream_connectors.kafka import worker as kafka_worker

    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder, "key")
        Key.generate().save(key)
        for fields, sketch in WARM:
            text = (
                "[kafka]\n'bootstrap.servers' = 'x:1'\n'group.id' = 'g'\n"
                f"[input]\ntopic = 't'\npartitioned_by = 'item'\npartitioner = 'murmur2'\n"
                f"{fields}\n[key]\nfile = '{key}'\n"
                f"[[sketch]]\nname = 's'\nunit = 'event'\nwindow = '1m'\nepsilon = '30'\nmax_count = 300\n{sketch}\n"
            )
            config = Config.parse(text)
            kafka_worker.warm_up(config, factory.rules(config))


def become_worker(request: Mapping[str, Any]) -> None:
    """In the child: a group, a folder, an environment and files of its own; then the command. Does not return."""
    os.setpgid(0, 0)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    os.chdir(request["folder"])
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for number in (1, 2):
        os.dup2(log, number)
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # a test that gives up on a worker asks where it stands
    os.environ.clear()
    os.environ.update(request["environment"])
    if request["fault"]:
        from helpers.kafka import faulty_worker

        step, times, how = request["fault"]
        faulty_worker.install(step, int(times), how)
    if request["altered"]:
        from helpers.kafka import altered_worker

        altered_worker.install(request["altered"])
    from sketchstream.cli.app import run

    raise SystemExit(run(request["arguments"]))


def main() -> None:
    """Fork on request, tell who ended, until the socket closes."""
    asked = socket.socket(fileno=int(sys.argv[1]))
    warm_up()
    woken, wake = socket.socketpair()
    for one in (woken, wake):
        one.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    asked.sendall(b'{"ready": true}')
    alive: set[int] = set()
    selector = selectors.DefaultSelector()
    for one in (asked, woken):
        selector.register(one, selectors.EVENT_READ)
    while True:
        ready = {key.fileobj for key, _ in selector.select()}
        if woken in ready:
            woken.recv(4096)
            for pid in list(alive):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    alive.discard(pid)
                    answer = {"ended": pid, "code": os.waitstatus_to_exitcode(status)}
                    with contextlib.suppress(OSError):
                        asked.sendall(json.dumps(answer).encode())
        if asked in ready:
            request = asked.recv(LARGEST)
            if not request:
                break
            assert threading.active_count() == 1, "a thread would be lost in the fork"
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                selector.close()
                for one in (asked, woken, wake):
                    one.close()
                become_worker(json.loads(request))
            with contextlib.suppress(PermissionError):  # both do it: neither the child nor who ends it may be too early
                os.setpgid(pid, pid)
            alive.add(pid)
            asked.sendall(json.dumps({"pid": pid}).encode())
    for pid in alive:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
