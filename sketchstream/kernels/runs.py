"""Steps of 16 bytes: number of bytes of one class from a position on, in vector registers.

In: the address of a byte. Out: a number of bytes, at most 16. Touches: nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from sketchstream.kernels.compilation import typed_intrinsic, types

# Number of the next 16 bytes that are of one class, in vector registers: the step of scans over texts.
# Nothing is checked here: the caller ensures that `WIDTH` bytes can be read. Addresses cost nothing to pass from kernel
# to kernel, while an array costs two atomic operations.

WIDTH = 16
"""Bytes of a step: the vector register that every machine has."""

WORD = ir.IntType(64)
_FLAGS = ir.IntType(WIDTH)
_VECTOR = ir.VectorType(ir.IntType(8), WIDTH)


def _repeat_byte(value: int) -> Any:
    """A vector of one byte."""
    return ir.Constant(_VECTOR, [value] * WIDTH)


def _run(stops: Callable[[Any, Any], Any]) -> Any:
    """Build an intrinsic `run(address)`: number of bytes before the first one that `stops` marks."""

    def run(_typing: Any, address: Any) -> Any:
        def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            vector = builder.load(builder.inttoptr(args[0], _VECTOR.as_pointer()), align=1)
            flags = builder.zext(builder.bitcast(stops(builder, vector), _FLAGS), WORD)
            return builder.cttz(builder.or_(flags, ir.Constant(WORD, 1 << WIDTH)), ir.IntType(1)(1))

        return types.int64(types.uint64), codegen

    return typed_intrinsic(run)


def _not_plain(builder: Any, vector: Any) -> Any:
    """Quotes, backslashes, control characters, and bytes from 128 on, which are negative as signed ones."""
    ends = builder.or_(
        builder.icmp_unsigned("==", vector, _repeat_byte(0x22)), builder.icmp_unsigned("==", vector, _repeat_byte(0x5C))
    )
    return builder.or_(ends, builder.icmp_signed("<", vector, _repeat_byte(0x20)))


def _not_ascii(builder: Any, vector: Any) -> Any:
    """Bytes from 128 on."""
    return builder.icmp_signed("<", vector, _repeat_byte(0))


def _not_digits(builder: Any, vector: Any) -> Any:
    """Everything but 0 to 9."""
    return builder.icmp_unsigned(">", builder.sub(vector, _repeat_byte(0x30)), _repeat_byte(9))


plain_run: Callable[[Any], int] = _run(_not_plain)
"""Length of a run of ASCII characters that stand for themselves in a JSON string."""
ascii_run: Callable[[Any], int] = _run(_not_ascii)
"""Length of a run of bytes below 128."""
digit_run: Callable[[Any], int] = _run(_not_digits)
"""Length of a run of decimal digits."""
