"""`sketchstream serve`: answers over HTTP, and a page, from what the workers of a configuration published.

In: a configuration. Out: HTTP responses; log lines on standard error. Touches: the sealed topic or folder, reading; its
database; a listening socket; SIGINT and SIGTERM end it in order, SIGHUP has it read the file
of tokens again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from sketchstream.cli import options, show
from sketchstream.errors import optional_import
from sketchstream.log_events import EventLog, begin, writes_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sketchstream.config.loader import Config
    from sketchstream.serve.clients.access import Access
    from sketchstream.serve.edge.server import Server

event_log = EventLog("sketchstream.serve")

STOP_S: Final = 9.0
"""Longest time from a signal to the end of the process."""


@click.command()
@options.config()
@click.option("--port", type=click.IntRange(0, 65535), help="Port, 0 for any free one.  [default: of serve.address]")
@click.option("--host", help="Address to listen on.  [default: of serve.address]")
@click.option("--database", type=options.FILE, help="The database, in place of serve.database.")
@options.logged("info has a line for each request.")
def command(
    config_file: Path, port: int | None, host: str | None, database: Path | None, log_level: str, log_format: str
) -> None:
    r"""Follow what workers publish, reconstruct each window once, and answer: a page at /, the API at /v1.

    Only what was published is read: no key is needed, and no privacy is lost, however often it is asked. It listens on
    this machine only, unless [serve] says otherwise; other machines need tokens. It runs until it is stopped (SIGINT or
    SIGTERM), and continues where it was.

    \b
    Examples:
      sketchstream serve -c demo-output/sketchstream.toml
      sketchstream serve -c sketchstream.toml --port 8080
      curl 'http://127.0.0.1:8400/v1/sketches'
    """
    begin(log_level, log_format)
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    from sketchstream.config.loader import Config

    with optional_import("serve needs fastapi and uvicorn: pip install 'sketchstream[serve]'"):
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    config = Config.load(config_file)
    run(config, port, host, database)


def run(config: Config, port: int | None = None, host: str | None = None, database: Path | None = None) -> None:
    """Serve a configuration until a signal stops it.

    Args:
        config: configuration of the deployment.
        port: port to listen on in place of that of `serve.address`.
        host: host to listen on in place of that of `serve.address`.
        database: path of the database in place of `serve.database`.
    """
    from sketchstream.cli.commands.pipeline.worker import stopping
    from sketchstream.serve.app import create
    from sketchstream.serve.edge.server import Server, listening, url
    from sketchstream.serve.follower import Follower
    from sketchstream.serve.reconstruction.pool import Pool
    from sketchstream.serve.service import Service
    from sketchstream.serve.settings import ServeSettings
    from sketchstream.serve.store.store import Store
    from sketchstream_connectors.readers import open_feed

    settings = ServeSettings.from_config(config, port=port, host=host, database=database)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(listening(settings.address))
        feed, surroundings = stack.enter_context(open_feed(config))
        store = Store(settings.database, config, feed.identity, settings.retention_ms)
        stack.callback(store.close)
        pool = Pool(store, settings.text, settings.processes, settings.deadline_s)
        stack.callback(pool.close, STOP_S / 4)
        follower = Follower(store, feed, pool, surroundings, settings.refresh_s)
        stack.callback(follower.close, STOP_S / 4)
        server = Server(create(Service(store, pool, follower), settings.access), settings.proxies)
        if settings.in_clear is not None:
            event_log.warning("tokens_in_clear", settings.in_clear)
        with stopping(lambda: _finish(server)), settings.access.watched(), _reloading(settings.access):
            follower.start()
            pool.start()
            if writes_json():
                event_log.info("serving", url=url(listener))
            else:
                show.note(f"serving {url(listener)} (Ctrl-C ends it)")
            server.run(sockets=[listener])


def _finish(server: Server) -> None:
    """Have the server finish; if something blocks the end of the process, end it all the same.

    Nothing is lost: what is stored is stored whole, and what was computed is computed again.
    """

    def end() -> None:
        time.sleep(STOP_S)
        event_log.warning("ended_by_force", "a disk, a broker or a client does not answer")
        os._exit(0)

    threading.Thread(target=end, name="sketchstream-end", daemon=True).start()
    server.finish()


@contextlib.contextmanager
def _reloading(access: Access) -> Iterator[None]:
    """Have the file of tokens read again at each SIGHUP, within this block."""
    try:
        before = signal.signal(signal.SIGHUP, lambda _number, _frame: access.reload())
    except (AttributeError, ValueError):  # a system without this signal, or not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
