"""Machine code that numba cannot generate: vectors of 64-bit words, prefetch, unaligned loads.

In: plain arrays and addresses. Out: parts of compiled kernels. Touches: memory that the caller owns.

Little-endian machines only.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]

from sketchstream.kernels.compilation import cgutils, kernel, typed_intrinsic, types

U64 = npt.NDArray[np.uint64]
GROUP = 16
"""Items that are hashed at a time, in vector registers."""
INT32 = ir.IntType(32)
INT64 = ir.IntType(64)
LANES = 8
"""Numbers of 64 bits in a vector: a register of AVX-512, two of AVX2."""
VECTOR = ir.VectorType(INT64, LANES)


@functools.cache
def vectors_interleaved() -> int:
    """Vectors whose rounds are interleaved, to hide the latency of each; narrower machines have too few registers.

    The processor is the one that numba compiles for: this one, unless NUMBA_CPU_NAME or NUMBA_ENABLE_AVX say less.
    """
    from numba.core import codegen, config

    features = getattr(config, "CPU_FEATURES")  # noqa: B009 - numba sets it from the environment
    if features is None:
        features = codegen.get_host_cpu_features()  # type: ignore[no-untyped-call]
    return GROUP // LANES if "+avx512f" in features.split(",") else 1


def address(context: Any, builder: Any, kind: Any, array: Any, position: Any) -> Any:
    """Address of array[position]."""
    return builder.gep(context.make_array(kind)(context, builder, array).data, [position])


def lanes_of(builder: Any, pointer: Any) -> Any:
    """Cast the address of a 64-bit word to that of a vector of words."""
    return builder.bitcast(pointer, VECTOR.as_pointer())


def constant(value: int) -> Any:
    """A vector of one constant."""
    return ir.Constant(VECTOR, [value] * LANES)


def splat(builder: Any, value: Any) -> Any:
    """A vector of one value."""
    nothing = ir.Constant(VECTOR, ir.Undefined)
    one = builder.insert_element(nothing, value, ir.Constant(INT32, 0))
    return builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(INT32, LANES), [0] * LANES))


Between = Iterator[None]
"""An iterator that writes one piece of other work each time it is advanced."""


def ask_for(builder: Any, pointer: Any, write: int) -> None:
    """Prefetch the cache line of an address, for writing (1) or reading (0)."""
    byte = builder.bitcast(pointer, ir.IntType(8).as_pointer())
    declared = ir.FunctionType(ir.VoidType(), [byte.type, INT32, INT32, INT32])
    function = cgutils.get_or_insert_function(builder.module, declared, "llvm.prefetch.p0")
    builder.call(function, [byte, INT32(write), INT32(3), INT32(1)])


def _prefetching(write: int) -> Any:
    """An intrinsic `prefetch(array, position)` for writing (1) or reading (0)."""

    def prefetch(_typing: Any, array: Any, position: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            ask_for(builder, address(context, builder, signature.args[0], args[0], args[1]), write)
            return context.get_dummy_value()

        return types.void(array, position), codegen

    return typed_intrinsic(prefetch)


prefetch: Any = _prefetching(1)
"""Prefetch the cache line of array[position] for writing."""
prefetch_read: Any = _prefetching(0)
"""Prefetch the cache line of array[position] for reading. It may be outside the array, as nothing is read."""


@typed_intrinsic
def first_byte(typingctx: Any, array: Any) -> Any:
    """Address of the first byte of an array. Passing arrays between kernels costs two atomic operations per call."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ptrtoint(context.make_array(signature.args[0])(context, builder, args[0]).data, INT64)

    return types.uint64(array), codegen


@typed_intrinsic
def keep_apart(typingctx: Any) -> Any:
    """Keep a kernel that others call from being compiled into them: it runs rarely and would take their registers."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.function.attributes.add("noinline")
        builder.function.attributes.add("cold")
        return context.get_dummy_value()

    return types.void(), codegen


def _loading(bits: int) -> Any:
    """An intrinsic `load(address)`: this number of bits, as one little-endian number; any alignment."""

    def load(_typing: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.load(builder.inttoptr(args[0], ir.IntType(bits).as_pointer()), align=1)

        return getattr(types, f"uint{bits}")(types.uint64), codegen

    return typed_intrinsic(load)


word_at: Any = _loading(64)
"""The eight bytes from an address on."""
half_at: Any = _loading(32)
"""The four bytes from an address on."""
byte_at: Any = _loading(8)
"""The byte at an address."""


@typed_intrinsic
def trailing_zeros(typingctx: Any, value: Any) -> Any:
    """Number of zero bits below the lowest one bit; value is not 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(1))

    return types.uint64(types.uint64), codegen


ONE = np.uint64(1)
_63 = np.uint64(63)


@kernel
def aligned_words(n: Any) -> Any:
    """(n,) uint64, aligned to a cache line, as a vector across two lines cannot be forwarded to the next load."""
    room = np.empty(n + 8, np.uint64)
    skip = np.int64(((~first_byte(room) + ONE) & _63) >> np.uint64(3))
    return room[skip : skip + n]
