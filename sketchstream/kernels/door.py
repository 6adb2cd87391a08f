"""Compilation of kernels, and the choice between a kernel that is not compiled yet and its twin in numpy.

In: a flat function. Out: the same function, compiled when it is first called. Touches: numba's cache on disk.

numba's cache detects an edit only in a function's own file. Here it also detects an edit of any file of this folder:
kernels may use functions of this folder, but of no other file. And numba names a code file by the number of entries in
its index, so if two processes compile one function for different types at the same time, one would find the code of
the other: a lock prevents this.
"""

from __future__ import annotations

import fcntl
import functools
import sys
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import event
from numba.core.runtime.nrt import rtsys

_NOTICE = "sketchstream: compiling for this machine; it happens once and takes up to half a minute\n"


class _Notice(event.Listener):
    """Tell the user that the first use compiles: on a terminal or in a notebook, once per process."""

    def __init__(self) -> None:
        self.said = False

    def on_start(self, event: Any) -> None:
        """Called before a function is compiled because it was not found in the cache."""
        ours = event.data["dispatcher"].py_func.__module__.startswith("sketchstream")
        if ours and not self.said and sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules):
            self.said = True
            sys.stderr.write(_NOTICE)
            sys.stderr.flush()

    def on_end(self, event: Any) -> None:
        """Called after compilation; prints nothing."""


event.register("numba:compile", _Notice())  # type: ignore[no-untyped-call]

SPARED = 1 << 18
"""Elements that the numpy twin of a kernel may process in one process before the kernel is compiled.

An element takes .2 us (the hash of a short string, and its addition); compiling takes seconds.
"""
_left: dict[tuple[Any, ...], int] = {}
"""Elements that twins may still process, by kernel and types; 0: the kernel is compiled, or will be now."""

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile a flat function with numba: cached on disk, run without the interpreter lock, exact arithmetic.

    Without a writable cache directory (a read-only home), the function is compiled in each process.
    """
    try:
        compiled: Any = numba.njit(cache=True, nogil=True, fastmath=False)(function)
    except RuntimeError:
        compiled = numba.njit(nogil=True, fastmath=False)(function)
    else:
        stored = compiled._cache._cache_file
        stored._source_stamp = (stored._source_stamp, _folder_stamp())
        _take_turns(stored)
        _load_alone(compiled._cache)
    out: Function = compiled
    return out


def part(function: Function) -> Function:
    """Compile a function into each kernel that calls it, as if it were written there.

    It takes numbers and addresses: an array costs two atomic operations a call, as between kernels. It must be in the
    file of its kernels, or in this folder: the cache does not detect other edits.
    """
    compiled: Any = numba.njit(inline="always")(function)
    out: Function = compiled
    return out


def spared(function: Any, work: Callable[[], int], types: Hashable, arguments: Sequence[Any]) -> bool:
    """Whether the numpy twin of a kernel should run: compiling would take far longer than the work.

    It is false for a kernel that is compiled already, by this process or an earlier one, and once its twin has
    processed `SPARED` elements. Both give the same results.

    Args:
        function: the kernel.
        work: says how many elements this call has; called only if it matters.
        types: what distinguishes the variants of this kernel, such as the types of its arrays.
        arguments: those of the call.
    """
    known = (function, types)
    left = _left.get(known, SPARED)
    if left == 0:
        return False
    if (known not in _left or function.overloads) and _is_compiled(function, arguments):
        left = 0
    else:
        left = max(left - work(), 0)
    _left[known] = left
    return left > 0


def compile_first() -> None:
    """Let no twin run in this process: a worker compiles before it starts, not in the middle of a stream."""
    global SPARED
    SPARED = 0
    _left.clear()


def _is_compiled(function: Any, arguments: Sequence[Any]) -> bool:
    """Whether the variant of a kernel for these arguments is in memory or in the cache on disk."""
    signature = tuple(map(function.typeof_pyval, arguments))
    if signature in function.overloads:
        return True
    stored = getattr(function._cache, "_cache_file", None)
    if stored is None:
        return False
    return function._cache._index_key(signature, function.targetctx.codegen()) in stored._load_index()


@functools.cache
def _folder_stamp() -> tuple[tuple[str, float, int], ...]:
    """A stamp that changes with every edit of a file of this folder."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return tuple((file.name, file.stat().st_mtime, file.stat().st_size) for file in files)


def _load_alone(cache: Any) -> None:
    """Load cached code without numba's registries (a second, `scipy.linalg` among it): only compilation needs them."""

    def load(signature: Any, context: Any) -> Any:
        rtsys.initialize(context)
        with cache._guard_against_spurious_io_errors():
            return cache._load_overload(signature, context)

    cache.load_overload = load


def _take_turns(stored: Any) -> None:
    """Let the processes that share the cached code of one function read and write it one after the other."""
    lock = Path(stored._index_path).with_suffix(".lock")

    def in_turn(method: Callable[..., Any], turn: int) -> Callable[..., Any]:
        @functools.wraps(method)
        def waits(*arguments: Any) -> Any:
            try:
                held = lock.open("w")
            except OSError:  # the cache does not exist yet, or is read-only
                return method(*arguments)
            with held:
                fcntl.flock(held, turn)
                return method(*arguments)

        return waits

    stored.load = in_turn(stored.load, fcntl.LOCK_SH)
    stored.save = in_turn(stored.save, fcntl.LOCK_EX)
