"""Compilation of kernels, and the choice between a kernel that is not compiled yet and its twin in numpy.

In: a flat function. Out: the same function, compiled when it is first called. Touches: numba's cache on disk.

numba is imported when a kernel is first called, and not before: it takes more than twice as long as numpy, and commands
that only read need no kernel, or few elements of one that has a twin.

numba's cache detects an edit only in a function's own file. Here it also detects an edit of any file of this folder:
kernels may use functions of this folder, but of no other file. And numba names a code file by the number of entries in
its index, so if two processes compile one function for different types at the same time, one would find the code of
the other: a lock prevents this.
"""

from __future__ import annotations

import fcntl
import functools
import importlib
import sys
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, TypeVar

_NOTICE = "sketchstream: compiling for this machine; it happens once and takes up to half a minute\n"


class Later:
    """A module that is imported when something of it is first used.

    Args:
        name: full name of the module.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self.name), name)


cgutils: Any = Later("numba.core.cgutils")
types: Any = Later("numba.core.types")


@functools.cache
def _numba() -> Any:
    """Import numba, and tell the user when it compiles."""
    import numba
    from numba.core import event

    class Notice(event.Listener):
        """Tell the user that the first use compiles: on a terminal or in a notebook, once per process."""

        shown = False

        def on_start(self, event: Any) -> None:
            """Called before a function is compiled because it was not found in the cache."""
            ours = event.data["dispatcher"].py_func.__module__.startswith("sketchstream")
            seen = sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)
            if ours and seen and not self.shown:
                self.shown = True
                sys.stderr.write(_NOTICE)
                sys.stderr.flush()

        def on_end(self, event: Any) -> None:
            """Called after compilation; prints nothing."""

    event.register("numba:compile", Notice())  # type: ignore[no-untyped-call]
    return numba


class Kernel:
    """A function that is compiled when it is first called, by users or by another kernel.

    Attributes that are not found here are those of numba's dispatcher.

    Args:
        function: what is compiled.
        compiler: makes the dispatcher.
    """

    def __init__(self, function: Callable[..., Any], compiler: Callable[[Callable[..., Any]], Any]) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function
        self._compiler = compiler

    @functools.cached_property
    def dispatcher(self) -> Any:
        """The object of numba that has the machine code."""
        return self._compiler(self.py_func)

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function."""
        return self.dispatcher(*arguments)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.dispatcher, name)

    def __reduce__(self) -> str:
        return self.py_func.__qualname__  # by its name, as functions are


class MachineCode:
    """A function that is given by its machine code: kernels call it without the first argument.

    Args:
        function: what `numba.extending.intrinsic` takes: (typing context, types) -> signature and generator of code.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    @functools.cached_property
    def _numba_type_(self) -> Any:
        """What numba takes this object for when it compiles a kernel that names it."""
        from numba.core.registry import cpu_target
        from numba.extending import intrinsic

        made = intrinsic(self._function)
        cpu_target.typing_context.refresh()
        return cpu_target.typing_context.resolve_value_type(made)


MAX_TWIN_ELEMENTS = 1 << 23
"""Elements that the twin of a kernel may process in one process before the kernel is compiled.

An element takes .2 to .5 us (the hash of a short string, and its addition); compiling takes 5 to 15 seconds.
"""
TWIN_ELEMENTS = 1 << 19
"""Elements that a twin may process where the kernel is compiled, but numba is not imported: that takes as long."""
_left: dict[tuple[Any, ...], int] = {}
"""Elements that twins may still process, by kernel and variant; 0: the kernel is compiled, or will be now."""
_few_left = TWIN_ELEMENTS
"""Elements that all twins together may process before numba is imported."""

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile a flat function with numba: cached on disk, run without the interpreter lock, exact arithmetic.

    Without a writable cache directory (a read-only home), the function is compiled in each process.
    """
    out: Any = Kernel(function, _compile_function)
    named: Function = out
    return named


def part(function: Function) -> Function:
    """Compile a function into each kernel that calls it, as if it were written there.

    It takes numbers and addresses: an array costs two atomic operations a call, as between kernels. It must be in the
    file of its kernels, or in this folder: the cache does not detect other edits.
    """
    out: Any = Kernel(function, lambda inner: _numba().njit(inline="always")(inner))
    named: Function = out
    return named


def typed_intrinsic(function: Callable[..., Any]) -> Any:
    """Define a function by its machine code; kernels call it without the first argument."""
    return MachineCode(function)


def _compile_function(function: Callable[..., Any]) -> Any:
    """The compiled function, with its cache on disk if there can be one."""
    compiler = _numba().njit
    try:
        compiled: Any = compiler(cache=True, nogil=True, fastmath=False)(function)
    except RuntimeError:
        return compiler(nogil=True, fastmath=False)(function)
    stored = compiled._cache._cache_file
    stored._source_stamp = (stored._source_stamp, _folder_stamp())
    _take_turns(stored)
    _load_alone(compiled._cache)
    return compiled


def use_numpy_twin(function: Any, work: Callable[[], int], variant: Hashable, arguments: Sequence[Any]) -> bool:
    """Whether the twin of a kernel should run: to compile the kernel, or to import numba, would take far longer.

    It is false for a kernel that is compiled already, by this process or an earlier one (but for
    the first `TWIN_ELEMENTS` elements), and once its twin has processed `MAX_TWIN_ELEMENTS` elements. Both give the
    same results.

    Args:
        function: the kernel.
        work: says how many elements this call has; called only if it matters.
        variant: what distinguishes the variants of this kernel, such as the types of its arrays.
        arguments: those of the call.
    """
    global _few_left
    key = (function, variant)
    left = _left.get(key, MAX_TWIN_ELEMENTS)
    if left == 0:
        return False
    if "numba" not in sys.modules and (elements := work()) < min(_few_left, MAX_TWIN_ELEMENTS):
        _few_left -= elements
        return True
    if (key not in _left or function.overloads) and _is_compiled(function, arguments):
        left = 0
    else:
        left = max(left - work(), 0)
    _left[key] = left
    return left > 0


def compile_first() -> None:
    """Let no twin run in this process: a worker compiles before it starts, not in the middle of a stream."""
    global MAX_TWIN_ELEMENTS
    MAX_TWIN_ELEMENTS = 0
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
    from numba.core.runtime.nrt import rtsys

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
                file = lock.open("w")
            except OSError:  # the cache does not exist yet, or is read-only
                return method(*arguments)
            with file:
                fcntl.flock(file, turn)
                return method(*arguments)

        return waits

    stored.load = in_turn(stored.load, fcntl.LOCK_SH)
    stored.save = in_turn(stored.save, fcntl.LOCK_EX)
