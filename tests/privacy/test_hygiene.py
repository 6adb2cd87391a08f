"""Open states are bound to their process, and leave no core behind.

In: child processes. Out: verdicts. Touches: child processes.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from sketchstream.errors import SealedError
from sketchstream.forks import process, require_same_process
from sketchstream.privacy import hygiene
from sketchstream.privacy.hygiene import harden


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
    require_same_process(home, "update")
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
        require_same_process((home[0], home[1] + 1), "update")


# Commands.

MARKS = b"".join(b"marked-user-%04d\n" % number for number in range(200))
IN_OUR_HANDS = "import sys, sketchstream.cli.app as app; sys.exit(app.run(sys.argv[1:]))"
"""The same command line without `main`, which is what hardens: the control."""


def may_dump_core() -> None:
    """Allow cores of any size, and give up the one capability that sees through the dumpable flag (root has it)."""
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    ctypes.CDLL(None).prctl(24, 19, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_SYS_PTRACE; EPERM, and not needed, for others


def update_on_marks(folder: Path, *start: str) -> subprocess.Popen[bytes]:
    """An `update` that has read marked items from its standard input and waits for more."""
    command = [sys.executable, *start, "update", "s.sketch", "-", "--format", "lines", "--item-type", "text"]
    process = subprocess.Popen(
        [*command, "--key-file", "key"],
        stdin=subprocess.PIPE,
        cwd=folder,
        preexec_fn=may_dump_core,  # noqa: PLW1509 - no threads here
    )
    assert process.stdin is not None
    process.stdin.write(MARKS)
    process.stdin.flush()
    left, deadline = 1, time.monotonic() + 60
    while left and time.monotonic() < deadline:
        assert process.poll() is None
        left = struct.unpack("i", fcntl.ioctl(process.stdin.fileno(), termios.FIONREAD, bytes(4)))[0]
        time.sleep(0.02)
    assert left == 0, "the items were never read"
    return process


def core_of(process: subprocess.Popen[bytes], folder: Path) -> tuple[bool, bool]:
    """After SIGABRT: whether the kernel dumped a core anywhere, and whether one lies here with a marked item in it."""
    process.send_signal(signal.SIGABRT)
    status = os.waitpid(process.pid, 0)[1]
    process.returncode = os.waitstatus_to_exitcode(status)
    assert os.WTERMSIG(status) == signal.SIGABRT
    assert process.stdin is not None
    process.stdin.close()
    cores = [path for path in folder.iterdir() if path.name not in ("s.sketch", "key")]
    return os.WCOREDUMP(status), any(b"marked-user-0007" in path.read_bytes() for path in cores)


def memory_opens(process: subprocess.Popen[bytes]) -> bool:
    """Whether another process of this user, without the capability, may open the memory of that one."""
    script = f"open('/proc/{process.pid}/mem', 'rb').close()"
    reader = [sys.executable, "-c", script]
    done = subprocess.run(reader, preexec_fn=may_dump_core, stderr=subprocess.DEVNULL, check=False)
    return done.returncode == 0


@pytest.mark.statistics
def test_an_aborted_update_leaves_no_core_and_no_memory_to_read(tmp_path: Path) -> None:
    for arguments in (
        ("keygen", "-o", "key"),
        (
            "create",
            "-o",
            "s.sketch",
            "--unit",
            "event",
            "--epsilon",
            "1",
            "--open",
            "--slots",
            "64",
            "--levels",
            "1",
            "--key-file",
            "key",
        ),
    ):
        command = [sys.executable, "-m", "sketchstream.cli", *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=tmp_path)
    hardened = update_on_marks(tmp_path, "-m", "sketchstream.cli")
    assert not memory_opens(hardened)
    assert core_of(hardened, tmp_path) == (False, False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key", "s.sketch"]
    control = update_on_marks(tmp_path, "-c", IN_OUR_HANDS)
    yama = Path("/proc/sys/kernel/yama/ptrace_scope")
    assert memory_opens(control) or (yama.exists() and yama.read_text().strip() != "0")
    dumped, marked = core_of(control, tmp_path)
    assert dumped, "this system dumps no cores at all, so the test above says nothing"
    assert marked or Path("/proc/sys/kernel/core_pattern").read_text().strip() != "core"


def test_every_command_is_hardened_before_it_begins() -> None:
    script = (
        "import ctypes, resource, sketchstream.cli, sketchstream.cli.app as app\n"
        "app.run = lambda given: print(given, resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3))\n"
        "sketchstream.cli.main(['update', 's.sketch'])"
    )
    out = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert out.strip() == "['update', 's.sketch'] (0, 0) 0"


def test_the_python_interface_hardens_when_it_is_asked_to() -> None:
    script = "import sketchstream as ss; print(ss.harden() == ss.Hardened(undumpable=True, no_core=True))"
    out = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert out.strip() == "True"
