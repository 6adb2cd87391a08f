"""Settings of the service: the keys of `[serve]`, and options that override them.

In: a configuration. Out: settings, checked as a whole. Touches: the file of tokens.
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sketchstream.config.addresses import address, is_loopback
from sketchstream.errors import ConfigError
from sketchstream.serve.clients.access import Access, TokenFile

if TYPE_CHECKING:
    from sketchstream.config.loader import Config


@dataclass(frozen=True)
class ServeSettings:
    """How the service runs.

    Args:
        address: host and port to listen on.
        database: path of the store.
        access: access rules.
        proxies: addresses of proxies, which say in X-Forwarded-For and -Proto who asks and how.
        retention_ms: age beyond which windows are dropped; None: all are kept.
        processes: number of processes that reconstruct windows.
        deadline_s: most seconds of one reconstruction.
        refresh_s: seconds between two readings of publications.
        text: text of the configuration file, for those processes.
    """

    address: tuple[str, int]
    database: Path
    access: Access
    proxies: tuple[str, ...]
    retention_ms: int | None
    processes: int
    deadline_s: float
    refresh_s: float
    text: str = field(repr=False)

    @classmethod
    def from_config(
        cls, config: Config, *, port: int | None = None, host: str | None = None, database: Path | None = None
    ) -> ServeSettings:
        """The settings of a configuration.

        Args:
            config: configuration of the deployment.
            port: port to listen on in place of that of `serve.address`.
            host: host to listen on in place of that of `serve.address`.
            database: path of the database in place of `serve.database`.

        Raises:
            ConfigError: the tokens cannot be read, or other machines could ask without one.
        """
        table = config.serve
        usual_host, usual_port = address(table.address, "serve.address")
        where = (usual_host if host is None else host.strip("[]"), usual_port if port is None else port)
        access = Access()
        if table.tokens is not None:
            file = TokenFile(config.resolve(table.tokens), [plan.name for plan in config.sketches])
            access = Access(file.read(), None, file)
        for proxy in table.proxies:
            _require_network(proxy)
        if not access.needed and not is_loopback(where[0]):
            raise ConfigError(
                f"{where[0]} can be reached from other machines, and anybody there could ask: set serve.tokens to a "
                "file of bearer tokens, or listen on 127.0.0.1"
            )
        return cls(
            address=where,
            database=config.resolve(table.database) if database is None else database,
            access=access,
            proxies=table.proxies,
            retention_ms=table.retention,
            processes=table.processes or max(1, (os.cpu_count() or 2) - 1),
            deadline_s=table.deadline / 1000,
            refresh_s=table.refresh / 1000,
            text=config.path.read_text(encoding="utf-8"),
        )

    @property
    def in_clear(self) -> str | None:
        """A warning if tokens would travel readable to others; None if they do not, as far as can be known."""
        if not self.access.needed or self.proxies or is_loopback(self.address[0]):
            return None
        return (
            f"{self.address[0]} can be reached from other machines without TLS: whoever is on the way reads tokens and "
            "answers. Put a proxy with TLS in front of the service, name it in serve.proxies (docs/serve.md has "
            "recipes), and let only the proxy reach this address"
        )


def _require_network(text: str) -> None:
    """Refuse texts that are neither an address nor a network."""
    try:
        ipaddress.ip_network(text)
    except ValueError:
        raise ConfigError(
            f"serve.proxies must hold addresses or networks, such as '127.0.0.1' or '10.0.0.0/8', found {text!r:.60}"
        ) from None
