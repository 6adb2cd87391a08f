"""Numbers of variable length, as Avro, Protobuf and Kafka write them: seven bits a byte, the lowest first.

In: numbers, bytes. Out: bytes, numbers. Touches: nothing. The compiled loops have their own in `binary_kernels`.
"""

from __future__ import annotations

from typing import Protocol


class Octets(Protocol):
    """Bytes in whatever holds them."""

    def __getitem__(self, index: int, /) -> int: ...


def write_varint(value: int) -> bytes:
    """A number as the 64 bits of an int64."""
    encoded = bytearray()
    raw = value & (1 << 64) - 1
    while raw > 127:
        encoded.append(raw & 127 | 128)
        raw >>= 7
    encoded.append(raw)
    return bytes(encoded)


def write_zigzag(value: int) -> bytes:
    """A number whose lowest bit is the sign."""
    return write_varint(value << 1 ^ value >> 63)


def read_varint(data: Octets, at: int, most_bytes: int = 10) -> tuple[int, int]:
    """The raw bits of a number, and the position behind it.

    Raises:
        IndexError: the bytes end before the number does, or it has more than `most_bytes` bytes.
    """
    raw = 0
    for place in range(most_bytes):
        byte = int(data[at + place])
        raw |= (byte & 127) << 7 * place
        if byte < 128:
            return raw, at + place + 1
    raise IndexError


def unzigzag(raw: int) -> int:
    """The number whose sign is the lowest of these bits."""
    return raw >> 1 ^ -(raw & 1)
