"""A pool of threads that draw pages and their charts, shared out fairly among clients.

In: a function and the client that asks for what it draws. Out: its result. Touches: threads.

A page takes up to some tenths of a second of Python, and one client may ask for many at once. Only some threads draw,
and clients take turns, as they do with questions: nobody waits behind all the charts of another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from starlette.concurrency import run_in_threadpool

from sketchstream.serve.clients.clients import CLIENT, REQUESTS
from sketchstream.serve.clients.fair_queue import FairQueue

MAX_DRAWING: Final = 3
"""Most threads that draw at a time: fewer than all threads, so that questions for data are answered meanwhile."""
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class DrawingPool:
    """Threads that draw, and the clients that wait for one. Only the event loop's thread calls it.

    Args:
        most: the most at a time; default: `MAX_DRAWING`.
    """

    def __init__(self, most: int | None = None) -> None:
        self._free = MAX_DRAWING if most is None else most
        self._waiting = FairQueue[asyncio.Future[None]](REQUESTS)

    async def run(self, draw: Callable[Arguments, Result], *args: Arguments.args, **more: Arguments.kwargs) -> Result:
        """Run a function that draws, in a thread, when it is its client's turn; return its result."""
        if self._free:
            self._free -= 1
        else:
            await self._wait_for_thread()
        try:
            return await run_in_threadpool(draw, *args, **more)
        finally:
            self._release_thread()

    async def _wait_for_thread(self) -> None:
        """Wait until it is this client's turn."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.put(turn, CLIENT.get())
        try:
            await turn
        except asyncio.CancelledError:
            self._waiting.remove(turn)
            if turn.done() and not turn.cancelled():  # the turn was given to a client that has just gone
                self._release_thread()
            raise

    def _release_thread(self) -> None:
        """Give a thread that is free again to the next client that waits."""
        while (turn := self._waiting.take()) is not None:
            if not turn.done():  # its client has not gone meanwhile
                turn.set_result(None)
                return
        self._free += 1
