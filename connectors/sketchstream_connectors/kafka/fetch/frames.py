"""Receives response frames directly into reusable memory, and reads fetch responses in place.

In: the sockets of one consumer's connections. Out: the client's responses, their records as views. Touches: how these
connections receive and parse; nothing else of the client.

The client's own loop copies every byte about eight times, mostly under the interpreter's lock: parts of 4 KiB, a join,
a slice, the frame, `bytes` of it, `bytes` of the records. Here a long frame is received into the memory in which its
records remain until they are no longer referenced.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import weakref
from typing import Any, cast

from sketchstream_connectors.decode.memory_pool import MemoryPool
from sketchstream_connectors.kafka.fetch.fetch_responses import FETCH, VERSIONS, read_response

WINDOW = 1 << 16
"""Bytes asked of a socket while no frame is open."""
MAX_BYTES_AT_ONCE = 1 << 23
"""Bytes after which a connection lets the client's other tasks run."""
LOW_WATER = 1 << 20
"""Bytes that must have come before a connection with an open frame is looked at again: fewer, longer turns."""


class Receiver:
    """One connection's way of receiving.

    The client takes it for the bytes of a turn: it asks for their number, and has them parsed before the next turn.

    Args:
        transport: the client's transport, of TCP or TLS; it gets this receiver's methods.
        pool: pool of the consumer.
    """

    def __init__(self, transport: Any, pool: MemoryPool) -> None:
        self._transport = weakref.ref(transport)
        self._pool = pool
        self._parser: weakref.ref[Any] | None = None
        self._head = b""
        self._open: memoryview | None = None
        self._filled = 0
        self._low = 1
        self._frames: list[memoryview] = []
        self._size = 0
        self._wrong: Exception | None = None
        transport._sock_recv = self.receive
        if getattr(transport._protocol, "parser", None) is not None:
            self._adopt(transport._protocol.parser)

    def __len__(self) -> int:
        """Bytes of this turn."""
        return self._size

    def _adopt(self, parser: Any) -> None:
        """Go on where the client's parser is, which may be in the middle of a frame."""
        if parser._receiving:
            staged = parser._rbuffer.tell()
            self._open, self._filled = self._pool.take(len(parser._rbuffer)), staged
            self._open[:staged] = memoryview(parser._rbuffer)[:staged]
        else:
            self._head = bytes(parser._header[: parser._header.tell()])
        parser._reset_buffer()
        parse = weakref.WeakMethod(self.parse)  # the transport alone keeps this receiver, and the frame that is open
        parser.receive_bytes = lambda _: cast("Any", parse())()
        self._parser = weakref.ref(parser)

    def receive(self) -> tuple[Receiver, Exception | None]:
        """Take all that the socket has to give, up to `MAX_BYTES_AT_ONCE`; and why there will be no more, or None."""
        import kafka.errors

        transport = cast("Any", self._transport())
        sock = transport._sock
        self._frames, self._size, self._wrong = [], 0, None
        if sock is None or transport._protocol is None:
            return self, kafka.errors.KafkaConnectionError("closed")
        if self._parser is None:
            self._adopt(transport._protocol.parser)
        error: Exception | None = None
        # what TLS has decrypted already makes no socket readable: it is taken to the end
        while self._wrong is None and (
            self._size < MAX_BYTES_AT_ONCE or (isinstance(sock, ssl.SSLSocket) and sock.pending() > 0)
        ):
            try:
                got = self._fill(sock)
            except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except Exception as failure:  # as the client does: whatever it is, the connection is over
                error = kafka.errors.KafkaConnectionError(failure)
                break
            if not got:
                error = kafka.errors.KafkaConnectionError("socket disconnected")
                break
            self._size += got
        if error is not None:
            self._open, self._frames = None, []
        else:
            self._wait_for(sock)
        return self, error

    def _wait_for(self, sock: Any) -> None:
        """Set how many bytes make the socket readable: never more than the open frame still lacks."""
        low = 1 if self._open is None else min(LOW_WATER, len(self._open) - self._filled)
        if low == self._low or isinstance(sock, ssl.SSLSocket):  # TLS must see all that comes
            return
        with contextlib.suppress(OSError, AttributeError):  # systems without this option read as before
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low)
        self._low = low

    def _fill(self, sock: Any) -> int:
        """Read from the socket once; return the number of bytes, 0 at the end of the connection."""
        if self._open is not None:
            got = int(sock.recv_into(self._open[self._filled :]))
            self._filled += got
            if self._filled == len(self._open):
                self._frames.append(self._open)
                self._open = None
            return got
        part = sock.recv(WINDOW)
        if part:
            self._cut(self._head + part if self._head else part)
        return len(part)

    def _cut(self, data: bytes) -> None:
        """Cut `data`, which begins with a frame's length, into frames; the last one may stay open."""
        view = memoryview(data)
        at = 0
        while len(view) - at >= 4:
            length = int.from_bytes(view[at : at + 4], "big", signed=True)
            try:
                cast("Any", self._parser)()._validate_frame_size(length)
            except Exception as error:  # raised where the client raises it, when frames are parsed
                self._wrong = error
                return
            at += 4
            if length > len(view) - at:
                self._open, self._filled = self._pool.take(length), len(view) - at
                self._open[: self._filled] = view[at:]
                self._head = b""
                return
            self._frames.append(view[at : at + length])
            at += length
        self._head = bytes(view[at:])

    def parse(self) -> list[tuple[int, Any]]:
        """Correlation ids and responses of this turn; stands where the client's `receive_bytes` stood.

        The frames are then the responses' alone: while the connection waits, their memory can be used again.

        Raises:
            kafka.errors.KafkaProtocolError: as the client's, which closes the connection then.
        """
        frames, self._frames = self._frames, []
        answers = [self._answer(frame) for frame in frames]
        if self._wrong is not None:
            raise self._wrong
        return answers

    def _answer(self, frame: memoryview) -> tuple[int, Any]:
        """Parse fetch responses with our reader, everything else with the client's."""
        import kafka.errors
        from kafka.protocol.frame import KafkaBytes

        parser = cast("Any", self._parser)()
        header = parser.in_flight_requests[0] if parser.in_flight_requests else None
        if header is None or header.request_api_key != FETCH or header.request_api_version not in VERSIONS:
            copied = KafkaBytes(len(frame))
            copied.write(frame)
            copied.seek(0)
            return cast("tuple[int, Any]", parser._process_response(copied))
        parser.in_flight_requests.popleft()
        try:
            correlation, response = read_response(frame, header.request_api_version)
        except (ValueError, struct.error) as error:
            raise kafka.errors.KafkaProtocolError(
                f"a fetch response of {len(frame)} bytes cannot be read ({type(error).__name__})"
            ) from None
        if correlation != header.correlation_id:
            raise kafka.errors.CorrelationIdError(
                f"Correlation IDs do not match: sent {header.correlation_id}, recv {correlation}"
            )
        return correlation, response


def install(consumer: Any, pool: MemoryPool) -> None:
    """Let all connections of this consumer, those it has and those it will make, receive by a `Receiver`."""
    manager = consumer._manager
    build = manager._build_transport

    async def build_transport(*arguments: Any, **options: Any) -> Any:
        transport = await build(*arguments, **options)
        Receiver(transport, pool)
        return transport

    def adopt() -> None:
        manager._build_transport = build_transport
        for connection in list(manager._conns.values()):
            if connection.transport is not None:
                Receiver(connection.transport, pool)

    manager.run(adopt)  # on the client's own thread, between two of its turns
