"""`sketchstream serve`: answers over HTTP, and a page, from what the workers of a configuration published.

In: a configuration. Out: HTTP responses; log lines on standard error. Touches: the sealed topic or folder, reading; its
database; a listening socket; SIGINT and SIGTERM end it in order.
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from sketchstream.cli import options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sketchstream.config.loader import Config
    from sketchstream.query.windows import Surroundings
    from sketchstream.serve.feed import Feed

LEVELS: Final = ("debug", "info", "warning", "error")


@click.command(short_help="Serve answers over HTTP, and a page, from what workers published.")
@options.config()
@click.option("--port", type=click.IntRange(0, 65535), help="Port, 0 for any free one.  [default: of serve.address]")
@click.option("--host", help="Address to listen on.  [default: of serve.address]")
@click.option("--database", type=options.FILE, help="The database, in place of serve.database.")
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True,
              help="What standard error shows; info has a line for each request.")  # fmt: skip
def command(config_file: Path, port: int | None, host: str | None, database: Path | None, log_level: str) -> None:
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
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    from sketchstream.config.loader import Config
    from sketchstream.errors import MissingExtraError

    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        msg = "serve needs starlette and uvicorn: pip install 'sketchstream[serve]'"
        raise MissingExtraError(msg) from None
    config = Config.load(config_file)
    run(config, port, host, database)


def run(config: Config, port: int | None = None, host: str | None = None, database: Path | None = None) -> None:
    """Serve a configuration until a signal stops it.

    Args:
        config: of the deployment.
        port: in place of that of `serve.address`.
        host: in place of that of `serve.address`.
        database: in place of `serve.database`.
    """
    from sketchstream.cli.commands.worker import stopping
    from sketchstream.serve.app import create
    from sketchstream.serve.follower import Follower
    from sketchstream.serve.pool import Pool
    from sketchstream.serve.server import Server, listening, url
    from sketchstream.serve.service import Service
    from sketchstream.serve.settings import ServeSettings
    from sketchstream.serve.store import Store

    settings = ServeSettings.of(config, port=port, host=host, database=database)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(listening(settings.address))
        feed, around = stack.enter_context(_published(config))
        store = Store(settings.database, config, feed.identity, settings.retention_ms)
        stack.callback(store.close)
        pool = Pool(store, settings.text, settings.processes, settings.deadline_s)
        stack.callback(pool.close)
        follower = Follower(store, feed, pool, around, settings.refresh_s)
        stack.callback(follower.close)
        server = Server(create(Service(store, pool, follower), settings.access))
        with stopping(server.finish):
            follower.start()
            pool.start()
            click.echo(f"sketchstream: serving {url(listener)} (Ctrl-C ends it)", err=True)
            server.run(sockets=[listener])


@contextlib.contextmanager
def _published(config: Config) -> Iterator[tuple[Feed, Surroundings | None]]:
    """The feed of a configuration: its topic if there is one, else its folder."""
    from sketchstream_connectors.published import open_feed

    with open_feed(config) as found:
        yield found
