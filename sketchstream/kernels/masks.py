"""Masks of 64 bytes: one bit for each byte of a class, in vector registers.

In: an address. Out: a word of 64 bits. Touches: nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from sketchstream.kernels.compilation import typed_intrinsic, types
from sketchstream.kernels.runs import WORD

# A mask of one bit for each of the next 64 bytes: the caller ensures that they can be read.

BLOCK = 64
"""Bytes of a mask: one bit each of a machine word."""

_BYTES = ir.VectorType(ir.IntType(8), BLOCK)


def _mask(marks: Callable[[Any, Any, Callable[[int], Any]], Any]) -> Any:
    """An intrinsic `mask(address)`: bit j is set where `marks` marks byte j."""

    def mask(_typing: Any, address: Any) -> Any:
        def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            vector = builder.load(builder.inttoptr(args[0], _BYTES.as_pointer()), align=1)
            return builder.bitcast(marks(builder, vector, lambda value: ir.Constant(_BYTES, [value] * BLOCK)), WORD)

        return types.uint64(types.uint64), codegen

    return typed_intrinsic(mask)


quote_mask: Callable[[Any], Any] = _mask(lambda builder, vector, same: builder.icmp_unsigned("==", vector, same(0x22)))
"""Mask of the quotes in a block."""
odd_mask: Callable[[Any], Any] = _mask(
    lambda builder, vector, same: builder.or_(
        builder.icmp_unsigned("==", vector, same(0x5C)), builder.icmp_unsigned("<", vector, same(0x20))
    )
)
"""Mask of the backslashes and control characters."""
wide_mask: Callable[[Any], Any] = _mask(lambda builder, vector, same: builder.icmp_signed("<", vector, same(0)))
"""Mask of the bytes from 128 on."""
unplain_mask: Callable[[Any], Any] = _mask(
    lambda builder, vector, same: builder.or_(
        builder.icmp_unsigned("==", vector, same(0x22)),
        builder.or_(builder.icmp_unsigned("==", vector, same(0x5C)), builder.icmp_unsigned("<", vector, same(0x20))),
    )
)
"""Mask of quotes, backslashes and control characters: what cannot stand for itself inside a string."""
other_mask: Callable[[Any], Any] = _mask(
    lambda builder, vector, same: builder.icmp_unsigned(">", builder.sub(vector, same(0x30)), same(9))
)
"""Mask of all bytes but decimal digits."""
zero_mask: Callable[[Any], Any] = _mask(lambda builder, vector, same: builder.icmp_unsigned("==", vector, same(0x30)))
"""Mask of the digit 0."""


def _differ(size: int) -> Any:
    """An intrinsic `differ(address, other)` for blocks of this size: bit j is set where byte j differs."""

    def differ(_typing: Any, address: Any, other: Any) -> Any:
        def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            kind = ir.VectorType(ir.IntType(8), size).as_pointer()
            vectors = [builder.load(builder.inttoptr(argument, kind), align=1) for argument in args]
            marks = builder.bitcast(builder.icmp_unsigned("!=", *vectors), ir.IntType(size))
            return marks if size == BLOCK else builder.zext(marks, WORD)

        return types.uint64(types.uint64, types.uint64), codegen

    return typed_intrinsic(differ)


differ_mask: Callable[[Any, Any], Any] = _differ(BLOCK)
"""Mask of where the bytes at two addresses differ."""
differ_half: Callable[[Any, Any], Any] = _differ(BLOCK // 2)
"""Mask of where the first half of a block's bytes at two addresses differ."""
